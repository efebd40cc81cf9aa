#include "checkpoint/write/write_safetensors.h"

#include "checkpoint/shard_index.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

std::span<const std::byte> as_span(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const Checkpoint& checkpoint, std::string_view name) {
  const auto stored = checkpoint.find(name)->bytes;
  std::string text(stored.size(), '\0');
  checkpoint.read(stored, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(CheckpointWriter, WritesWhatTheReaderReads) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), {{"odd", DType::u8, {3}},
                                          {"scalar", DType::f32, {}},
                                          {"half", DType::bf16, {2, 1}},
                                          {"wide", DType::i64, {1}}});
  writer.write(0, 0, as_span("abc"));
  writer.write(1, 0, as_span("wxyz"));
  writer.write(2, 2, as_span("gh"));  // in pieces, the last first
  writer.write(2, 0, as_span("ef"));
  writer.write(3, 0, as_span("12345678"));
  writer.finish();
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.tensor_bytes(), writer.tensor_bytes());
  EXPECT_EQ(text_of(checkpoint, "odd"), "abc");
  EXPECT_EQ(text_of(checkpoint, "scalar"), "wxyz");
  EXPECT_EQ(text_of(checkpoint, "half"), "efgh");
  EXPECT_EQ(checkpoint.find("half")->shape, (Shape{2, 1}));
  // Every tensor lies where its elements may lie: elements() refuses other places.
  EXPECT_EQ(elements<float>(*checkpoint.find("scalar")).size(), 1u);
  EXPECT_EQ(elements<std::int64_t>(*checkpoint.find("wide")).size(), 1u);
}

TEST(CheckpointWriter, StartsAnotherFileBeforeOneGrowsTooLarge) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(),
                          {{"a", DType::u8, {60}}, {"b", DType::u8, {60}}, {"c", DType::u8, {300}}},
                          {.shard_bytes = 100});
  writer.finish();
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "model-00003-of-00003.safetensors"));
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.shards().size(), 3u);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(text_of(checkpoint, "a"), std::string(60, '\0'));  // nobody wrote it: a hole
}

TEST(CheckpointWriter, HolesTakeNoDisk) {
  TempFolder folder;
  constexpr std::int64_t bytes = std::int64_t{1} << 40;
  CheckpointWriter writer(folder.path(), {{"huge", DType::u8, {bytes}}, {"one", DType::f32, {}}},
                          {.shard_bytes = 1, .sparse = true});
  writer.write(1, 0, as_span("wxyz"));
  writer.finish();
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.find("huge")->bytes.size(), static_cast<std::size_t>(bytes));
  EXPECT_EQ(text_of(checkpoint, "one"), "wxyz");
}

TEST(CheckpointWriter, RefusesWhatTheDiskCannotHold) {
  TempFolder folder;
  constexpr std::int64_t bytes = std::int64_t{1} << 55;
  const std::string hint = expect_error(Code::io, {"takes 36,028,797,018,963,968 bytes", "left"}, [&] {
    CheckpointWriter(folder.path(), {{"huge", DType::u8, {bytes}}});
  });
  EXPECT_NE(hint.find("free space"), std::string::npos);
}

TEST(CheckpointWriter, RefusesANameTwice) {
  TempFolder folder;
  expect_error(Code::invalid_request, {"two tensors", "same"}, [&] {
    CheckpointWriter(folder.path(), {{"same", DType::u8, {1}}, {"same", DType::u8, {1}}});
  });
}

}  // namespace
}  // namespace fourfold::checkpoint
