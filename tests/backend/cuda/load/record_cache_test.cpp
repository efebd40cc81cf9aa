#include "backend/cuda/load/record_cache.h"

#include <cstring>
#include <numeric>

#include "tests/checkpoint/support.h"

namespace fourfold::backend::cuda {
namespace {

using checkpoint::expect_error;
using checkpoint::TempFolder;

constexpr CacheKey kKey{{1, 2, 3}, WeightFormat::fp8};
constexpr std::uint64_t kLarge = 2 * kCacheBlockBytes + 77;

std::vector<std::byte> pattern(std::uint64_t bytes, unsigned factor) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * factor + (i >> 9));
  return data;
}

// A large piece in two parts and a small one.
void write_two(const std::filesystem::path& path, const CacheKey& key = kKey) {
  CacheWriter writer(path, key, kLarge + 12);
  const auto large = pattern(kLarge, 3), small = pattern(12, 5);
  writer.begin("large", kLarge);
  writer.write(std::span(large).first(kCacheBlockBytes));
  writer.write(std::span(large).subspan(kCacheBlockBytes));
  writer.begin("small", 12);
  writer.write(small);
  writer.publish();
}

void flip(const std::filesystem::path& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(RecordCache, GivesBackWhatWasWritten) {
  const TempFolder folder;
  const auto path = folder.path() / "new folder" / "a.records";
  write_two(path);
  EXPECT_EQ(files_in(path.parent_path()), 1u) << "no partial file is left";
  CacheReader reader(path, kKey);
  EXPECT_EQ(reader.piece_bytes(), kLarge + 12);
  const auto large = reader.take("large", kLarge), small = reader.take("small", 12);
  std::vector<std::byte> got(kLarge);
  reader.read(large, 0, got);
  EXPECT_EQ(got, pattern(kLarge, 3));
  got.resize(kLarge - kCacheBlockBytes);
  reader.read(large, kCacheBlockBytes, got);
  EXPECT_EQ(got.front(), pattern(kLarge, 3)[kCacheBlockBytes]);
  got.resize(12);
  reader.read(small, 0, got);
  EXPECT_EQ(got, pattern(12, 5));
}

// Copies of earlier versions stay readable: the header's number for --dense is part of the file's format.
TEST(RecordCache, DenseIsANumberOfTheFile) {
  const TempFolder folder;
  const auto path = folder.path() / "a.records";
  const std::pair<DenseWeights, char> numbers[] = {
      {std::nullopt, 0}, {WeightFormat::fp8, 1}, {WeightFormat::nvfp4, 2}};
  for (const auto& [dense, number] : numbers) {
    write_two(path, {{1, 2, 3}, dense});
    EXPECT_EQ(checkpoint::read_file(path)[48], number);
    EXPECT_NO_THROW(CacheReader(path, {{1, 2, 3}, dense}));
  }
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::mxfp4, WeightFormat::f32})
    expect_error(Code::internal, {std::string(format_name(format))}, [&] {
      write_two(path, {{1, 2, 3}, format});
    });
}

TEST(RecordCache, RefusesTheCopyOfAnotherCheckpointOrForm) {
  const TempFolder folder;
  const auto path = folder.path() / "a.records";
  write_two(path);
  const auto refuses = [&](const CacheKey& key, const std::string& why) {
    const std::string hint =
        expect_error(Code::bad_checkpoint, {path.string(), why}, [&] { CacheReader reader(path, key); });
    EXPECT_NE(hint.find("--rebuild-cache"), std::string::npos);
  };
  refuses({{9, 2, 3}, WeightFormat::fp8}, "tensors differ");
  refuses({{1, 9, 3}, WeightFormat::fp8}, "weights differ");
  refuses({{1, 2, 9}, WeightFormat::fp8}, "changed since");
  refuses({{1, 2, 3}, std::nullopt}, "--dense keep");
  CacheReader reader(path, kKey);
  expect_error(Code::bad_checkpoint, {"piece 0 of 2", "other"}, [&] { reader.take("other", kLarge); });
  expect_error(Code::bad_checkpoint, {"piece 0 of 2"}, [&] { reader.take("large", kLarge - 1); });
  reader.take("large", kLarge), reader.take("small", 12);
  expect_error(Code::bad_checkpoint, {"piece 2 of 2"}, [&] { reader.take("small", 12); });
}

// Every byte that means something is guarded: header, table, pieces, the file's length.
TEST(RecordCache, RefusesDamage) {
  const TempFolder folder;
  const auto path = folder.path() / "a.records";
  const auto opens = [&] {
    try {
      CacheReader reader(path, kKey);
      const auto large = reader.take("large", kLarge), small = reader.take("small", 12);
      std::vector<std::byte> got(kLarge);
      reader.read(large, 0, got);
      reader.read(small, 0, std::span(got).first(12));
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_checkpoint) << error.what();
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      return false;
    }
  };
  write_two(path);
  ASSERT_TRUE(opens());
  const std::uint64_t size = std::filesystem::file_size(path);
  std::vector<std::uint64_t> places(96);  // the header
  std::iota(places.begin(), places.end(), 0u);
  // The table: two entries of 16 bytes, four sums.
  for (std::uint64_t at = size - 2 * 16 - 4 * 8; at < size; ++at) places.push_back(at);
  places.insert(places.end(), {4096, 4096 + kCacheBlockBytes - 1, 4096 + kLarge - 1});
  for (const std::uint64_t at : places) {
    flip(path, at);
    EXPECT_FALSE(opens()) << "byte " << at << " of " << size;
    flip(path, at);
  }
  ASSERT_TRUE(opens());
  for (const std::uint64_t shorter :
       {size - 1, size - 8, std::uint64_t{5000}, std::uint64_t{10}, std::uint64_t{0}}) {
    std::filesystem::resize_file(path, shorter);
    EXPECT_FALSE(opens()) << shorter << " bytes";
    std::filesystem::remove(path);
    write_two(path);
  }
  std::filesystem::resize_file(path, size + 8);
  EXPECT_FALSE(opens()) << "longer";
}

TEST(RecordCache, LeavesNothingWhenItIsNotFinished) {
  const TempFolder folder;
  const auto path = folder.path() / "a.records";
  {
    CacheWriter writer(path, kKey, 100);
    writer.begin("large", kLarge);
    writer.write(std::span<const std::byte>(pattern(kCacheBlockBytes, 1)));
    EXPECT_EQ(files_in(folder.path()), 1u);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(files_in(folder.path()), 0u);
  expect_error(Code::io, {path.string(), "are free on that disk"},
               [&] { CacheWriter writer(path, kKey, std::uint64_t{1} << 60); });
  EXPECT_EQ(files_in(folder.path()), 0u);
  // What is there stays until the new one is whole.
  write_two(path);
  {
    CacheWriter writer(path, {{7, 7, 7}, std::nullopt}, 100);
    writer.begin("other", 12);
  }
  EXPECT_NO_THROW(CacheReader(path, kKey));
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(RecordCache, NamesItsFileAfterTheModelsFolder) {
  EXPECT_EQ(cache_file("/c", "/models/Qwen/", std::nullopt), "/c/Qwen.keep.records");
  EXPECT_EQ(cache_file("/c", "/models/Qwen/../Other", WeightFormat::nvfp4), "/c/Other.nvfp4.records");
}

}  // namespace
}  // namespace fourfold::backend::cuda
