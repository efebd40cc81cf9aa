#include "model/shard.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "plan/record_size.h"

namespace fourfold::model {
namespace {

using checkpoint::Matrix;
using checkpoint::RowRange;
using checkpoint::Vector;
using plan::kRecordColumns;

// One rank's share of things that lie one after another.
RowRange share_of(std::int64_t count, backend::PartOf part) {
  return {count * part.rank / part.count, count / part.count};
}

// Whether an MLP of this width has a record for each of the parts.
bool has_records_for(std::int64_t width, int parts) {
  return width % kRecordColumns == 0 && width / kRecordColumns >= parts;
}

// Heads that several ranks may have to share: with more ranks than heads a rank has one.
RowRange shared_heads(std::int64_t count, backend::PartOf part) {
  return {count * part.rank / part.count, std::max<std::int64_t>(count / part.count, 1)};
}

RowRange times(RowRange range, std::int64_t factor) { return {range.first * factor, range.count * factor}; }

RowRange behind(RowRange range, std::int64_t offset) { return {range.first + offset, range.count}; }

Matrix rows_of(const Matrix& matrix, RowRange range) { return pick_rows(matrix, std::span(&range, 1)); }

Vector elements_of(const Vector& whole, std::span<const RowRange> ranges) {
  Vector part;
  for (const RowRange& range : ranges)
    part.insert(part.end(), whole.begin() + range.first, whole.begin() + range.first + range.count);
  return part;
}

Vector part_of_bias(const Vector& bias, RowRange rows) {
  return bias.empty() ? bias : elements_of(bias, std::span(&rows, 1));
}

// Of rows of `length` numbers, one after another, these numbers of each.
Vector part_of_each(const Vector& rows, std::int64_t length, RowRange kept) {
  Vector part;
  for (std::int64_t at = 0; at < std::ssize(rows); at += length)
    part.insert(part.end(), rows.begin() + at + kept.first, rows.begin() + at + kept.first + kept.count);
  return part;
}

// Collects what stands in the way, each sentence once: every layer would say the same.
class Problems {
 public:
  explicit Problems(int parts) : parts_(parts) {}

  void want_whole(std::int64_t count, const char* what) {
    if (count % parts_ != 0) add(format("{} {} are not a multiple of {}", count, what, parts_));
  }
  // Heads that ranks may share.
  void want_shareable(std::int64_t count, const char* what) {
    if (count % parts_ != 0 && parts_ % count != 0)
      add(format("{} {} are neither a multiple nor a divisor of {}", count, what, parts_));
  }
  void want_columns(const Matrix& matrix) {
    if (const std::string problem = column_problem(matrix); !problem.empty()) add(problem);
  }
  // Of an MLP's down.
  void want_width(const Matrix& down) {
    if (const std::string problem = width_problem(down); !problem.empty()) add(problem);
  }
  std::string width_problem(const Matrix& down) const {
    return has_records_for(down.columns, parts_) ? std::string() : column_problem(down);
  }
  std::string column_problem(const Matrix& matrix) const {
    const checkpoint::MatrixFormat stored = checkpoint::format_of(matrix);
    const std::int64_t grain = stored == checkpoint::MatrixFormat::nvfp4   ? kNvfp4BlockColumns
                               : stored == checkpoint::MatrixFormat::mxfp4 ? kMxfp4BlockColumns
                                                                           : 1;
    if (matrix.columns % (grain * parts_) == 0) return {};
    if (grain == 1)
      return format("{}: {} columns are not a multiple of {}", matrix.name, matrix.columns, parts_);
    return format("{}: {} columns of {} are not {} times a multiple of {}", matrix.name, matrix.columns,
                  checkpoint::format_name(stored), parts_, grain);
  }
  void add(std::string text) { texts_.insert(std::move(text)); }

  void refuse_if_any() const {
    if (texts_.empty()) return;
    std::string text = format("this model cannot be cut into {} parts: ", parts_);
    std::size_t shown = 0;
    for (const std::string& problem : texts_) {
      if (shown == kShown) break;
      text += (shown++ == 0 ? "" : "; ") + problem;
    }
    if (texts_.size() > kShown) text += format("; and {} more", texts_.size() - kShown);
    throw Error(Code::unsupported_model, text, "Use fewer ranks (--tp), a divisor of these numbers.");
  }

 private:
  static constexpr std::size_t kShown = 6;
  int parts_;
  std::set<std::string> texts_;
};

using LayerWeights = checkpoint::LayerWeights;

// Calls visit with the main layers and those of MTP.
template <class Weights, class Visit>
void for_each_layer(Weights& weights, const Visit& visit) {
  for (auto& layer : weights.layers) visit(layer);
  if (weights.mtp)
    for (auto& layer : weights.mtp->layers) visit(layer);
}

void look_at_mixer(const LayerWeights& layer, const checkpoint::ModelConfig& config, int parts,
                   Problems& problems) {
  if (const auto* full = std::get_if<checkpoint::AttentionWeights>(&layer.mixer)) {
    problems.want_whole(config.attention.head_count, "attention heads");
    // A norm of all heads is of the ranks' columns side by side, and no head may be there twice.
    if (config.attention.qk_norm == checkpoint::QkNorm::all_heads)
      problems.want_whole(config.attention.kv_head_count, "KV heads that are normed together");
    else
      problems.want_shareable(config.attention.kv_head_count, "KV heads");
    return problems.want_columns(full->output);
  }
  if (const auto* latent = std::get_if<checkpoint::LatentWeights>(&layer.mixer)) {
    problems.want_whole(config.attention.head_count, "attention heads");
    return problems.want_columns(latent->output);
  }
  const checkpoint::DeltaConfig& sizes = *config.delta;
  problems.want_whole(sizes.value_head_count, "DeltaNet value heads");
  problems.want_shareable(sizes.key_head_count, "DeltaNet key heads");
  // Ranks that share a key head have value heads of that one alone.
  if (parts > sizes.key_head_count && sizes.values_per_key() % (parts / sizes.key_head_count) != 0)
    problems.add(
        format("{} DeltaNet value heads of a key head are not a multiple of the {} ranks that share it",
               sizes.values_per_key(), parts / sizes.key_head_count));
  problems.want_columns(std::get<checkpoint::DeltaWeights>(layer.mixer).output);
}

void look_at_mlp(const LayerWeights& layer, bool by_expert, Problems& problems) {
  if (const auto* dense = std::get_if<checkpoint::GatedMlp>(&layer.mlp))
    return problems.want_width(dense->down);
  const auto& moe = std::get<checkpoint::MoeWeights>(layer.mlp);
  if (moe.shared) problems.want_width(moe.shared->down);
  if (by_expert) return problems.want_whole(static_cast<std::int64_t>(moe.experts.size()), "experts");
  for (const checkpoint::GatedMlp& expert : moe.experts) problems.want_width(expert.down);
}

void shard(checkpoint::AttentionWeights& mixer, const checkpoint::AttentionConfig& whole,
           backend::PartOf part) {
  const RowRange heads = share_of(whole.head_count, part);
  const RowRange kv_heads = shared_heads(whole.kv_head_count, part);
  const RowRange query_rows = times(heads, whole.head_dim * (whole.output_gate ? 2 : 1));
  const RowRange kv_rows = times(kv_heads, whole.head_dim);
  mixer.query = rows_of(mixer.query, query_rows);
  mixer.key = rows_of(mixer.key, kv_rows);
  mixer.value = rows_of(mixer.value, kv_rows);
  mixer.query_bias = part_of_bias(mixer.query_bias, query_rows);
  mixer.key_bias = part_of_bias(mixer.key_bias, kv_rows);
  mixer.value_bias = part_of_bias(mixer.value_bias, kv_rows);
  mixer.sinks = part_of_bias(mixer.sinks, heads);
  if (part.rank != 0) mixer.output_bias.clear();  // the ranks' parts are summed
  mixer.output = pick_columns(mixer.output, times(heads, whole.head_dim));
}

// Heads are cut; the latent, which all of them read, is on every rank.
void shard(checkpoint::LatentWeights& mixer, std::int64_t head_count, const checkpoint::LatentConfig& sizes,
           backend::PartOf part) {
  const RowRange heads = share_of(head_count, part);
  mixer.plain_query = rows_of(mixer.plain_query, times(heads, sizes.plain_dim));
  mixer.turned_query = rows_of(mixer.turned_query, times(heads, sizes.turned_dim));
  mixer.key_up = rows_of(mixer.key_up, times(heads, sizes.plain_dim));
  mixer.value_up = rows_of(mixer.value_up, times(heads, sizes.value_dim));
  mixer.output = pick_columns(mixer.output, times(heads, sizes.value_dim));
}

void shard(checkpoint::DeltaWeights& mixer, const checkpoint::DeltaConfig& whole, backend::PartOf part) {
  const RowRange values = share_of(whole.value_head_count, part);
  const RowRange keys = times(shared_heads(whole.key_head_count, part), whole.key_head_dim);
  const RowRange value_rows = times(values, whole.value_head_dim);
  const RowRange inside[] = {keys, behind(keys, whole.key_dim()), behind(value_rows, 2 * whole.key_dim())};
  mixer.qkv = pick_rows(mixer.qkv, inside);
  const RowRange taps[] = {times(inside[0], whole.conv_taps), times(inside[1], whole.conv_taps),
                           times(inside[2], whole.conv_taps)};
  mixer.conv = elements_of(mixer.conv, taps);
  mixer.gate = rows_of(mixer.gate, value_rows);
  mixer.beta = rows_of(mixer.beta, values);
  mixer.decay = rows_of(mixer.decay, values);
  mixer.a_log = elements_of(mixer.a_log, std::span(&values, 1));
  mixer.dt_bias = elements_of(mixer.dt_bias, std::span(&values, 1));
  mixer.output = pick_columns(mixer.output, value_rows);
}

void shard(checkpoint::GatedMlp& mlp, backend::PartOf part) {
  const RowRange inner = share_of_width(mlp.gate.rows, part);
  mlp = {rows_of(mlp.gate, inner), rows_of(mlp.up, inner), pick_columns(mlp.down, inner)};
}

void shard(checkpoint::MoeWeights& moe, bool by_expert, backend::PartOf part) {
  if (moe.shared) shard(*moe.shared, part);
  if (!by_expert) {
    const std::int64_t inner = moe.experts.empty() ? 0 : moe.experts.front().gate.rows;
    moe.gate_bias = part_of_each(moe.gate_bias, inner, share_of_width(inner, part));
    moe.up_bias = part_of_each(moe.up_bias, inner, share_of_width(inner, part));
    if (part.rank != 0) moe.down_bias.clear();  // the ranks' parts are summed
    for (checkpoint::GatedMlp& expert : moe.experts) shard(expert, part);
    return;
  }
  const auto count = static_cast<std::int64_t>(moe.experts.size());
  const RowRange kept = share_of(count, part);
  for (Vector* bias : {&moe.gate_bias, &moe.up_bias, &moe.down_bias})
    *bias = part_of_bias(*bias, times(kept, std::ssize(*bias) / std::max<std::int64_t>(count, 1)));
  const auto first = moe.experts.begin() + kept.first;
  moe.experts = std::vector<checkpoint::GatedMlp>(first, first + kept.count);
}

void shard(checkpoint::ModelConfig& config, backend::PartOf part) {
  config.attention.head_count /= part.count;
  config.attention.kv_head_count = shared_heads(config.attention.kv_head_count, part).count;
  config.dense_intermediate_size = share_of_width(config.dense_intermediate_size, part).count;
  if (config.delta) {
    config.delta->key_head_count = shared_heads(config.delta->key_head_count, part).count;
    config.delta->value_head_count /= part.count;
  }
  if (!config.moe) return;
  std::int64_t& shared = config.moe->shared_intermediate_size;
  shared = share_of_width(shared, part).count;
}

}  // namespace

std::string column_problem(const checkpoint::ModelWeights& weights, int parts) {
  const Problems problems(parts);
  std::string first;
  for_each_layer(weights, [&](const LayerWeights& layer) {
    if (const auto* moe = std::get_if<checkpoint::MoeWeights>(&layer.mlp))
      for (const checkpoint::GatedMlp& expert : moe->experts)
        if (first.empty()) first = problems.width_problem(expert.down);
  });
  return first;
}

RowRange share_of_width(std::int64_t width, backend::PartOf part) {
  if (!has_records_for(width, part.count)) return share_of(width, part);
  const std::int64_t records = width / kRecordColumns, more = records % part.count;
  const std::int64_t first = records / part.count * part.rank + std::min<std::int64_t>(part.rank, more);
  return times({first, records / part.count + (part.rank < more ? 1 : 0)}, kRecordColumns);
}

ModelShard shard_model(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                       backend::PartOf part, ExpertSharding experts) {
  if (part.count < 1 || part.rank < 0 || part.rank >= part.count)
    fail(Code::invalid_request, "part {} of {} parts of a model: there is none", part.rank, part.count);
  ModelShard out{.part = part, .config = config, .weights = weights};
  if (config.moe) out.expert_count = config.moe->expert_count;
  if (part.count == 1) return out;

  Problems problems(part.count);
  const bool by_expert = experts == ExpertSharding::experts || (experts == ExpertSharding::automatic &&
                                                                !column_problem(weights, part.count).empty());
  problems.want_whole(weights.head.rows, "words of the vocabulary");
  for_each_layer(weights, [&](const LayerWeights& layer) {
    look_at_mixer(layer, config, part.count, problems);
    look_at_mlp(layer, by_expert, problems);
  });
  problems.refuse_if_any();

  for_each_layer(out.weights, [&](LayerWeights& layer) {
    if (auto* full = std::get_if<checkpoint::AttentionWeights>(&layer.mixer))
      shard(*full, config.attention, part);
    else if (auto* latent = std::get_if<checkpoint::LatentWeights>(&layer.mixer))
      shard(*latent, config.attention.head_count, *config.latent, part);
    else
      shard(std::get<checkpoint::DeltaWeights>(layer.mixer), *config.delta, part);
    if (auto* dense = std::get_if<checkpoint::GatedMlp>(&layer.mlp))
      shard(*dense, part);
    else
      shard(std::get<checkpoint::MoeWeights>(layer.mlp), by_expert, part);
  });
  out.weights.head = rows_of(weights.head, share_of(weights.head.rows, part));
  out.weights.head_is_embedding = false;
  shard(out.config, part);
  if (by_expert) out.first_expert = share_of(out.expert_count, part).first;
  if (config.moe && !by_expert) {
    std::int64_t& width = out.config.moe->intermediate_size;
    width = share_of_width(width, part).count;
  }
  return out;
}

}  // namespace fourfold::model
