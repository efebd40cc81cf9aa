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

ExpertChoice choose_expert_sharding(const checkpoint::ModelConfig& config,
                                    const checkpoint::ModelWeights& weights, int ranks) {
  const double bytes = expert_bytes(weights);
  if (ranks == 1 || !config.moe || bytes == 0) return {};
  const auto experts = static_cast<int>(config.moe->expert_count);
  const auto per_token = static_cast<int>(config.moe->experts_per_token);
  const std::string problem = model::column_problem(weights, ranks);
  if (!problem.empty())
    return {model::ExpertSharding::experts,
            fourfold::format("--experts auto: given out whole (ep), because {}", problem)};
  if (experts % ranks != 0)
    return {
        model::ExpertSharding::columns,
        fourfold::format("--experts auto: by column (tp): {} experts cannot be given out to {} ranks evenly",
                         experts, ranks)};
  std::array<double, kRows.size()> column{}, whole{};
  double column_all = 0, whole_all = 0;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const double share = static_cast<double>(per_token) / experts;
    column[i] = bytes * experts * (1 - std::pow(1 - share, kRows[i])) / ranks;
    whole[i] = bytes * plan::busiest_rank_experts(experts, per_token, ranks, kRows[i]);
    column_all += column[i], whole_all += whole[i];
  }
  const bool by_column = column_all <= whole_all;
  return {
      by_column ? model::ExpertSharding::columns : model::ExpertSharding::experts,
      fourfold::format("--experts auto: {}; in a step of {}, {} and {} rows each of {} ranks is predicted to "
                       "read {} of routed experts by column (the mean), the busiest {} given out whole",
                       by_column ? "by column (tp)" : "given out whole (ep)", kRows[0], kRows[1], kRows[2],
                       ranks, sizes_of(column), sizes_of(whole))};
}

}  // namespace fourfold::library
