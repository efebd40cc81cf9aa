#include "plan/small_sm.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

namespace fourfold::plan {
namespace {

// Milliseconds of a step by users and context, from the sections of the measurement: as it is, made small,
// and so on in turn.
using Steps = std::map<std::pair<int, int>, std::vector<double>>;
std::vector<Steps> small_sm_sections() {
  std::ifstream in(FOURFOLD_SOURCE_DIR "/bench/results/small-sm-h200.txt");
  EXPECT_TRUE(in);
  std::vector<Steps> sections;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("== ")) sections.emplace_back();
    std::istringstream words(line);
    std::string what;
    int users = 0, context = 0;
    double speed = 0, ms = 0;
    if (words >> what && what == "decode" && words >> users >> context >> speed >> ms)
      sections.back()[{users, context}].push_back(ms);
  }
  return sections;
}
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(SmallSm, SmallSmsCostWhatWasMeasured) {
  const std::vector<Steps> sections = small_sm_sections();
  ASSERT_GE(sections.size(), 4u);
  ASSERT_EQ(sections.size() % 2, 0u);
  std::map<std::pair<int, int>, double> most;  // the most of all pairs of sections, never less than nothing
  for (std::size_t i = 0; i + 1 < sections.size(); i += 2)
    for (const auto& [at, values] : sections[i]) {
      const double share = mean(sections[i + 1].at(at)) / mean(values) - 1;
      most[at] = std::max({most[at], share, 0.0});
    }
  ASSERT_EQ(most.size(), kSmallSmLoss.size());
  for (const SmallSmLoss& point : kSmallSmLoss) {
    EXPECT_NEAR(point.share, most.at({point.rows, point.context}), 0.001)
        << point.rows << " " << point.context;
    EXPECT_GE(small_sm_share(point.rows, point.context), point.share);
  }
  EXPECT_EQ(small_sm_share(64, 0), 0.084);
  EXPECT_EQ(small_sm_share(9, 1), 0.175) << "between what was measured the more of both";
  EXPECT_EQ(small_sm_share(2, 0), 0.061);
  EXPECT_EQ(small_sm_share(64, 1e6), 0.376);
}

TEST(SmallSm, KernelsThatFillAnSmDoNotOverlap) {
  // As large as rows for SM120 are: two fit an SM of the H200 and not one of SM120; small ones fit
  // everywhere.
  const std::vector<int> step{100'608, 99'200, 0, 16'384, 100'608};
  EXPECT_EQ(boundaries_apart(kSm90, step), 0);
  EXPECT_EQ(boundaries_apart(kSm120, step), 2);
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{50'176, 50'176}), 0);
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{50'176, 50'177}), 1) << "rounded up, it does not fit";
  EXPECT_EQ(boundaries_apart(kSm120, std::vector<int>{200'000, 100'000}), 0) << "they never overlapped";
  EXPECT_EQ(boundaries_apart(kSm120, {}), 0);
}

}  // namespace
}  // namespace fourfold::plan
