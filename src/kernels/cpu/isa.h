// Which instruction sets the CPU kernels exist for, which of them this CPU has, and which one to take. All of
// them compute the same bits, except that AMX adds products of bf16 inputs in its own order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::cpu {

enum class Isa {
  plain,   // C++ alone
  avx2,    // AVX2, FMA, F16C
  avx512,  // AVX-512 F, BW, VL, DQ and VNNI
  amx,     // avx512, and the tile unit (AMX-BF16) for bf16 inputs
  neon     // Armv8.2 with the dot product instructions
};

std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

// Those this build has kernels for and this CPU can run, worst first; plain is always the first.
std::vector<Isa> available_isas();

// `name`, else the environment's FOURFOLD_CPU_ISA, else the best. Throws invalid_request for an unknown name,
// unsupported_device for a set this CPU does not have; both list what it has.
Isa choose_isa(const std::string& name);

}  // namespace fourfold::cpu
