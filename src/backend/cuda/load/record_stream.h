// Records on their way to their places on the machine, from a checkpoint or from its packed copy; and the
// packed copy, where one is to be written. What is read is planned in record_plan.h and done by a source.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/load/record_cache.h"
#include "backend/cuda/load/record_source.h"
#include "backend/cuda/load/upload_ring.h"
#include "backend/program.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

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

  // Whether there is a packed copy to be read.
  bool find_copy(const Program& program);
  void report_errors(const RoleErrors& errors);
  void write_copy(const RoleErrors& errors, std::vector<std::string>& notices);

  kernels::Machine& machine_;
  const LoadOptions& options_;
  bool sizes_alone_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  LoadReport report_;
  CacheKey key_;
  std::filesystem::path cache_path_;  // empty: no packed copy
  bool writes_copy_ = false;
  std::vector<Kept> kept_;
  std::deque<HeldMatrix> held_;
  std::unique_ptr<UploadRing> uploads_;
  std::unique_ptr<RecordSource> source_;
};

}  // namespace fourfold::backend::cuda
