// What loading brings where, in numbers alone: the records of a run, their bytes, and the lots in which their
// rows pass through the uploads's slots. Nothing here reads or writes a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/load/held_matrix.h"
#include "backend/cuda/load/load_options.h"
#include "backend/program.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {

// Matrices of one form and width whose records lie one behind another: packed as if they were one.
struct RecordRun {
  struct Part {
    const HeldMatrix* first = nullptr;
    const HeldMatrix* up = nullptr;  // gate and up interleaved
  };
  std::vector<Part> parts;  // each padded to whole strips; all with up, or none
  unsigned char* to = nullptr;
  record::BitOrder order = record::BitOrder::half;  // of NVFP4
};

// Of records.
std::uint64_t part_bytes(const RecordRun::Part& part);
std::uint64_t run_bytes(const RecordRun& run);

// Of the pieces of a packed copy.
std::string piece_name(const RecordRun& run);
std::string rows_name(const HeldMatrix& held);
std::string scales_name(const checkpoint::Matrix& matrix);

// Scales of a matrix that is quantised anew.
std::size_t scale_count(const checkpoint::Matrix& matrix, WeightFormat format);

// Of one slot: every matrix fits it block by block, a packed copy's megabytes do, and small models do not
// take 32 MB for a few thousand weights.
std::size_t slot_bytes_for(const Program& program, const LoadOptions& options);

// Rows that are packed by one launch. In a slot: codes, then scales; then those of up.
struct Lot {
  WeightFormat format = WeightFormat::bf16;
  std::int64_t columns = 0;
  std::int64_t rows = 0;  // of one of the two matrices
  bool is_gate_up = false;
  record::BitOrder order = record::BitOrder::half;

  std::size_t codes() const { return static_cast<std::size_t>(rows) * code_row_bytes(format, columns); }
  std::size_t scales() const { return static_cast<std::size_t>(rows) * scale_row_bytes(format, columns); }
  std::size_t bytes() const { return (codes() + scales()) * (is_gate_up ? 2 : 1); }
  std::uint64_t record_bytes() const;
};
// The rows of one part in it.
struct LotShare {
  const RecordRun::Part* part = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;  // some may lie behind the matrix's last
  std::int64_t at = 0;    // row of the lot
};
struct CutLot {
  Lot lot;
  std::vector<LotShare> shares;
};

// Cuts parts [begin, end) of a run, which outlives it, into lots.
class LotCutter {
 public:
  LotCutter(const RecordRun& run, std::size_t begin, std::size_t end);
  bool is_done() const { return left_ == 0; }
  // As much as a slot has room for; none where what comes next should begin a new slot.
  std::optional<CutLot> next(std::size_t room, std::size_t slot_bytes);

 private:
  const RecordRun& run_;
  std::size_t part_;
  std::int64_t left_ = 0;   // blocks
  std::int64_t block_ = 0;  // done of the part
};

}  // namespace fourfold::backend::cuda
