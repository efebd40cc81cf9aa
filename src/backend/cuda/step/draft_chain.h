// Drafts in a row on the machine. Positions are known ahead, so the tables of all passes are sent before the
// first; each pass leaves its token where the next one reads it, and only the tokens come back, at the end.
//
// Pass 1 is the batch's own: rows the main pass kept. From pass 2 on a sequence has one row, which continues
// the hidden state its row before left, in place. Sequences that want most drafts come first, so the rows of
// a pass are the first of those of the pass before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/cuda/step/runner.h"

namespace fourfold::backend::cuda {

inline constexpr int kDraftPassesMost = 8;

class DraftChain {
 public:
  DraftChain(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
             const Capacity& capacity);
  ~DraftChain();
  DraftChain(const DraftChain&) = delete;
  DraftChain& operator=(const DraftChain&) = delete;

  // Throws invalid_request when the counts cannot be run.
  void send(const Batch& batch, const Choices& choices, std::span<const int> counts,
            std::int64_t position_limit);

  int pass_count() const { return pass_count_; }
  int row_count(int pass) const { return row_counts_[pass]; }  // from pass 2 on
  const ChoiceKind& kind() const { return kind_; }
  // For each row asked of pass 1 its row in the passes behind.
  std::span<const std::int32_t> rows_of_asked() const { return rows_of_asked_; }

  // Where pass 1 leaves its tokens; asked_before: rows asked in the pieces before this one.
  void leave_first(ChoicePlaces& places, int asked_before) const;
  PassPlaces places(int pass, int begin, int count, float* hidden) const;

  void read(std::span<const int> counts, std::span<std::int32_t> drafts);

 private:
  void fill(int row, const SequenceRows& rows, std::int32_t last_row, std::int32_t page_begin,
            const sampling::SampleRow& sampling);
  template <class T>
  T* host(std::size_t at) const {
    return reinterpret_cast<T*>(host_ + at);
  }
  template <class T>
  const T* device(std::size_t at) const {
    return reinterpret_cast<const T*>(device_ + at);
  }
  std::size_t pass_at(int pass) const {
    return passes_at_ + static_cast<std::size_t>(pass - 2) * pass_bytes_;
  }
  std::int32_t* tokens_of(int pass) const {
    return results_ + static_cast<std::size_t>(pass - 1) * 2 * slots_;
  }

  kernels::Machine& machine_;
  std::size_t slots_, page_limit_;
  std::size_t sampling_at_ = 0, hidden_at_ = 0, logits_at_ = 0, passes_at_ = 0, pass_bytes_ = 0, bytes_ = 0;
  unsigned char* host_ = nullptr;
  unsigned char* device_ = nullptr;
  std::int32_t* host_pages_ = nullptr;
  std::int32_t* pages_ = nullptr;
  std::int32_t* results_ =
      nullptr;  // [kDraftPassesMost, 2, slots]: tokens, and whether logits were not finite
  int pass_count_ = 0;
  int row_counts_[kDraftPassesMost + 1] = {};
  ChoiceKind kind_;
  std::vector<std::int32_t> rows_of_asked_, faults_of_asked_;
  std::vector<std::int32_t> read_;
};

}  // namespace fourfold::backend::cuda
