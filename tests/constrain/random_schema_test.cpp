// Random schemas, random answers: every answer that follows the masks validates, every allowed token leads to
// an end, and every valid document is allowed however it is cut into tokens. FOURFOLD_CONSTRAIN_ANSWERS names
// a file that gets the schemas and answers for another validator (check_with_jsonschema.py).
#include "tests/constrain/random_schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/constrain/accepts.h"
#include "tests/constrain/random_instance.h"

namespace fourfold::constrain {
namespace {

constexpr int kSchemas = 210;

struct Model {
  Model() : tokenizer(text::Tokenizer::load(FOURFOLD_TEXT_GOLDEN "/qwen35.tokenizer.json")) {
    stop = *tokenizer.added_token("<|im_end|>");
    vocabulary = std::make_shared<Vocabulary>(tokenizer, std::span(&stop, 1), tokenizer.id_limit());
  }
  text::Tokenizer tokenizer;
  TokenId stop;
  std::shared_ptr<const Vocabulary> vocabulary;
};

const Model& model() {
  static const Model one;
  return one;
}

// How many bytes a text still needs, at least, from the shortest ways through the rules.
class Completer {
 public:
  explicit Completer(const Grammar& grammar) : grammar_(grammar), to_end_(grammar.state_count(), kFar) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::uint32_t state = 0; state < grammar.state_count(); ++state) {
        std::int64_t best = grammar.is_final(state) ? 0 : kFar;
        for (const auto& edge : grammar.edges(state)) best = std::min(best, 1 + to_end_[edge.to]);
        for (const auto& call : grammar.calls(state))
          best = std::min(best, to_end_[grammar.entry(call.rule)] + to_end_[call.to]);
        if (best < to_end_[state]) {
          to_end_[state] = best;
          changed = true;
        }
      }
    }
  }

  std::int64_t needed(const Runner& runner, Runner::SetId set) {
    if (runner.may_end(set)) return 0;
    std::int64_t best = kFar;
    for (const auto& reading : runner.kernel(set))
      best = std::min(best, to_end_[reading.state] + below(runner, reading.stack));
    return best;
  }

  // The text that ends it soonest.
  std::string ending(Runner& runner, Runner::SetId set) {
    std::string text;
    while (!runner.may_end(set)) {
      const std::int64_t now = needed(runner, set);
      int taken = -1;
      Runner::SetId next = Runner::kDead;
      for (int byte = 0; byte < 256 && taken < 0; ++byte) {
        next = runner.step(set, static_cast<std::uint8_t>(byte));
        if (next != Runner::kDead && needed(runner, next) < now) taken = byte;
      }
      EXPECT_GE(taken, 0) << "no way to the end";
      if (taken < 0) return text;
      text += static_cast<char>(taken);
      set = next;
    }
    return text;
  }

  static constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();

 private:
  std::int64_t below(const Runner& runner, Runner::StackId stack) {
    if (runner.is_lowest(stack)) return 0;
    std::int64_t best = kFar;
    for (const auto& back : runner.returns(stack))
      best = std::min(best, to_end_[back.state] + below(runner, back.stack));
    return best;
  }

  const Grammar& grammar_;
  std::vector<std::int64_t> to_end_;
};

std::vector<TokenId> allowed(engine::TokenGuide& guide) {
  const Vocabulary& vocabulary = *model().vocabulary;
  std::vector<std::uint64_t> bits(vocabulary.word_count());
  guide.allowed(bits);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < bits.size(); ++i)
    for (std::uint64_t word = bits[i]; word != 0; word &= word - 1)
      tokens.push_back(static_cast<TokenId>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
  return tokens;
}

bool is_allowed(engine::TokenGuide& guide, TokenId token) {
  const auto tokens = allowed(guide);
  return std::binary_search(tokens.begin(), tokens.end(), token);
}

// Random tokens for a while, then the shortest way out, every byte of it by its own token.
std::string random_answer(const std::shared_ptr<const Masks>& masks, Random& random) {
  const Vocabulary& vocabulary = masks->vocabulary();
  auto guide = make_guide(masks);
  Runner runner(masks->grammar());
  Runner::SetId set = runner.start_at(masks->grammar().start());
  Completer completer(masks->grammar());
  std::string text;
  const auto take = [&](TokenId token) {
    guide->accept(token);
    for (const char c : vocabulary.bytes(token)) set = runner.step(set, static_cast<std::uint8_t>(c));
    text += vocabulary.bytes(token);
  };
  for (std::uint64_t left = random.below(40); left > 0; --left) {
    const auto tokens = allowed(*guide);
    EXPECT_FALSE(tokens.empty()) << text;
    const TokenId token = tokens[random.below(tokens.size())];
    if (token == model().stop) return text;
    take(token);
    EXPECT_LT(completer.needed(runner, set), Completer::kFar) << text;
  }
  for (const char c : completer.ending(runner, set)) {
    const auto tokens = allowed(*guide);
    const auto byte = std::find_if(tokens.begin(), tokens.end(), [&](TokenId token) {
      return vocabulary.bytes(token) == std::string_view(&c, 1);
    });
    EXPECT_NE(byte, tokens.end()) << text << " then " << c;
    if (byte == tokens.end()) return text;
    take(*byte);
  }
  EXPECT_TRUE(is_allowed(*guide, model().stop)) << text;
  return text;
}

// Any cut into tokens, not only the tokenizer's own.
std::vector<TokenId> random_cut(std::string_view text, Random& random) {
  const Vocabulary& vocabulary = *model().vocabulary;
  std::vector<TokenId> cut;
  while (!text.empty()) {
    std::vector<TokenId> fitting;
    for (std::uint32_t at = 1; at < vocabulary.node_count();) {
      const auto& node = vocabulary.node(at);
      if (node.depth > text.size() || static_cast<std::uint8_t>(text[node.depth - 1u]) != node.byte) {
        at = node.skip;
        continue;
      }
      for (const TokenId token : vocabulary.tokens(at, at + 1)) fitting.push_back(token);
      ++at;
    }
    cut.push_back(fitting[random.below(fitting.size())]);
    text.remove_prefix(vocabulary.bytes(cut.back()).size());
  }
  return cut;
}

void expect_allowed(const std::shared_ptr<const Masks>& masks, const std::string& text, Random& random) {
  for (const auto& tokens : {model().tokenizer.encode(text), random_cut(text, random)}) {
    auto guide = make_guide(masks);
    std::string read;
    for (const TokenId token : tokens) {
      ASSERT_TRUE(is_allowed(*guide, token)) << text << "\nafter " << read;
      guide->accept(token);
      read += masks->vocabulary().bytes(token);
    }
    ASSERT_TRUE(is_allowed(*guide, model().stop)) << text;
  }
}

TEST(RandomSchema, AnswersValidateAndValidDocumentsAreAllowed) {
  const char* path = std::getenv("FOURFOLD_CONSTRAIN_ANSWERS");
  std::ofstream file;
  if (path) file.open(path);
  for (std::uint64_t seed = 0; seed < kSchemas; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bj::object schema = RandomSchema(seed).make();
    const std::string schema_text = bj::serialize(schema);
    SCOPED_TRACE(schema_text);
    const auto masks = std::make_shared<const Masks>(model().vocabulary, compile_json_schema(schema_text));
    Random random(seed + 1000);
    const Validator validator(schema);
    for (int round = 0; round < 3; ++round) {
      const std::string answer = random_answer(masks, random);
      boost::system::error_code code;
      const bj::value value = bj::parse(answer, code);
      ASSERT_FALSE(code) << answer;
      ASSERT_TRUE(validator.holds(schema, value)) << answer;
      if (file)
        file << "[" << schema_text << "," << answer << "]\x1E";  // JSON holds no raw control character
    }
    RandomInstance instances(schema, random);
    for (int round = 0; round < 3; ++round) {
      const std::optional<bj::value> document = instances.make(schema);
      if (!document) continue;
      ASSERT_TRUE(validator.holds(schema, *document)) << bj::serialize(*document);
      for (const JsonStyle style : {JsonStyle::compact, JsonStyle::spaced, JsonStyle::indented})
        expect_allowed(masks, dump(*document, style), random);
    }
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace fourfold::constrain
