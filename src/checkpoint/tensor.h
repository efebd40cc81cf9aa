// A tensor of a checkpoint as it lies on disk: name, element type, shape, and which bytes of the file. Those
// are addresses of the SafetensorsFile (or Checkpoint) that gave the view, which reads them (open_file.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/dtype.h"

namespace fourfold::checkpoint {

// Limit: six dimensions; convolutions of vision towers have five, everything a text model reads at most
// three.
class Shape {
 public:
  static constexpr int kRankMax = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes) push(size);
  }

  int rank() const { return rank_; }
  bool full() const { return rank_ == kRankMax; }
  void push(std::int64_t size) { sizes_[static_cast<std::size_t>(rank_++)] = size; }
  std::int64_t operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), static_cast<std::size_t>(rank_)}; }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kRankMax> sizes_{};
  std::int32_t rank_ = 0;
};

// "[2048, 4096]"
std::string to_string(const Shape& shape);

struct TensorView {
  std::string_view name;
  DType dtype = DType::u8;
  Shape shape;
  std::span<const std::byte> bytes;
};

// "BF16 [2048, 4096]"
std::string describe(const TensorView& tensor);

// The elements as T, whose size must be the element size. Throws bad_checkpoint when the file puts them at an
// odd place: such files exist in theory only, and a typed pointer to them must not.
template <class T>
std::span<const T> elements(const TensorView& tensor);

}  // namespace fourfold::checkpoint
