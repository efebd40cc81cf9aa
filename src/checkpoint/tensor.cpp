// Names of shapes, and typed access to a tensor's bytes.
#include "checkpoint/tensor.h"

#include "base/bf16.h"
#include "base/check.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "base/f16.h"

namespace fourfold::checkpoint {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape.sizes()) {
    if (text.size() > 1) text += ", ";
    append_value(text, size);
  }
  return text + "]";
}

std::string describe(const TensorView& tensor) {
  return std::string(dtype_name(tensor.dtype)) + " " + to_string(tensor.shape);
}

template <class T>
std::span<const T> elements(const TensorView& tensor) {
  check(dtype_bits(tensor.dtype) == 8 * static_cast<int>(sizeof(T)), "T has the tensor's element size",
        dtype_bits(tensor.dtype), sizeof(T));
  if (reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % alignof(T) != 0)
    fail_with_hint(Code::bad_checkpoint, "load and save the file once with a current safetensors package",
                   "tensor {} ({}) does not start at a multiple of {} bytes in its file", tensor.name,
                   describe(tensor), alignof(T));
  return {reinterpret_cast<const T*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(T)};
}

template std::span<const std::uint8_t> elements(const TensorView&);
template std::span<const E4m3> elements(const TensorView&);
template std::span<const Bf16> elements(const TensorView&);
template std::span<const F16> elements(const TensorView&);
template std::span<const float> elements(const TensorView&);
template std::span<const std::int64_t> elements(const TensorView&);

}  // namespace fourfold::checkpoint
