// An open safetensors file and its views.
#include "checkpoint/safetensors.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::checkpoint {
namespace {

// The length, and as much of the header as there can be.
SafetensorsHeader read_header(const OpenFile& file) {
  std::vector<std::byte> start(std::min<std::uint64_t>(file.size(), kHeaderLengthBytes));
  file.read(0, start);
  const std::uint64_t most = std::min(file.size(), kHeaderLengthBytes + kHeaderBytesMax);
  const std::uint64_t said = start.size() < kHeaderLengthBytes ? 0 : header_bytes(start);
  const std::string name = file.path().string();
  // One that cannot be: the parser says why.
  if (said > most - start.size()) return parse_safetensors_header(start, file.size(), name);
  std::vector<std::byte> whole(start.size() + said);
  file.read(0, whole);
  return parse_safetensors_header(whole, file.size(), name);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), addresses_(file_.size(), path), header_(read_header(file_)) {}

void SafetensorsFile::read(std::span<const std::byte> range, std::span<std::byte> out) const {
  check(contains(range) && range.size() == out.size(), "a range of the file is copied", range.size(),
        out.size());
  file_.read(static_cast<std::uint64_t>(range.data() - addresses_.all().data()), out);
}

TensorView SafetensorsFile::view(const TensorEntry& entry) const {
  return {.name = entry.name,
          .dtype = entry.dtype,
          .shape = entry.shape,
          .bytes = addresses_.all().subspan(header_.data_begin + entry.begin, entry.end - entry.begin)};
}

TensorView SafetensorsFile::required(std::string_view name) const {
  for (const TensorEntry& entry : header_.tensors)
    if (entry.name == name) return view(entry);
  fail(Code::bad_checkpoint, "{}: there is no tensor {}", file_.path().string(), name);
}

}  // namespace fourfold::checkpoint
