#include "backend/cuda/load/record_plan.h"

#include <algorithm>

#include "backend/cuda/load/record_cache.h"
#include "backend/cuda/load/upload_ring.h"
#include "base/format.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {
namespace {

// Strips are cut in blocks of 32 rows of a matrix: one strip, or two where gate and up are interleaved.
// Neurons are padded to whole records: they are the columns of the matrix behind them.
std::int64_t blocks(const RecordRun::Part& part) {
  const std::int64_t grain = part.up != nullptr ? record::kColumns : record::kRows;
  return (part.first->matrix->rows + grain - 1) / grain * (grain / record::kRows);
}

std::size_t block_bytes(const HeldMatrix& held) {
  return record::kRows *
         (code_row_bytes(held.format, held.columns()) + scale_row_bytes(held.format, held.columns()));
}

std::uint64_t strip_bytes(WeightFormat format, std::int64_t columns) {
  return static_cast<std::uint64_t>(columns / record::kColumns * record_bytes(format));
}

}  // namespace

std::uint64_t part_bytes(const RecordRun::Part& part) {
  const auto strips = static_cast<std::uint64_t>(blocks(part) * (part.up != nullptr ? 2 : 1));
  return strips * strip_bytes(part.first->format, part.first->columns());
}

std::uint64_t run_bytes(const RecordRun& run) {
  std::uint64_t bytes = 0;
  for (const RecordRun::Part& part : run.parts) bytes += part_bytes(part);
  return bytes;
}

std::string piece_name(const RecordRun& run) {
  const HeldMatrix& head = *run.parts.front().first;
  return fourfold::format("{} and {} more, {}{}", head.matrix->name, run.parts.size() - 1,
                          format_name(head.format), run.order == record::BitOrder::fp4 ? " for w4a4" : "");
}
std::string rows_name(const HeldMatrix& held) { return fourfold::format("{} rows", held.matrix->name); }
std::string scales_name(const checkpoint::Matrix& matrix) {
  return fourfold::format("{} scales", matrix.name);
}

std::size_t scale_count(const checkpoint::Matrix& matrix, WeightFormat format) {
  return format == WeightFormat::nvfp4 ? 2 : static_cast<std::size_t>(matrix.rows);
}

std::size_t slot_bytes_for(const Program& program, const LoadOptions& options) {
  std::size_t block = 0, total = 0;
  for (const MatrixUse& use : program.matrices) {
    block = std::max(
        block, 2 * record::kRows * 2 * static_cast<std::size_t>(use.matrix->columns + record::kColumns));
    total += checkpoint::stored_bytes(*use.matrix);
  }
  const std::size_t wanted =
      options.slot_bytes != 0 ? options.slot_bytes : std::min(total, UploadRing::kSlotBytes);
  const std::size_t unit = options.cache.empty() ? UploadRing::kAlignment : kCacheBlockBytes;
  return (std::max(wanted, block) + unit - 1) / unit * unit;
}

std::uint64_t Lot::record_bytes() const {
  return static_cast<std::uint64_t>(rows / record::kRows * (is_gate_up ? 2 : 1)) *
         strip_bytes(format, columns);
}

LotCutter::LotCutter(const RecordRun& run, std::size_t begin, std::size_t end) : run_(run), part_(begin) {
  for (std::size_t i = begin; i < end; ++i) left_ += blocks(run.parts[i]);
}

std::optional<CutLot> LotCutter::next(std::size_t room, std::size_t slot_bytes) {
  const HeldMatrix& head = *run_.parts[part_].first;
  const bool is_gate_up = run_.parts[part_].up != nullptr;
  const std::size_t each = block_bytes(head) * (is_gate_up ? 2 : 1);
  const auto count = std::min(left_, static_cast<std::int64_t>(room / each));
  // A crumb at a slot's end would be a launch of its own.
  if (count == 0 || (count < left_ && room < slot_bytes / 4)) return std::nullopt;
  CutLot cut{{head.format, head.columns(), count * record::kRows, is_gate_up, run_.order}, {}};
  for (std::int64_t done = 0; done < count;) {
    const RecordRun::Part& part = run_.parts[part_];
    const std::int64_t all = blocks(part), some = std::min(all - block_, count - done);
    cut.shares.push_back({&part, block_ * record::kRows, some * record::kRows, done * record::kRows});
    done += some;
    block_ = block_ + some == all ? 0 : block_ + some;
    if (block_ == 0) ++part_;
  }
  left_ -= count;
  return cut;
}

}  // namespace fourfold::backend::cuda
