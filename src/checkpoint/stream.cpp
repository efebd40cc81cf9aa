#include "checkpoint/stream.h"

#include <algorithm>

namespace fourfold::checkpoint {

void LoadProgress::add(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_done_ += bytes;
  // A matrix that two places hold is read twice; nobody wants to hear of 101 percent.
  if (report_) report_(std::min(bytes_done_, bytes_total_), bytes_total_);
}

void LoadProgress::set_total(std::uint64_t bytes_total) {
  const std::lock_guard lock(mutex_);
  bytes_total_ = bytes_total;
}

std::uint64_t stored_bytes(const ModelWeights& weights) {
  std::uint64_t bytes = 0;
  for_each_matrix(weights, [&](const Matrix& matrix) { bytes += stored_bytes(matrix); });
  return bytes;
}

void stream_matrix(const Matrix& matrix, const std::function<void(LoadedMatrix)>& pack,
                   LoadProgress& progress) {
  LoadedMatrix loaded = load(matrix);
  validate(loaded.matrix);
  pack(std::move(loaded));
  progress.add(stored_bytes(matrix));
}

}  // namespace fourfold::checkpoint
