// Records on their way from a checkpoint, or from its packed copy, to their places on the machine: rows are
// read by the conveyor's threads as they are stored, copied, and packed by the machine itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cuda/load/conveyor.h"
#include "backend/cuda/load/held_matrix.h"
#include "backend/cuda/load/load_options.h"
#include "backend/cuda/load/record_cache.h"
#include "backend/program.h"
#include "checkpoint/stream.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

// Matrices of one form and width whose records lie one behind another: packed as if they were one.
struct RecordRun {
  struct Part {
    const HeldMatrix* first = nullptr;
    const HeldMatrix* up = nullptr;  // gate and up interleaved
  };
  std::vector<Part> parts;  // each padded to whole strips; all with up, or none
  unsigned char* to = nullptr;
};

class RecordStream {
 public:
  // sizes_alone: nothing is read and nothing placed; matrices are held without their scales.
  RecordStream(kernels::Machine& machine, const Program& program, const LoadOptions& options,
               bool sizes_alone = false);
  ~RecordStream();

  // The matrix in this form. Lives as long as the stream.
  const HeldMatrix& hold(const checkpoint::Matrix& matrix, WeightFormat format);
  void place(const RecordRun& run);
  // bf16 rows one behind another, as they are.
  void place_rows(const HeldMatrix& held, std::uint16_t* to);
  // Everything is in its place; then the packed copy is written, if one was asked for. What went wrong with
  // that is a notice: the model is there.
  void finish(std::vector<std::string>& notices);

 private:
  // A piece of the packed copy that is to be written: on the machine, or the scales of a matrix made anew.
  struct Kept {
    std::string name;
    const unsigned char* records = nullptr;
    const HeldMatrix* scales = nullptr;
    std::uint64_t bytes = 0;
  };
  struct TaskError {
    checkpoint::TensorRole role;
    ErrorSums sums;
  };
  struct RoleError {
    ErrorSums sums;
    double matrix_count = 0;
  };

  void open_cache(const Program& program);
  void place_cached(const std::string& name, unsigned char* to, std::uint64_t bytes);
  void place_parts(const RecordRun& run, std::size_t begin, std::size_t end, unsigned char* to);
  void fill_part(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to);
  std::map<checkpoint::TensorRole, RoleError> errors() const;
  void report_errors();
  void write_cache(std::vector<std::string>& notices);
  void add_progress(std::uint64_t bytes) {
    if (options_.progress != nullptr) options_.progress->add(bytes);
  }

  kernels::Machine& machine_;
  const LoadOptions& options_;
  bool sizes_alone_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  LoadReport report_;
  CacheKey key_;
  std::filesystem::path cache_path_;  // empty: no packed copy
  std::optional<CacheReader> cache_;
  std::vector<Kept> kept_;
  std::deque<HeldMatrix> held_;
  std::deque<TaskError> task_errors_;  // in the order of the tasks, so that their sum is always the same
  std::map<checkpoint::TensorRole, RoleError> role_errors_;
  // Where the records of these bytes lie already: random weights of a bench look at one table. Data of both
  // matrices, first stored row, rows, columns, form.
  std::map<std::tuple<const void*, const void*, std::int64_t, std::int64_t, std::int64_t, WeightFormat>,
           const unsigned char*>
      placed_;
  unsigned char* staging_ = nullptr;  // a slot's rows on the machine, before they are packed
  std::unique_ptr<Conveyor> conveyor_;
};

}  // namespace fourfold::backend::cuda
