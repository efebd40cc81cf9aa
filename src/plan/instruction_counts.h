// What a warp issues in the main loops of the tiled GEMMs on mma, counted from the machine code of nvcc 13.0
// by tools/count_instructions.py; committed, so that no compiler is needed to read it.
#pragma once

#include <span>
#include <string_view>

namespace fourfold::plan {

// Instructions for one product of the tensor cores, itself included. Pipes: what does not stand there is
// control.
struct InstructionCount {
  std::string_view row;
  std::string_view arch;  // "sm90"; "sm120" for all of SM12x
  int multiply_adds;      // of a product: 2,048 of bf16, 8,192 of FP4
  double issued;
  double alu, fma, memory;  // of them
};
std::span<const InstructionCount> instruction_counts();
// Null: the row is not on mma, or newer than the table.
inline const InstructionCount* find_instruction_count(std::string_view row, std::string_view arch) {
  for (const InstructionCount& count : instruction_counts())
    if (count.row == row && count.arch == arch) return &count;
  return nullptr;
}

}  // namespace fourfold::plan
