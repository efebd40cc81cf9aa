// The launches for prompt rows: tiled matrices, chunked DeltaNet, flash attention. Results of a mixer wait as
// bf16 rows and join the residual stream in the next norm.
#include "backend/cuda/step/runner.h"

#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/step/step_params.h"

namespace fourfold::backend::cuda {

namespace {
constexpr float kLog2E = 1.44269504088896341f;
}

// Normed rows as the matrices read them; as experts of one input scale read them; and plain in `normed` where
// experts have different ones or find no staged rows.
PromptInput Runner::prompt_input(const DeviceNorm& norm, bool adds, const DenseGroup& readers,
                                 bool wants_plain, std::optional<float> experts) {
  return multiplier_.norm_prompt(norm, shape_.rows,
                                 adds ? static_cast<const std::uint16_t*>(buffers_.added) : nullptr, readers,
                                 wants_plain, experts);
}

void Runner::prompt_output(const DenseGroup& out) {
  multiplier_.prompt(out, shape_.rows, {.rows = buffers_.mixed},
                     {.out = buffers_.added, .stride = model_.hidden, .op = dense::PlainOp::store_bf16});
  multiplier_.add_bias(out, shape_.rows, sum(), model_.hidden);
  if (exchange_ != nullptr) prompt_add();
}

// What waits as bf16 rows is added to this half's sum.
void Runner::prompt_add() {
  const step::AddGatedParams add{sum(), buffers_.added, nullptr, 0, shape_.rows, model_.hidden, 0};
  machine_.launch(multiplier_.step_row(step::kAddGated), step::add_blocks(shape_.rows, model_.hidden), add);
}

void Runner::prompt_mix(const DeviceDelta& mixer) {
  if (wants(Stage::delta_in)) {
    multiplier_.prompt(
        mixer.in, shape_.rows, prompt_input(mixer.norm, false, mixer.in),
        {.out = buffers_.projection, .stride = mixer.in.width, .op = dense::PlainOp::store_bf16});
  }
  if (wants(Stage::delta)) {
    delta::PromptParams params{};
    params.chunks = tables_.chunks();
    params.prompts = tables_.prompts();
    params.chunk_limit = tables_.chunk_count();
    params.prompt_limit = shape_.sequences;
    params.mixed = {buffers_.projection,      mixer.in.width,           mixer.in.first_column[0],
                    mixer.in.first_column[1], mixer.in.first_column[2], mixer.in.first_column[3]};
    params.weights = mixer.weights;
    params.state = mixer.state;
    params.layout = mixer.layout;
    params.work = delta::workspace_at(buffers_.workspace, {params.chunk_limit, shape_.rows, mixer.layout});
    params.out = buffers_.mixed;
    params.out_stride = mixer.out_columns;
    const auto launch = [&](const char* kernel, int blocks) {
      machine_.launch(multiplier_.step_row(delta::prompt_row(kernel, mixer.layout.head_dim)), blocks, params);
    };
    launch(delta::kPrepareKernel, delta::prepare_blocks(params.chunk_limit, mixer.layout));
    launch(delta::kScanKernel, delta::scan_blocks(params.prompt_limit, mixer.layout));
    launch(delta::kFinishKernel, delta::finish_blocks(params.chunk_limit, params.prompt_limit, mixer.layout));
  }
  if (wants(Stage::delta_out)) prompt_output(mixer.out);
}

void Runner::prompt_mix(const DeviceAttention& mixer) {
  if (wants(Stage::attention_in)) {
    multiplier_.prompt(
        mixer.in, shape_.rows, prompt_input(mixer.norm, false, mixer.in),
        {.out = buffers_.projection, .stride = mixer.in.width, .op = dense::PlainOp::store_bf16});
  }
  if (wants(Stage::attention)) {
    prepare_heads(mixer);
    attention::PromptParams params{};
    params.tables = tables_of(mixer);
    params.query = buffers_.query;
    params.keys = mixer.keys;
    params.values = mixer.values;
    if (mixer.is_gated)
      params.gate =
          static_cast<const std::uint16_t*>(buffers_.projection) + mixer.in.first_column[0] + mixer.head_dim;
    params.gate_stride = mixer.in.width;
    params.gate_head_stride = mixer.head_dim * (mixer.is_gated ? 2 : 1);
    params.heads = mixer.heads;
    params.kv_heads = mixer.kv_heads;
    params.heads_per_kv = mixer.heads / mixer.kv_heads;
    params.scale_log2 = mixer.scale * kLog2E;
    params.out = buffers_.mixed;
    params.window = mixer.window;
    params.sinks = mixer.sinks;
    const kernels::RowHandle row = multiplier_.step_row(multiplier_.selector().attend_prompt(
        {mixer.head_dim, std::string(format_name(mixer.kv)), shape_.rows, mixer.is_windowed}));
    machine_.launch(row, attention_units(mixer), params);
  }
  if (wants(Stage::attention_out)) prompt_output(mixer.out);
}

// A block a tile of 64 positions and a head; rows that take two heads at once leave blocks without work.
int Runner::attention_units(const DeviceAttention& mixer) const {
  return tables_.chunk_count() * mixer.heads;
}

void Runner::prompt_apply(const DeviceMoe& mlp) {
  auto* logits = static_cast<float*>(buffers_.projection);
  if (wants(Stage::router)) {
    const std::optional<float> scale = mlp.experts.common_inverse;
    const bool wants_plain = quantises(mlp.experts.input) ? !scale : !mlp.in.reads_staged();
    const PromptInput in = prompt_input(mlp.norm, exchange_ == nullptr, mlp.in, wants_plain, scale);
    multiplier_.prompt(mlp.in, shape_.rows, in,
                       {.out = logits,
                        .stride = mlp.in.width,
                        .inner = buffers_.inner,
                        .inner_stride = mlp.shared_columns,
                        .inner_records = buffers_.fp4.inner});
    multiplier_.add_bias(mlp.in, shape_.rows, logits, mlp.in.width);
  }
  if (mlp.has_shared && wants(Stage::shared_down)) {
    multiplier_.prompt(mlp.shared_down, shape_.rows,
                       {.staged = buffers_.inner, .records = buffers_.fp4.inner},
                       {.out = buffers_.added, .stride = model_.hidden, .op = dense::PlainOp::store_bf16});
  }
  if (wants(Stage::experts))
    moe_layer::run(machine_, prepared_experts(mlp), mlp.layer_weights(), experts_call(mlp, logits, false));
}

void Runner::prompt_apply(const DeviceMlp& mlp) {
  if (!wants(Stage::mlp)) return;
  multiplier_.prompt(
      mlp.gate_up, shape_.rows, prompt_input(mlp.norm, exchange_ == nullptr, mlp.gate_up),
      {.inner = buffers_.inner, .inner_stride = mlp.inner, .inner_records = buffers_.fp4.inner});
  multiplier_.prompt(mlp.down, shape_.rows, {.staged = buffers_.inner, .records = buffers_.fp4.inner},
                     {.out = buffers_.added, .stride = model_.hidden, .op = dense::PlainOp::store_bf16});
  prompt_add();
}

}  // namespace fourfold::backend::cuda
