#include "cli/bench_model_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/published_shapes.h"
#include "base/random.h"

namespace fourfold::cli {
namespace {

constexpr std::int64_t kTableRows = 1024;
constexpr std::int64_t kStarts = 64;  // places where a matrix may begin
constexpr std::uint64_t kStartSeed = 1, kBiasSeed = 2, kEmbeddingSeed = 3;

// Rows of the table from `start` on; beyond its end it begins again.
std::vector<checkpoint::RowRange> repeat_rows(std::int64_t rows, std::int64_t start) {
  std::vector<checkpoint::RowRange> ranges;
  for (std::int64_t row = 0, first = start % kTableRows; row < rows; first = 0) {
    ranges.push_back({first, std::min(kTableRows - first, rows - row)});
    row += ranges.back().count;
  }
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
  return checkpoint::config_of(cut);
}

RandomWeights::RandomWeights(const checkpoint::ModelConfig& config, WeightFormat dense_format, bool with_mtp)
    : config_(config), dense_(dense_format) {
  weights_.embedding = embedding();
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

// Of both signs: one of all rows' would drive them all to the same experts.
checkpoint::Vector RandomWeights::bias(std::int64_t count) {
  checkpoint::Vector values = constant(count, 0.1f);
  const std::uint64_t seed = random_bits(kBiasSeed, made_++);
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((mix_bits(seed + i) & 1) != 0) values[i] = -values[i];
  return values;
}

std::int64_t RandomWeights::next_start() {
  return kTableRows / kStarts *
         static_cast<std::int64_t>(random_bits(kStartSeed, made_++) % static_cast<std::uint64_t>(kStarts));
}

// Deviation 1: what a token is stays in the stream beside what the layers add to it.
RandomWeights::Matrix RandomWeights::embedding() {
  Random random(kEmbeddingSeed);
  const double size = std::sqrt(3.0);
  embedding_table_.resize(static_cast<std::size_t>(kTableRows * config_.hidden_size));
  for (Bf16& value : embedding_table_) value = to_bf16(static_cast<float>(random.uniform(-size, size)));
  return {"random", config_.vocab_size, config_.hidden_size, checkpoint::Bf16Storage{embedding_table_},
          repeat_rows(config_.vocab_size, 0)};
}

// Deviation 1 / sqrt(columns), so that values keep their size from layer to layer.
RandomWeights::Matrix RandomWeights::nvfp4(std::int64_t rows, std::int64_t columns, std::int64_t start) {
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
          repeat_rows(rows, start)};
}

RandomWeights::Matrix RandomWeights::mxfp4(std::int64_t rows, std::int64_t columns, std::int64_t start) {
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
  return {"random", rows, columns, checkpoint::Mxfp4Storage{table.view()}, repeat_rows(rows, start)};
}

RandomWeights::Matrix RandomWeights::bf16(std::int64_t rows, std::int64_t columns, std::int64_t start) {
  std::vector<Bf16>& table = bf16_tables_[columns];
  if (table.empty()) {
    table.resize(static_cast<std::size_t>(kTableRows * columns));
    Random random(static_cast<std::uint64_t>(columns));
    const double size = std::sqrt(3.0 / static_cast<double>(columns));
    for (Bf16& value : table) value = to_bf16(static_cast<float>(random.uniform(-size, size)));
  }
  return {"random", rows, columns, checkpoint::Bf16Storage{table}, repeat_rows(rows, start)};
}

RandomWeights::Matrix RandomWeights::fp8(std::int64_t rows, std::int64_t columns, std::int64_t start) {
  std::vector<E4m3>& table = fp8_tables_[columns];
  if (table.empty()) {
    table.resize(static_cast<std::size_t>(kTableRows * columns));
    Random random(static_cast<std::uint64_t>(columns));
    for (E4m3& value : table) value = to_e4m3(static_cast<float>(random.uniform(-1, 1)));
  }
  const auto scale = static_cast<float>(std::sqrt(3.0 / static_cast<double>(columns)));
  return {"random", rows, columns,
          checkpoint::Fp8Storage{table, checkpoint::Fp8TensorScale{scale}, std::nullopt},
          repeat_rows(rows, start)};
}

RandomWeights::Matrix RandomWeights::dense(std::int64_t rows, std::int64_t columns, std::int64_t start) {
  switch (dense_) {
    case WeightFormat::nvfp4: {
      Matrix made = nvfp4(rows, columns, start);
      std::get<checkpoint::Nvfp4Storage>(made.storage).input_scale.reset();
      return made;
    }
    case WeightFormat::fp8: return fp8(rows, columns, start);
    case WeightFormat::bf16: return bf16(rows, columns, start);
    case WeightFormat::mxfp4:
    case WeightFormat::f32: break;
  }
  fail(Code::internal, "random weights in {}", format_name(dense_));
}

WeightFormat RandomWeights::expert_format() const {
  return config_.family->maker->mxfp4_blocks ? WeightFormat::mxfp4 : WeightFormat::nvfp4;
}

// Gate and up of the same rows would make every neuron positive, and all tokens' outputs alike.
checkpoint::GatedMlp RandomWeights::mlp(bool is_expert, std::int64_t inner) {
  const std::int64_t start = next_start(), hidden = config_.hidden_size;
  const auto make = [&](std::int64_t rows, std::int64_t columns, std::int64_t first) {
    if (!is_expert || experts_are_bf16_) return dense(rows, columns, first);
    return expert_format() == WeightFormat::mxfp4 ? mxfp4(rows, columns, first) : nvfp4(rows, columns, first);
  };
  return {make(inner, hidden, start), make(inner, hidden, start + kTableRows / 2),
          make(hidden, inner, start + kTableRows / 4)};
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
    weights.query_bias = bias(weights.query.rows);
    weights.key_bias = bias(kv_width);
    weights.value_bias = bias(kv_width);
  }
  if (sizes.output_bias) weights.output_bias = bias(config_.hidden_size);
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
    moe.gate_bias = bias(count * config_.moe->intermediate_size);
    moe.up_bias = bias(count * config_.moe->intermediate_size);
    moe.down_bias = bias(count * config_.hidden_size);
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
