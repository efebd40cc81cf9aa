#include "hub/listing.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fourfold::hub {
namespace {

constexpr const char* kSha1 = "0123456789abcdef0123456789abcdef01234567";
const std::string kSha256 = std::string(64, 'a');

std::string small(const std::string& name) {
  return "{\"rfilename\": \"" + name + "\", \"size\": 7, \"blobId\": \"" + kSha1 + "\"}";
}
std::string large(const std::string& name) {
  return "{\"rfilename\": \"" + name + "\", \"size\": 130, \"blobId\": \"" + kSha1 +
         "\", \"lfs\": {\"sha256\": \"" + kSha256 + "\", \"size\": 5000000000, \"pointerSize\": 130}}";
}
std::string listing(const std::string& files) {
  return std::string("{\"sha\": \"") + kSha1 + "\", \"siblings\": [" + files + "]}";
}
std::string refusal(const std::string& text) {
  try {
    require_weights(parse_listing(text, "org/name"), "org/name");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Listing, SizesAndHashes) {
  const Listing found =
      parse_listing(listing(small("config.json") + "," + large("model.safetensors")), "org/name");
  EXPECT_EQ(found.commit, kSha1);
  ASSERT_EQ(found.files.size(), 2u);
  EXPECT_EQ(found.find("config.json")->etag, kSha1);
  EXPECT_EQ(found.find("config.json")->size, 7u);
  EXPECT_FALSE(found.find("config.json")->large);
  EXPECT_EQ(found.find("model.safetensors")->etag, kSha256);
  EXPECT_EQ(found.find("model.safetensors")->size, 5'000'000'000u);
  EXPECT_TRUE(found.find("model.safetensors")->large);
  EXPECT_EQ(found.find("tokenizer.json"), nullptr);
}

TEST(Listing, TheConfigComesLast) {
  const auto files = small_files(parse_listing(
      listing(small("config.json") + "," + small("README.md") + "," + small("tokenizer.json")), "m"));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "tokenizer.json");
  EXPECT_EQ(files[1].name, "config.json");
}

TEST(Listing, NamesThatAreNoPlainFilesAreLeftOut) {
  const std::string names = small("../config.json") + "," + small("a/config.json") + "," + small("") + "," +
                            small(".config.json") + "," + small("a\\\\b.json") + "," + small("x\\ny.json");
  EXPECT_TRUE(parse_listing(listing(names), "m").files.empty());
}

TEST(Listing, WhatIsNoListingIsRefused) {
  const char* none = "lists no files of a commit";
  EXPECT_NE(refusal("[]").find(none), std::string::npos);
  EXPECT_NE(refusal("{\"sha\": \"../..\", \"siblings\": []}").find(none), std::string::npos);
  EXPECT_NE(refusal(std::string("{\"sha\": \"") + kSha1 + "\"}").find(none), std::string::npos);
  EXPECT_NE(refusal("<html>").find("org/name: "), std::string::npos);
  const std::string no_hash = "{\"rfilename\": \"config.json\", \"size\": 7}";
  EXPECT_NE(refusal(listing(no_hash)).find("no size and hash of config.json"), std::string::npos);
  const std::string negative =
      std::string("{\"rfilename\": \"config.json\", \"size\": -1, \"blobId\": \"") + kSha1 + "\"}";
  EXPECT_NE(refusal(listing(negative)).find("no size and hash of config.json"), std::string::npos);
  EXPECT_NE(refusal(listing(small("config.json") + "," + small("config.json"))).find("twice"),
            std::string::npos);
  EXPECT_NE(
      refusal(listing(small("config.json") + "," + small("x.gguf"))).find("there is config.json, x.gguf"),
      std::string::npos);
  EXPECT_EQ(refusal(listing(small("config.json") + "," + large("model.safetensors"))), "");
}

}  // namespace
}  // namespace fourfold::hub
