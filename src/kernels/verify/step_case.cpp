#include "kernels/verify/step_case.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "base/format.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

struct StepProof {
  std::string_view kernel;
  std::string_view role;  // empty: any
  void (*prove)(StepRun&);
  std::string_view ops;  // separated by spaces; empty: the row's role
  double cost;           // relative run time on the simulator
  bool by_head = false;  // times the head dimension / 64
};

// clang-format off
constexpr StepProof kProofs[] = {
    {"dense_few",      "decode",    prove_dense_few,     "store_f32 add_f32 store_bf16 gate_up", 0.3},
    {"dense_few",      "biased",    prove_dense_few,     "biased store_f32", 0.3},
    {"dense_near",     "decode",    prove_dense_few,     "store_f32 add_f32 store_bf16 gate_up", 0.3},
    {"dense_near",     "biased",    prove_dense_few,     "biased store_f32", 0.3},
    {"dense_pair",     "",          prove_dense_pair,    "store_f32 gate_up", 0.6},
    {"dense_table",    "",          prove_dense_table,   "add_f32 store_f32", 0.5},
    {"dense_many_table", "",        prove_many_table,    "add_f32 store_f32", 2.0},
    {"dense_many",     "",          prove_dense_many,    "store_f32 add_f32 store_bf16 gate_up", 3.0},
    {"dense_many_pair", "",         prove_dense_many_pair, "store_f32 gate_up", 3.5},
    {"dense_sum_pair", "",          prove_dense_sum_pair, "store_f32 gate_up", 1.5},
    {"dense_sum",      "",          prove_dense_sum,     "store_f32 add_f32 store_bf16 gate_up biased", 1.0},
    {"dense_tall",     "",          prove_dense_tall,    "store_f32 add_f32 store_bf16 gate_up", 6.0},
    {"dense_sum_norm", "",          prove_dense_sum_norm, "add_f32 biased", 2.0},
    {"all_gather",     "",          prove_all_gather,    "", 1.0},
    {"all_reduce",     "",          prove_all_reduce,    "", 3.0},
    {"combine_norm",   "",          prove_combine_norm,  "", 0.3},
    {"norm_rows",      "",          prove_norm_rows,     "norm add_f32 add_bf16", 0.2},
    {"norm_prompt",    "",          prove_norm_prompt,   "norm add_f32 add_bf16", 0.3},
    {"norm_fp4",       "",          prove_norm_fp4,      "norm add_f32 add_bf16", 0.4},
    {"quantize_rows",  "",          prove_quantize_rows, "plain staged scaled", 0.2},
    {"select_norm",    "",          prove_select_norm,   "bf16 f32 both", 0.2},
    {"add_gated",      "",          prove_add_gated,     "f32 bf16 ungated", 0.1},
    {"add_bias",       "",          prove_add_bias,      "", 0.1},
    {"delta_decode",   "",          prove_delta_decode,  "", 1.0, true},
    {"delta_prepare",  "",          prove_delta_prompt,  "", 1.0, true},
    {"delta_scan",     "",          prove_delta_prompt,  "", 1.0, true},
    {"delta_finish",   "",          prove_delta_prompt,  "", 1.0, true},
    {"prepare",        "both",      prove_prepare,       "", 0.2},
    {"prepare",        "biased",    prove_prepare,       "both biased whole_norm", 0.2},
    {"row_squares",    "",          prove_row_squares,   "", 0.1},
    {"attend",         "",          prove_attend,        "", 0.5, true},
    {"combine splits", "",          prove_combine,       "", 0.2},
    {"attend_prompt",  "",          prove_attend_prompt, "", 0.5, true},
    {"attend_latent",        "",    prove_attend_latent, "", 0.5, true},
    {"attend_latent_prompt", "",    prove_attend_latent_prompt, "", 0.5, true},
    {"latent_rows",    "",          prove_latent_rows,   "", 0.2},
    {"turn_queries",   "",          prove_turn_queries,  "", 0.1},
    {"head_linear",    "",          prove_head_linear,   "", 0.5},
    {"absorb_queries", "",          prove_absorb_queries, "", 0.5},
    {"combine_expand", "",          prove_combine_expand, "", 0.5},
    {"sampling",       "scores",    prove_scores,        "", 0.1},
    {"sampling",       "peaks",     prove_peaks,         "", 0.1},
    {"sampling",       "argmax",    prove_argmax,        "", 0.1},
    {"sampling",       "weigh",     prove_weigh,         "", 0.1},
    {"sampling",       "choose",    prove_choose,        "", 5.0},
    {"sampling",       "accept",    prove_accept,        "", 0.2},
    {"sampling",       "embed",     prove_embed,         "", 0.1},
    {"sampling",       "take_rows", prove_take_rows,     "", 0.1},
};
// clang-format on

const StepProof* proof_of(const plan::RowFacts& row) {
  const auto found = std::find_if(std::begin(kProofs), std::end(kProofs), [&](const StepProof& proof) {
    return proof.kernel == row.kernel && (proof.role.empty() || proof.role == row.role);
  });
  return found == std::end(kProofs) ? nullptr : found;
}

std::vector<std::uint8_t> prove(kernels::Machine& machine, const StepCase& test, Result& result) {
  const StepProof* proof = proof_of(test.row);
  if (proof == nullptr)
    fail(Code::internal, "no proof is written for kernel '{}': add one to kernels/verify/step_case.cpp",
         test.row.kernel);
  StepRun run(machine, test, result);
  proof->prove(run);
  return run.take_output();
}

}  // namespace

std::vector<std::string> step_ops(const plan::RowFacts& row) {
  const StepProof* proof = proof_of(row);
  if (proof == nullptr || proof->ops.empty()) return {std::string(row.role)};
  std::vector<std::string> ops{""};
  for (const char letter : proof->ops)
    if (letter == ' ')
      ops.emplace_back();
    else
      ops.back() += letter;
  return ops;
}

double step_cost(const StepCase& test) {
  const StepProof* proof = proof_of(test.row);
  if (test.row.kernel == "attend" && is_longest_context(test)) return test.row.k;
  return proof == nullptr ? 1.0 : proof->cost * (proof->by_head ? test.row.k / 64.0 : 1.0);
}

Result run_step_case(kernels::Machine& machine, const StepCase& test, bool bits_exact) {
  Result result;
  result.kernel = test.row.kernel;
  result.row = test.row.row;
  result.op = test.op;
  result.machine = machine.description();
  result.seed = test.seed;
  result.exact = bits_exact;
  try {
    prove(machine, test, result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

std::vector<std::uint8_t> step_output(kernels::Machine& machine, const StepCase& test) {
  Result result;
  return prove(machine, test, result);
}

}  // namespace fourfold::verify
