// The proofs of the kernels without rows: packing against the host's packing, token forms against the host's,
// routing tables against the scalar router. All of them move or count bits, so the answer is equal or wrong.
#pragma once

#include <cstdint>

#include "kernels/launch/machine.h"
#include "kernels/record/pack_dense.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/result.h"

namespace fourfold::verify {

struct PackCase {
  bool mxfp4 = false;
  record::RowOrder row_order = record::RowOrder::plain;
  record::BitOrder bit_order = record::BitOrder::half;
  std::int64_t rows = 64;
  std::int64_t columns = 192;
  std::uint64_t seed = 1;
};
Result run_pack_case(kernels::Machine& machine, const PackCase& test);

// Dense matrices: the GPU's records against the host's. Sizes need not fill records.
struct DensePackCase {
  record::DenseSource source = record::DenseSource::bf16;
  record::RowOrder row_order = record::RowOrder::plain;
  std::int64_t rows = 70;
  std::int64_t columns = 136;
  std::uint64_t seed = 1;
};
Result run_dense_pack_case(kernels::Machine& machine, const DensePackCase& test);

// staged: bf16 rows in staged column order; otherwise NVFP4 token records.
struct TokenCase {
  bool staged = false;
  std::int64_t tokens = 24;
  std::int64_t columns = 192;
  std::uint64_t seed = 1;
};
Result run_token_case(kernels::Machine& machine, const TokenCase& test);

struct RouteCase {
  int tokens = 9;
  int experts = 16;
  int top_k = 4;
  int tile_tokens = 8;
  bool renormalise = true;
  std::uint64_t seed = 1;
  Routing routing = Routing::softmax;
};
Result run_route_case(kernels::Machine& machine, const RouteCase& test);

// The op each case reports: "gate_up nvfp4 half", "staged", "tables of few tokens".
std::string op_of(const PackCase& test);
std::string op_of(const DensePackCase& test);
std::string op_of(const TokenCase& test);
std::string op_of(const RouteCase& test);

}  // namespace fourfold::verify
