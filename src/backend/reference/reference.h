// The reference backend: every op in plain scalar loops, one thread. The oracle of every test, never a
// fallback.
//
// Limit: matrices are held in f32, all of them, and all values of the last run are kept. It is made for
// models of test size.
#pragma once

#include "backend/backend.h"
#include "backend/collective.h"

namespace fourfold::backend {

class ReferenceBackend final : public Backend {
 public:
  // One rank of several: what it meets the others with.
  explicit ReferenceBackend(std::shared_ptr<Collective> collective = {})
      : collective_(std::move(collective)) {}
  std::string_view name() const override { return "reference"; }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override;

 private:
  std::shared_ptr<Collective> collective_;
};

}  // namespace fourfold::backend
