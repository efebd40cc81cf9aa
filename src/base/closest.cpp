#include "base/closest.h"

#include <algorithm>
#include <array>

namespace fourfold {
namespace {

constexpr std::size_t kBytesMax = 64;
constexpr std::size_t kEditsMax = 2;

}  // namespace

std::size_t edits(std::string_view a, std::string_view b) {
  if (a.size() > kBytesMax || b.size() > kBytesMax) return std::max(a.size(), b.size());
  std::array<std::array<std::size_t, kBytesMax + 1>, kBytesMax + 1> cost;
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& here = cost[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        here = std::min(here, cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

std::string closest(std::string_view word, std::span<const std::string> names) {
  std::string best;
  std::size_t fewest = kEditsMax + 1;
  for (const std::string& name : names) {
    const std::size_t count = edits(word, name);
    if (count >= fewest || 2 * count >= word.size()) continue;
    best = name;
    fewest = count;
  }
  if (!best.empty() || word.size() < 3) return best;
  const auto longer = std::ranges::find_if(names, [&](const auto& name) { return name.starts_with(word); });
  return longer == names.end() ? std::string() : *longer;
}

}  // namespace fourfold
