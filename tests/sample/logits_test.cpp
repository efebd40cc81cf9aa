#include "sample/logits.h"

#include <limits>

#include "base/random.h"
#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

TEST(BestTokens, AreThoseOfSortingEverything) {
  Random random(3);
  for (const std::size_t size : {1, 31, 32, 33, 1000, 5000}) {
    std::vector<float> scores(size);
    for (float& score : scores) score = static_cast<float>(random.below(200));  // many equals
    std::vector<Scored> sorted;
    for (std::size_t i = 0; i < size; ++i) sorted.push_back({static_cast<TokenId>(i), scores[i]});
    std::sort(sorted.begin(), sorted.end(), ranks_before);
    for (const std::size_t count : {0, 1, 2, 20, 6000}) {
      const std::vector<Scored> best = best_tokens(scores, count);
      ASSERT_EQ(best.size(), std::min(count, size));
      for (std::size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i].id, sorted[i].id) << size << " " << i;
    }
  }
}

TEST(Logits, ThatAreNoNumbersAreNamed) {
  std::vector<float> logits(100, 1.0f);
  require_finite(logits);
  logits[70] = std::numeric_limits<float>::infinity();
  expect_refusal(
      {"token 70", "infinite"}, [&] { require_finite(logits); }, Code::internal);
}

}  // namespace
}  // namespace fourfold::sample
