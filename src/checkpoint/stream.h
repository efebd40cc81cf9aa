// Streams matrices out of a checkpoint into whatever the caller packs them into, without holding all of both:
// a matrix leaves memory as soon as it is packed.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "checkpoint/load_matrix.h"
#include "checkpoint/weights.h"

namespace fourfold::checkpoint {

// Bytes done of bytes in all. Threads may add at the same time; reports come one at a time and never go back.
class LoadProgress {
 public:
  using Report = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;
  LoadProgress(std::uint64_t bytes_total, Report report)
      : bytes_total_(bytes_total), report_(std::move(report)) {}

  void add(std::uint64_t bytes);
  // For loaders that find out more: a packed copy has other bytes than the checkpoint.
  void set_total(std::uint64_t bytes_total);
  std::uint64_t bytes_total() const { return bytes_total_; }

 private:
  std::mutex mutex_;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t bytes_total_;
  Report report_;
};

// What for_each_matrix visits, in file bytes: the total of a LoadProgress.
std::uint64_t stored_bytes(const ModelWeights& weights);

// Load, validate, pack, progress: the matrix is in memory while it is packed. Safe to call from several
// threads for different matrices.
void stream_matrix(const Matrix& matrix, const std::function<void(LoadedMatrix)>& pack,
                   LoadProgress& progress);

}  // namespace fourfold::checkpoint
