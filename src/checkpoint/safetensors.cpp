// An open safetensors file: views into the mapping.
#include "checkpoint/safetensors.h"

#include "base/error.h"

namespace fourfold::checkpoint {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), header_(parse_safetensors_header(file_.bytes(), file_.bytes().size(), path.string())) {}

TensorView SafetensorsFile::view(const TensorEntry& entry) const {
  return {.name = entry.name,
          .dtype = entry.dtype,
          .shape = entry.shape,
          .bytes = file_.bytes().subspan(header_.data_begin + entry.begin, entry.end - entry.begin)};
}

TensorView SafetensorsFile::required(std::string_view name) const {
  for (const TensorEntry& entry : header_.tensors)
    if (entry.name == name) return view(entry);
  fail(Code::bad_checkpoint, "{}: there is no tensor {}", file_.path().string(), name);
}

}  // namespace fourfold::checkpoint
