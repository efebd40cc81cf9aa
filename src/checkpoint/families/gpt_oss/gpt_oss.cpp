// gpt-oss-20b and 120b: attention with biases and sinks, to the last positions and to all in turns, YaRN, and
// in every layer experts with biases and a clamped SwiGLU behind a router with a bias.
#include "base/format.h"
#include "checkpoint/family.h"

namespace fourfold::checkpoint {
namespace {

// Absent: in turns, the first to its window.
void read_layers(FieldReader& fields, ModelConfig& config) {
  const std::int64_t count = fields.required_int("num_hidden_layers", kLayers);
  const std::int64_t window = fields.required_int("sliding_window", kPositions);
  const std::vector<std::string> types = fields.optional_texts("layer_types");
  if (!types.empty() && std::ssize(types) != count)
    return fields.problem("contradictory", "layer_types",
                          fourfold::format("has {} entries for {} layers", types.size(), count));
  for (std::int64_t i = 0; i < count; ++i) {
    bool slides = i % 2 == 0;
    if (!types.empty()) {
      const std::string& type = types[static_cast<std::size_t>(i)];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention")
        fields.unsupported("layer_types", type, "sliding_attention, full_attention");
    }
    config.layers.push_back({MixerKind::full_attention, MlpKind::experts, slides ? window : 0});
  }
}

void read_config(ConfigFields& from, ModelConfig& config) {
  FieldReader& fields = from.fields;
  refuse_activations_but_silu(fields);
  read_head_sizes(fields, config);
  // Absent: yes, and no release is without.
  config.attention.bias = config.attention.output_bias =
      fields.optional_bool("attention_bias").value_or(true);
  config.attention.qk_norm = QkNorm::none;
  config.attention.sinks = true;
  read_layers(fields, config);
  MoeConfig moe;
  moe.expert_count = fields.required_int("num_local_experts", kExperts);
  moe.experts_per_token = fields.required_int("num_experts_per_tok", kExperts);
  moe.intermediate_size = fields.required_int("intermediate_size", kWidth);
  moe.bias = true;
  // Absent: these, and the releases do not say alpha.
  moe.glu_limit = fields.optional_real("swiglu_limit", {0, 1e6}).value_or(7);
  moe.glu_alpha = fields.optional_real("swiglu_alpha", {0, 1e6}).value_or(1.702);
  check_experts_per_token(fields, "num_local_experts", moe);
  config.moe = moe;
  read_rope(from, 1, config);
  // The second names of experts per token and of YaRN's length, which rope_scaling has.
  fields.ignore({"experts_per_token", "initial_context_length"});
}

// Gate and up lie row by row in one tensor: gate 0, up 0, gate 1, ...
void push_expert(const Matrix& gate_up, const Matrix& down, std::vector<GatedMlp>& experts) {
  const std::int64_t rows = gate_up.rows / 2;
  const RowRange gates{0, rows, 2}, ups{1, rows, 2};
  experts.push_back(
      {.gate = pick_rows(gate_up, {&gates, 1}), .up = pick_rows(gate_up, {&ups, 1}), .down = down});
}

// As released: codes [experts, rows, columns / 32, 16] under NAME_blocks, scales under NAME_scales.
std::vector<GatedMlp> bind_mxfp4(Binder& b, const std::string& prefix) {
  const MoeConfig& sizes = *b.config().moe;
  const std::int64_t hidden = b.config().hidden_size, inner = sizes.intermediate_size;
  const Matrix gate_up =
      bind_mxfp4_blocks(b.pool(), prefix + "gate_up_proj", sizes.expert_count, {2 * inner, hidden});
  const Matrix down = bind_mxfp4_blocks(b.pool(), prefix + "down_proj", sizes.expert_count, {hidden, inner});
  // A problem noted above leaves no rows to slice; the error comes at the end.
  if (gate_up.stored_rows() != gate_up.rows || down.stored_rows() != down.rows) return {};
  std::vector<GatedMlp> experts;
  for (std::int64_t i = 0; i < sizes.expert_count; ++i)
    push_expert(slice_rows(gate_up, {2 * inner * i, 2 * inner}), slice_rows(down, {hidden * i, hidden}),
                experts);
  return experts;
}

// A slice [columns, rows] as the matrix [rows, columns].
Matrix turned(Matrix slice) {
  std::swap(slice.rows, slice.columns);
  slice.transposed = true;
  return slice;
}

// In 16 bits experts are [experts, in, out].
std::vector<GatedMlp> bind_plain(Binder& b, const std::string& prefix) {
  const MoeConfig& sizes = *b.config().moe;
  const std::int64_t hidden = b.config().hidden_size, inner = sizes.intermediate_size;
  const Matrix gate_up =
      bind_stacked(b.pool(), prefix + "gate_up_proj", sizes.expert_count, {hidden, 2 * inner});
  const Matrix down = bind_stacked(b.pool(), prefix + "down_proj", sizes.expert_count, {inner, hidden});
  if (gate_up.stored_rows() != gate_up.rows || down.stored_rows() != down.rows) return {};
  std::vector<GatedMlp> experts;
  for (std::int64_t i = 0; i < sizes.expert_count; ++i)
    push_expert(turned(slice_rows(gate_up, {hidden * i, hidden})),
                turned(slice_rows(down, {inner * i, inner})), experts);
  name_experts(experts, prefix);
  return experts;
}

// Stacked like the experts, or of one expert after another, as tools write them that quantise Linear modules.
void bind_biases(Binder& b, const std::string& prefix, MoeWeights& moe) {
  const MoeConfig& sizes = *b.config().moe;
  const std::int64_t count = sizes.expert_count, hidden = b.config().hidden_size;
  if (b.pool().has(prefix + "gate_up_proj_bias")) {
    const Vector both =
        bind_vector(b.pool(), prefix + "gate_up_proj_bias", Shape{count, 2 * sizes.intermediate_size});
    for (std::size_t i = 0; i < both.size(); ++i)
      (i % 2 == 0 ? moe.gate_bias : moe.up_bias).push_back(both[i]);
    moe.down_bias = bind_vector(b.pool(), prefix + "down_proj_bias", Shape{count, hidden});
    return;
  }
  const auto add = [&](Vector& to, const std::string& name, std::int64_t size) {
    const Vector bias = b.vector(name, size);
    to.insert(to.end(), bias.begin(), bias.end());
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string expert = fourfold::format("{}{}.", prefix, i);
    add(moe.gate_bias, expert + "gate_proj.bias", sizes.intermediate_size);
    add(moe.up_bias, expert + "up_proj.bias", sizes.intermediate_size);
    add(moe.down_bias, expert + "down_proj.bias", hidden);
  }
}

LayerWeights bind_layer(Binder& b, const std::string& prefix, MlpKind) {
  const MoeConfig& sizes = *b.config().moe;
  LayerWeights weights;
  b.layer_norms(prefix, weights);
  weights.mixer = b.attention(prefix + "self_attn.");
  MoeWeights moe;
  moe.router = b.matrix(prefix + "mlp.router", sizes.expert_count, b.config().hidden_size);
  moe.router_bias = b.vector(prefix + "mlp.router.bias", sizes.expert_count);
  const std::string experts = prefix + "mlp.experts.";
  if (b.pool().has(experts + "gate_up_proj_blocks"))
    moe.experts = bind_mxfp4(b, experts);
  else if (b.pool().has(experts + "gate_up_proj"))
    moe.experts = bind_plain(b, experts);
  else
    moe.experts = b.routed_experts(experts);
  bind_biases(b, experts, moe);
  weights.mlp = std::move(moe);
  return weights;
}

ModelWeights bind(Binder& b) { return b.layers("", bind_layer); }

constexpr std::string_view kTypes[] = {"gpt_oss"};

}  // namespace

extern const FamilyMaker kGptOssMaker;  // make.cpp
extern constinit const Family kGptOss{"gpt-oss", kTypes, read_config, bind, &kGptOssMaker};

}  // namespace fourfold::checkpoint
