// Going back more than once. What a longer past overwrote in a slot stays lost, so going on there is refused;
// wherever it is allowed, the bits are those of a sequence that never went elsewhere.
#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::Pass;

std::vector<std::int32_t> random_tokens(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(320));
  return tokens;
}

class Rewind : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<backend::Prepared> prepare() const {
    if (!GetParam()) return golden_.prepare(Activations::f32, kFourSequences);
    return backend::make_cpu_backend({.threads = 2})
        ->prepare(golden_.program(Activations::f32), kFourSequences);
  }
  const Golden golden_{"bf16"};
  const std::vector<std::int32_t> stream_ = random_tokens(150, 1);
  const std::vector<std::int32_t> other_ = random_tokens(90, 2);
  std::vector<std::int32_t> from(std::int64_t position) const {
    return {stream_.begin() + position, stream_.end()};
  }
};

TEST_P(Rewind, TwiceIsRightOrRefused) {
  const auto alone = step(*prepare(), Pass::main, {part(0, 0, stream_)});
  const auto prepared = prepare();
  // 150 positions, then 68 of them and 12 others: 80 in all, and the first block's state is gone.
  step(*prepared, Pass::main, {part(1, 0, stream_)});
  step(*prepared, Pass::main, {part(1, 68, {other_.begin(), other_.begin() + 12})});
  EXPECT_EQ(prepared->resumable_from(1), 64);
  for (const std::int64_t position : {1, 20, 63})
    checkpoint::expect_error(Code::invalid_request, {"state slot 1", "64 to 80"},
                             [&] { step(*prepared, Pass::main, {part(1, position, from(position))}); });
  for (const std::int64_t position : {67, 64}) {
    const auto rows = step(*prepared, Pass::main, {part(1, position, from(position))});
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(rows[i], alone[static_cast<std::size_t>(position) + i])
          << "from " << position << ", row " << i;
  }
  EXPECT_EQ(step(*prepared, Pass::main, {part(1, 0, stream_)}), alone) << "from the beginning";
}

INSTANTIATE_TEST_SUITE_P(ReferenceAndCpu, Rewind, testing::Bool());

}  // namespace
}  // namespace fourfold::model
