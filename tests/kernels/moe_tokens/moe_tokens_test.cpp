#include "kernels/moe_tokens/moe_tokens.h"

#include <gtest/gtest.h>

#include "base/nvfp4.h"
#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe_tokens/launch_tokens.h"
#include "kernels/verify/inputs.h"

namespace fourfold::moe_tokens {
namespace {

TEST(StageTokens, TransposesThePairsOfEvery32Columns) {
  Random random(1);
  for (const std::uint64_t seed : {0u, 3u})
    for (const int columns : {64, 128, 1088}) {
      constexpr int tokens = 11;
      const auto count = static_cast<std::size_t>(tokens * columns);
      std::vector<std::uint16_t> rows;
      for (std::size_t i = 0; i < count; ++i) rows.push_back(static_cast<std::uint16_t>(random.bits()));
      sim::Device device;
      device.set_seed(seed);
      const auto machine = kernels::make_sim_machine(device);
      kernels::Arena arena(machine->memory());
      auto* const staged = arena.take<std::uint16_t>(count, "staged");
      launch_stage(*machine, find_token_rows(*machine),
                   {arena.upload(rows, "tokens"), staged, static_cast<std::int64_t>(count) / 32});
      std::vector<std::uint16_t> got(count);
      machine->memory().read(got.data(), staged, count * 2);
      for (std::size_t i = 0; i < count; ++i) {
        // Pair 4t + j of a 32-column group sits at pair 4j + t.
        const std::size_t group = i / 32, pair = i % 32 / 2, t = pair / 4, j = pair % 4;
        ASSERT_EQ(got[32 * group + 2 * (4 * j + t) + i % 2], rows[i]) << i;
      }
    }
}

TEST(StageTokens, TheOrderIsItsOwnInverse) {
  for (int pair = 0; pair < 256; ++pair) EXPECT_EQ(moe::staged_pair(moe::staged_pair(pair)), pair);
}

// Token records hold what base's quantiser makes of each slot's token with its expert's input scale.
void check_quantize(const std::vector<int>& tokens_per_expert, int columns, int tile_tokens,
                    std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << columns << " columns, N " << tile_tokens << ", seed " << seed);
  Random random(seed + 10);
  const auto tokens = verify::random_tokens(random, 16, columns);
  const auto assignment = verify::random_assignment(random, tokens_per_expert, 16, tile_tokens);
  std::vector<Nvfp4InputScale> scales;
  std::vector<float> inverse;
  for (std::size_t e = 0; e < tokens_per_expert.size(); ++e) {
    scales.push_back(
        nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0) * 2e-3)}));
    inverse.push_back(scales.back().inverse);
  }
  sim::Device device;
  device.set_seed(seed);
  const auto machine = kernels::make_sim_machine(device);
  kernels::Arena arena(machine->memory());
  const auto slots = assignment.slots();
  const auto bytes = static_cast<std::size_t>(slots / 8 * (columns / 64) * record::kTokenRecordBytes);
  auto* const records = arena.take<unsigned char>(bytes, "records");
  const auto tile_count = static_cast<std::int32_t>(assignment.tiles.size());
  launch_quantize(*machine, find_token_rows(*machine),
                  {reinterpret_cast<const std::uint16_t*>(arena.upload(tokens, "tokens")),
                   arena.upload(assignment.tiles, "tiles"),
                   arena.upload(std::vector<std::int32_t>{tile_count}, "tile count"),
                   arena.upload(assignment.slot_token, "slot tokens"), arena.upload(inverse, "inverses"),
                   records, columns / 64});
  std::vector<std::uint8_t> got(bytes);
  machine->memory().read(got.data(), records, bytes);  // a byte nobody wrote is a fault
  const verify::CheckpointMatrix matrix = verify::from_token_records(got.data(), slots, columns);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const int expert = assignment.slot_expert[static_cast<std::size_t>(slot)];
    std::vector<float> row(static_cast<std::size_t>(columns), 0.0f);
    const Bf16* const token = tokens.data() + assignment.slot_token[static_cast<std::size_t>(slot)] * columns;
    if (expert >= 0)
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = to_float(token[i]);
    const Nvfp4Matrix expected =
        quantize_nvfp4_activations(row, 1, columns, scales[static_cast<std::size_t>(std::max(expert, 0))]);
    for (int i = 0; i < columns / 2; ++i)
      ASSERT_EQ(matrix.codes[static_cast<std::size_t>(slot * columns / 2 + i)],
                expected.codes[static_cast<std::size_t>(i)])
          << "slot " << slot << " byte " << i;
    for (int i = 0; i < columns / 16; ++i)
      ASSERT_EQ(matrix.scales[static_cast<std::size_t>(slot * columns / 16 + i)],
                expected.scales[static_cast<std::size_t>(i)].bits)
          << "slot " << slot << " block " << i;
  }
}

TEST(QuantizeTokens, AgreesWithTheQuantiserOfBase) {
  check_quantize({9, 0, 3}, 64, 8, 0);
  check_quantize({9, 0, 3}, 192, 32, 1);
  check_quantize({1}, 1088, 8, 2);
  check_quantize({40, 1, 16, 8}, 128, 16, 3);
}

}  // namespace
}  // namespace fourfold::moe_tokens
