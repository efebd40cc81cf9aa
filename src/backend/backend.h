// The door: a model comes as a Program, a backend prepares it and runs it batch after batch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/batch.h"
#include "backend/program.h"

namespace fourfold::backend {

// A program with its weights packed, its caches allocated and every kernel chosen. One step at a time.
class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual const Program& program() const = 0;
  virtual const Capacity& capacity() const = 0;

  // logits: [batch.logits_rows.size(), vocab_size], in the order of logits_rows. Throws invalid_request, and
  // then nothing was changed. A row's results depend on its own sequence alone: the same bits in any batch,
  // with any page table, however its prompt was cut.
  virtual void run(Pass pass, const Batch& batch, std::span<float> logits) = 0;

  // A value of the last run, [rows, columns]; empty when this backend did not keep it. For comparing op by
  // op.
  virtual std::span<const float> value(ValueId id) const = 0;

  // The lowest position above 0 at which the sequence in a state slot can go on; see SlotPast.
  virtual std::int64_t resumable_from(std::int32_t state_slot) const = 0;

  // What came out otherwise than asked, or costs more than it looks, one sentence each: for the user.
  virtual std::span<const std::string> notices() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Throws unsupported_op with every op that has no kernel, out_of_memory when the capacity does not fit.
  virtual std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) = 0;
};

}  // namespace fourfold::backend
