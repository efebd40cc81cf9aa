#include "kernels/moe_combine/moe_combine.h"

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::moe_combine {
namespace {

template <class Element>
float value_of(Element element) {
  if constexpr (std::is_same_v<Element, float>)
    return element;
  else
    return to_float(element);
}

// Adds a token's rows in the order of their rank, in f32, and rounds once to bf16.
template <class Element>
void check_combine(int tokens, int top_k, int columns, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens, top-k " << top_k << ", " << columns << " columns");
  Random random(seed);
  const int slots = tokens * top_k + 24;  // rows nobody asks for stay unwritten
  std::vector<std::int32_t> pair_slot;
  for (int i = 0; i < slots; ++i) pair_slot.push_back(i);
  for (int i = slots - 1; i > 0; --i)
    std::swap(pair_slot[static_cast<std::size_t>(i)],
              pair_slot[random.below(static_cast<std::uint64_t>(i) + 1)]);
  pair_slot.resize(static_cast<std::size_t>(tokens * top_k));
  std::vector<Element> rows(static_cast<std::size_t>(slots) * static_cast<std::size_t>(columns));
  for (Element& element : rows) {
    const auto value = static_cast<float>(random.normal() * (random.below(8) ? 1.0 : 1e4));
    if constexpr (std::is_same_v<Element, float>)
      element = value;
    else
      element = to_bf16(value);
  }

  sim::Device device;
  device.set_seed(seed);
  const auto machine = kernels::make_sim_machine(device);
  kernels::Arena arena(machine->memory());
  const auto count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(columns);
  Element* const memory = arena.take<Element>(rows.size(), "rows");
  for (const std::int32_t slot : pair_slot) {
    const auto first = static_cast<std::size_t>(slot) * static_cast<std::size_t>(columns);
    machine->memory().write(memory + first, rows.data() + first,
                            static_cast<std::size_t>(columns) * sizeof(Element));
  }
  auto* const out = arena.take<std::uint16_t>(count, "out");
  machine->combine({memory, arena.upload(pair_slot, "slots"), out, tokens, top_k, columns},
                   std::is_same_v<Element, float>);
  std::vector<Bf16> got(count);
  machine->memory().read(got.data(), out, count * 2);
  for (int token = 0; token < tokens; ++token)
    for (int column = 0; column < columns; ++column) {
      float sum = 0.0f;
      for (int rank = 0; rank < top_k; ++rank) {
        const auto slot = static_cast<std::size_t>(pair_slot[static_cast<std::size_t>(token * top_k + rank)]);
        const float part =
            value_of(rows[slot * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column)]);
        sum = rank == 0 ? part : sum + part;
      }
      const auto at = static_cast<std::size_t>(token * columns + column);
      ASSERT_EQ(got[at].bits, to_bf16(sum).bits) << "token " << token << " column " << column;
    }
}

TEST(MoeCombine, AddsRowsInRankOrder) {
  // Columns up to, at and beyond what one block takes (1,024); ranks that are no multiple of four.
  std::uint64_t seed = 0;
  for (const int columns : {64, 960, 1024, 1088, 2112})
    for (const int top_k : {1, 2, 4, 5, 8, 31, 32}) {
      check_combine<float>(3, top_k, columns, seed);
      check_combine<Bf16>(3, top_k, columns, seed++);
    }
  check_combine<float>(40, 10, 128, 3);
}

TEST(MoeCombine, NoTokensIsNoLaunch) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  EXPECT_NO_THROW(machine->combine({nullptr, nullptr, nullptr, 0, 8, 128}, true));
}

}  // namespace
}  // namespace fourfold::moe_combine
