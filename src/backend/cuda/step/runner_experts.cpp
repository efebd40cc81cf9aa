// The launches of a layer's experts for generated rows: router, shared expert, routed experts. Prompts have
// theirs in runner_prompt.cpp, which calls them by experts_call() as well.
#include "backend/cuda/step/runner.h"
#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

// As the two-kernel path takes a shared expert.
WeightFormat shared_format(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
    case WeightFormat::fp8:
    case WeightFormat::nvfp4: return format;
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  fail(Code::unsupported_op, "a shared expert in {}; the two-kernel path takes bf16, fp8 and nvfp4",
       format_name(format));
}

}  // namespace

// Ranks have a part each there, too, and the next layer's first matrix must be about to read normed rows.
moe_combine::CombineNorm Runner::norm_behind_experts(const DeviceMoe& mlp) {
  const Next& next = behind_layer_;
  if (!ways_.combines_norm || exchange_ != nullptr || next.norm == nullptr ||
      prepared_experts(mlp).choice.few || !is_kept(Stage::delta_in) || !is_kept(Stage::attention_in) ||
      !multiplier_.norms_apart(*next.group, shape_.rows))
    return {};
  return {next.norm->weight, next.norm->epsilon, buffers_.normed};
}

// Router, shared expert, routed experts. The experts read the normed rows, so they are written once.
void Runner::apply(const DeviceMoe& mlp) {
  auto* logits = static_cast<float*>(buffers_.projection);
  const DenseOutput out{.out = logits,
                        .stride = mlp.in.width,
                        .inner = buffers_.inner,
                        .inner_stride = mlp.shared_columns,
                        .inner_records = buffers_.fp4.inner};
  if (wants(Stage::router))
    multiplier_.generated(mlp.in, shape_.rows, normed_input(mlp.norm), out, buffers_.normed);
  // The two-kernel path reads the order of 16-bit inputs alone.
  const bool fuses = mlp.has_shared && prepared_experts(mlp).choice.few &&
                     !quantises(mlp.shared_down.matrices.front().input);
  const bool adds_shared = mlp.has_shared && !fuses && wants(Stage::shared_down);
  moe_layer::LayerCall call = experts_call(mlp, logits, fuses);
  call.is_routed = adds_shared && wants(Stage::experts) && route_beside_shared(mlp, logits, call);
  if (adds_shared && !call.is_routed) add_shared(mlp, logits);
  if (!wants(Stage::experts)) return;
  call.next_norm = norm_behind_experts(mlp);
  moe_layer::run(machine_, prepared_experts(mlp), mlp.layer_weights(), call);
  normed_ = call.next_norm.weight != nullptr;
}

moe_layer::LayerCall Runner::experts_call(const DeviceMoe& mlp, const float* logits, bool with_shared) const {
  moe_layer::LayerCall call;
  call.logits = logits + mlp.in.first_column[0];
  call.logits_stride = mlp.in.width;
  call.tokens = buffers_.normed;
  // The norm has staged them for the router, where that is not in FP8.
  if (shape_.role == Role::prefill && mlp.in.reads_staged()) call.staged = buffers_.staged;
  // ... and quantised them where one input scale is all experts'; theirs is the first of its scales.
  if (shape_.role == Role::prefill && mlp.experts.common_inverse) call.records = buffers_.fp4.normed[0];
  call.residual = sum();
  // A prompt's shared expert waits in `added` and joins the stream on the way.
  if (shape_.role == Role::prefill && mlp.has_shared)
    call.joined = {static_cast<const std::uint16_t*>(buffers_.added),
                   mlp.has_shared_gate ? logits + mlp.in.first_column[1] : nullptr, mlp.in.width};
  call.workspace = buffers_.workspace;
  call.workspace_bytes = buffers_.workspace_bytes;
  call.rule = mlp.rule;
  if (with_shared) {
    const DenseMatrix& down = mlp.shared_down.matrices.front();
    call.shared = {down.records,
                   buffers_.inner,
                   mlp.has_shared_gate ? logits + mlp.in.first_column[1] : nullptr,
                   down.column_records,
                   mlp.in.width,
                   down.row_scale,
                   shared_format(down.format)};
  }
  return call;
}

DenseOutput Runner::shared_output(const DeviceMoe& mlp, const float* logits) const {
  return {.out = sum(),
          .stride = model_.hidden,
          .op = dense::PlainOp::add_f32,
          .token_gate = mlp.has_shared_gate ? logits + mlp.in.first_column[1] : nullptr,
          .token_gate_stride = mlp.in.width};
}
void Runner::add_shared(const DeviceMoe& mlp, const float* logits) {
  multiplier_.generated(mlp.shared_down, shape_.rows, {.rows = buffers_.inner, .records = buffers_.fp4.inner},
                        shared_output(mlp, logits), nullptr);
}
// That and the tables of routing in one launch. False: there is no row for both, and nothing was launched.
bool Runner::route_beside_shared(const DeviceMoe& mlp, const float* logits,
                                 const moe_layer::LayerCall& call) {
  return !prepared_experts(mlp).choice.few &&
         multiplier_.with_table(mlp.shared_down, shape_.rows, buffers_.inner, shared_output(mlp, logits),
                                moe_layer::routing(prepared_experts(mlp), call));
}

}  // namespace fourfold::backend::cuda
