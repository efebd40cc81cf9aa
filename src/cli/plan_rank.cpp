#include "cli/plan_rank.h"

#include "base/error.h"
#include "kernels/record/record.h"

namespace fourfold::cli {
namespace {

using checkpoint::Matrix;

// So many rows of the same width.
Matrix with_rows(Matrix matrix, std::int64_t rows) {
  matrix.gather = {{0, rows}};
  matrix.rows = rows;
  return matrix;
}

// As many rows, 1 / ranks of the columns. The same bytes read as narrower rows give a row's bytes.
Matrix with_columns(Matrix matrix, std::int64_t ranks) {
  matrix.gather = {{0, matrix.rows}};
  matrix.columns /= ranks;
  if (auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&matrix.storage)) {
    nvfp4->view.rows *= ranks;
    nvfp4->view.columns /= ranks;
  }
  return matrix;
}

void cut(std::vector<float>& vector, std::int64_t ranks) {
  vector.resize(vector.size() / static_cast<std::size_t>(ranks));
}

class Cutter {
 public:
  Cutter(const checkpoint::ModelConfig& config, std::int64_t ranks, ExpertCut experts)
      : whole_(config), ranks_(ranks), experts_(experts) {}

  checkpoint::ModelConfig config() {
    checkpoint::ModelConfig out = whole_;
    out.attention.head_count = divided("attention heads", whole_.attention.head_count, 1);
    const std::int64_t kv_heads = whole_.attention.kv_head_count;
    if (kv_heads % ranks_ != 0 && ranks_ % kv_heads != 0)
      problem("{} KV heads: neither a multiple nor a divisor of {}", kv_heads, ranks_);
    out.attention.kv_head_count = kv_heads < ranks_ ? 1 : kv_heads / ranks_;
    if (out.delta) {
      out.delta->key_head_count = divided("DeltaNet key heads", out.delta->key_head_count, 1);
      out.delta->value_head_count = divided("DeltaNet value heads", out.delta->value_head_count, 1);
    }
    divided("words of the vocabulary", whole_.vocab_size, 1);
    if (out.moe) {
      if (experts_ == ExpertCut::columns)
        out.moe->intermediate_size = divided("columns of an expert", out.moe->intermediate_size, kGrain);
      else
        divided("experts", out.moe->expert_count, 1);
      if (out.moe->shared_intermediate_size > 0)
        out.moe->shared_intermediate_size =
            divided("columns of the shared expert", out.moe->shared_intermediate_size, kGrain);
    } else {
      out.dense_intermediate_size = divided("columns of the MLP", out.dense_intermediate_size, kGrain);
    }
    if (!problems_.empty()) fail(Code::invalid_request, "--tp {}: {}", ranks_, problems_);
    kv_rows_ = out.attention.kv_head_count * out.attention.head_dim;
    return out;
  }

  checkpoint::LayerWeights layer(checkpoint::LayerWeights layer) const {
    if (auto* attention = std::get_if<checkpoint::AttentionWeights>(&layer.mixer)) {
      attention->query = by_row(attention->query);
      attention->key = with_rows(attention->key, kv_rows_);
      attention->value = with_rows(attention->value, kv_rows_);
      attention->output = with_columns(attention->output, ranks_);
    } else {
      auto& delta = std::get<checkpoint::DeltaWeights>(layer.mixer);
      for (Matrix* matrix : {&delta.qkv, &delta.gate, &delta.beta, &delta.decay}) *matrix = by_row(*matrix);
      delta.output = with_columns(delta.output, ranks_);
      for (auto* vector : {&delta.conv, &delta.a_log, &delta.dt_bias}) cut(*vector, ranks_);
    }
    if (auto* mlp = std::get_if<checkpoint::GatedMlp>(&layer.mlp)) {
      *mlp = by_column(*mlp);
      return layer;
    }
    auto& moe = std::get<checkpoint::MoeWeights>(layer.mlp);
    if (moe.shared) moe.shared = by_column(*moe.shared);
    if (experts_ == ExpertCut::experts)
      moe.experts.resize(moe.experts.size() / static_cast<std::size_t>(ranks_));
    else
      for (checkpoint::GatedMlp& expert : moe.experts) expert = by_column(expert);
    return layer;
  }
  Matrix by_row(const Matrix& matrix) const { return with_rows(matrix, matrix.rows / ranks_); }

 private:
  static constexpr std::int64_t kGrain = record::kColumns;  // of a down matrix's input

  checkpoint::GatedMlp by_column(const checkpoint::GatedMlp& mlp) const {
    return {by_row(mlp.gate), by_row(mlp.up), with_columns(mlp.down, ranks_)};
  }
  template <class... Args>
  void problem(std::string_view pattern, const Args&... args) {
    problems_ += (problems_.empty() ? "" : "; ") + fourfold::format(pattern, args...);
  }
  std::int64_t divided(const char* what, std::int64_t count, std::int64_t grain) {
    if (count % (ranks_ * grain) != 0)
      problem("{} {} cannot be cut into {} parts{}", count, what, ranks_,
              grain == 1 ? "" : fourfold::format(" of a multiple of {}", grain));
    return count / ranks_;
  }

  const checkpoint::ModelConfig& whole_;
  std::int64_t ranks_;
  ExpertCut experts_;
  std::int64_t kv_rows_ = 0;
  std::string problems_;
};

}  // namespace

ExpertCut parse_expert_cut(const std::string& text) {
  if (text == "tp") return ExpertCut::columns;
  if (text == "ep") return ExpertCut::experts;
  fail(Code::invalid_request, "--experts is '{}'; tp (a part of each) and ep (some of them) are possible",
       text);
}

RankModel rank_sizes(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                     int ranks, ExpertCut experts) {
  if (ranks == 1) return {config, weights};
  Cutter cutter(config, ranks, experts);
  RankModel out{cutter.config(), weights};
  out.weights.head = cutter.by_row(weights.head);
  out.weights.head_is_embedding = false;
  for (checkpoint::LayerWeights& layer : out.weights.layers) layer = cutter.layer(std::move(layer));
  if (out.weights.mtp)
    for (checkpoint::LayerWeights& layer : out.weights.mtp->layers) layer = cutter.layer(std::move(layer));
  return out;
}

}  // namespace fourfold::cli
