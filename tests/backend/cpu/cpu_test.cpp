#include "backend/cpu/cpu.h"

#include "tests/backend/support.h"
#include "tests/support/steps.h"

namespace fourfold::backend {
namespace {

constexpr Capacity kSmall{.page_count = 2, .page_tokens = 4, .state_slot_count = 1, .row_count = 8};

void expect_error(Code code, const std::string& part, const std::function<void()>& run) {
  try {
    run();
    ADD_FAILURE() << "nothing was refused; expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(CpuBackend, RunsASmallProgramAndKeepsValuesWhenAsked) {
  const SmallModel model;
  const Part rows{.slot = 0, .pages = {0, 1}, .position = 0, .tokens = {3, 1, 4}};
  const auto lean = make_cpu_backend({.threads = 2})->prepare(model.program, kSmall);
  const auto keeper = make_cpu_backend({.threads = 1, .keep_values = true})->prepare(model.program, kSmall);
  const auto logits = step(*lean, Pass::main, {rows});
  EXPECT_EQ(step(*keeper, Pass::main, {rows}), logits);
  EXPECT_TRUE(lean->value({0}).empty());
  const auto x = keeper->value({0});
  ASSERT_EQ(x.size(), 12u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(x[i], model.table_values[3 * 4 + i]);
  EXPECT_EQ(keeper->value({2}).size(), 15u);
}

TEST(CpuBackend, RefusesWhatItCannotBe) {
  expect_error(Code::invalid_request, "-1 threads", [] { make_cpu_backend({.threads = -1}); });
  expect_error(Code::invalid_request, "1025 threads; 1 to 1024",
               [] { make_cpu_backend({.threads = kCpuThreadsMax + 1}); });
  expect_error(Code::invalid_request, "'sse9'", [] { make_cpu_backend({.isa = "sse9"}); });
  const SmallModel model;
  const auto backend = make_cpu_backend({});
  EXPECT_EQ(backend->name(), "cpu");
  expect_error(Code::invalid_request, "0 slots", [&] {
    backend->prepare(model.program,
                     {.page_count = 1, .page_tokens = 1, .state_slot_count = 0, .row_count = 1});
  });
}

TEST(CpuBackend, SizesBeyondItsKernelsAreRefused) {
  const auto prepare = [](const std::function<void(Program&)>& change) {
    SmallModel model;
    change(model.program);
    make_cpu_backend({.threads = 1})->prepare(model.program, kSmall);
  };
  const auto delta = [&](std::int64_t value_heads, std::int64_t taps) {
    prepare([&](Program& program) { program.delta_states.push_back({"state", 1, value_heads, 4, 4, taps}); });
  };
  delta(32, 64);
  expect_error(Code::unsupported_op, "33 value heads share a key head; the CPU backend knows at most 32",
               [&] { delta(33, 4); });
  expect_error(Code::unsupported_op, "65 taps; the CPU backend knows at most 64", [&] { delta(1, 65); });
  expect_error(Code::unsupported_op, "heads of 2049 columns; the CPU backend knows at most 2048", [&] {
    prepare([](Program& program) { program.kv_caches.push_back({"cache", 1, 2049, KvFormat::bf16}); });
  });
}

TEST(CpuBackend, SaysWhichMatricesGrow) {
  SmallModel model;
  EXPECT_TRUE(make_cpu_backend({.threads = 1})->prepare(model.program, kSmall)->notices().empty());
  const std::vector<F16> values(20, to_f16(1.0f));
  model.head = {"wide.head", 5, 4, checkpoint::F16Storage{values}, {}};
  const auto prepared = make_cpu_backend({.threads = 1})->prepare(model.program, kSmall);
  ASSERT_EQ(prepared->notices().size(), 1u);
  const std::string& notice = prepared->notices().front();
  for (const std::string part : {"1 matrices", "wide.head", "held as f32", "1024 bytes instead of 40"})
    EXPECT_NE(notice.find(part), std::string::npos) << notice;
}

TEST(CpuBackend, ARefusedBatchChangesNothing) {
  const SmallModel model;
  const auto prepared = make_cpu_backend({.threads = 1})->prepare(model.program, kSmall);
  const Part rows{.slot = 0, .pages = {0, 1}, .position = 0, .tokens = {3, 1}};
  const auto before = step(*prepared, Pass::main, {rows});
  Part gap = rows;
  gap.position = 4;
  expect_refused({"holds 2 positions"}, [&] { step(*prepared, Pass::main, {gap}); });
  Part next = rows;
  next.position = 2;
  EXPECT_EQ(step(*prepared, Pass::main, {next}), before);
}

TEST(CpuBackend, W4a4WithoutAnInputScaleIsRefused) {
  SmallModel model;
  model.program.matrices[1].input = InputFormat::nvfp4;
  expect_error(Code::bad_checkpoint, "no input scale",
               [&] { make_cpu_backend({})->prepare(model.program, kSmall); });
}

TEST(CpuBackend, ABadMatrixIsNamed) {
  SmallModel model;
  std::vector<Bf16> values(20, to_bf16(1.0f));
  values[7] = {0x7FC0};
  model.head = {"broken.head", 5, 4, checkpoint::Bf16Storage{values}, {}};
  expect_error(Code::bad_checkpoint, "broken.head",
               [&] { make_cpu_backend({})->prepare(model.program, kSmall); });
}

}  // namespace
}  // namespace fourfold::backend
