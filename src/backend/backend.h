// The door: a model comes as a Program, a backend prepares it and runs it batch after batch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/batch.h"
#include "backend/choice.h"
#include "backend/program.h"

namespace fourfold::backend {

// A part of the memory a prepared program holds.
struct MemoryUse {
  std::string what;
  std::int64_t bytes = 0;
};

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

  // The same with tokens in place of logits, chosen where the logits are (choice.h): nothing else crosses.
  // False: this backend cannot, and nothing was run. kNoToken for a row whose logits are not finite.
  virtual bool run_sampled(Pass, const Batch&, const Choices&, const Chosen&) { return false; }

  // Draft passes in a row. The batch is that of the first; each sequence that asks for logits asks for those
  // of its last row, and wants counts[i] drafts: each is the input of the pass behind it, at the next
  // position, without a journey to the host. drafts: one sequence's behind another's, in the order of the
  // rows asked. Their choices have no temperature and want no logits. False: as above.
  virtual bool run_drafts(const Batch&, const Choices&, std::span<const int> /*counts*/,
                          std::span<std::int32_t> /*drafts*/) {
    return false;
  }

  // How many tokens a history has room for; 0: this backend has none, and no Choice may have one.
  virtual std::int64_t history_limit() const { return 0; }
  // What a slot's history begins with. From then on every main pass notes there the tokens it chooses with
  // it, as far as the drafts before them stand.
  virtual void set_history(std::int32_t /*state_slot*/, std::span<const SeenToken>) {}

  // A value of the last run, [rows, columns]; empty when this backend did not keep it. For comparing op by
  // op.
  virtual std::span<const float> value(ValueId id) const = 0;

  // The lowest position above 0 at which the sequence in a state slot can go on; see SlotPast.
  virtual std::int64_t resumable_from(std::int32_t state_slot) const = 0;

  // The recurrent state at a multiple of 64, and what layers with a window see there, can be kept apart, in
  // one of the capacity's anchor_count places, and brought back to any slot, whose sequence then goes on at
  // that position: with pages that hold what came before it, and with the same results as if it had been run
  // there. A slot has the states of the last two multiples of 64 that it has reached. Throws invalid_request
  // for others. A program that has neither has no states to keep: its slot goes on anywhere behind pages,
  // with restore_anchor(-1, ...).
  virtual std::int64_t anchor_bytes() const { return 0; }
  virtual void save_anchor(std::int32_t state_slot, std::int64_t position, std::int32_t anchor);
  virtual void restore_anchor(std::int32_t anchor, std::int32_t state_slot, std::int64_t position);

  // Whether prompt rows and generated rows have the same arithmetic: then a prompt may go on from what
  // generated rows left, with the same answer as if it had been run whole.
  virtual bool roles_agree() const { return true; }

  // What it holds of a device's memory; empty where a backend does not count.
  virtual std::span<const MemoryUse> memory() const { return {}; }

  // What came out otherwise than asked, or costs more than it looks, one sentence each: for the user.
  virtual std::span<const std::string> notices() const { return {}; }

  // Ranks on other machines come and go. Why no step can be run now; empty: one can. From any thread.
  virtual std::string away() const { return {}; }
  // Behind device_lost: whether what was lost may come back. Until restore() is true every step throws; then
  // no page, slot, anchor or history may be read before it is written anew.
  virtual bool comes_back() const { return false; }
  virtual bool restore() { return false; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Throws unsupported_op with every op that has no kernel, out_of_memory when the capacity does not fit.
  virtual std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) = 0;
};

}  // namespace fourfold::backend
