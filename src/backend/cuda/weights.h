// Weights on the machine: matrices as records, the matrices that share an input as one; vectors as f32. What
// a matrix is multiplied as follows from how the checkpoint stores it; what has no form of its own is widened
// to bf16, and said.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/layers.h"
#include "backend/cuda/upload.h"
#include "backend/program.h"
#include "checkpoint/stream.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

enum class RecordFormat { bf16, fp8, nvfp4 };
constexpr std::string_view format_name(RecordFormat format) {
  return format == RecordFormat::bf16 ? "bf16" : format == RecordFormat::fp8 ? "fp8" : "nvfp4";
}
// What a matrix is multiplied as.
RecordFormat record_format(const checkpoint::Matrix& matrix);
// Bytes of a record of 32 rows and 64 columns.
std::int64_t record_bytes(RecordFormat format);

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
  RecordFormat format = RecordFormat::bf16;
  const unsigned char* records = nullptr;
  const float* row_scale = nullptr;  // [32 * strips]; null: 1
  int strips = 0;
  int plain_strips = 0;  // the rest is gate and up
  int column_records = 0;
  int first_column = 0;  // of its output in the buffer the group shares
  std::vector<PieceStrips> pieces;
  int rows() const { return 32 * strips; }
  int columns() const { return 64 * column_records; }
};

// What reads one input: usually one launch, more where formats differ.
struct DenseGroup {
  std::vector<DenseMatrix> matrices;
  std::vector<int> first_column;  // by piece, in the buffer the plain pieces share
  int width = 0;                  // columns of that buffer
};

struct ExpertRecords {
  RecordFormat format = RecordFormat::nvfp4;
  const unsigned char* gate_up = nullptr;
  const unsigned char* down = nullptr;
  const float* gate_scale = nullptr;  // [experts]
  const float* up_scale = nullptr;
  const float* down_scale = nullptr;
  int hidden = 0;
  int intermediate = 0;
  int experts = 0;
};

struct LoadOptions {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  checkpoint::LoadProgress* progress = nullptr;
};

// Packs on all cores of the host and uploads. A matrix whose bytes were packed before (random weights of a
// bench look at the same table) is copied on the device.
class WeightLoader {
 public:
  WeightLoader(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
               const LoadOptions& options, std::vector<std::string>& notices);

  DenseGroup dense(std::span<const Piece> pieces);
  ExpertRecords experts(ExpertSetId set);
  // 1 + w where the norm says so.
  const float* norm(const Norm& norm);
  const float* vector(VectorId id);
  // The embedding as bf16 rows.
  const std::uint16_t* table(MatrixId id);
  // Says once what was widened.
  void finish();

 private:
  const checkpoint::Matrix& matrix(MatrixId id) const { return *program_.matrix(id).matrix; }
  void require_bf16_input(MatrixId id) const;
  RecordFormat format_of(const Piece& piece) const;
  std::int64_t strips_of(const Piece& piece) const;
  void pack(const Piece& piece, RecordFormat format, std::span<unsigned char> to);
  void place(const Piece& piece, RecordFormat format, unsigned char* to);
  void append_scales(const Piece& piece, RecordFormat format, std::vector<float>& scales) const;
  void read(const checkpoint::Matrix& matrix, const std::function<void(const checkpoint::Matrix&)>& use);

  kernels::Machine& machine_;
  kernels::Arena& arena_;
  const Program& program_;
  LoadOptions options_;
  std::vector<std::string>& notices_;
  Upload upload_;
  std::vector<unsigned char> packed_;                                  // records on their way
  std::map<std::array<const void*, 4>, const unsigned char*> placed_;  // where these bytes lie already
  std::map<std::int32_t, const std::uint16_t*> tables_;                // by MatrixId
  std::vector<const checkpoint::Matrix*> widened_;
};

}  // namespace fourfold::backend::cuda
