// A tensor of a checkpoint as it lies on disk: name, element type, shape, and which bytes of the file. Those
// are addresses of the SafetensorsFile (or Checkpoint) that gave the view, which reads them (open_file.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fourfold::checkpoint {

// Element types a safetensors file can hold, under the file's own names.
enum class DType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  u16,
  i16,
  f16,
  bf16,
  u32,
  i32,
  f32,
  u64,
  i64,
  f64,
  c64,
};

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int bits;
};

// In the order of the enum.
inline constexpr DTypeFacts kDTypes[] = {
    {DType::boolean, "BOOL", 8},    {DType::f4, "F4", 4},           {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6}, {DType::u8, "U8", 8},           {DType::i8, "I8", 8},
    {DType::f8_e5m2, "F8_E5M2", 8}, {DType::f8_e4m3, "F8_E4M3", 8}, {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::u16, "U16", 16},        {DType::i16, "I16", 16},        {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},      {DType::u32, "U32", 32},        {DType::i32, "I32", 32},
    {DType::f32, "F32", 32},        {DType::u64, "U64", 64},        {DType::i64, "I64", 64},
    {DType::f64, "F64", 64},        {DType::c64, "C64", 64},
};

constexpr bool dtype_table_in_order() {
  int index = 0;
  for (const DTypeFacts& facts : kDTypes)
    if (static_cast<int>(facts.dtype) != index++) return false;
  return index == static_cast<int>(DType::c64) + 1;
}
static_assert(dtype_table_in_order(), "dtype_name and dtype_bits index the table by the enum");

constexpr std::string_view dtype_name(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }
constexpr int dtype_bits(DType dtype) { return kDTypes[static_cast<int>(dtype)].bits; }

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeFacts& facts : kDTypes)
    if (facts.name == name) return facts.dtype;
  return std::nullopt;
}

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
// unaligned offset: such files exist in theory only, and a typed pointer to them must not.
template <class T>
std::span<const T> elements(const TensorView& tensor);

}  // namespace fourfold::checkpoint
