#include "backend/cuda/load/record_stream.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "kernels/record/pack.h"
#include "kernels/record/pack_dense.h"

namespace fourfold::backend::cuda {
namespace {

using checkpoint::TensorRole;

constexpr std::size_t kTaskBytes = std::size_t{1} << 20;
constexpr std::array kRoles{TensorRole::attention, TensorRole::delta, TensorRole::shared_expert,
                            TensorRole::dense_mlp, TensorRole::head};

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

// Every matrix fits a slot block by block, a packed copy's megabytes do, and small models do not take 32 MB
// for a few thousand weights.
std::size_t slot_bytes_for(const Program& program, const LoadOptions& options) {
  std::size_t block = 0, total = 0;
  for (const MatrixUse& use : program.matrices) {
    block = std::max(
        block, 2 * record::kRows * 2 * static_cast<std::size_t>(use.matrix->columns + record::kColumns));
    total += checkpoint::stored_bytes(*use.matrix);
  }
  const std::size_t wanted =
      options.slot_bytes != 0 ? options.slot_bytes : std::min(total, Conveyor::kSlotBytes);
  const std::size_t unit = options.cache.empty() ? Conveyor::kAlignment : kCacheBlockBytes;
  return (std::max(wanted, block) + unit - 1) / unit * unit;
}

const void* data_of(const checkpoint::Matrix& matrix) {
  const void* data = nullptr;
  checkpoint::for_each_range(matrix, [&](std::span<const std::byte> range) {
    if (data == nullptr) data = range.data();
  });
  return data;
}

std::size_t scale_count(const checkpoint::Matrix& matrix, WeightFormat format) {
  return format == WeightFormat::nvfp4 ? 2 : static_cast<std::size_t>(matrix.rows);
}

}  // namespace

RecordStream::RecordStream(kernels::Machine& machine, const Program& program, const LoadOptions& options,
                           bool sizes_alone)
    : machine_(machine), options_(options), sizes_alone_(sizes_alone) {
  if (sizes_alone) return;
  if (!options.cache.empty()) open_cache(program);
  const std::size_t slot_bytes = slot_bytes_for(program, options);
  staging_ = static_cast<unsigned char*>(machine.memory().allocate(slot_bytes, "rows to pack"));
  conveyor_ = std::make_unique<Conveyor>(machine.memory(), slot_bytes);
}

RecordStream::~RecordStream() {
  conveyor_.reset();
  try {
    if (staging_ != nullptr) machine_.memory().release(staging_);
  } catch (const Error&) {  // of a device that is lost: what lost it is already on its way
  }
}

void RecordStream::open_cache(const Program& program) {
  check(options_.checkpoint != nullptr, "a packed copy is one of a checkpoint");
  key_ = {checkpoint::identity_of(*options_.checkpoint), options_.dense};
  cache_path_ = cache_file(options_.cache, options_.checkpoint->folder(), options_.dense);
  report_.cache_file = cache_path_.string();
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(cache_path_, ignored));
  if (is_there && !options_.rebuild_cache) {
    cache_.emplace(cache_path_, key_);
    report_.from_cache = true;
    if (options_.progress != nullptr) options_.progress->set_total(cache_->piece_bytes());
  } else if (options_.progress != nullptr) {
    std::uint64_t bytes = 0;  // about what will be written; the report's total need not be exact
    for (const MatrixUse& use : program.matrices) bytes += checkpoint::stored_bytes(*use.matrix);
    options_.progress->set_total(options_.progress->bytes_total() + bytes);
  }
}

const HeldMatrix& RecordStream::hold(const checkpoint::Matrix& matrix, WeightFormat format) {
  const bool is_anew = format != WeightFormat::bf16 && format != record_format(matrix);
  if (sizes_alone_ && is_anew) {
    HeldMatrix& held = held_.emplace_back(HeldMatrix{&matrix, format, true, {}});
    held.scales.resize(scale_count(matrix, format));
    return held;
  }
  if (options_.dense != std::nullopt && !is_anew && is_dense(matrix)) ++report_.kept_count;
  if (!is_anew) return held_.emplace_back(cuda::hold(matrix, format));
  const std::string name = fourfold::format("{} scales", matrix.name);
  const std::size_t bytes = scale_count(matrix, format) * sizeof(float);
  if (cache_) {
    HeldMatrix& held = held_.emplace_back(HeldMatrix{&matrix, format, true, {}});
    held.scales.resize(bytes / sizeof(float));
    cache_->read(cache_->take(name, bytes), 0, std::as_writable_bytes(std::span(held.scales)));
    return held;
  }
  ++role_errors_[checkpoint::role_of(matrix.name)].matrix_count;
  const HeldMatrix& held = held_.emplace_back(cuda::hold(matrix, format));
  if (!cache_path_.empty()) kept_.push_back({name, nullptr, &held, bytes});
  return held;
}

// One task of the conveyor a megabyte.
void RecordStream::fill_part(const HeldMatrix& held, std::int64_t first, std::int64_t count,
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
    if (held.is_anew)
      error = &task_errors_.emplace_back(TaskError{checkpoint::role_of(held.matrix->name), {}}).sums;
    const std::uint64_t bytes = stored * static_cast<std::uint64_t>(there);
    report_.bytes_read += bytes;
    report_.bytes_in_rows += bytes * static_cast<std::uint64_t>(held.matrix->stored_columns()) /
                             static_cast<std::uint64_t>(held.matrix->columns);
    conveyor_->fill([this, &held, part, error, bytes, from = first + row, rows] {
      fill_rows(held, from, rows, part, error);
      add_progress(bytes);
    });
  }
}

void RecordStream::place_cached(const std::string& name, unsigned char* to, std::uint64_t bytes) {
  const CacheReader::Piece piece = cache_->take(name, bytes);
  report_.bytes_read += bytes;
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t most = conveyor_->room() / kCacheBlockBytes * kCacheBlockBytes;
    const std::uint64_t count = std::min<std::uint64_t>(bytes - at, conveyor_->room());
    const std::uint64_t part = count == bytes - at ? count : most;
    if (part == 0) {
      conveyor_->next_slot();
      continue;
    }
    const Conveyor::Place place = conveyor_->reserve(part);
    for (std::uint64_t block = 0; block < part; block += kCacheBlockBytes) {
      const std::uint64_t size = std::min(kCacheBlockBytes, part - block);
      conveyor_->fill([this, piece, from = at + block, host = place.host + block, size] {
        cache_->read(piece, from, {host, size});
        add_progress(size);
      });
    }
    conveyor_->then(
        [this, to = to + at, host = place.host, part] { machine_.memory().send(to, host, part); });
    at += part;
  }
}

void RecordStream::place(const RecordRun& run) {
  if (sizes_alone_) return;
  const RecordRun::Part& head = run.parts.front();
  const std::int64_t columns = head.first->columns();
  const std::int64_t strips_each = head.up != nullptr ? 2 : 1;
  const auto part_bytes = [&](const RecordRun::Part& part) {
    return static_cast<std::size_t>(blocks(part) * strips_each * (columns / record::kColumns) *
                                    record_bytes(head.first->format));
  };
  if (!cache_path_.empty()) {
    std::uint64_t bytes = 0;
    for (const RecordRun::Part& part : run.parts) bytes += part_bytes(part);
    const std::string name = fourfold::format("{} and {} more, {}", head.first->matrix->name,
                                              run.parts.size() - 1, format_name(head.first->format));
    if (cache_) return place_cached(name, run.to, bytes);
    kept_.push_back({name, run.to, nullptr, bytes});
  }
  // A checkpoint's gathered rows differ though their table is one; only a bench's own tables repeat.
  const bool may_repeat = head.first->matrix->source == nullptr;
  unsigned char *to = run.to, *begin_to = to;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < run.parts.size(); to += part_bytes(run.parts[i]), ++i) {
    const RecordRun::Part& part = run.parts[i];
    if (!may_repeat) continue;
    const auto [entry, is_new] = placed_.try_emplace(
        {data_of(*part.first->matrix), part.up == nullptr ? nullptr : data_of(*part.up->matrix),
         part.first->matrix->stored_row(0), part.first->matrix->rows, columns, part.first->format},
        to);
    if (is_new) continue;
    place_parts(run, begin, i, begin_to);
    conveyor_->then([this, to, from = entry->second, bytes = part_bytes(part)] {
      machine_.memory().copy(to, from, bytes);
    });
    for (const HeldMatrix* held : {part.first, part.up})
      if (held != nullptr) add_progress(checkpoint::stored_bytes(*held->matrix));
    begin = i + 1;
    begin_to = to + part_bytes(part);
  }
  place_parts(run, begin, run.parts.size(), begin_to);
}

namespace {

// Where a lot's rows lie in its slot, and the launch that packs them.
struct Lot {
  WeightFormat format;
  std::int64_t columns;
  std::int64_t rows;  // of one of the two matrices
  bool is_gate_up;

  std::size_t codes() const { return static_cast<std::size_t>(rows) * code_row_bytes(format, columns); }
  std::size_t scales() const { return static_cast<std::size_t>(rows) * scale_row_bytes(format, columns); }
  std::size_t bytes() const { return (codes() + scales()) * (is_gate_up ? 2 : 1); }

  void pack(kernels::Machine& machine, const unsigned char* from, unsigned char* to) const {
    const unsigned char* up = from + codes() + scales();
    const record::RowOrder order = is_gate_up ? record::RowOrder::gate_up : record::RowOrder::plain;
    const std::int64_t all_rows = rows * (is_gate_up ? 2 : 1);
    if (format == WeightFormat::nvfp4)
      return machine.pack({.matrix = {from, from + codes()},
                           .up = {is_gate_up ? up : nullptr, is_gate_up ? up + codes() : nullptr},
                           .records = to,
                           .rows = all_rows,
                           .columns = columns,
                           .row_order = order,
                           .bit_order = record::BitOrder::half},
                          false);
    machine.pack_dense(
        {.matrix = from,
         .up = is_gate_up ? up : nullptr,
         .records = to,
         .rows = all_rows,
         .columns = columns,
         .row_stride = 0,
         .source = format == WeightFormat::fp8 ? record::DenseSource::e4m3 : record::DenseSource::bf16,
         .row_order = order});
  }
};

}  // namespace

// Lots of as many blocks as a slot has room for; each is one launch.
void RecordStream::place_parts(const RecordRun& run, std::size_t begin, std::size_t end, unsigned char* to) {
  std::int64_t left = 0;
  for (std::size_t i = begin; i < end; ++i) left += blocks(run.parts[i]);
  std::int64_t part_block = 0;  // done of run.parts[begin]
  while (left > 0) {
    const HeldMatrix& head = *run.parts[begin].first;
    const bool is_gate_up = run.parts[begin].up != nullptr;
    const std::size_t each = block_bytes(head) * (is_gate_up ? 2 : 1);
    auto count = std::min(left, static_cast<std::int64_t>(conveyor_->room() / each));
    // A crumb at a slot's end would be a launch of its own.
    if (count == 0 || (count < left && conveyor_->room() < conveyor_->slot_bytes() / 4)) {
      conveyor_->next_slot();
      continue;
    }
    const Lot lot{head.format, head.columns(), count * record::kRows, is_gate_up};
    const Conveyor::Place place = conveyor_->reserve(lot.bytes());
    left -= count;
    for (std::int64_t done = 0; done < count;) {
      const RecordRun::Part& part = run.parts[begin];
      const std::int64_t all = blocks(part), some = std::min(all - part_block, count - done);
      const auto at = static_cast<std::size_t>(done * record::kRows);
      std::byte* codes = place.host;
      for (const HeldMatrix* held : {part.first, part.up}) {
        if (held == nullptr) continue;
        fill_part(*held, part_block * record::kRows, some * record::kRows,
                  {codes + at * code_row_bytes(lot.format, lot.columns),
                   codes + lot.codes() + at * scale_row_bytes(lot.format, lot.columns)});
        codes += lot.codes() + lot.scales();
      }
      done += some;
      part_block = part_block + some == all ? 0 : part_block + some;
      if (part_block == 0) ++begin;
    }
    conveyor_->then([this, lot, place, to] {
      machine_.memory().send(staging_ + place.offset, place.host, lot.bytes());
      lot.pack(machine_, staging_ + place.offset, to);
    });
    to += count * (is_gate_up ? 2 : 1) * (lot.columns / record::kColumns) * record_bytes(lot.format);
  }
}

void RecordStream::place_rows(const HeldMatrix& held, std::uint16_t* to) {
  if (sizes_alone_) return;
  const std::size_t row_bytes = code_row_bytes(WeightFormat::bf16, held.matrix->columns);
  const std::uint64_t bytes = row_bytes * static_cast<std::size_t>(held.matrix->rows);
  auto* at = reinterpret_cast<unsigned char*>(to);
  if (!cache_path_.empty()) {
    const std::string name = fourfold::format("{} rows", held.matrix->name);
    if (cache_) return place_cached(name, at, bytes);
    kept_.push_back({name, at, nullptr, bytes});
  }
  for (std::int64_t row = 0; row < held.matrix->rows;) {
    const auto count =
        std::min(held.matrix->rows - row, static_cast<std::int64_t>(conveyor_->room() / row_bytes));
    if (count == 0) {
      conveyor_->next_slot();
      continue;
    }
    const std::size_t part = static_cast<std::size_t>(count) * row_bytes;
    const Conveyor::Place place = conveyor_->reserve(part);
    fill_part(held, row, count, {place.host, nullptr});
    conveyor_->then([this, at, place, part] { machine_.memory().send(at, place.host, part); });
    at += part;
    row += count;
  }
}

std::map<TensorRole, RecordStream::RoleError> RecordStream::errors() const {
  auto all = role_errors_;
  for (const TaskError& task : task_errors_) {
    all[task.role].sums.squares += task.sums.squares;
    all[task.role].sums.off_squares += task.sums.off_squares;
  }
  return all;
}

void RecordStream::report_errors() {
  const auto all = errors();
  for (const TensorRole role : kRoles)
    if (const auto found = all.find(role); found != all.end()) {
      const ErrorSums& sums = found->second.sums;
      report_.dense.push_back({std::string(checkpoint::role_name(role)),
                               static_cast<std::int64_t>(found->second.matrix_count),
                               sums.squares == 0 ? 0 : std::sqrt(sums.off_squares / sums.squares)});
    }
}

void RecordStream::finish(std::vector<std::string>& notices) {
  // What quantising cost is kept with the copy: who loads it does not see the weights it was made from.
  std::array<RoleError, kRoles.size()> table{};
  if (cache_) {
    const auto piece = cache_->take("errors", sizeof table);
    cache_->read(piece, 0, std::as_writable_bytes(std::span(table)));
    for (std::size_t i = 0; i < table.size(); ++i)
      if (table[i].matrix_count > 0) role_errors_[kRoles[i]] = table[i];
  }
  conveyor_->finish();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  report_errors();
  if (!cache_path_.empty() && !cache_) write_cache(notices);
  if (options_.report != nullptr) *options_.report = report_;
}

void RecordStream::write_cache(std::vector<std::string>& notices) {
  std::array<RoleError, kRoles.size()> table{};
  const auto all = errors();
  for (std::size_t i = 0; i < table.size(); ++i)
    if (const auto found = all.find(kRoles[i]); found != all.end()) table[i] = found->second;
  std::uint64_t total = sizeof table;
  for (const Kept& piece : kept_) total += piece.bytes;
  const std::size_t buffer_bytes = conveyor_->slot_bytes();
  const std::unique_ptr<std::byte, std::function<void(std::byte*)>> buffer(
      static_cast<std::byte*>(machine_.memory().allocate_host(buffer_bytes)),
      [this](std::byte* memory) { machine_.memory().release_host(memory); });
  try {
    CacheWriter writer(cache_path_, key_, total);
    for (const Kept& piece : kept_) {
      writer.begin(piece.name, piece.bytes);
      if (piece.scales != nullptr) {
        writer.write(std::as_bytes(std::span(piece.scales->scales)));
        continue;
      }
      for (std::uint64_t at = 0; at < piece.bytes; at += buffer_bytes) {
        const std::uint64_t count = std::min<std::uint64_t>(buffer_bytes, piece.bytes - at);
        machine_.memory().read(buffer.get(), piece.records + at, count);
        writer.write({buffer.get(), count});
        add_progress(count);
      }
    }
    writer.begin("errors", sizeof table);
    writer.write(std::as_bytes(std::span(table)));
    writer.publish();
  } catch (const Error& error) {
    if (error.code() != Code::io) throw;
    report_.cache_file.clear();
    notices.push_back(fourfold::format("the packed copy was not written: {}", error.what()));
  }
}

}  // namespace fourfold::backend::cuda
