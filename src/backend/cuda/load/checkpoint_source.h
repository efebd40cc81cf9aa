// Records from a checkpoint: rows are read by the uploads's threads as they are stored, or quantised there,
// copied, and packed by the machine itself.
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "backend/cuda/load/record_source.h"
#include "backend/cuda/load/upload_ring.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

class CheckpointSource final : public RecordSource {
 public:
  // Destroyed after the uploads has been.
  CheckpointSource(kernels::Machine& machine, UploadRing& uploads, checkpoint::LoadProgress* progress);
  ~CheckpointSource() override;
  CheckpointSource(const CheckpointSource&) = delete;
  CheckpointSource& operator=(const CheckpointSource&) = delete;

  HeldMatrix hold_anew(const checkpoint::Matrix& matrix, WeightFormat format) override;
  void place(const RecordRun& run) override;
  void place_rows(const HeldMatrix& held, std::uint16_t* to) override;
  void finish() override {}
  RoleErrors errors() const override;

 private:
  struct TaskError {
    std::size_t role;  // of kDenseRoles
    ErrorSums sums;
  };
  // Where the records of these bytes lie already: random weights of a bench look at one table. Data and first
  // stored row of both matrices, rows, columns, form, order.
  using Key = std::tuple<const void*, std::int64_t, const void*, std::int64_t, std::int64_t, std::int64_t,
                         WeightFormat, record::BitOrder>;

  void place_parts(const RecordRun& run, std::size_t begin, std::size_t end, unsigned char* to);
  void fill_part(const HeldMatrix& held, std::int64_t first, std::int64_t count, const FillTarget& to);
  void add_progress(std::uint64_t bytes) {
    if (progress_ != nullptr) progress_->add(bytes);
  }

  kernels::Machine& machine_;
  UploadRing& uploads_;
  checkpoint::LoadProgress* progress_;
  unsigned char* staging_ = nullptr;   // a slot's rows on the machine, before they are packed
  std::deque<TaskError> task_errors_;  // in the order of the tasks, so that their sum is always the same
  RoleErrors role_errors_{};           // counts alone
  std::map<Key, const unsigned char*> placed_;
};

}  // namespace fourfold::backend::cuda
