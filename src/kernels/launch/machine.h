// A machine that runs the kernels: a GPU's stream, or the simulator. The layer is written against this, so
// both run the same sequence of launches. Rows are found by name once, when a layer is prepared, and launched
// by handle; how many blocks a kernel gets is said beside it (launch_*.h in its room).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/memory.h"
#include "kernels/launch/row_kind.h"
#include "plan/arch.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

// Rows a machine has, in a fixed order; the index is the handle.
struct RowHandle {
  RowKind kind = RowKind::gemm;
  int index = -1;
  bool found() const { return index >= 0; }
};

// Launches recorded once and run again with one call: a CUDA graph.
class Recording {
 public:
  explicit Recording(int kernel_count) : kernel_count_(kernel_count) {}
  virtual ~Recording() = default;
  int kernel_count() const { return kernel_count_; }

 private:
  int kernel_count_;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual Memory& memory() = 0;

  virtual std::string description() const = 0;  // "NVIDIA H200, sm90" or "simulator, sm120"
  virtual const plan::ArchFacts& arch() const = 0;
  virtual int sm_count() const = 0;
  virtual const std::vector<plan::RowFacts>& rows(RowKind kind) const = 0;

  RowHandle find(RowKind kind, std::string_view row) const {
    const auto& all = rows(kind);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].row == row) return {kind, static_cast<int>(i)};
    return {kind, -1};
  }
  // The same; throws unsupported_op where there is none.
  RowHandle required(RowKind kind, std::string_view row) const {
    const RowHandle handle = find(kind, row);
    if (!handle.found()) fail(Code::unsupported_op, "{}", no_row(row));
    return handle;
  }
  const plan::RowFacts& facts(RowHandle row) const {
    return rows(row.kind)[static_cast<std::size_t>(row.index)];
  }
  // What to say where find() found nothing.
  std::string no_row(std::string_view row) const {
    std::string why;
    for (const RefusedRow& refused : refused_rows())
      if (refused.row == row) why = ": " + refused.why;
    return format("{} has no row '{}'{}", description(), row, why);
  }
  // Compiled for this chip, but not as planned: not among rows().
  struct RefusedRow {
    std::string row, why, kernel = {};
  };
  virtual std::vector<RefusedRow> refused_rows() const { return {}; }

  // Blocks of a kernel that walks a list of any length: so many on every SM. The simulator takes a handful.
  virtual int walkers(RowHandle row, int blocks_per_sm) const = 0;

  // Launches, in stream order; each may start before its predecessor has finished (dependent launch). The
  // size must be that of the row's Params; no blocks: no launch.
  virtual void launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) = 0;
  template <class Params>
  void launch(RowHandle row, int blocks, const Params& params) {
    launch(row, blocks, &params, sizeof(Params));
  }

  // What `launches` launches, without running it: kernels with the arguments they have now. Anything else
  // (copies, clears, waits, allocations, calls of the host) throws internal, naming it.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& launches) = 0;
  virtual void replay(Recording& recording) = 0;

  // Kernels launched so far, recorded ones included; replays are not launches.
  std::int64_t launch_count() const { return launch_count_; }
  // Told the name of every kernel that is launched: its row's, or its own. Null: nobody.
  using Listener = std::function<void(std::string_view kernel)>;
  void listen(Listener listener) { listener_ = std::move(listener); }

 protected:
  void launched(std::string_view kernel) {
    ++launch_count_;
    if (listener_) listener_(kernel);
  }

 private:
  std::int64_t launch_count_ = 0;
  Listener listener_;
};

}  // namespace fourfold::kernels
