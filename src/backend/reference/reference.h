// The reference backend: every op in plain scalar loops, one thread. The oracle of every test, never a
// fallback.
//
// Limit: matrices are held in f32, all of them, and all values of the last run are kept. It is made for
// models of test size.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "backend/collective.h"

namespace fourfold::backend {

// The experts that a row's router chose by its keys (reference/experts.h). Whoever watches may put others in
// their place: their weights follow from the logits as those of the router's own choice do.
struct ExpertChoice {
  const TopKExperts& op;
  std::int64_t position;
  std::span<const float> keys;
  std::span<std::int32_t> experts;
};
// Told of every choice, in the order a run makes them: pass, router, row.
using ChoiceWatcher = std::function<void(const ExpertChoice&)>;

class ReferenceBackend final : public Backend {
 public:
  // One rank of several: what it meets the others with.
  explicit ReferenceBackend(std::shared_ptr<Collective> collective = {}, ChoiceWatcher watcher = {})
      : collective_(std::move(collective)), watcher_(std::move(watcher)) {}
  std::string_view name() const override { return "reference"; }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override;

 private:
  std::shared_ptr<Collective> collective_;
  ChoiceWatcher watcher_;
};

}  // namespace fourfold::backend
