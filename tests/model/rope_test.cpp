#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace fourfold::model {
namespace {

checkpoint::RopeConfig quarter_head() {
  checkpoint::RopeConfig config;
  config.theta = 10'000'000;
  config.rotary_dims = 64;
  return config;
}

TEST(Rope, TurnsPartOfAHead) {
  const backend::Rope rope = make_rope(quarter_head());
  ASSERT_EQ(rope.inverse_frequency.size(), 32u);
  EXPECT_EQ(rope.amplitude, 1);
  EXPECT_DOUBLE_EQ(rope.inverse_frequency[0], 1);
  EXPECT_DOUBLE_EQ(rope.inverse_frequency[16], 1 / std::sqrt(10'000'000.0));
}

// Fast frequencies stay as they are, slow ones are divided by the factor, those between lie between.
TEST(Rope, YarnStretchesSlowFrequencies) {
  checkpoint::RopeConfig config = quarter_head();
  const backend::Rope plain = make_rope(config);
  config.yarn.emplace();
  config.yarn->factor = 4;
  config.yarn->original_positions = 262144;
  const backend::Rope yarn = make_rope(config);
  EXPECT_DOUBLE_EQ(yarn.amplitude, 0.1 * std::log(4.0) + 1);
  double before = 1;
  bool between = false;
  for (std::size_t j = 0; j < 32; ++j) {
    const double ratio = yarn.inverse_frequency[j] / plain.inverse_frequency[j];
    EXPECT_LE(ratio, before);
    EXPECT_GE(ratio, 0.25 - 1e-12);
    // Whole turns within the trained length decide: at least 32 keep the frequency, at most 1 stretches it.
    // The ramp is laid from a whole index to a whole index, so the ends are tested one index away.
    const double turns = 262144 * plain.inverse_frequency[j] / (2 * 3.14159265358979);
    const double step = plain.inverse_frequency[0] / plain.inverse_frequency[1];
    if (turns > 32 * step) {
      EXPECT_DOUBLE_EQ(ratio, 1);
    } else if (turns < 1 / step) {
      EXPECT_DOUBLE_EQ(ratio, 0.25);
    }
    between = between || (ratio > 0.26 && ratio < 0.99);
    before = ratio;
  }
  // 32 turns lie at index 14.24 and one at 21.12, so the ramp goes from 14 to 22.
  for (const std::size_t j : {13, 14, 15, 18, 21, 22, 23}) {
    const double share = j < 14 ? 0 : j > 22 ? 1 : (static_cast<double>(j) - 14) / 8;
    EXPECT_NEAR(yarn.inverse_frequency[j] / plain.inverse_frequency[j], 1 - 0.75 * share, 1e-12) << j;
  }
  EXPECT_TRUE(between);
  config.yarn->attention_factor = 1.5;
  EXPECT_EQ(make_rope(config).amplitude, 1.5);
}

// gpt-oss lays the ramp between the indices as they are.
TEST(Rope, YarnWithoutTruncation) {
  checkpoint::RopeConfig config = quarter_head();
  const backend::Rope plain = make_rope(config);
  config.yarn.emplace();
  config.yarn->factor = 4;
  config.yarn->original_positions = 262144;
  config.yarn->truncate = false;
  const backend::Rope yarn = make_rope(config);
  const double fast = 64 * std::log(262144 / (32 * 2 * M_PI)) / (2 * std::log(1e7));
  const double slow = 64 * std::log(262144 / (2 * M_PI)) / (2 * std::log(1e7));
  for (const std::size_t j : {14, 15, 18, 21, 22}) {
    const double share = std::clamp((static_cast<double>(j) - fast) / (slow - fast), 0.0, 1.0);
    EXPECT_NEAR(yarn.inverse_frequency[j] / plain.inverse_frequency[j], 1 - 0.75 * share, 1e-12) << j;
  }
}

// DeepSeek says two weights; where they are equal cosines and sines stay as they are.
TEST(Rope, YarnAmplitudeOfTwoWeights) {
  checkpoint::RopeConfig config = quarter_head();
  config.yarn.emplace();
  config.yarn->factor = 40;
  config.yarn->original_positions = 4096;
  config.yarn->mscale = config.yarn->mscale_all_dim = 1;
  EXPECT_EQ(make_rope(config).amplitude, 1);
  config.yarn->mscale = 0.707;
  EXPECT_DOUBLE_EQ(make_rope(config).amplitude, (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1));
  EXPECT_DOUBLE_EQ(latent_scale_factor(config), std::pow(0.1 * std::log(40.0) + 1, 2));
  config.yarn->mscale_all_dim = 0;  // one alone says nothing
  EXPECT_EQ(latent_scale_factor(config), 1);
  EXPECT_DOUBLE_EQ(make_rope(config).amplitude, 0.1 * std::log(40.0) + 1);
}

}  // namespace
}  // namespace fourfold::model
