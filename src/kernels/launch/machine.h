// A machine that runs the kernels: a GPU's stream, or the simulator. The layer is written against this, so
// both run the same sequence of launches. Rows are found by name once, when a layer is prepared, and launched
// by handle.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "kernels/launch/memory.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/moe_few/few_params.h"
#include "kernels/moe_group/group_params.h"
#include "kernels/moe_route/route_params.h"
#include "kernels/moe_tokens/token_params.h"
#include "kernels/record/pack.h"
#include "kernels/record/pack_dense.h"
#include "plan/arch.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

// Which of a machine's row tables a row is in.
enum class RowKind { gemm, few_gate_up, few_down, step };

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
  // What to say where find() found nothing.
  std::string no_row(std::string_view row) const {
    std::string why;
    for (const RefusedRow& refused : refused_rows())
      if (refused.row == row) why = ": " + refused.why;
    return format("{} has no row '{}'{}", description(), row, why);
  }
  // Compiled for this chip, but not as planned: not among rows().
  struct RefusedRow {
    std::string row, why;
  };
  virtual std::vector<RefusedRow> refused_rows() const { return {}; }

  // Launches, in stream order; each may start before its predecessor has finished (dependent launch).
  virtual void route_table(const moe_route::RouteParams& params) = 0;
  virtual void route_choose(const moe_route::RouteParams& params) = 0;
  virtual void route_scan(const moe_route::RouteParams& params) = 0;
  virtual void route_place(const moe_route::RouteParams& params) = 0;
  virtual void stage_tokens(const moe_tokens::StageParams& params) = 0;
  virtual void quantize_tokens(const moe_tokens::QuantizeParams& params) = 0;
  virtual void gemm(RowHandle row, const moe::GemmParams& params) = 0;
  virtual void few_gate_up(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) = 0;
  virtual void few_down(RowHandle row, const moe_few::FewParams& few, const moe::GemmParams& params) = 0;
  virtual void combine(const moe_combine::CombineParams& params, bool rows_are_f32) = 0;
  virtual void group_tiles(const moe_group::TileParams& params) = 0;
  virtual void group_scatter(const moe_group::ScatterParams& params) = 0;
  virtual void pack(const record::PackJob& job, bool mxfp4) = 0;
  virtual void pack_dense(const record::DenseJob& job) = 0;

  // A step kernel (step_kernel.h). The size must be that of the row's Params.
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
