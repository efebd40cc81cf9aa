#include "kernels/moe_combine/moe_combine.h"

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/device/functions.h"
#include "kernels/device/sim/cta.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe_combine/launch_combine.h"
#include "kernels/moe_route/launch_route.h"
#include "sim/fault.h"

namespace fourfold::moe_combine {
namespace {

template <class Element>
float value_of(Element element) {
  if constexpr (std::is_same_v<Element, float>)
    return element;
  else
    return to_float(element);
}

// Rows of a shared expert and their gates, between which other numbers lie.
struct Shared {
  std::vector<Bf16> rows;
  std::vector<float> gates;

  Shared(Random& random, int tokens, int columns)
      : rows(static_cast<std::size_t>(tokens * columns)), gates(3 * static_cast<std::size_t>(tokens)) {
    for (Bf16& value : rows) value = to_bf16(static_cast<float>(random.normal()));
    for (float& gate : gates) gate = static_cast<float>(random.normal());
  }
  JoinedRows upload(kernels::Arena& arena, bool gated) const {
    return {reinterpret_cast<const std::uint16_t*>(arena.upload(rows, "joined rows")),
            gated ? arena.upload(gates, "gates") : nullptr, 3};
  }
  float joined_to(float before, int token, std::size_t at, bool gated) const {
    using Host = device::SimCta;
    const float factor = gated ? device::sigmoid<Host>(gates[3 * static_cast<std::size_t>(token)]) : 1.0f;
    return Host::add(before, Host::mul(factor, to_float(rows[at])));
  }
};

// Adds a token's rows in the order of their rank, in f32, and rounds once to bf16; or adds the sum to a
// residual stream, unrounded.
template <class Element>
void check_combine(int tokens, int top_k, int columns, std::uint64_t seed, bool adds = false,
                   bool joins = false, bool gated = false) {
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
  std::vector<float> before(count), after(count);
  for (float& value : before) value = static_cast<float>(random.normal() * 100.0);
  float* const residual = adds ? arena.upload(before, "residual") : nullptr;
  const Shared shared(random, tokens, columns);
  const JoinedRows joined = joins ? shared.upload(arena, gated) : JoinedRows{};
  launch_combine(*machine, find_combine(*machine, std::is_same_v<Element, float>),
                 {memory, arena.upload(pair_slot, "slots"), out, tokens, top_k, columns, residual, joined});
  std::vector<Bf16> got(count);
  if (adds)
    machine->memory().read(after.data(), residual, count * 4);
  else
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
      const float start = joins ? shared.joined_to(before[at], token, at, gated) : before[at];
      if (adds)
        ASSERT_EQ(after[at], start + sum) << "token " << token << " column " << column;
      else
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

TEST(MoeCombine, AddsToTheResidualStream) {
  std::uint64_t seed = 50;
  for (const int columns : {64, 960, 1088})
    for (const int top_k : {1, 8, 10, 32}) {
      check_combine<float>(3, top_k, columns, seed, true);
      check_combine<Bf16>(3, top_k, columns, seed++, true);
    }
}

// The bits of a kernel that adds the shared expert's rows first.
TEST(MoeCombine, RowsJoinTheResidualStreamBeforeTheSum) {
  std::uint64_t seed = 90;
  for (const int columns : {64, 1088})
    for (const bool gated : {false, true}) check_combine<Bf16>(3, 10, columns, seed++, true, true, gated);
}

// The slots are read before the wait: whoever wrote them must be older than the predecessor.
TEST(MoeCombine, SlotsOfThePredecessorAreARace) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  kernels::Arena arena(machine->memory());
  const std::vector<float> logits{1.0f, 2.0f};
  moe_route::RouteParams route{};
  route.logits = arena.upload(logits, "logits");
  route.tables = {arena.take<std::int32_t>(1, "experts"),   arena.take<float>(1, "weights"),
                  arena.take<std::int32_t>(1, "slots"),     arena.take<std::int32_t>(8, "tokens"),
                  arena.take<float>(8, "slot weights"),     arena.take<moe::TokenTile>(1, "tiles"),
                  arena.take<std::int32_t>(1, "tile count")};
  route.tokens = 1;
  route.experts = 2;
  route.top_k = 1;
  route.tile_tokens = 8;
  float* const rows = arena.upload(std::vector<float>(8 * 64), "rows");
  auto* const out = arena.take<std::uint16_t>(64, "out");
  moe_route::launch_route(*machine, moe_route::find_route_rows(*machine), route);
  try {
    launch_combine(*machine, find_combine(*machine, true), {rows, route.tables.pair_slot, out, 1, 1, 64});
    FAIL() << "nobody noticed";
  } catch (const sim::Fault& fault) {
    EXPECT_EQ(fault.kind(), sim::FaultKind::predecessor_race) << fault.what();
  }
}

TEST(MoeCombine, NoTokensIsNoLaunch) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  launch_combine(*machine, find_combine(*machine, true), {nullptr, nullptr, nullptr, 0, 8, 128});
  EXPECT_EQ(machine->launch_count(), 0);
}

}  // namespace
}  // namespace fourfold::moe_combine
