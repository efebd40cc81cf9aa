// Dense matrices on the machine. Role decides arithmetic: generated rows take dense_few, dense_many or
// dense_tall, the same sums in the same order; prompt rows the tiled kernels. Matrices with FP4 inputs take
// the kernels of the experts, tiled or streaming (multiply_fp4.cpp). kernel_selector.h says which row.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "backend/cuda/load/weights.h"
#include "backend/cuda/step/buffers.h"
#include "backend/cuda/step/ways.h"
#include "backend/cuda/tune/kernel_selector.h"
#include "kernels/dense/choose_many.h"
#include "kernels/dense/dense_params.h"
#include "kernels/launch/machine.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_tokens/launch_tokens.h"

namespace fourfold::backend::cuda {

// What is multiplied: bf16 rows, or rows of the residual stream still to be normed. An MLP's inner rows are
// token records where its inputs are FP4.
struct DenseInput {
  const std::uint16_t* rows = nullptr;
  const float* x = nullptr;
  const DeviceNorm* norm = nullptr;
  int x_stride = 0;  // from one row to the next, where a kernel norms them itself; 0: the matrix's columns
  const unsigned char* records = nullptr;
  Fp4Scales fp4 = {};  // in Buffers::fp4.normed, from the norm of a prompt
};
// The same of prompts: bf16 rows, which are staged or quantised here where a matrix wants them so, or are
// already.
struct PromptInput {
  const std::uint16_t* rows = nullptr;
  const std::uint16_t* staged = nullptr;
  const unsigned char* records = nullptr;
  bool has_codes = false;  // in Buffers::codes
  Fp4Scales fp4 = {};      // in Buffers::fp4.normed
};

// Where results go. Gate and up strips become silu(gate) * up in `inner`, or as token records.
struct DenseOutput {
  void* out = nullptr;
  int stride = 0;
  dense::PlainOp op = dense::PlainOp::store_f32;
  std::uint16_t* inner = nullptr;
  int inner_stride = 0;
  unsigned char* inner_records = nullptr;
  const float* token_gate = nullptr;  // add_f32 only: a row's product times sigmoid of its gate
  int token_gate_stride = 0;
};

class Multiplier {
 public:
  Multiplier(kernels::Machine& machine, const BatchTables& tables, const Buffers& buffers,
             KernelSelector& selector, const StepWays& ways = {});

  // Generated rows, or few rows of a prompt that are run as these are: `role` says what FP4 inputs are. Rows
  // to be normed are left in `normed`, too, where it is given.
  void generated(const DenseGroup& group, int row_count, const DenseInput& in, const DenseOutput& out,
                 std::uint16_t* normed, Role role = Role::decode);
  // The same for a matrix whose result joins the residual stream and is normed next: the kernel that adds up
  // its segments norms the new rows into `normed`. False: there is none for this, and nothing was launched.
  bool add_and_norm(const DenseGroup& group, int row_count, const std::uint16_t* rows, const DenseOutput& out,
                    const DeviceNorm& norm, std::uint16_t* normed);
  // generated() of one matrix times `rows`, and the tables of routing beside it (dense/dense_table.h). False:
  // as above.
  bool with_table(const DenseGroup& group, int row_count, const std::uint16_t* rows, const DenseOutput& out,
                  const moe_route::RouteParams& route);
  // Whether generated() would launch a norm of its own in front of this group.
  bool norms_apart(const DenseGroup& group, int row_count);
  // Prompt rows: bf16 rows out, `inner` staged for the next matrix.
  void prompt(const DenseGroup& group, int row_count, const PromptInput& in, const DenseOutput& out);
  // The biases of a group's matrices onto f32 rows that prompt() left, or that its result will join: the
  // tiled kernels add none. Generated rows have theirs already.
  void add_bias(const DenseGroup& group, int row_count, float* x, int stride);
  void add_bias(const DenseMatrix& matrix, int row_count, float* x, int stride);
  // x = x + y where there is a y, then normed.
  void norm_rows(const DeviceNorm& norm, int row_count, float* x, const void* y, dense::NormAdd add,
                 std::uint16_t* out);
  // The same for prompt rows, in every form that the group reads; plain, too, where that is wanted, and
  // quantised for experts of one input scale.
  PromptInput norm_prompt(const DeviceNorm& norm, int row_count, const std::uint16_t* added,
                          const DenseGroup& readers, bool wants_plain, std::optional<float> experts);
  kernels::RowHandle step_row(const std::string& name);
  KernelSelector& selector() { return selector_; }

  // What the widest generated batch needs of Buffers::workspace.
  static std::size_t workspace_bytes(KernelSelector& selector, const DenseGroup& group, int row_count);

 private:
  void generated_piece(const DenseGroup& group, int row_count, const DenseInput& in, const DenseOutput& out,
                       std::uint16_t* normed, Role role);
  static dense::DenseParams params_of(const DenseMatrix& matrix, int row_count, const DenseOutput& out);
  static dense::DenseParams normed_params(const DenseMatrix& matrix, int row_count, const DenseInput& in,
                                          const DenseOutput& out, std::uint16_t* normed);
  // Two matrices of different formats in one launch, where there is a row for them.
  bool pair(const DenseGroup& group, int row_count, const DenseInput& in, const DenseOutput& out,
            std::uint16_t* normed);
  // The same beyond eight rows.
  bool many_pair(const DenseGroup& group, int row_count, dense::TokenSource source, const std::uint16_t* rows,
                 const DenseOutput& out);
  static dense::ManyPairChoice many_pair_choice(const DenseGroup& group, int row_count, int sm_count);
  // Says that they ran by this row; false: one of them has a choice of its own, which parts them.
  bool together(const DenseGroup& group, int row_count, dense::TokenSource source, const std::string& row);
  void few(const dense::DenseForm& form, const DenseMatrix& matrix, int row_count, const DenseInput& in,
           const DenseOutput& out, std::uint16_t* normed);
  // Sums of segments lie in the workspace from byte `first` on, `bytes` of them.
  dense::ManyParams many_params(const DenseMatrix& matrix, int row_count, const std::uint16_t* rows,
                                const DenseOutput& out, std::size_t first, std::size_t bytes) const;
  void many(const dense::DenseForm& form, const DenseMatrix& matrix, int row_count, const std::uint16_t* rows,
            const DenseOutput& out);
  void gemm(const DenseMatrix& matrix, int row_count, const std::uint16_t* staged, const DenseOutput& out);
  void stage(const std::uint16_t* rows, int row_count, int columns, std::uint16_t* staged);
  // Prompt rows to Buffers::codes.
  void quantize(const PromptInput& in, int row_count, const DenseMatrix& reader);

  // A matrix that may have FP4 inputs; multiply_fp4.cpp.
  struct OneExpert {
    std::string row;
    BatchTables::Tiles tiles;   // of the row's width
    BatchTables::Tiles eights;  // for quantising
    bool is_fp4 = false;
  };
  void one_expert(const DenseMatrix& matrix, const OneExpert& how, const DenseInput& in,
                  const DenseOutput& out);
  void generated_fp4(const DenseMatrix& matrix, Role role, int row_count, const DenseInput& in,
                     const DenseOutput& out);
  void prompt_fp4(const DenseMatrix& matrix, int row_count, const PromptInput& in, const DenseOutput& out);

  kernels::Machine& machine_;
  moe_tokens::TokenRows tokens_;
  std::unordered_map<std::string, kernels::RowHandle> step_rows_;
  const BatchTables& tables_;
  const Buffers& buffers_;
  KernelSelector& selector_;
  const StepWays ways_;
};

}  // namespace fourfold::backend::cuda
