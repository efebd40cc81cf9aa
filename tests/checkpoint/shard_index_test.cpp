#include "checkpoint/shard_index.h"

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

std::string index_of(const std::vector<std::pair<std::string, std::string>>& shards) {
  JsonWriter json;
  json.begin_object().key("metadata").begin_object().member("total_size", 1).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [tensor, file] : shards) json.member(tensor, file);
  return json.end_object().end_object().finish();
}

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(Checkpoint, FindsTensorsOfAllShards) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_file({random_bf16("b", {2}), random_bf16("d", {3})}));
  folder.write("s2.safetensors", safetensors_file({random_bf16("a", {4}), random_bf16("c", {5})}));
  folder.write(kIndex, index_of({{"a", "s2.safetensors"},
                                 {"b", "s1.safetensors"},
                                 {"c", "s2.safetensors"},
                                 {"d", "s1.safetensors"}}));
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 4u);
  EXPECT_EQ(checkpoint.tensor_bytes(), 2u * (2 + 3 + 4 + 5));
  ASSERT_NE(checkpoint.find("c"), nullptr);
  EXPECT_EQ(checkpoint.find("c")->shape, (Shape{5}));
  EXPECT_EQ(checkpoint.find("cc"), nullptr);
  EXPECT_EQ(checkpoint.find(""), nullptr);

  const TensorView& tensor = *checkpoint.find("d");
  std::string copy(tensor.bytes.size(), '\0');
  checkpoint.read(tensor.bytes, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, random_bf16("d", {3}).bytes);
}

TEST(Checkpoint, AnUnshardedModelNeedsNoIndex) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_file({random_bf16("a", {2})}));
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 1u);
}

TEST(Checkpoint, FollowsTheLinksOfTheHubCache) {
  TempFolder folder;
  folder.write("blobs/0123", safetensors_file({random_bf16("a", {2})}));
  std::filesystem::create_directories(folder.path() / "snapshots" / "abc");
  std::filesystem::create_symlink("../../blobs/0123",
                                  folder.path() / "snapshots" / "abc" / "model.safetensors");
  EXPECT_EQ(Checkpoint(folder.path() / "snapshots" / "abc").tensors().size(), 1u);
}

TEST(Checkpoint, RefusesShardsOutsideTheFolder) {
  for (const char* name :
       {"../other.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "model.bin",
        ".safetensors", "", ".hidden.safetensors", "a.safetensors/"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    folder.write(kIndex, index_of({{"a", name}}));
    expect_error(Code::bad_checkpoint, {"names the shard", kIndex}, [&] { Checkpoint{folder.path()}; });
  }
}

TEST(Checkpoint, RefusesBadIndexFiles) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "there is no object \"weight_map\""},
      {"{}", "there is no object \"weight_map\""},
      {R"({"weight_map": []})", "there is no object"},
      {R"({"weight_map": {}})", "names no tensor"},
      {R"({"weight_map": {"a": 1}})", "the shard of tensor a"},
      {R"({"weight_map": {"a": "x.safetensors", "a": "y"}})", "two members"},
      {"{", "not valid JSON"}};
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    TempFolder folder;
    folder.write(kIndex, text);
    expect_error(Code::bad_checkpoint, {message}, [&] { Checkpoint{folder.path()}; });
  }
}

TEST(Checkpoint, NamesEveryMissingShardAtOnce) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_file({random_bf16("a", {2})}));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s3.safetensors"}}));
  const std::string hint =
      expect_error(Code::bad_checkpoint, {"2 shards missing: s2.safetensors, s3.safetensors"},
                   [&] { Checkpoint{folder.path()}; });
  EXPECT_NE(hint.find("incomplete"), std::string::npos);
}

TEST(Checkpoint, ListsWhatIndexAndShardsDisagreeOn) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_file({random_bf16("a", {2}), random_bf16("extra", {2})}));
  folder.write("s2.safetensors", safetensors_file({random_bf16("b", {2})}));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}}));
  expect_error(Code::bad_checkpoint,
               {"2 promised by the index but missing: b in s1.safetensors, c in s2.safetensors",
                "2 stored but not in the index: extra in s1.safetensors, b in s2.safetensors"},
               [&] { Checkpoint{folder.path()}; });
}

TEST(Checkpoint, SaysWhatIsThereInstead) {
  TempFolder folder;
  folder.write("pytorch_model.bin", "code that is never run");
  const std::string hint =
      expect_error(Code::bad_checkpoint, {"holds neither"}, [&] { Checkpoint{folder.path()}; });
  EXPECT_NE(hint.find("pytorch_model.bin"), std::string::npos);
  expect_error(Code::io, {"no such folder"}, [&] { Checkpoint{folder.path() / "absent"}; });
  std::filesystem::create_symlink("gone", folder.path() / "model.safetensors");
  expect_error(Code::io, {"model.safetensors: cannot be opened"}, [&] { Checkpoint{folder.path()}; });
}

TEST(Checkpoint, AFileThatShrinksIsAnErrorOfRead) {
  TempFolder folder;
  const auto path = folder.write("model.safetensors", safetensors_file({random_bf16("a", {100'000})}));
  const Checkpoint checkpoint(folder.path());
  std::filesystem::resize_file(path, 1000);
  std::string copy(200'000, '\0');
  expect_error(Code::io, {"ended at byte"}, [&] {
    checkpoint.read(checkpoint.find("a")->bytes, std::as_writable_bytes(std::span(copy)));
  });
}

TEST(Checkpoint, WhatNobodyHasWrittenIsReadAsZeros) {
  const Checkpoint checkpoint("a shape", {{"b", DType::f32, {2}, 0, 8}, {"a", DType::bf16, {3, 1}, 8, 14}});
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(checkpoint.tensor_bytes(), 14u);
  const TensorView* b = checkpoint.find("b");
  ASSERT_NE(b, nullptr);
  std::vector<float> values{1, 2};
  checkpoint.read(b->bytes, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace fourfold::checkpoint
