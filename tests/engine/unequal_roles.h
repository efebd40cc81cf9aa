// A backend whose prompt rows and generated rows do not agree: to it a generated token is another one. Pages
// of the wrong kind, or an answer computed again in the wrong role, change what follows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace fourfold::engine {

class UnequalRoles final : public backend::Prepared {
 public:
  explicit UnequalRoles(std::unique_ptr<backend::Prepared> inner) : inner_(std::move(inner)) {}
  const backend::Program& program() const override { return inner_->program(); }
  const backend::Capacity& capacity() const override { return inner_->capacity(); }
  std::span<const float> value(backend::ValueId id) const override { return inner_->value(id); }
  std::int64_t resumable_from(std::int32_t slot) const override { return inner_->resumable_from(slot); }
  std::int64_t anchor_bytes() const override { return inner_->anchor_bytes(); }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override {
    inner_->save_anchor(slot, position, anchor);
  }
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override {
    inner_->restore_anchor(anchor, slot, position);
  }
  bool roles_agree() const override { return false; }
  void run(backend::Pass pass, const backend::Batch& batch, std::span<float> logits) override {
    tokens_.assign(batch.tokens.begin(), batch.tokens.end());
    std::size_t row = 0;
    for (const backend::SequenceRows& rows : batch.sequences)
      for (std::int32_t i = 0; i < rows.row_count; ++i, ++row)
        if (rows.role == backend::Role::decode)
          tokens_[row] = static_cast<std::int32_t>((tokens_[row] + 1) % program().vocab_size);
    backend::Batch other = batch;
    other.tokens = tokens_;
    inner_->run(pass, other, logits);
  }

 private:
  std::unique_ptr<backend::Prepared> inner_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace fourfold::engine
