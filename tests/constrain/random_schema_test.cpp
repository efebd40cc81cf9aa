// Random schemas, random answers: every answer that follows the masks validates, every allowed token leads to
// an end, and every valid document is allowed however it is cut into tokens. FOURFOLD_CONSTRAIN_ANSWERS names
// a file that gets the schemas and answers for another validator (check_with_jsonschema.py).
#include "tests/constrain/random_schema.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/constrain/random_answer.h"
#include "tests/constrain/random_instance.h"

namespace fourfold::constrain {
namespace {

constexpr int kSchemas = 210;

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
