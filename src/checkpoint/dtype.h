// Element types a safetensors file can hold, under the file's own names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fourfold::checkpoint {

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

}  // namespace fourfold::checkpoint
