// One row of a kernel's table as plain values: what `fourfold plan` prints, what tests compare and what
// launches are checked against. Each kernel room fills these from its row types (sizeof, static constexpr
// members), so nothing here is a second copy kept by hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/tile.h"

namespace fourfold::plan {

struct RowPart {
  std::string_view name;  // "weight records", "barriers", "padding"
  int bytes;
};

// Hundreds of rows fill this, so it is made where it costs little code: names that many rows share are
// constants and are viewed, and what handles strings is in row_facts.cpp.
struct RowFacts {
  RowFacts();
  RowFacts(std::string_view its_kernel, std::string its_row, std::string_view its_arch,
           std::string_view its_path, std::string_view its_format, std::string_view its_role);
  RowFacts(const RowFacts&);
  RowFacts(RowFacts&&) noexcept;
  RowFacts& operator=(const RowFacts&);
  RowFacts& operator=(RowFacts&&) noexcept;
  ~RowFacts();

  std::string_view kernel;  // "moe_gemm"
  std::string row;          // unique name of the row
  std::string_view arch;    // "sm120"
  std::string_view
      path;  // "w4a4", "w4a16-mma", "w4a16-fp4-mma", "w4a16-wgmma"; fp8 "w8a16-..", bf16 "w16a16-.."
  std::string_view format;  // "nvfp4", "mxfp4"
  std::string_view role;    // "prefill", "decode"
  int m = 0;
  int n = 0;
  int k = 0;
  int threads = 0;
  int math_warps = 0;
  int producer_warps = 0;
  int stages = 0;
  std::vector<RowPart> parts;  // in address order, padding included: they sum to total_bytes
  int total_bytes = 0;         // sizeof the storage: what the launch asks for
  int limit_bytes = 0;         // of a block when blocks_per_sm of them share an SM
  int registers = 0;           // planned cap per thread
  int blocks_per_sm = 0;
  bool epilogue_aliases_stages = false;  // false: it has its own part, or needs none
  // What a proof asks of the row; no plan prints it.
  int head_dim = 0;          // attention
  bool from_f32 = false;     // its input: f32 rows, else bf16
  bool norms_rows = false;   // norms its tokens itself
  bool is_windowed = false;  // attention: takes windows and sinks
  bool clamps = false;       // grouped GEMMs: takes biases, and gate_up is the clamped SwiGLU
};

// A shape that may be asked for and has no row, with the reason.
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

int parts_sum_bytes(const RowFacts& row);

// Printing a row whose parts do not add up would hide exactly the bytes this project is about.
void check_row(const RowFacts& row);

}  // namespace fourfold::plan
