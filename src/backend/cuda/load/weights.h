// Weights on the machine: matrices as records, the matrices that share an input as one; vectors as f32. What
// a matrix is multiplied as follows from how the checkpoint stores it; what has no form of its own is widened
// to bf16, and said.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/load/layers.h"
#include "backend/cuda/load/record_stream.h"
#include "backend/program.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/machine.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {

// A matrix, or gate and up of an MLP interleaved (up.index >= 0).
struct Piece {
  MatrixId matrix;
  MatrixId up = {};
  bool is_gate_up() const { return up.index >= 0; }
};

// Where a piece lies in its matrix. The scales are its global ones, on the device, 1 where there are none.
struct PieceStrips {
  int first_strip = 0;
  int strips = 0;
  bool is_gate_up = false;
  const float* scale = nullptr;
  const float* scale_up = nullptr;
};

// Pieces of one format one after another, each padded to whole strips: one launch.
struct DenseMatrix {
  WeightFormat format = WeightFormat::bf16;
  const unsigned char* records = nullptr;
  const float* row_scale = nullptr;  // [32 * strips]; null: 1
  int strips = 0;
  int plain_strips = 0;  // the rest is gate and up
  int column_records = 0;
  int first_column = 0;  // of its output in the buffer the group shares
  std::vector<PieceStrips> pieces;
  int rows() const { return record::kRows * strips; }
  int columns() const { return record::kColumns * column_records; }
};

// What reads one input: usually one launch, more where formats differ.
struct DenseGroup {
  std::vector<DenseMatrix> matrices;
  std::vector<int> first_column;  // by piece, in the buffer the plain pieces share
  int width = 0;                  // columns of that buffer
};

struct ExpertRecords {
  WeightFormat format = WeightFormat::nvfp4;
  const unsigned char* gate_up = nullptr;
  const unsigned char* down = nullptr;
  const float* gate_scale = nullptr;  // [experts]
  const float* up_scale = nullptr;
  const float* down_scale = nullptr;
  // What its tokens are multiplied as. Quantised ones have the scales below, and the records are packed for
  // W4A4, also where generated tokens are 16-bit.
  InputFormat input = InputFormat::bf16;
  const float* gate_up_input_scale = nullptr;  // [experts]
  const float* gate_up_input_inverse = nullptr;
  const float* down_input_scale = nullptr;
  const float* down_input_inverse = nullptr;
  int hidden = 0;
  int intermediate = 0;
  int experts = 0;
};

// Lays the weights out on the machine and has them brought there; where sizes alone are wanted, just the
// first.
class WeightLoader {
 public:
  WeightLoader(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
               const LoadOptions& options, std::vector<std::string>& notices, bool sizes_alone = false);

  DenseGroup dense(std::span<const Piece> pieces);
  ExpertRecords experts(ExpertSetId set);
  // 1 + w where the norm says so.
  const float* norm(const Norm& norm);
  const float* vector(VectorId id);
  // The embedding as bf16 rows.
  const std::uint16_t* table(MatrixId id);
  bool sizes_alone() const { return sizes_alone_; }
  // Everything is there. Says once what was widened.
  void finish();

 private:
  const checkpoint::Matrix& matrix(MatrixId id) const { return *program_.matrix(id).matrix; }
  void require_bf16_input(MatrixId id) const;
  // What all matrices of a set take; refused where they differ.
  InputFormat input_of(const ExpertSet& set) const;
  void place_input_scales(const ExpertSet& set, ExpertRecords& out);
  WeightFormat format_of(const Piece& piece) const;
  std::int64_t strips_of(const Piece& piece) const;
  // Says so at the end where the checkpoint has it in another format.
  void note_widened(const checkpoint::Matrix& held_as_bf16);
  RecordRun::Part hold(const Piece& piece, WeightFormat format);

  kernels::Arena& arena_;
  const Program& program_;
  DenseWeights dense_;
  std::vector<std::string>& notices_;
  bool sizes_alone_;
  RecordStream stream_;
  std::map<std::int32_t, const std::uint16_t*> tables_;  // by MatrixId
  std::vector<const checkpoint::Matrix*> widened_;
};

}  // namespace fourfold::backend::cuda
