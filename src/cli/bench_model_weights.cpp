#include "cli/bench_model_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/published_shapes.h"
#include "base/random.h"
#include "checkpoint/family.h"

namespace fourfold::cli {
namespace {

constexpr std::int64_t kTableRows = 1024;

// Rows beyond the table's begin again.
std::vector<checkpoint::RowRange> repeat_rows(std::int64_t rows) {
  std::vector<checkpoint::RowRange> ranges;
  for (std::int64_t row = 0; row < rows; row += kTableRows)
    ranges.push_back({0, std::min(kTableRows, rows - row)});
  return ranges;
}

checkpoint::Vector constant(std::int64_t count, float value) {
  return checkpoint::Vector(static_cast<std::size_t>(count), value);
}

}  // namespace

checkpoint::ModelShape bench_shape(const std::string& name) {
  if (name != kQwen397bTp4.name) return checkpoint::find_shape(name);
  checkpoint::ModelShape shape = checkpoint::find_shape(kQwen397b.name);
  shape.name = kQwen397bTp4.name;
  shape.what = "Qwen3.5-397B-A17B, a rank of four";
  for (std::int64_t* cut :
       {&shape.vocab, &shape.heads, &shape.key_heads, &shape.value_heads, &shape.intermediate, &shape.shared})
    *cut /= 4;
  shape.kv_heads = 1;  // of two, each on two ranks
  return shape;
}

WeightFormat parse_random_dense(const std::string& text) {
  if (text == "nvfp4") return WeightFormat::nvfp4;
  if (text == "fp8") return WeightFormat::fp8;
  if (text == "bf16" || text == "keep") return WeightFormat::bf16;
  fail(Code::invalid_request, "--dense is '{}'; nvfp4, fp8 and bf16 (or keep) are possible", text);
}

checkpoint::ModelConfig config_of(const checkpoint::ModelShape& shape, std::int64_t layer_count) {
  checkpoint::ModelShape cut = shape;
  cut.layers = layer_count;
  return checkpoint::parse_model_config(checkpoint::config_text(cut, {}, {}, {}), shape.name);
}

RandomWeights::RandomWeights(const checkpoint::ModelConfig& config, WeightFormat dense_format, bool with_mtp)
    : config_(config), dense_(dense_format) {
  weights_.embedding = bf16(config.vocab_size, config.hidden_size);
  weights_.head = dense(config.vocab_size, config.hidden_size);
  weights_.final_norm = norm(config.hidden_size);
  for (const checkpoint::LayerKind& kind : config.layers) weights_.layers.push_back(layer(kind));
  if (with_mtp) weights_.mtp = mtp();
}

checkpoint::MtpWeights RandomWeights::mtp() {
  dense_ = WeightFormat::bf16;
  experts_are_bf16_ = true;
  checkpoint::MtpWeights out;
  out.embedding_norm = out.hidden_norm = out.final_norm = norm(config_.hidden_size);
  out.combine = bf16(config_.hidden_size, 2 * config_.hidden_size);
  const auto mixer =
      config_.latent ? checkpoint::MixerKind::latent_attention : checkpoint::MixerKind::full_attention;
  out.layers.push_back(layer({mixer, config_.layers.back().mlp}));
  return out;
}

// A factor of 1.
checkpoint::Vector RandomWeights::norm(std::int64_t count) const {
  return constant(count, config_.norm_adds_one ? 0.0f : 1.0f);
}

// Deviation 1 / sqrt(columns), so that values keep their size from layer to layer.
RandomWeights::Matrix RandomWeights::nvfp4(std::int64_t rows, std::int64_t columns) {
  Nvfp4Matrix& table = nvfp4_tables_[columns];
  if (table.rows == 0) {
    table.rows = kTableRows;
    table.columns = columns;
    table.codes.resize(static_cast<std::size_t>(kTableRows * columns / 2));
    table.scales.resize(static_cast<std::size_t>(kTableRows * columns / 16));
    Random random(static_cast<std::uint64_t>(columns));
    for (auto& byte : table.codes) byte = static_cast<std::uint8_t>(random.bits());
    for (auto& scale : table.scales) scale = {static_cast<std::uint8_t>(0x34 + random.below(8))};
    // The root mean square of all codes is 2.93, that of these scales about 1.
    table.global_scale = static_cast<float>(1 / (2.93 * std::sqrt(static_cast<double>(columns))));
  }
  return {"random", rows, columns, checkpoint::Nvfp4Storage{table.view(), Nvfp4InputScale{0x1p-8f, 0x1p8f}},
          repeat_rows(rows)};
}

RandomWeights::Matrix RandomWeights::mxfp4(std::int64_t rows, std::int64_t columns) {
  Mxfp4Matrix& table = mxfp4_tables_[columns];
  if (table.rows == 0) {
    table.rows = kTableRows;
    table.columns = columns;
    table.codes.resize(static_cast<std::size_t>(kTableRows * columns / 2));
    Random random(static_cast<std::uint64_t>(columns));
    for (auto& byte : table.codes) byte = static_cast<std::uint8_t>(random.bits());
    // The root mean square of all codes is 2.93; a power of two is as near as a scale comes.
    const double wanted = 1 / (2.93 * std::sqrt(static_cast<double>(columns)));
    const Ue8m0 scale{static_cast<std::uint8_t>(127 + std::lround(std::log2(wanted)))};
    table.scales.assign(static_cast<std::size_t>(kTableRows * columns / kMxfp4BlockColumns), scale);
  }
  return {"random", rows, columns, checkpoint::Mxfp4Storage{table.view()}, repeat_rows(rows)};
}

RandomWeights::Matrix RandomWeights::bf16(std::int64_t rows, std::int64_t columns) {
  std::vector<Bf16>& table = bf16_tables_[columns];
  Random random(static_cast<std::uint64_t>(columns));
  const double size = std::sqrt(3.0 / static_cast<double>(columns));
  while (static_cast<std::int64_t>(table.size()) < kTableRows * columns)
    table.push_back(to_bf16(static_cast<float>(random.uniform(-size, size))));
  return {"random", rows, columns, checkpoint::Bf16Storage{table}, repeat_rows(rows)};
}

RandomWeights::Matrix RandomWeights::fp8(std::int64_t rows, std::int64_t columns) {
  std::vector<E4m3>& table = fp8_tables_[columns];
  Random random(static_cast<std::uint64_t>(columns));
  while (static_cast<std::int64_t>(table.size()) < kTableRows * columns)
    table.push_back(to_e4m3(static_cast<float>(random.uniform(-1, 1))));
  const auto scale = static_cast<float>(std::sqrt(3.0 / static_cast<double>(columns)));
  return {"random", rows, columns,
          checkpoint::Fp8Storage{table, checkpoint::Fp8TensorScale{scale}, std::nullopt}, repeat_rows(rows)};
}

RandomWeights::Matrix RandomWeights::dense(std::int64_t rows, std::int64_t columns) {
  switch (dense_) {
    case WeightFormat::nvfp4: return nvfp4(rows, columns);
    case WeightFormat::fp8: return fp8(rows, columns);
    case WeightFormat::bf16: return bf16(rows, columns);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  fail(Code::internal, "random weights in {}", format_name(dense_));
}

checkpoint::GatedMlp RandomWeights::mlp(bool is_expert, std::int64_t inner) {
  const auto make = [&](std::int64_t rows, std::int64_t columns) {
    if (!is_expert || experts_are_bf16_) return dense(rows, columns);
    return config_.family == &checkpoint::kGptOss ? mxfp4(rows, columns) : nvfp4(rows, columns);
  };
  return {make(inner, config_.hidden_size), make(inner, config_.hidden_size),
          make(config_.hidden_size, inner)};
}

checkpoint::AttentionWeights RandomWeights::attention() {
  const checkpoint::AttentionConfig& sizes = config_.attention;
  const std::int64_t width = sizes.head_count * sizes.head_dim;
  const std::int64_t kv_width = sizes.kv_head_count * sizes.head_dim;
  checkpoint::AttentionWeights weights;
  weights.query = dense(width * (sizes.output_gate ? 2 : 1), config_.hidden_size);
  weights.key = dense(kv_width, config_.hidden_size);
  weights.value = dense(kv_width, config_.hidden_size);
  weights.output = dense(config_.hidden_size, width);
  const bool whole = sizes.qk_norm == checkpoint::QkNorm::all_heads;
  if (sizes.qk_norm != checkpoint::QkNorm::none) {
    weights.query_norm = norm(whole ? width : sizes.head_dim);
    weights.key_norm = norm(whole ? kv_width : sizes.head_dim);
  }
  if (sizes.bias) {
    weights.query_bias = constant(weights.query.rows, 0.1f);
    weights.key_bias = weights.value_bias = constant(kv_width, 0.1f);
  }
  if (sizes.output_bias) weights.output_bias = constant(config_.hidden_size, 0.1f);
  if (sizes.sinks) weights.sinks = constant(sizes.head_count, 0.1f);
  return weights;
}

checkpoint::LatentWeights RandomWeights::latent() {
  const checkpoint::LatentConfig& sizes = *config_.latent;
  const std::int64_t heads = config_.attention.head_count, hidden = config_.hidden_size;
  const std::int64_t query_in = sizes.query_rank > 0 ? sizes.query_rank : hidden;
  checkpoint::LatentWeights weights;
  if (sizes.query_rank > 0) {
    weights.query_down = dense(sizes.query_rank, hidden);
    weights.query_norm = constant(sizes.query_rank, 1);
  }
  weights.plain_query = dense(heads * sizes.plain_dim, query_in);
  weights.turned_query = dense(heads * sizes.turned_dim, query_in);
  weights.latent = dense(sizes.latent_dim, hidden);
  weights.latent_norm = constant(sizes.latent_dim, 1);
  weights.turned_key = dense(sizes.turned_dim, hidden);
  weights.key_up = bf16(heads * sizes.plain_dim, sizes.latent_dim);
  weights.value_up = bf16(heads * sizes.value_dim, sizes.latent_dim);
  weights.output = dense(hidden, heads * sizes.value_dim);
  return weights;
}

checkpoint::DeltaWeights RandomWeights::delta() {
  const checkpoint::DeltaConfig& sizes = *config_.delta;
  checkpoint::DeltaWeights weights;
  weights.qkv = dense(sizes.conv_dim(), config_.hidden_size);
  weights.gate = dense(sizes.value_dim(), config_.hidden_size);
  weights.beta = bf16(sizes.value_head_count, config_.hidden_size);
  weights.decay = bf16(sizes.value_head_count, config_.hidden_size);
  weights.output = dense(config_.hidden_size, sizes.value_dim());
  weights.conv = constant(sizes.conv_dim() * sizes.conv_taps, 0.5f);
  weights.a_log = constant(sizes.value_head_count, 0);
  weights.dt_bias = constant(sizes.value_head_count, -2);
  weights.norm = constant(sizes.value_head_dim, 1);
  return weights;
}

checkpoint::LayerWeights RandomWeights::layer(const checkpoint::LayerKind& kind) {
  checkpoint::LayerWeights weights;
  weights.input_norm = weights.post_attention_norm = norm(config_.hidden_size);
  if (kind.mixer == checkpoint::MixerKind::full_attention)
    weights.mixer = attention();
  else if (kind.mixer == checkpoint::MixerKind::latent_attention)
    weights.mixer = latent();
  else
    weights.mixer = delta();
  if (kind.mlp == checkpoint::MlpKind::dense) {
    weights.mlp = mlp(false, config_.dense_intermediate_size);
    return weights;
  }
  checkpoint::MoeWeights moe;
  moe.router = bf16(config_.moe->expert_count, config_.hidden_size);
  if (config_.moe->bias) {
    const std::int64_t count = config_.moe->expert_count;
    moe.router_bias = constant(count, 0);
    moe.gate_bias = moe.up_bias = constant(count * config_.moe->intermediate_size, 0.1f);
    moe.down_bias = constant(count * config_.hidden_size, 0.1f);
  }
  if (config_.moe->choice_bias) moe.choice_bias = constant(config_.moe->expert_count, 0);
  for (std::int64_t i = 0; i < config_.moe->expert_count; ++i)
    moe.experts.push_back(mlp(true, config_.moe->intermediate_size));
  if (config_.moe->shared_intermediate_size > 0) {
    moe.shared = mlp(false, config_.moe->shared_intermediate_size);
    if (config_.moe->shared_gate) moe.shared_gate = bf16(1, config_.hidden_size);
  }
  weights.mlp = std::move(moe);
  return weights;
}

}  // namespace fourfold::cli
