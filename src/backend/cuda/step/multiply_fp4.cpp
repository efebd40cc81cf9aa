// Matrices some of whose inputs are FP4 (decision 0022): one expert of the MoE kernels, which have every
// arithmetic that such a matrix needs, from one copy of its records.
#include "backend/cuda/step/multiply.h"
#include "base/check.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/step/step_params.h"

namespace fourfold::backend::cuda {
namespace {

moe::Op op_of(dense::PlainOp op) {
  switch (op) {
    case dense::PlainOp::store_f32: return moe::Op::plain_f32;
    case dense::PlainOp::add_f32: return moe::Op::add_f32;
    case dense::PlainOp::store_bf16: break;
  }
  return moe::Op::plain;
}

}  // namespace

// Rows that no norm has quantised are so once for neighbouring pieces of one input scale.
void Multiplier::one_expert(const DenseMatrix& matrix, const OneExpert& how, const DenseInput& in,
                            const DenseOutput& out) {
  const kernels::RowHandle row = machine_.required(kernels::RowKind::gemm, how.row);
  const PieceStrips* quantised = nullptr;
  for (const PieceStrips& piece : matrix.pieces) {
    moe::GemmParams params{};
    const int by_norm = in.fp4.find(piece.input.inverse);
    const unsigned char* given = by_norm >= 0 ? buffers_.fp4.normed[by_norm] : in.records;
    params.tokens = how.is_fp4 ? given : reinterpret_cast<const unsigned char*>(in.rows);
    if (how.is_fp4 && given == nullptr) {
      if (quantised == nullptr || quantised->input != piece.input)
        moe_tokens::launch_quantize(
            machine_, tokens_,
            {in.rows, how.eights.tiles, how.eights.count, buffers_.fp4.tiles.row_numbers, piece.input_inverse,
             buffers_.fp4.rows, matrix.column_records});
      quantised = &piece;
      params.tokens = buffers_.fp4.rows;
    }
    params.weights = matrix.records +
                     std::int64_t{piece.first_strip} * matrix.column_records * record_bytes(matrix.format);
    params.tiles = how.tiles.tiles;
    params.tile_count = how.tiles.count;
    params.scale = piece.scale;
    params.scale_up = piece.scale_up;
    params.token_scale = how.is_fp4 ? piece.input_scale : nullptr;
    params.next_inverse_scale = piece.next_inverse;
    params.rounds_neurons = true;
    params.strips = piece.strips;
    params.records = matrix.column_records;
    if (piece.is_gate_up) {
      params.op = moe::Op::gate_up;
      params.out = how.is_fp4 ? static_cast<void*>(out.inner_records) : out.inner;
      params.out_columns = out.inner_stride;
    } else {
      params.op = op_of(out.op);
      params.out = static_cast<unsigned char*>(out.out) +
                   (out.op == dense::PlainOp::store_bf16 ? 2 : 4) *
                       (matrix.first_column + record::kRows * piece.first_strip);
      params.out_columns = out.stride;
    }
    moe::launch_gemm(machine_, row, params);
  }
}

// The streaming kernel has no gates of rows: what is to be gated waits in f32.
void Multiplier::generated_fp4(const DenseMatrix& matrix, Role role, int row_count, const DenseInput& in,
                               const DenseOutput& out) {
  const bool is_fp4 = input_of(matrix.input, role) == InputFormat::nvfp4;
  const auto activations = is_fp4 ? moe_layer::Activations::w4a4 : moe_layer::Activations::w4a16;
  const RowTiles& tiles = buffers_.fp4.tiles;
  const OneExpert how{selector_.one_expert(matrix, row_count, activations).gate_up_row,
                      tiles.wides(row_count), tiles.eights(row_count), is_fp4};
  if (out.token_gate == nullptr) return one_expert(matrix, how, in, out);
  check(out.op == dense::PlainOp::add_f32 && out.stride == matrix.rows(), "whole rows are gated", out.stride);
  DenseOutput waiting = out;
  waiting.out = buffers_.added;
  waiting.op = dense::PlainOp::store_f32;
  one_expert(matrix, how, in, waiting);
  const step::AddGatedParams add{static_cast<float*>(out.out),
                                 buffers_.added,
                                 out.token_gate,
                                 out.token_gate_stride,
                                 row_count,
                                 out.stride,
                                 /*y_is_f32=*/1};
  machine_.launch(step_row(step::kAddGated), step::add_blocks(row_count, out.stride), add);
}

// The tiled kernel stores bf16 rows; the streaming one has f32 ones, which a router's would be.
void Multiplier::prompt_fp4(const DenseMatrix& matrix, int row_count, const PromptInput& in,
                            const DenseOutput& out) {
  const bool stores_f32 = matrix.plain_strips > 0 && out.op != dense::PlainOp::store_bf16;
  const moe_layer::Choice choice = stores_f32
                                       ? selector_.one_expert(matrix, row_count, moe_layer::Activations::w4a4)
                                       : selector_.prompt_matrix(matrix, row_count);
  one_expert(matrix, {choice.gate_up_row, tables_.tiles(choice.tile_tokens), tables_.tiles(8), true},
             {.rows = in.rows, .records = in.records, .fp4 = in.fp4}, out);
}

}  // namespace fourfold::backend::cuda
