// A state that was kept brings a slot to where another one was: the same logits, on every backend.
#include <numeric>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/support.h"
#include "tests/model/made_models.h"

namespace fourfold::engine {
namespace {

constexpr backend::Capacity kRoom{
    .page_count = 8, .page_tokens = 64, .state_slot_count = 2, .row_count = 192, .anchor_count = 2};

std::unique_ptr<backend::Prepared> prepare(const std::string& name, const backend::Program& program,
                                           kernels::Machine& machine) {
  if (name == "reference") return backend::ReferenceBackend().prepare(program, kRoom);
  if (name == "cpu") return backend::make_cpu_backend({.threads = 1})->prepare(program, kRoom);
  return backend::make_gpu_backend(machine, {})->prepare(program, kRoom);
}

class Anchors : public testing::TestWithParam<const char*> {};

void expect_brought(const std::string& name, const backend::Program& program) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared = prepare(name, program, *machine);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 150; ++i) tokens.push_back(7 * i % 300);
  const auto run = [&](std::int32_t slot, std::vector<std::int32_t> pages, std::int64_t position) {
    const backend::Part part{.slot = slot,
                             .pages = std::move(pages),
                             .position = position,
                             .tokens = {tokens.begin() + position, tokens.end()},
                             .all_logits = false};
    return backend::step(*prepared, backend::Pass::main, {part}).front();
  };
  const auto wanted = run(0, {0, 1, 2}, 0);
  prepared->save_anchor(0, 128, 1);
  prepared->save_anchor(0, 64, 0);
  EXPECT_GT(prepared->anchor_bytes(), 0);
  EXPECT_THROW(prepared->save_anchor(0, 192, 0), Error) << "it has not been there";
  EXPECT_THROW(prepared->save_anchor(0, 100, 0), Error) << "not a multiple of 64";
  EXPECT_THROW(prepared->save_anchor(0, 64, 2), Error) << "no such place";
  EXPECT_THROW(prepared->restore_anchor(1, 1, 64), Error) << "it holds another position";
  // The first pages are read where they are; what is written goes to others.
  prepared->restore_anchor(1, 1, 128);
  EXPECT_THROW(run(1, {0, 1, 5}, 64), Error) << "there is nothing before the state that was brought back";
  EXPECT_EQ(run(1, {0, 1, 5}, 128), wanted);
  prepared->restore_anchor(0, 1, 64);
  EXPECT_EQ(run(1, {0, 6, 5}, 64), wanted);
}

TEST_P(Anchors, BringASequenceToWhereAnotherWas) {
  const model::Golden golden("compressed");
  expect_brought(GetParam(), golden.program(model::Activations::w4a16));
}

// What a window sees of earlier rows is kept with the state; slot 0 has gone on and given it back since.
TEST_P(Anchors, BringPagesOfWindows) {
  const model::MadeModel made(checkpoint::find_shape("tiny-gpt-oss"), "bf16");
  ASSERT_EQ(made.loaded.config.layers[0].window, 16);
  expect_brought(GetParam(), made.loaded.program(model::Activations::w4a16));
}

INSTANTIATE_TEST_SUITE_P(Backends, Anchors, testing::Values("reference", "cpu", "sim"));

TEST(AnchorsOfNobody, AreRefused) {
  ThreeWords words;
  EXPECT_THROW(words.save_anchor(0, 64, 0), Error);
  EXPECT_THROW(words.restore_anchor(0, 0, 64), Error);
}

}  // namespace
}  // namespace fourfold::engine
