#include "plan/chip_rates.h"

#include <gtest/gtest.h>

namespace fourfold::plan {
namespace {

TEST(ChipRates, TheMeasuredChipIsOnePoint) {
  const ChipRange h200 = *chip_range(*find_product("h200"));
  EXPECT_EQ(h200.evidence, Evidence::measured);
  EXPECT_EQ(h200.fast.gb_per_s, h200.slow.gb_per_s);
  EXPECT_EQ(h200.fast.latency, 1);
  EXPECT_NEAR(h200.widened(2, 2, 0).high, 2 * (1 + kModelError), 1e-9);
}

TEST(ChipRates, ChipsThatAreNotHereAreRanges) {
  for (const char* name : {"rtx pro 6000", "rtx 5090", "rtx 5080", "rtx 5070 ti", "spark"}) {
    const ChipRange chip = *chip_range(*find_product(name));
    EXPECT_EQ(chip.evidence, Evidence::assumed) << name;
    EXPECT_GT(chip.fast.ghz, chip.slow.ghz) << name;
    EXPECT_GT(chip.fast.gb_per_s, chip.slow.gb_per_s) << name;
    EXPECT_LT(chip.fast.latency, 1) << name;
    EXPECT_GT(chip.slow.latency, 1) << name;
    const Range us = chip.widened(100, 200, 0);
    EXPECT_NEAR(us.low * (1 + kModelError), 100, 1e-9);
    EXPECT_NEAR(us.high / (1 + kModelError), 200, 1e-9);
    EXPECT_EQ(chip.widened(100, 200, 1e3 * 99 * chip.peak_gb_per_s).low, 99) << "bytes take their time";
    EXPECT_FALSE(chip.because.empty());
  }
}

// Whatever has kernels can be asked about; of other chips nothing is guessed.
TEST(ChipRates, EveryProductWithKernelsHasRates) {
  for (const Product& product : kProducts)
    EXPECT_EQ(chip_range(product).has_value(), product.arch->cc_major == 9 || product.arch->cc_major == 12)
        << product.name;
  const ChipRange h100 = *chip_range(*find_product("h100 sxm"));
  EXPECT_EQ(h100.evidence, Evidence::assumed) << "its memory was not measured";
  EXPECT_LT(h100.slow.gb_per_s, h100.fast.gb_per_s);
  Product unknown = *find_product("rtx 5090");
  unknown.name = "RTX 9999";
  EXPECT_FALSE(chip_range(unknown)) << "its clock is in no table";
}

TEST(ChipRates, ReadSpeedIsMeasuredOrAShareOfWhatIsPublished) {
  EXPECT_EQ(read_gb_per_s(*find_product("h200")).low, 4547);
  EXPECT_EQ(read_gb_per_s(*find_product("rtx 5090")).low, kReadShareLeast * 1792);
  EXPECT_EQ(read_gb_per_s(*find_product("rtx 5090")).high, kReadShareMost * 1792);
}

}  // namespace
}  // namespace fourfold::plan
