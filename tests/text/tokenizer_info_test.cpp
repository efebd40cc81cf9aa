#include "text/tokenizer_info.h"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <fstream>

#include "base/error.h"
#include "json/parse.h"

namespace fourfold::text {
namespace {

// A model's folder, removed with what is in it.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fourfold-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder: " + pattern);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, std::string_view text) const { std::ofstream(path_ / name) << text; }

 private:
  std::filesystem::path path_;
};

TEST(TokenizerInfo, IsTheConfigWithTokensAsText) {
  const Folder folder;
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "Qwen2Tokenizer", "vocab_file": "/home/me/vocab.json",
    "merges_file": null, "bos_token": null, "eos_token": {"__type": "AddedToken", "content": "<end>", "lstrip": false},
    "added_tokens_decoder": {"5": {"content": "<end>", "lstrip": false, "special": true}},
    "additional_special_tokens": ["<a>", {"content": "<b>", "lstrip": false}], "model_max_length": 4096})");
  const auto info = json::parse(
      tokenizer_info(folder.path(), ChatTemplate::parse("{{ messages }}", "name"), "<other>"), "info");
  EXPECT_EQ(info.at("eos_token").as_string(), "<end>");
  EXPECT_TRUE(info.at("bos_token").is_null());
  EXPECT_EQ(info.at("tokenizer_class").as_string(), "Qwen2Tokenizer");
  EXPECT_EQ(info.at("added_tokens_decoder").at("5").as_string(), "<end>");
  EXPECT_EQ(info.at("additional_special_tokens").at(1).as_string(), "<b>");
  EXPECT_EQ(info.at("model_max_length").to_number<int>(), 4096);
  EXPECT_EQ(info.at("chat_template").as_string(), "{{ messages }}");
  EXPECT_FALSE(info.as_object().contains("vocab_file"));
  EXPECT_FALSE(info.as_object().contains("merges_file"));
}

TEST(TokenizerInfo, StandsWithoutAConfig) {
  const Folder folder;
  const auto info = json::parse(tokenizer_info(folder.path(), std::nullopt, "<other>"), "info");
  EXPECT_EQ(info.at("eos_token").as_string(), "<other>");
  EXPECT_EQ(info.at("tokenizer_class").as_string(), "PreTrainedTokenizerFast");
  EXPECT_FALSE(info.as_object().contains("chat_template"));
  folder.write("tokenizer_config.json", "[]");
  EXPECT_THROW(tokenizer_info(folder.path(), std::nullopt, ""), Error);
}

}  // namespace
}  // namespace fourfold::text
