// Weights on the machine: matrices as records, the matrices that share an input as one; vectors as f32. What
// a matrix is multiplied as follows from how the checkpoint stores it; what has no form of its own is widened
// to bf16, and said.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/load/layers.h"
#include "backend/cuda/load/record_stream.h"
#include "backend/program.h"
#include "kernels/dense/dense_params.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/machine.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {

// A matrix, or gate and up of an MLP interleaved (up.index >= 0), whose result `down` takes.
struct Piece {
  MatrixId matrix;
  MatrixId up = {};
  MatrixId down = {};
  OptionalVectorId bias = {};  // of a matrix alone
  bool is_gate_up() const { return up.index >= 0; }
};

// Where a piece lies in its matrix. The scales are its global ones, on the device, 1 where there are none.
struct PieceStrips {
  int first_strip = 0;
  int strips = 0;
  bool is_gate_up = false;
  const float* scale = nullptr;
  const float* scale_up = nullptr;
  // FP4 inputs alone: the input scale, and on the device it, its reciprocal, and the reciprocal of the one
  // that the result of gate and up is quantised with.
  Nvfp4InputScale input{1, 1};
  const float* input_scale = nullptr;
  const float* input_inverse = nullptr;
  const float* next_inverse = nullptr;
};

// Pieces of one format and input one after another, each padded to whole strips: one launch, or with FP4
// inputs one for each piece.
struct DenseMatrix {
  WeightFormat format = WeightFormat::bf16;
  // What its rows are multiplied as. Where some are quantised the records are packed for W4A4 (decision
  // 0022).
  InputFormat input = InputFormat::bf16;
  const unsigned char* records = nullptr;
  const float* row_scale = nullptr;  // [32 * strips]; null: 1
  const float* bias = nullptr;       // [32 * plain_strips] of f32 results; null: none
  int strips = 0;
  int plain_strips = 0;  // the rest is gate and up
  int column_records = 0;
  int first_column = 0;  // of its output in the buffer the group shares
  std::vector<PieceStrips> pieces;
  // FP8 inputs of prompt rows (W8A8): the matrix's own input scale, on the device, and its reciprocal; null
  // and 0: every row has a factor of its own.
  const float* input_scale = nullptr;
  float input_inverse = 0;
  bool takes_fp8() const { return input == InputFormat::fp8_prefill; }
  int rows() const { return record::kRows * strips; }
  int columns() const { return record::kColumns * column_records; }
};

// What reads one input: usually one launch, more where formats differ.
struct DenseGroup {
  std::vector<DenseMatrix> matrices;
  std::vector<int> first_column;  // by piece, in the buffer the plain pieces share
  int width = 0;                  // columns of that buffer
  // What its matrices read of prompt rows: the one that reads E4M3 codes (null: none does), and whether some
  // read staged rows.
  const DenseMatrix* fp8_reader() const;
  bool reads_staged() const;
};

// The input scales, as reciprocals, that a norm quantises its rows with: no more than it has room for.
struct Fp4Scales {
  std::array<float, dense::kFp4Sets> inverse{};
  int count = 0;
  void want(float its);  // where it is not there and there is room
  // Its place; -1: the rows are quantised behind the norm.
  int find(float its) const;
};

struct ExpertRecords {
  WeightFormat format = WeightFormat::nvfp4;
  const unsigned char* gate_up = nullptr;
  const unsigned char* down = nullptr;
  const float* gate_scale = nullptr;  // [experts]
  const float* up_scale = nullptr;
  const float* down_scale = nullptr;
  // FP8 instead: of every row, [experts][gate rows, up rows] and [experts][rows].
  const float* gate_up_row_scale = nullptr;
  const float* down_row_scale = nullptr;
  // What its tokens are multiplied as. Quantised ones have the scales below, and the records are packed for
  // W4A4, also where generated tokens are 16-bit.
  InputFormat input = InputFormat::bf16;
  const float* gate_up_input_scale = nullptr;  // [experts]
  const float* gate_up_input_inverse = nullptr;
  const float* down_input_scale = nullptr;
  const float* down_input_inverse = nullptr;
  // The reciprocal of gate's and up's, where all experts have the same: then the norm quantises their tokens.
  std::optional<float> common_inverse;
  // Null: none. [experts][gate rows, up rows] and [experts][rows], as the row scales above.
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
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
  // The embedding, or the matrices of heads, as bf16 rows with zeros up to a whole record.
  const std::uint16_t* table(MatrixId id, const char* what);
  bool sizes_alone() const { return sizes_alone_; }
  // Everything is there. Says once what was widened.
  void finish();

 private:
  const checkpoint::Matrix& matrix(MatrixId id) const { return *program_.matrix(id).matrix; }
  // What all of these take, refused where they differ or the backend has no such inputs; `what` they are.
  InputFormat common_input(std::span<const MatrixId> ids, std::string_view what) const;
  // The FP8 input scale of matrices that share their input; refused where they differ.
  void place_fp8_scale(std::span<const Piece> pieces, std::span<const std::size_t> members, DenseMatrix& out);
  InputFormat input_of(const ExpertSet& set) const;
  InputFormat input_of(const Piece& piece) const;
  Nvfp4InputScale input_scale_of(MatrixId id) const;
  // Of gate and up, which read the same quantised rows; refused where they differ.
  Nvfp4InputScale input_scale_of(MatrixId gate, MatrixId up) const;
  void place_input_scale(const Piece& piece, PieceStrips& out);
  void place_input_scales(const ExpertSet& set, ExpertRecords& out);
  void place_biases(const ExpertSet& set, ExpertRecords& out);
  WeightFormat format_of(const Piece& piece) const;
  std::int64_t strips_of(const Piece& piece) const;
  // Says so at the end where the checkpoint has it in another format.
  void note_widened(const checkpoint::Matrix& held_as_bf16, bool is_mixed = false);
  // is_mixed: of experts whose layer has several formats; that is a notice of its own.
  RecordRun::Part hold(const Piece& piece, WeightFormat format, bool is_mixed = false);
  void mention_mixed();
  // The matrix of these members of a group, behind the columns that the group has.
  DenseMatrix dense_matrix(std::span<const Piece> pieces, std::span<const std::size_t> members,
                           WeightFormat format, InputFormat input, DenseGroup& group);

  const plan::ArchFacts& arch_;
  kernels::Arena& arena_;
  const Program& program_;
  DenseWeights dense_;
  std::vector<std::string>& notices_;
  bool sizes_alone_;
  RecordStream stream_;
  std::map<std::int32_t, const std::uint16_t*> tables_;  // by MatrixId
  std::vector<const checkpoint::Matrix*> widened_;
  std::vector<std::string> apart_;                // layers whose experts have input scales of their own
  std::vector<std::string> mixed_layers_;         // whose experts are stored in several formats
  std::vector<const checkpoint::Matrix*> mixed_;  // all matrices of these experts
};

// What the norm in front of the group quantises for it, and for experts of one input scale, which come first.
Fp4Scales scales_behind_norm(const DenseGroup& group, std::optional<float> experts = std::nullopt);

}  // namespace fourfold::backend::cuda
