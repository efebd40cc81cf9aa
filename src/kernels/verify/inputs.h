// Fresh random inputs for the proofs: weights in checkpoint form, tokens, assignments of tokens to experts.
// Ranges are chosen to meet every corner of the formats: zero, subnormal and largest scales, zero blocks,
// outlier tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/moe/tables.h"
#include "kernels/moe_route/route_rule.h"
#include "kernels/record/pack_dense.h"
#include "kernels/record/record.h"
#include "kernels/reference/dot.h"

namespace fourfold::verify {

// A matrix as a checkpoint stores it, for either format.
struct CheckpointMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool mxfp4 = false;
  std::vector<std::uint8_t> codes;   // [rows, columns / 2]
  std::vector<std::uint8_t> scales;  // [rows, columns / 16 or / 32]
};

CheckpointMatrix random_matrix(Random& random, std::int64_t rows, std::int64_t columns, bool mxfp4);
reference::Weights reference_of(const CheckpointMatrix& matrix);

// A dense matrix as a checkpoint stores it: bf16 or E4M3, row by row.
struct DenseMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  record::DenseSource source = record::DenseSource::bf16;
  std::vector<std::uint8_t> bytes;
};
DenseMatrix random_dense(Random& random, std::int64_t rows, std::int64_t columns, record::DenseSource source);
reference::Weights reference_of(const DenseMatrix& matrix);
// Records of a plain matrix, or of gate and up.
std::vector<std::uint8_t> pack_dense(const DenseMatrix& matrix);
std::vector<std::uint8_t> pack_dense(const DenseMatrix& gate, const DenseMatrix& up);

// [rows, columns]; one row in eight is an outlier, one value in sixteen zero or subnormal.
std::vector<Bf16> random_tokens(Random& random, std::int64_t rows, std::int64_t columns);

// Which tokens an expert gets, laid out as the router would: an expert's slots start at a multiple of eight.
struct Assignment {
  std::vector<std::int32_t> slot_token;   // [slots]; places without a token hold 0
  std::vector<float> slot_weight;         // [slots]
  std::vector<std::int32_t> slot_expert;  // [slots]; -1 where there is no token
  std::vector<moe::TokenTile> tiles;
  std::int64_t slots() const { return static_cast<std::int64_t>(slot_token.size()); }
};
Assignment random_assignment(Random& random, const std::vector<int>& tokens_per_expert, int token_count,
                             int tile_tokens);

// Tokens quantised to NVFP4 for the slots of an assignment: one row a slot, zeros where there is no token.
CheckpointMatrix quantize_slots(const std::vector<Bf16>& tokens, std::int64_t columns,
                                const Assignment& assignment, const std::vector<float>& inverse_input_scale);
// MXFP4 likewise (block scales by the OCP rule).
CheckpointMatrix quantize_slots_mxfp4(const std::vector<Bf16>& tokens, std::int64_t columns,
                                      const Assignment& assignment);

// [slots / 8][columns / 64] token records of a matrix whose rows are slots, and back.
std::vector<std::uint8_t> token_records(const CheckpointMatrix& slots);
CheckpointMatrix from_token_records(const std::uint8_t* records, std::int64_t slots, std::int64_t columns);

// What the router is asked for: the softmax; sigmoid scores with a bias for choosing and a factor; the same,
// in three groups of experts, of which two are kept.
enum class Routing { softmax, sigmoid, groups };
// Empty for the softmax.
std::vector<float> random_choice_bias(Random& random, Routing routing, int experts);
// bias: where the rule is to find it, in memory of the machine or of the host.
moe_route::RouteRule rule_of(Routing routing, bool renormalise, const float* bias);
// " sigmoid", as a case's name has it.
const char* name_of(Routing routing);

}  // namespace fourfold::verify
