// The launches of a pass for rows of one role: everything between the batch's tables and the logits. Nothing
// here waits, allocates or copies from the host, so all of it can be recorded as a graph.
#pragma once

#include <functional>
#include <map>

#include "backend/cuda/load/device_layers.h"
#include "backend/cuda/step/buffers.h"
#include "backend/cuda/step/device_sampler.h"
#include "backend/cuda/step/multiply.h"
#include "backend/cuda/step/ways.h"
#include "backend/cuda/tune/stage.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/launch/machine.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::backend::cuda {

// Generated rows of one run; more go in pieces.
inline constexpr int kGeneratedRows = 128;
static_assert(kGeneratedRows <= kLogitsRows);

// How many rows of logits there are and where the normed rows of the head come from.
struct PassShape {
  Pass pass = Pass::main;
  Role role = Role::decode;
  int rows = 0;
  int sequences = 0;
  int sequence_rows = 0;  // of the sequence that has most
  int logits_rows = 0;
  bool all_logits = false;   // row i of the logits is row i of the batch
  bool more_logits = false;  // of other rows come behind: Runner::more_logits
  ChoiceKind choice;         // of their tokens
  // A draft chain's pass, counted from 1, and the first of its places this is about; 0: it is none.
  int chain = 0;
  int chain_begin = 0;
  // Every row stands before kShortContext (short_grid.h). Said for StepWays alone.
  bool is_short = false;
  auto operator<=>(const PassShape&) const = default;
};

// What a pass reads of its batch and where it leaves things: the batch's own tables, or a draft chain's.
struct PassPlaces {
  step::Tables tables{};
  const std::int32_t* window_pages = nullptr;  // in place of tables.pages, for layers that have their own
  const std::int32_t* tokens = nullptr;
  const std::int32_t* batch_rows = nullptr;
  const std::int32_t* hidden_rows = nullptr;
  const std::int32_t* logits_rows = nullptr;
  const float* hidden = nullptr;  // what the pass before left (draft)
  float* hidden_out = nullptr;
  ChoicePlaces choices;
};

class Runner {
 public:
  Runner(kernels::Machine& machine, const DeviceModel& model, const Buffers& buffers,
         const BatchTables& tables, Multiplier& multiplier, DeviceSampler& sampler,
         all_reduce::Exchange* exchange, const StepWays& ways = {});

  // Called after the embedding (index 0) and after every layer (index 1..) of the main pass, between
  // launches.
  using Watch = std::function<void(int index)>;

  // The whole pass.
  void run(const PassShape& shape, const PassPlaces& places, const Watch& watch);

  // Logits of the rows asked from `begin` on, after run() gave the first kLogitsRows of them.
  void more_logits(const PassShape& shape, const PassPlaces& places, int begin, int count, bool last);

  // Only these stages are launched from now on (bit i: stage i); for timing.
  void keep_stages(unsigned mask) { stages_ = mask; }

  // Bytes of workspace for so many rows.
  static std::size_t workspace_bytes(KernelSelector& selector, const DeviceModel& model,
                                     const Capacity& capacity);

  // Rows chosen for experts are asked for again: the choices have changed.
  void forget_choices() { layers_.clear(); }

 private:
  bool wants(Stage stage) const {
    multiplier_.selector().enter(static_cast<unsigned>(stage));
    return is_kept(stage);
  }
  bool is_kept(Stage stage) const { return stages_ >> static_cast<unsigned>(stage) & 1u; }
  // Where a half of a layer adds its result: the residual stream, or this rank's part of it.
  float* sum() const { return exchange_ != nullptr ? buffers_.part : buffers_.x; }
  // What is multiplied behind a sum of the ranks, and the norm in front of it.
  struct Next {
    const DenseGroup* group = nullptr;
    const DeviceNorm* norm = nullptr;
  };
  template <class... Kinds>
  static Next next_of(const std::variant<Kinds...>& half) {
    return std::visit([](const auto& kind) { return Next{&kind.behind_norm(), &kind.norm}; }, half);
  }
  // The end of both halves: with several ranks their parts join the residual stream, and the new rows are
  // normed on the way where that saves a kernel.
  void reduce(const Next& next);
  // Where the experts' last kernel norms its rows for the next layer: StepWays::combines_norm.
  moe_combine::CombineNorm norm_behind_experts(const DeviceMoe& mlp);
  // The mixer's rows through its output projection to sum(); normed on the way where StepWays says so.
  void add_mixed(const DenseGroup& group);
  // The rows of the residual stream for a matrix behind this norm, normed already or not.
  DenseInput normed_input(const DeviceNorm& norm);
  // Exchanges of ranks are numbered as the program has them: the main pass, then the draft pass.
  int first_place() const;
  int logits_place() const;
  static int exchanges_of(const DeviceLayer& layer);
  int exchanges_of_main() const;
  void layer(const DeviceLayer& layer, const Next& next);
  void mix(const DeviceDelta& mixer);
  void mix(const DeviceAttention& mixer);
  void sum_squares(const DeviceAttention& mixer, const char* element);
  step::Tables tables_of(const DeviceAttention& mixer) const;
  void prepare_heads(const DeviceAttention& mixer);
  void attend(const DeviceAttention& mixer);
  // Latent attention, generated rows and prompts; runner_latent.cpp.
  void mix(const DeviceLatent& mixer);
  void prompt_mix(const DeviceLatent& mixer);
  struct LatentQueries {  // of each row, plain and turned
    const void* rows;
    int stride;
  };
  bool norms_query(const DeviceLatent& mixer);
  LatentQueries query_latent(const DeviceLatent& mixer, bool norms);
  mla::LatentRowsParams latent_rows(const DeviceLatent& mixer) const;
  mla::TurnQueriesParams turned(const DeviceLatent& mixer, const LatentQueries& queries) const;
  mla::HeadLinearParams absorbed(const DeviceLatent& mixer, const LatentQueries& queries) const;
  mla::HeadLinearParams expanded(const DeviceLatent& mixer) const;
  void prepare_latent(const DeviceLatent& mixer);
  void absorb_queries(const DeviceLatent& mixer, const LatentQueries& queries);
  void join_queries(const DeviceLatent& mixer, const LatentQueries& queries, bool caches);
  mla::AttendParams latent_pages(const DeviceLatent& mixer) const;
  void attend_latent_prompt(const DeviceLatent& mixer);
  attention::CombineParams attend_latent(const DeviceLatent& mixer);
  void expand_heads(const DeviceLatent& mixer);
  void attend(const DeviceLatent& mixer);
  const moe_layer::Prepared& prepared_experts(const DeviceMoe& mlp);
  moe_layer::LayerCall experts_call(const DeviceMoe& mlp, const float* logits, bool with_shared) const;
  // Prompt rows; runner_prompt.cpp.
  PromptInput prompt_input(const DeviceNorm& norm, bool adds, const DenseGroup& readers,
                           bool wants_plain = false, std::optional<float> experts = std::nullopt);
  void prompt_output(const DenseGroup& out);
  void prompt_add();
  void prompt_mix(const DeviceDelta& mixer);
  void prompt_mix(const DeviceAttention& mixer);
  void prompt_apply(const DeviceMoe& mlp);
  void prompt_apply(const DeviceMlp& mlp);
  int attention_units(const DeviceAttention& mixer) const;
  void apply(const DeviceMoe& mlp);
  void apply(const DeviceMlp& mlp);
  DenseOutput shared_output(const DeviceMoe& mlp, const float* logits) const;
  void add_shared(const DeviceMoe& mlp, const float* logits);
  bool route_beside_shared(const DeviceMoe& mlp, const float* logits, const moe_layer::LayerCall& call);
  void embed(const std::uint16_t* table);
  void draft_input(const DeviceDraft& draft, const float* hidden);
  void leave_hidden(const DeviceHead& head, float* to);
  void head(const DeviceHead& head, int begin);
  void select_norm(const DeviceNorm& norm, int count, const float* x, const std::int32_t* in_rows,
                   std::uint16_t* out, std::int64_t out_stride, float* out_f32, const std::int32_t* out_rows);

  kernels::Machine& machine_;
  const DeviceModel& model_;
  const Buffers& buffers_;
  const BatchTables& tables_;
  Multiplier& multiplier_;
  DeviceSampler& sampler_;
  all_reduce::Exchange* exchange_;  // null: one rank
  PassShape shape_;
  PassPlaces places_;
  unsigned stages_ = ~0u;
  const StepWays ways_;
  Next behind_mixer_;    // of the layer that is launched
  Next behind_layer_;    // of the next layer; empty: of none
  bool normed_ = false;  // Buffers::normed holds the rows of x for the next matrix
  int place_ = 0;        // of the next sum between ranks
  std::map<std::array<int, 8>, moe_layer::Prepared> layers_;  // by sizes and arithmetic
};

}  // namespace fourfold::backend::cuda
