// The tiles of prompts on SM12x, of which no card is here, against the model of kernels' time that they come
// from.
#include <gtest/gtest.h>

#include <map>

#include "kernels/launch/sim_machine.h"
#include "library/predict_layer.h"
#include "plan/kernel_time.h"

namespace fourfold::library {
namespace {

using moe_layer::Activations;
using moe_layer::Request;

// What the model is off by on the tiles it was fitted to, the median (docs/decisions/0018): rows nearer to
// each other it cannot tell apart.
constexpr double kTileError = 0.08;
constexpr const char* kCards[] = {"rtx-pro-6000", "rtx-5090", "dgx-spark"};
// Mean tokens of an expert from 1/32 to 512.
constexpr int kTokens[] = {1,    64,   128,  256,  384,  512,  768,  1024,
                           1536, 2048, 2560, 3072, 4096, 6144, 8192, 16384};

class Sm12xTiles {
 public:
  // By row: by how much its two GEMMs are slower than the fastest row's, at most: on three cards, whatever is
  // believed of them.
  std::map<std::string, double> regrets(const Request& request) const {
    std::map<std::string, double> worst;
    std::map<std::string, std::vector<plan::KernelWork>> work;
    const std::string path = request.activations == Activations::w4a4 ? " w4a4 nvfp4" : " w4a16-mma nvfp4";
    for (const plan::RowFacts& facts : machine_->rows(kernels::RowKind::gemm))
      if (facts.kernel == "moe_gemm" && facts.row.ends_with(path))
        work[facts.row] = layer_work(*machine_, request, plan::Routing::uniform, facts.row);
    for (const char* card : kCards) {
      const plan::ChipRange chip = *plan::chip_range(*plan::find_product(card));
      for (const plan::ChipRates& rates : {chip.fast, chip.slow}) {
        std::map<std::string, double> us;
        for (const auto& [row, launches] : work)
          for (const plan::KernelWork& launch : launches)
            if (launch.kernel == "moe_gemm") us[row] += plan::kernel_us(launch, rates);
        const double best =
            std::ranges::min_element(us, {}, [](const auto& item) { return item.second; })->second;
        for (const auto& [row, its] : us) worst[row] = std::max(worst[row], its / best - 1);
      }
    }
    return worst;
  }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ =
      kernels::make_sim_machine(device_, {.arch = &plan::kSm120, .persistent_blocks = 188});
};

Request layer(const char* shape, Activations activations, int tokens) {
  return {moe_layer::parse_shape(shape), activations, WeightFormat::nvfp4, moe_layer::Role::prefill, tokens};
}

// One table for all cards of SM12x: the row whose largest regret is the smallest, or one that the model does
// not tell from it.
TEST(Predict, ChoosesTheTilesOfSm12x) {
  const Sm12xTiles tiles;
  for (const char* shape : {"35b", "122b", "397b-tp4"})
    for (const Activations activations : {Activations::w4a16, Activations::w4a4})
      for (const int tokens : kTokens) {
        const Request request = layer(shape, activations, tokens);
        const auto regrets = tiles.regrets(request);
        ASSERT_GE(regrets.size(), 8u);
        const auto best = std::ranges::min_element(regrets, {}, [](const auto& item) { return item.second; });
        const std::string chosen = moe_layer::choose(plan::kSm120, request).gate_up_row;
        ASSERT_TRUE(regrets.contains(chosen)) << chosen;
        EXPECT_LE(regrets.at(chosen), best->second + kTileError)
            << shape << " " << tokens << ": " << chosen << "; the model takes " << best->first;
      }
}

// What Hopper's times of the same rows would choose is noticed.
TEST(Predict, NoticesTilesThatWereChosenByAnotherChip) {
  const Sm12xTiles tiles;
  const auto regrets = tiles.regrets(layer("35b", Activations::w4a16, 2048));
  EXPECT_GT(regrets.at("moe_gemm 128x32x128 w4a16-mma nvfp4"),
            regrets.at("moe_gemm 128x64x128 w4a16-mma nvfp4") + kTileError);
}

}  // namespace
}  // namespace fourfold::library
