#include "checkpoint/tensor_sums.h"

#include <thread>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

using namespace std::chrono_literals;

const std::function<bool()> kNever = [] { return false; };

// Larger than a piece of the sum, with bytes of its own in each, and small ones beside it.
std::string model_file(const std::string& large) {
  return safetensors_file({{"a", "U8", {3}, "abc"},
                           {"large", "U8", {static_cast<std::int64_t>(large.size())}, large},
                           {"none", "U8", {0}, ""},
                           {"z", "U8", {3}, "abc"}});
}
std::string large_bytes() {
  std::string bytes((std::size_t{33} << 20) + 5, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i >> 12);
  return bytes;
}

TensorSummer::Sums sums_in(const TempFolder& folder, const SumOptions& options = {}) {
  const Checkpoint checkpoint(folder.path());
  return TensorSummer(checkpoint, options).sum(kNever);
}

TEST(TensorSums, EveryByteCountsAndTheTensorIsNamed) {
  const TempFolder folder;
  std::string bytes = large_bytes();
  folder.write("model.safetensors", model_file(bytes));
  const TensorSummer::Sums first = sums_in(folder);
  ASSERT_EQ(first.tensors.size(), 4u);
  EXPECT_EQ(first.tensors[0], first.tensors[3]) << "a sum is of the bytes, not of their place";
  EXPECT_EQ(sums_in(folder).tensors, first.tensors);
  EXPECT_EQ(first.bytes_read, std::filesystem::file_size(folder.path() / "model.safetensors"));
  // Wherever a piece or a read begins or ends, and between.
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{262143}, std::size_t{262144}, std::size_t{16777215},
        std::size_t{16777216}, std::size_t{20000001}, bytes.size() - 1}) {
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    folder.write("model.safetensors", model_file(bytes));
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    const std::vector<std::uint64_t> sums = sums_in(folder).tensors;
    EXPECT_NE(sums[1], first.tensors[1]) << at;
    EXPECT_EQ((std::vector{sums[0], sums[2], sums[3]}),
              (std::vector{first.tensors[0], first.tensors[2], first.tensors[3]}))
        << at;
  }
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(TensorSummer(checkpoint, {}).name_of(1), "large in model.safetensors");
}

// Two pieces that have changed places are not the same tensor.
TEST(TensorSums, TheOrderOfPiecesCounts) {
  const TempFolder folder;
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  folder.write("model.safetensors", model_file(std::string(kPiece, 'x') + std::string(kPiece, 'y')));
  const std::uint64_t first = sums_in(folder).tensors[1];
  folder.write("model.safetensors", model_file(std::string(kPiece, 'y') + std::string(kPiece, 'x')));
  EXPECT_NE(sums_in(folder).tensors[1], first);
}

TEST(TensorSums, AreKeptForAFileThatIsStill) {
  const TempFolder folder, kept;
  folder.write("model.safetensors", model_file("one"));
  const SumOptions options{.kept = kept.path() / "sums", .still = 0s};
  const TensorSummer::Sums first = sums_in(folder, options);
  EXPECT_GT(first.bytes_read, 0u);
  EXPECT_EQ(first.not_kept, "");
  const TensorSummer::Sums again = sums_in(folder, options);
  EXPECT_EQ(again.bytes_read, 0u);
  EXPECT_EQ(again.tensors, first.tensors);

  // A record that was cut or changed is not believed.
  const auto record = std::filesystem::directory_iterator(options.kept)->path();
  const std::string whole = read_file(record);
  for (std::string broken : {whole.substr(0, whole.size() - 8), whole + "x", whole}) {
    if (broken == whole) broken[56] ^= 1;
    std::ofstream(record, std::ios::binary) << broken;
    const TensorSummer::Sums made = sums_in(folder, options);
    EXPECT_GT(made.bytes_read, 0u);
    EXPECT_EQ(made.tensors, first.tensors);
  }
  // Bytes that were changed in place, with the size and the time of before.
  const auto file = folder.path() / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  std::this_thread::sleep_for(50ms);  // longer than a tick of the file system's clock
  folder.write("model.safetensors", model_file("two"));
  std::filesystem::last_write_time(file, time);
  const TensorSummer::Sums changed = sums_in(folder, options);
  EXPECT_GT(changed.bytes_read, 0u);
  EXPECT_NE(changed.tensors, first.tensors);
}

TEST(TensorSums, AreNotKeptWhereTheyCannotBeOrTheFileIsYoung) {
  const TempFolder folder, kept;
  folder.write("model.safetensors", model_file("one"));
  sums_in(folder, {.kept = kept.path(), .still = std::chrono::hours(1)});
  EXPECT_TRUE(std::filesystem::is_empty(kept.path()));
  kept.write("file", "");
  const TensorSummer::Sums sums = sums_in(folder, {.kept = kept.path() / "file", .still = 0s});
  EXPECT_NE(sums.not_kept.find("cannot be written"), std::string::npos) << sums.not_kept;
  EXPECT_EQ(sums.tensors.size(), 4u);
}

TEST(TensorSums, StopWhenTheyAreNotWanted) {
  const TempFolder folder;
  folder.write("model.safetensors", model_file("one"));
  const Checkpoint checkpoint(folder.path());
  const TensorSummer summer(checkpoint, {});
  expect_error(Code::cancelled, {"not wanted"}, [&] { summer.sum([] { return true; }); });
}

}  // namespace
}  // namespace fourfold::checkpoint
