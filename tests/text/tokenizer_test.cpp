// Ids and text against golden files written by the `tokenizers` package (tools/text/make_golden_text.py).
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/fuzz_strings.h"
#include "text/detokenizer.h"

namespace fourfold::text {
namespace {

const char* const kFamilies[] = {"qwen2",    "qwen35", "llama3", "o200k", "tekken",
                                 "deepseek", "gpt2",   "digits", "qwen3"};

Tokenizer load_family(const std::string& name) {
  const std::string folder = name == "qwen3" ? FOURFOLD_TEXT_UNPACKED : FOURFOLD_TEXT_GOLDEN;
  return Tokenizer::load(folder + "/" + name + ".tokenizer.json");
}

std::string bytes_of_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

std::vector<TokenId> ids_of(const boost::json::value& list) {
  return boost::json::value_to<std::vector<TokenId>>(list);
}

class TokenizerFamily : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFamily, EncodesAndDecodesTheNamedTexts) {
  const Tokenizer tokenizer = load_family(GetParam());
  const auto vectors = read_golden("vectors.json");
  ASSERT_GE(vectors.at(GetParam()).at("encode").as_array().size(), 28u);
  for (const auto& row : vectors.at(GetParam()).at("encode").as_array()) {
    const std::string text = bytes_of_hex(row.at("bytes").as_string());
    SCOPED_TRACE(std::string(row.at("bytes").as_string()));
    const auto ids = tokenizer.encode(text);
    EXPECT_EQ(ids, ids_of(row.at("ids")));
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = false, .special_as_text = true}),
              ids_of(row.at("special_as_text")));
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true, .special_as_text = false}),
              ids_of(row.at("with_special")));
    EXPECT_EQ(tokenizer.decode(ids), std::string(row.at("decoded").as_string()));
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = true}), std::string(row.at("skipped").as_string()));
  }
}

TEST_P(TokenizerFamily, DecodesRandomIdsWithBrokenCharacters) {
  const Tokenizer tokenizer = load_family(GetParam());
  const auto vectors = read_golden("vectors.json");
  for (const auto& row : vectors.at(GetParam()).at("decode").as_array()) {
    const auto ids = ids_of(row.at("ids"));
    EXPECT_EQ(tokenizer.decode(ids), std::string(row.at("text").as_string()));
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = true}), std::string(row.at("skipped").as_string()));
  }
}

TEST_P(TokenizerFamily, AgreesOn300000FuzzedStrings) {
  const Tokenizer tokenizer = load_family(GetParam());
  const auto pieces = load_fuzz_pieces();
  const auto golden = read_golden("fuzz_hashes.json");
  const auto seed = static_cast<std::uint64_t>(golden.at("seed").as_int64());
  const auto block = static_cast<std::uint64_t>(golden.at("block").as_int64());
  const auto& hashes = golden.at("families").at(GetParam()).as_array();
  ASSERT_EQ(hashes.size() * block, 300'000u);
  std::uint64_t index = 0, differing_blocks = 0;
  for (const auto& expected : hashes) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (std::uint64_t i = 0; i < block; ++i)
      hash = hash_ids(tokenizer.encode(fuzz_string(pieces, seed, index++)), hash);
    differing_blocks += hash != std::stoull(std::string(expected.as_string()), nullptr, 16);
  }
  EXPECT_EQ(differing_blocks, 0u) << "of " << hashes.size() << " blocks of " << block << " strings";
}

TEST_P(TokenizerFamily, GivesBackValidTextUnlessItWasNormalised) {
  const Tokenizer tokenizer = load_family(GetParam());
  const auto pieces = load_fuzz_pieces();
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    const std::string text = fuzz_string(pieces, 77, i);
    const std::string back = tokenizer.decode(tokenizer.encode(text));
    if (!tokenizer.normalises() && std::string_view(GetParam()) != "o200k") {
      EXPECT_EQ(back, text);
    } else {
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(back)),
                back);  // o200k's file strips spaces around some tokens
    }
  }
}

TEST_P(TokenizerFamily, StreamsExactlyWhatItDecodes) {
  const Tokenizer tokenizer = load_family(GetParam());
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids(1 + random.below(30));
    for (TokenId& id : ids) id = static_cast<TokenId>(random.below(random.below(2) ? 300 : 1'000'000)) - 3;
    Detokenizer stream(tokenizer);
    std::string text;
    for (const TokenId id : ids) {
      const std::string part = stream.push(id);
      EXPECT_TRUE(is_valid_utf8(part));
      text += part;
    }
    text += stream.finish();
    EXPECT_EQ(text, tokenizer.decode(ids));
    EXPECT_FALSE(stream.holds_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerFamily, testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param); });

TEST(Tokenizer, TakesInvalidUtf8AsReplacementCharacters) {
  const Tokenizer tokenizer = load_family("gpt2");
  Random random(9);
  for (int round = 0; round < 2'000; ++round) {
    std::string bytes(random.below(20), '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random.below(2) ? random.below(256) : 0xC0 + random.below(64));
    EXPECT_EQ(tokenizer.encode(bytes), tokenizer.encode(repaired(bytes)));
  }
}

TEST(Tokenizer, SurvivesAMegabyteOfOneKind) {
  const Tokenizer tokenizer = load_family("qwen3");
  for (const char* unit : {" ", "\n", "a", "\xCC\x81", "'", "\xF0\x9F\x98\x80", "<|im_", "1"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << unit;
  }
}

TEST(Tokenizer, KnowsItsAddedTokens) {
  const Tokenizer tokenizer = load_family("qwen3");
  EXPECT_EQ(tokenizer.added_token("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer.added_token("<|nothing|>"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(151645));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.added_token("<think>")));
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.added_token("</think>")), "</think>");
  EXPECT_EQ(tokenizer.id_limit(), 151669);
  EXPECT_EQ(tokenizer.token_bytes(200'000), "");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
}

}  // namespace
}  // namespace fourfold::text
