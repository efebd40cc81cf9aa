#include "checkpoint/identity.h"

#include "base/checksum.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

Identity identity_in(const std::filesystem::path& folder) { return identity_of(Checkpoint(folder)); }

void write_model(const TempFolder& folder, const std::string& name, std::string data) {
  folder.write(
      "model.safetensors",
      safetensors_file("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(data.size()) +
                           "],\"data_offsets\":[0," + std::to_string(data.size()) + "]}}",
                       data));
}

TEST(Identity, IsTheSameForTheSameFilesAndToldApartByEachPart) {
  const TempFolder folder;
  const auto file = folder.path() / "model.safetensors";
  write_model(folder, "a", std::string(100'000, 'x'));
  const auto time = std::filesystem::last_write_time(file);
  const Identity first = identity_in(folder.path());
  EXPECT_EQ(identity_in(folder.path()), first);
  EXPECT_EQ(difference(first, first), "");

  std::filesystem::last_write_time(file, time + std::chrono::seconds(1));
  EXPECT_EQ(difference(first, identity_in(folder.path())), "its files have been changed since");

  for (const std::size_t at : {0u, 99'999u}) {
    std::string data(100'000, 'x');
    data[at] = 'y';
    write_model(folder, "a", data);
    std::filesystem::last_write_time(file, time);
    EXPECT_EQ(difference(first, identity_in(folder.path())), "its weights differ") << at;
  }
  write_model(folder, "b", std::string(100'000, 'x'));
  EXPECT_EQ(difference(first, identity_in(folder.path())), "its tensors differ");
  write_model(folder, "a", std::string(3, 'x'));
  EXPECT_EQ(difference(first, identity_in(folder.path())), "its tensors differ");
}

TEST(Checksum, NoticesEveryBitAndTheLength) {
  std::string text(101, 'q');
  const auto sum = [&] { return checksum(std::as_bytes(std::span(text))); };
  const std::uint64_t whole = sum();
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_NE(sum(), whole) << i << " " << bit;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  EXPECT_EQ(sum(), whole);
  text.push_back('\0');
  EXPECT_NE(sum(), whole) << "zeros at the end count";
}

}  // namespace
}  // namespace fourfold::checkpoint
