#include "library/expert_choice.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "plan/expected_tiles.h"

namespace fourfold::library {
namespace {

constexpr std::array kRows = {1, 8, 64};

// Bytes of one expert of every layer.
double expert_bytes(const checkpoint::ModelWeights& weights) {
  double bytes = 0;
  for (const checkpoint::LayerWeights& layer : weights.layers)
    if (const auto* moe = std::get_if<checkpoint::MoeWeights>(&layer.mlp)) {
      const checkpoint::GatedMlp& first = moe->experts.front();
      for (const checkpoint::Matrix* matrix : {&first.gate, &first.up, &first.down})
        bytes += static_cast<double>(checkpoint::stored_bytes(*matrix));
    }
  return bytes;
}

std::string size_of(double bytes) {
  char text[32];
  const bool large = bytes >= 1e9, middle = bytes >= 1e6;
  std::snprintf(text, sizeof text, "%.2f %s",
                bytes / (large    ? 1e9
                         : middle ? 1e6
                                  : 1e3),
                large    ? "GB"
                : middle ? "MB"
                         : "KB");
  return text;
}

std::string sizes_of(const std::array<double, kRows.size()>& bytes) {
  return fourfold::format("{}, {} and {}", size_of(bytes[0]), size_of(bytes[1]), size_of(bytes[2]));
}

}  // namespace

std::string expert_sharding_words(const checkpoint::ModelConfig& config,
                                  const checkpoint::ModelWeights& weights, int ranks) {
  const double bytes = expert_bytes(weights);
  if (ranks == 1 || !config.moe || bytes == 0) return {};
  if (const std::string problem = model::column_problem(weights, ranks); !problem.empty())
    return fourfold::format("--experts auto: given out whole (ep), because {}", problem);
  const auto experts = static_cast<int>(config.moe->expert_count);
  const auto per_token = static_cast<int>(config.moe->experts_per_token);
  const std::int64_t width = config.moe->intermediate_size;
  const double share = static_cast<double>(model::share_of_width(width, {0, ranks}).count) /
                       static_cast<double>(width);  // the first rank has the most
  const bool can_be_whole = experts % ranks == 0;
  std::array<double, kRows.size()> column{}, whole{};
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const double missed = std::pow(1 - static_cast<double>(per_token) / experts, kRows[i]);
    column[i] = bytes * experts * (1 - missed) * share;
    if (can_be_whole) whole[i] = bytes * plan::busiest_rank_experts(experts, per_token, ranks, kRows[i]);
  }
  const std::string instead =
      can_be_whole
          ? fourfold::format(", and {} if they were given out whole (ep)", sizes_of(whole))
          : fourfold::format("; {} experts cannot be given out whole to {} ranks evenly", experts, ranks);
  return fourfold::format(
      "--experts auto: by column (tp), as wherever their width can be cut; in a step of {}, {} and {} "
      "rows the busiest of {} ranks is predicted to read {} of routed experts{}",
      kRows[0], kRows[1], kRows[2], ranks, sizes_of(column), instead);
}

}  // namespace fourfold::library
