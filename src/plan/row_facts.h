// One row of a kernel's table as plain values: what `fourfold plan` prints, what tests compare and what
// launches are checked against. Each kernel room fills these from its row types (sizeof, static constexpr
// members), so nothing here is a second copy kept by hand.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "plan/tile.h"

namespace fourfold::plan {

struct RowPart {
  std::string name;  // "weight records", "barriers", "padding"
  int bytes;
};

struct RowFacts {
  std::string kernel;  // "moe_gemm"
  std::string row;     // unique name of the row
  std::string arch;    // "sm120"
  std::string path;    // "w4a4", "w4a16-mma", "w4a16-wgmma"; fp8 "w8a16-..", bf16 "w16a16-.."
  std::string format;  // "nvfp4", "mxfp4"
  std::string role;    // "prefill", "decode"
  int m;
  int n;
  int k;
  int threads;
  int math_warps;
  int producer_warps;
  int stages;
  std::vector<RowPart> parts;  // in address order, padding included: they sum to total_bytes
  int total_bytes;             // sizeof the storage: what the launch asks for
  int limit_bytes;             // of a block when blocks_per_sm of them share an SM
  int registers;               // planned cap per thread
  int blocks_per_sm;
  bool epilogue_aliases_stages;  // false: it has its own part, or needs none
};

// A shape somebody may ask for and that has no row, with the reason.
struct RefusedShape {
  std::string kernel;
  int m;
  int n;
  int k;
  std::string path;
  std::string format;
  std::string arch;
  int needs_bytes;
  int limit_bytes;
  std::string reason;
};

inline Tile tile_of(const RowFacts& row) { return {row.m, row.n, row.k}; }
inline Tile tile_of(const RefusedShape& shape) { return {shape.m, shape.n, shape.k}; }

inline int parts_sum_bytes(const RowFacts& row) {
  int sum = 0;
  for (const RowPart& part : row.parts) sum += part.bytes;
  return sum;
}

// Printing a row whose parts do not add up would hide exactly the bytes this project is about.
inline void check_row(const RowFacts& row) {
  check(parts_sum_bytes(row) == row.total_bytes, "the parts of a row sum to its total", row.row,
        parts_sum_bytes(row), row.total_bytes);
}

}  // namespace fourfold::plan
