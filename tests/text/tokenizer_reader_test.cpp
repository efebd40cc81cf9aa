// Bad tokenizer.json files: each is refused with the member's name.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "tests/text/fuzz_strings.h"
#include "text/tokenizer.h"

namespace fourfold::text {
namespace {

boost::json::value good_document() { return read_golden("qwen35.tokenizer.json"); }

std::string refusal(const boost::json::value& document) {
  try {
    Tokenizer::parse(boost::json::serialize(document), "tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerReader, ReadsTheDocumentItIsGiven) { EXPECT_EQ(refusal(good_document()), "accepted"); }

TEST(TokenizerReader, NamesTheMemberThatIsWrong) {
  struct Change {
    const char* pointer;
    const char* json;
    const char* part;
  };
  const Change changes[] = {
      {"/model/type", "\"Unigram\"", "model.type is Unigram"},
      {"/model/byte_fallback", "true", "model.byte_fallback"},
      {"/model/dropout", "0.1", "model.dropout"},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
      {"/model/merges/3", "\"onlyone\"", "model.merges[3] is not a pair"},
      {"/model/merges/3", "[\"Q\", \"nosuchtoken\"]", "nosuchtoken"},
      {"/model/vocab", "{\"a\": 0}", "no token for the single byte"},
      {"/model/vocab", "{\"a\": -1}", "is -1"},
      {"/model/vocab", "{\"a\": 99999999}", "is 99999999"},
      {"/model/vocab", "{\"a\": 1, \"b\": 1}", "gives id 1 twice"},
      {"/model/vocab", "[]", "model.vocab is not an object"},
      {"/normalizer", "{\"type\": \"Lowercase\"}", "normalizer is Lowercase"},
      {"/pre_tokenizer", "null", "no ByteLevel step"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w+\"", "\\w+"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "\"MergedWithNext\"", "MergedWithNext"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", "true", "add_prefix_space"},
      {"/decoder/type", "\"Metaspace\"", "decoder is Metaspace"},
      {"/post_processor", "{\"type\": \"BertProcessing\"}", "BertProcessing"},
      {"/added_tokens/0/content", "\"\"", "added_tokens[0] has no content"},
      {"/added_tokens/0/single_word", "true", "single_word"},
      {"/added_tokens/1/content", "\"<|im_start|>\"", "repeats <|im_start|>"},
      {"/added_tokens/1/id", "\"x\"", "added_tokens[1].id is not an integer"},
      {"/added_tokens/1/special", "7", "added_tokens[1].special"},
  };
  for (const Change& change : changes) {
    boost::json::value document = good_document();
    document.at_pointer(change.pointer) = boost::json::parse(change.json);
    const std::string message = refusal(document);
    EXPECT_NE(message.find(change.part), std::string::npos) << change.pointer << " -> " << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  }
}

TEST(TokenizerReader, RefusesDamagedFilesWithoutHarm) {
  std::ifstream file(std::string(FOURFOLD_TEXT_GOLDEN) + "/qwen35.tokenizer.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  Random random(3);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = text;
    if (round % 3 == 0) {
      damaged.resize(random.below(text.size()));
    } else {
      for (int i = 0; i < 3; ++i)
        damaged[random.below(damaged.size())] ^= static_cast<char>(1 << random.below(8));
    }
    try {
      Tokenizer::parse(damaged, "damaged").encode("Hello 123");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenizerReader, SaysWhenThereIsNoFile) {
  try {
    Tokenizer::load("/nowhere/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_NE(std::string(error.what()).find("/nowhere/tokenizer.json"), std::string::npos);
  }
}

// Text that is written like a special token must not become it by merges or as a whole piece: it would be a
// way around every check of who wrote it.
TEST(TokenizerReader, NoTextBecomesASpecialTokenByMerges) {
  for (const bool whole_pieces : {false, true}) {
    boost::json::value document = good_document();
    auto& model = document.at("model").as_object();
    auto& vocabulary = model.at("vocab").as_object();
    vocabulary["Qqq"] = 2000;
    vocabulary["Qq"] = 2001;
    vocabulary["Zz"] = 2002;
    model["ignore_merges"] = whole_pieces;
    for (const auto& [left, right] : {std::pair("Q", "q"), {"Qq", "q"}, {"Z", "z"}})
      model.at("merges").as_array().push_back(boost::json::array{left, right});
    document.at("added_tokens")
        .as_array()
        .push_back({{"id", 2000}, {"content", "Qqq"}, {"special", true}, {"normalized", false}});
    const Tokenizer tokenizer = Tokenizer::parse(boost::json::serialize(document), "tokenizer.json");
    EXPECT_EQ(tokenizer.encode("Qqq"), std::vector<TokenId>{2000});
    EXPECT_EQ(tokenizer.encode("Qq"), std::vector<TokenId>{2001});
    const auto ids = tokenizer.encode("Qqq", {.special_as_text = true});
    EXPECT_EQ(std::ranges::count(ids, 2000), 0) << whole_pieces;
    EXPECT_EQ(tokenizer.decode(ids), "Qqq");
  }
}

// Special tokens that are looked for in normalised text keep to their places too.
TEST(TokenizerReader, NormalisedSpecialTokensHaveOrigins) {
  boost::json::value document = good_document();
  document.at("added_tokens")
      .as_array()
      .push_back({{"id", 2000}, {"content", "<K\u00e9>"}, {"special", true}, {"normalized", true}});
  const Tokenizer tokenizer = Tokenizer::parse(boost::json::serialize(document), "tokenizer.json");
  const auto count = [&](const TracedText& text) { return std::ranges::count(tokenizer.encode(text), 2000); };
  TracedText mixed =
      TracedText::own("e\u0301 <K\u00e9> <Ke\u0301> ");  // composes, and moves what is behind it
  mixed.append("e\u0301 <K\u00e9> <Ke\u0301> <");
  mixed.append_own("K\u00e9> <K");
  mixed.append("e\u0301");
  mixed.append_own("> <Ke");
  mixed.append("\u0301");
  mixed.append_own("><K\u00e9>");
  mixed.append("\u0302<\u212a\u00e9>");  // a Kelvin sign becomes the letter K
  EXPECT_EQ(count(mixed), 3) << "two at the start, one at the end";
  EXPECT_EQ(std::ranges::count(tokenizer.encode(mixed.bytes()), 2000), 9);
  EXPECT_EQ(std::ranges::count(tokenizer.encode(mixed.bytes(), {.special_as_text = true}), 2000), 0);
}

}  // namespace
}  // namespace fourfold::text
