// A program prepared on a machine; see cuda.h.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "backend/cuda/cuda.h"
#include "backend/cuda/step/anchors.h"
#include "backend/cuda/step/draft_chain.h"
#include "backend/cuda/step/runner.h"
#include "backend/cuda/tune/kernel_selector.h"
#include "backend/cuda/tune/tune.h"
#include "backend/window_pages.h"

namespace fourfold::backend::cuda {

class PreparedGpu final : public Prepared, public Tunable {
 public:
  PreparedGpu(Program program, const Capacity& capacity, kernels::Machine& machine,
              const GpuOptions& options);

  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass pass, const Batch& batch, std::span<float> logits) override;
  bool run_sampled(Pass pass, const Batch& batch, const Choices& choices, const Chosen& chosen) override;
  bool run_drafts(const Batch& batch, const Choices& choices, std::span<const int> counts,
                  std::span<std::int32_t> drafts) override;
  std::int64_t history_limit() const override { return sampler_.history_limit(); }
  void set_history(std::int32_t state_slot, std::span<const SeenToken> entries) override {
    sampler_.set_history(state_slot, entries);
  }
  std::span<const float> value(ValueId id) const override;
  std::int64_t resumable_from(std::int32_t slot) const override {
    return slots_[static_cast<std::size_t>(slot)].resumable_from();
  }
  std::int64_t anchor_bytes() const override { return anchors_.anchor_bytes(); }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override {
    slots_.at(static_cast<std::size_t>(slot)).require_state(position, slot);
    anchors_.save(slot, position, window_pages_.seen(slot, position), anchor);
  }
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override {
    anchors_.require(anchor, position);
    window_pages_.hold(slot, position, position);
    anchors_.restore(anchor, slot, position, window_pages_.seen(slot, position));
    slots_.at(static_cast<std::size_t>(slot)).restore(position);
  }
  std::span<const std::string> notices() const override { return notices_; }
  std::span<const MemoryUse> memory() const override { return memory_; }
  bool roles_agree() const override { return false; }
  void assume_position(std::int32_t slot, std::int64_t position) {
    SlotPast& past = slots_[static_cast<std::size_t>(slot)];
    past.assume(position);
    window_pages_.hold(slot, past.resumable_from(), position);
  }

  // Timing and tuning; prepared_tune.cpp.
  std::vector<StageTime> time_stages(int rounds);
  std::vector<int> distinct_experts(int rows);
  kernels::Machine& machine() override { return machine_; }
  std::size_t workspace_bytes() const override { return buffers_.workspace_bytes; }
  void set_tuning(std::shared_ptr<const Tuning> tuning) override;
  std::vector<Question> questions() override;
  std::vector<std::vector<std::uint32_t>> outputs() override;
  std::unique_ptr<kernels::Recording> record(unsigned stages) override;
  double time(kernels::Recording& recording, int replays) override;

 private:
  DeviceModel load();
  void join_ranks();
  void require_ranks() const;
  void mend_ranks();
  void clear_part();
  void run_call(const std::function<void()>& call);
  void run_draft_passes(const Batch& batch, const Choices& choices, std::span<const int> counts,
                        std::span<std::int32_t> drafts);
  void settled();
  void read_results(const std::function<void()>& read) const;
  std::unique_ptr<kernels::Recording> record_step(const std::function<void()>& launches);
  // What is wanted of the rows asked.
  struct Wanted {
    Choices choices = {};  // none: logits of every row
    Chosen chosen = {};
    bool chains = false;  // tokens go on in the draft chain
  };
  void run_pass(Pass pass, const Batch& batch, const Wanted& wanted);
  void run_rows(Pass pass, const RowGroup& group, int begin, int count, const Wanted& wanted);
  PassPlaces batch_places(const ChoiceKind& kind, int asked_before, bool chains) const;
  void launch(const PassShape& shape, const PassPlaces& places);
  bool can_choose(const Choices& choices, std::size_t asked) const;
  // Before tables are written again: whoever reads those of before has ended.
  void settle();
  void keep_rows(const RowGroup& group, int begin, int count);
  void read_logits(std::span<const std::int32_t> places, const Wanted& wanted);

  Program program_;
  Capacity capacity_;
  GpuOptions options_;
  std::vector<std::string> notices_;
  std::vector<MemoryUse> memory_;
  kernels::Machine& machine_;
  kernels::Arena arena_;
  WindowPages window_pages_;
  BatchTables tables_;
  DeviceModel model_;
  AnchorPool anchors_;
  KernelSelector selector_;
  Buffers buffers_;
  Multiplier multiplier_;
  DeviceSampler sampler_;
  DraftChain chain_;
  Runner runner_;
  std::vector<SlotPast> slots_;
  PassShape last_shape_;  // of the main pass
  PassPlaces last_places_;
  int asked_before_ = 0;                    // rows asked in the pieces before, of the pass on its way
  std::vector<std::int32_t> logits_index_;  // of each row asked: which of the logits is its own
  bool in_flight_ = false;                  // something was launched that nobody has waited for
  int hidden_ = 0;                          // which of the hidden buffers holds the last pass's rows
  std::int64_t hidden_count_ = 0;
  std::vector<float*> kept_;                           // by layer output, on the machine
  std::map<std::int32_t, std::vector<float>> values_;  // by ValueId, of the last run
  std::map<std::pair<PassShape, int>, std::unique_ptr<kernels::Recording>> recordings_;
  std::set<PassShape> told_;  // to GpuOptions::on_new_shape
  std::vector<float> row_;
};

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, kernels::Machine& machine,
                                  const GpuOptions& options);

std::vector<StageTime> time_stages(Prepared& prepared, int rounds);
std::vector<int> distinct_experts(Prepared& prepared, int rows);
void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position);

}  // namespace fourfold::backend::cuda
