#include "backend/cuda/load/checkpoint_source.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "kernels/record/launch_pack.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{1} << 20;

std::size_t role_index(const checkpoint::Matrix& matrix) {
  const auto* found = std::find(kDenseRoles.begin(), kDenseRoles.end(), matrix.role);
  check(found != kDenseRoles.end(), "only dense matrices are quantised at load", matrix.name);
  return static_cast<std::size_t>(found - kDenseRoles.begin());
}

const void* data_of(const checkpoint::Matrix& matrix) {
  const void* data = nullptr;
  checkpoint::for_each_range(matrix, [&](std::span<const std::byte> range) {
    if (data == nullptr) data = range.data();
  });
  return data;
}

record::DenseSource dense_source(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16: return record::DenseSource::bf16;
    case WeightFormat::fp8: return record::DenseSource::e4m3;
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  fail(Code::internal, "no dense records of {} weights", format_name(format));
}

// Packs a lot's rows, which lie at `from` on the machine.
void pack(kernels::Machine& machine, const Lot& lot, const unsigned char* from, unsigned char* to) {
  const unsigned char* up = from + lot.codes() + lot.scales();
  const record::RowOrder order = lot.is_gate_up ? record::RowOrder::gate_up : record::RowOrder::plain;
  const std::int64_t all_rows = lot.rows * (lot.is_gate_up ? 2 : 1);
  const record::PackRows pack_rows = record::find_pack_rows(machine);
  if (lot.format == WeightFormat::nvfp4 || lot.format == WeightFormat::mxfp4)
    return record::launch_pack(
        machine, pack_rows,
        {.matrix = {from, from + lot.codes()},
         .up = {lot.is_gate_up ? up : nullptr, lot.is_gate_up ? up + lot.codes() : nullptr},
         .records = to,
         .rows = all_rows,
         .columns = lot.columns,
         .row_order = order,
         .bit_order = lot.order},
        lot.format == WeightFormat::mxfp4);
  record::launch_pack_dense(machine, pack_rows,
                            {.matrix = from,
                             .up = lot.is_gate_up ? up : nullptr,
                             .records = to,
                             .rows = all_rows,
                             .columns = lot.columns,
                             .row_stride = 0,
                             .source = dense_source(lot.format),
                             .row_order = order});
}

}  // namespace

CheckpointSource::CheckpointSource(kernels::Machine& machine, UploadRing& uploads,
                                   checkpoint::LoadProgress* progress)
    : machine_(machine),
      uploads_(uploads),
      progress_(progress),
      staging_(static_cast<unsigned char*>(machine.memory().allocate(uploads.slot_bytes(), "rows to pack"))) {
}

CheckpointSource::~CheckpointSource() {
  try {
    machine_.memory().release(staging_);
  } catch (const Error&) {  // of a device that is lost: what lost it is already on its way
  }
}

HeldMatrix CheckpointSource::hold_anew(const checkpoint::Matrix& matrix, WeightFormat format) {
  ++role_errors_[role_index(matrix)].matrix_count;
  return cuda::hold(matrix, format);
}

// One task of the uploads a megabyte.
void CheckpointSource::fill_part(const HeldMatrix& held, std::int64_t first, std::int64_t count,
                                 const FillTarget& to) {
  const std::size_t code_bytes = code_row_bytes(held.format, held.columns());
  const std::size_t scale_bytes = scale_row_bytes(held.format, held.columns());
  const std::uint64_t stored =
      checkpoint::stored_bytes(*held.matrix) / static_cast<std::uint64_t>(held.matrix->rows);
  const auto step = std::max<std::int64_t>(1, static_cast<std::int64_t>(kTaskBytes / code_bytes));
  for (std::int64_t row = 0; row < count; row += step) {
    const std::int64_t rows = std::min(step, count - row);
    const std::int64_t there = std::clamp<std::int64_t>(held.matrix->rows - first - row, 0, rows);
    const auto at = static_cast<std::size_t>(row);
    const FillTarget part{to.codes + at * code_bytes,
                          to.scales == nullptr ? nullptr : to.scales + at * scale_bytes};
    ErrorSums* error = nullptr;
    if (held.is_anew) error = &task_errors_.emplace_back(TaskError{role_index(*held.matrix), {}}).sums;
    const std::uint64_t bytes = stored * static_cast<std::uint64_t>(there);
    bytes_read_ += bytes;
    bytes_in_rows_ += bytes * static_cast<std::uint64_t>(held.matrix->stored_columns()) /
                      static_cast<std::uint64_t>(held.matrix->columns);
    uploads_.fill([this, &held, part, error, bytes, from = first + row, rows] {
      fill_rows(held, from, rows, part, error);
      add_progress(bytes);
    });
  }
}

void CheckpointSource::place(const RecordRun& run) {
  // A checkpoint's gathered rows differ though their table is one; only a bench's own tables repeat.
  const bool may_repeat = run.parts.front().first->matrix->source == nullptr;
  unsigned char *to = run.to, *begin_to = to;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < run.parts.size(); to += part_bytes(run.parts[i]), ++i) {
    const RecordRun::Part& part = run.parts[i];
    if (!may_repeat) continue;
    const auto [entry, is_new] =
        placed_.try_emplace({data_of(*part.first->matrix), part.first->matrix->stored_row(0),
                             part.up == nullptr ? nullptr : data_of(*part.up->matrix),
                             part.up == nullptr ? 0 : part.up->matrix->stored_row(0),
                             part.first->matrix->rows, part.first->columns(), part.first->format, run.order},
                            to);
    if (is_new) continue;
    place_parts(run, begin, i, begin_to);
    uploads_.then([this, to, from = entry->second, bytes = part_bytes(part)] {
      machine_.memory().copy(to, from, bytes);
    });
    for (const HeldMatrix* held : {part.first, part.up})
      if (held != nullptr) add_progress(checkpoint::stored_bytes(*held->matrix));
    begin = i + 1;
    begin_to = to + part_bytes(part);
  }
  place_parts(run, begin, run.parts.size(), begin_to);
}

// Each lot is one launch.
void CheckpointSource::place_parts(const RecordRun& run, std::size_t begin, std::size_t end,
                                   unsigned char* to) {
  for (LotCutter cutter(run, begin, end); !cutter.is_done();) {
    const std::optional<CutLot> cut = cutter.next(uploads_.room(), uploads_.slot_bytes());
    if (!cut) {
      uploads_.next_slot();
      continue;
    }
    const Lot& lot = cut->lot;
    const UploadRing::Place place = uploads_.reserve(lot.bytes());
    for (const LotShare& share : cut->shares) {
      const auto at = static_cast<std::size_t>(share.at);
      std::byte* codes = place.host;
      for (const HeldMatrix* held : {share.part->first, share.part->up}) {
        if (held == nullptr) continue;
        fill_part(*held, share.first_row, share.rows,
                  {codes + at * code_row_bytes(lot.format, lot.columns),
                   codes + lot.codes() + at * scale_row_bytes(lot.format, lot.columns)});
        codes += lot.codes() + lot.scales();
      }
    }
    uploads_.then([this, lot, place, to] {
      machine_.memory().send(staging_ + place.offset, place.host, lot.bytes());
      pack(machine_, lot, staging_ + place.offset, to);
    });
    to += lot.record_bytes();
  }
}

void CheckpointSource::place_rows(const HeldMatrix& held, std::uint16_t* to) {
  const std::size_t row_bytes = code_row_bytes(WeightFormat::bf16, held.columns());
  auto* at = reinterpret_cast<unsigned char*>(to);
  for (std::int64_t row = 0; row < held.matrix->rows;) {
    const auto count =
        std::min(held.matrix->rows - row, static_cast<std::int64_t>(uploads_.room() / row_bytes));
    if (count == 0) {
      uploads_.next_slot();
      continue;
    }
    const std::size_t part = static_cast<std::size_t>(count) * row_bytes;
    const UploadRing::Place place = uploads_.reserve(part);
    fill_part(held, row, count, {place.host, nullptr});
    uploads_.then([this, at, place, part] { machine_.memory().send(at, place.host, part); });
    at += part;
    row += count;
  }
}

RoleErrors CheckpointSource::errors() const {
  RoleErrors all = role_errors_;
  for (const TaskError& task : task_errors_) {
    all[task.role].sums.squares += task.sums.squares;
    all[task.role].sums.off_squares += task.sums.off_squares;
  }
  return all;
}

}  // namespace fourfold::backend::cuda
