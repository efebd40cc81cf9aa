#include "backend/cuda/load/record_stream.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "backend/cuda/load/cache_source.h"
#include "backend/cuda/load/checkpoint_source.h"
#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::backend::cuda {

RecordStream::RecordStream(kernels::Machine& machine, const Program& program, const LoadOptions& options,
                           bool sizes_alone)
    : machine_(machine), options_(options), sizes_alone_(sizes_alone) {
  if (sizes_alone) return;
  const bool reads_copy = !options.cache.empty() && find_copy(program);
  writes_copy_ = !options.cache.empty() && !reads_copy;
  uploads_ = std::make_unique<UploadRing>(machine.memory(), slot_bytes_for(program, options));
  if (reads_copy)
    source_ = std::make_unique<CacheSource>(machine.memory(), *uploads_, cache_path_, key_, options.progress);
  else
    source_ = std::make_unique<CheckpointSource>(machine, *uploads_, options.progress);
}

// The uploads's threads use the source.
RecordStream::~RecordStream() { uploads_.reset(); }

bool RecordStream::find_copy(const Program& program) {
  check(options_.checkpoint != nullptr, "a packed copy is one of a checkpoint");
  const bool for_w4a4 =
      std::ranges::any_of(program.matrices, [](const MatrixUse& use) { return quantises(use.input); });
  key_ = {checkpoint::identity_of(*options_.checkpoint), options_.dense, for_w4a4};
  cache_path_ = cache_file(options_.cache, options_.checkpoint->folder(), options_.dense, for_w4a4);
  report_.cache_file = cache_path_.string();
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(cache_path_, ignored));
  report_.from_cache = is_there && !options_.rebuild_cache;
  if (!report_.from_cache && options_.progress != nullptr) {
    std::uint64_t bytes = 0;  // about what will be written; the report's total need not be exact
    for (const MatrixUse& use : program.matrices) bytes += checkpoint::stored_bytes(*use.matrix);
    options_.progress->set_total(options_.progress->bytes_total() + bytes);
  }
  return report_.from_cache;
}

const HeldMatrix& RecordStream::hold(const checkpoint::Matrix& matrix, WeightFormat format) {
  const bool is_anew = format != WeightFormat::bf16 && format != record_format(matrix);
  if (sizes_alone_ && is_anew) {
    HeldMatrix& held = held_.emplace_back(HeldMatrix{&matrix, format, true, {}});
    held.scales.resize(scale_count(matrix, format));
    return held;
  }
  if (!is_anew) {
    if (options_.dense && is_dense(matrix)) ++report_.kept_count;
    return held_.emplace_back(cuda::hold(matrix, format));
  }
  const HeldMatrix& held = held_.emplace_back(source_->hold_anew(matrix, format));
  if (writes_copy_)
    kept_.push_back({scales_name(matrix), nullptr, &held, held.scales.size() * sizeof(float)});
  return held;
}

void RecordStream::place(const RecordRun& run) {
  if (sizes_alone_) return;
  if (writes_copy_) kept_.push_back({piece_name(run), run.to, nullptr, run_bytes(run)});
  source_->place(run);
}

void RecordStream::place_rows(const HeldMatrix& held, std::uint16_t* to) {
  if (sizes_alone_) return;
  if (writes_copy_)
    kept_.push_back(
        {rows_name(held), reinterpret_cast<const unsigned char*>(to), nullptr,
         code_row_bytes(WeightFormat::bf16, held.columns()) * static_cast<std::size_t>(held.matrix->rows)});
  source_->place_rows(held, to);
}

void RecordStream::report_errors(const RoleErrors& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const ErrorSums& sums = errors[i].sums;
    if (errors[i].matrix_count > 0)
      report_.dense.push_back({std::string(checkpoint::role_name(kDenseRoles[i])),
                               static_cast<std::int64_t>(errors[i].matrix_count),
                               sums.squares == 0 ? 0 : std::sqrt(sums.off_squares / sums.squares)});
  }
}

void RecordStream::finish(std::vector<std::string>& notices) {
  source_->finish();
  uploads_->finish();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  report_.bytes_read = source_->bytes_read();
  report_.bytes_in_rows = source_->bytes_in_rows();
  const RoleErrors errors = source_->errors();
  report_errors(errors);
  if (writes_copy_) write_copy(errors, notices);
  if (options_.report != nullptr) *options_.report = report_;
}

void RecordStream::write_copy(const RoleErrors& errors, std::vector<std::string>& notices) {
  std::uint64_t total = sizeof errors;
  for (const Kept& piece : kept_) total += piece.bytes;
  const std::size_t buffer_bytes = uploads_->slot_bytes();
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
        if (options_.progress != nullptr) options_.progress->add(count);
      }
    }
    // What quantising cost is kept with the copy: who loads it does not see the weights it was made from.
    writer.begin("errors", sizeof errors);
    writer.write(std::as_bytes(std::span(errors)));
    writer.publish();
  } catch (const Error& error) {
    if (error.code() != Code::io) throw;
    report_.cache_file.clear();
    notices.push_back(fourfold::format("the packed copy was not written: {}", error.what()));
  }
}

}  // namespace fourfold::backend::cuda
