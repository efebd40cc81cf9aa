// The GPU backend on the simulated GPU: the golden models from embedding to logits, the same launches as on
// silicon, every kernel checked for races and reads of what nobody wrote; and the same bits for a row
// whatever shares its batch.
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "tests/model/cuda/simulated.h"
#include "tests/support/long_test.h"

namespace fourfold::model {
namespace {

void expect_fine(const std::string& name, const plan::ArchFacts& arch,
                 backend::KvFormat kv = backend::KvFormat::bf16,
                 Activations activations = Activations::w4a16) {
  const Golden golden(name);
  const evaluate::ReferenceFile reference(checkpoint::golden_model(name) / "reference.safetensors",
                                          golden.program(Activations::w4a16));
  Simulated gpu(arch);
  const auto prepared =
      gpu.prepare(golden, evaluate::trace_capacity(reference.prompts()), true, kv, activations);
  const evaluate::Comparison result = evaluate::compare(*prepared, reference);
  for (const evaluate::NumberDifference& item : result.numbers)
    EXPECT_TRUE(item.fine()) << item.prompt << " " << item.what << ": " << item.largest << " of "
                             << item.largest_bound << ", " << item.typical << " of " << item.typical_bound;
  for (const evaluate::TokenDifference& item : result.tokens)
    EXPECT_TRUE(item.fine()) << item.prompt << " " << item.what << ": " << item.same << " of " << item.count;
  EXPECT_TRUE(result.hidden_compared);
  EXPECT_TRUE(result.mtp_compared);
}

class GoldenOnGpu : public testing::TestWithParam<const char*> {};
TEST_P(GoldenOnGpu, IsWithinItsBound) { expect_fine(GetParam(), plan::kSm120); }
// ./dev test has the other two in one of the ways below; --long each in all.
std::vector<const char*> formats() {
  std::vector<const char*> out = {"compressed", "modelopt_mixed"};
  if (test::wants_all()) out.insert(out.end(), {"bf16", "modelopt"});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Formats, GoldenOnGpu, testing::ValuesIn(formats()));

// Hopper's own kernels: wgmma for prompts.
TEST(GoldenOnHopper, IsWithinItsBound) { expect_fine("modelopt", plan::kSm90); }

// Keys and values in fp8: the bounds know E4M3's rounding by its size (input_noise.h), not by its codec.
TEST(GoldenWithFp8Kv, IsWithinItsBound) { expect_fine("bf16", plan::kSm120, backend::KvFormat::fp8); }

// FP4 activations of all rows, or of prompts alone. On Hopper the instruction is emulated.
TEST(GoldenWithFp4Activations, IsWithinItsBound) {
  expect_fine("compressed", plan::kSm120, backend::KvFormat::bf16, Activations::w4a4);
  expect_fine("compressed", plan::kSm90, backend::KvFormat::bf16, Activations::w4a4_prefill);
  if (!test::wants_all()) return;
  expect_fine("modelopt", plan::kSm120, backend::KvFormat::bf16, Activations::w4a4);
  expect_fine("compressed", plan::kSm120, backend::KvFormat::bf16, Activations::w4a4_prefill);
}

// FP8 x FP8 of prompts, with the checkpoint's input scales, on Hopper's own kernels.
TEST(GoldenWithFp8Activations, IsWithinItsBound) {
  expect_fine("modelopt_mixed", plan::kSm90, backend::KvFormat::bf16, Activations::w8a8);
}

TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatch) {
  expect_same_bits(Golden("modelopt_mixed"), Activations::w4a16);
}
TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatchWithFp4Activations) {
  // The first has a 16-bit shared expert beside FP4 experts, the second FP4 everywhere.
  expect_same_bits(Golden("modelopt"), Activations::w4a4_prefill);
  expect_same_bits(Golden("compressed"), Activations::w4a4);
  if (!test::wants_all()) return;  // each has had its turn
  expect_same_bits(Golden("modelopt"), Activations::w4a4);
  expect_same_bits(Golden("compressed"), Activations::w4a4_prefill);
}

TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatchWithFp8Activations) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  expect_same_bits(Golden("modelopt_mixed"), Activations::w8a8, plan::kSm90);
}

TEST(GpuDrafts, AreRefusedWhereTheyCannotBe) {
  const Golden golden("bf16");
  Simulated gpu;
  const auto prepared = gpu.prepare(golden, kTenSequences);
  Sequences sequences(*prepared, 1);
  sequences.run({{0, 0, {1, 2, 3}, Role::prefill}});
  const std::vector<std::int32_t> tokens{2, 3, 4}, hidden{0, 1, 2}, page{5};
  std::vector<std::int32_t> drafts(9);
  const backend::Choice greedy[1];
  const auto message = [&](std::int32_t asked, int count, std::int64_t position) -> std::string {
    const backend::SequenceRows rows{3, position, 0, 0, 1, Role::prefill, 0};
    try {
      prepared->run_drafts({tokens, {&rows, 1}, page, {&asked, 1}, hidden}, {250, greedy}, {&count, 1},
                           std::span(drafts).first(static_cast<std::size_t>(count)));
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(message(2, 9, 0).find("9 drafts behind position 2: 1 to 8"), std::string::npos);
  EXPECT_NE(message(1, 2, 0).find("row 1 was asked"), std::string::npos);
  EXPECT_NE(message(2, 4, 60).find("64 positions"), std::string::npos) << "62, 63 and then the page is full";
}

// The same tokens whether one call makes them or a pass each, which is given the token of the one before.
TEST(GpuDrafts, AreThoseOfSinglePasses) {
  const Golden golden("bf16");
  Simulated gpu;
  const auto prepared = gpu.prepare(golden, kTenSequences);
  Sequences sequences(*prepared, 1);
  // The first draft pass, behind a prompt in a slot of its own.
  const std::vector<std::int32_t> tokens{2, 3, 4}, hidden{0, 1, 2};
  const std::int32_t last = 2, first = 0;
  const auto rows_of = [&](std::int32_t slot) {
    sequences.run({{slot, 0, {1, 2, 3}, Role::prefill}});
    return backend::SequenceRows{3, 0, slot, slot, 1, Role::prefill, 0};
  };
  const std::vector<std::int32_t> pages{5, 6};
  const backend::Choice greedy[1];
  const int count = 4;
  std::vector<std::int32_t> chained(count), single;
  backend::SequenceRows rows = rows_of(0);
  ASSERT_TRUE(prepared->run_drafts({tokens, {&rows, 1}, pages, {&last, 1}, hidden}, {250, greedy},
                                   {&count, 1}, chained));
  rows = rows_of(1);
  std::vector<float> logits(static_cast<std::size_t>(golden.config.vocab_size));
  const auto run = [&](const backend::Batch& batch) {
    prepared->run(backend::Pass::draft, batch, logits);
    single.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.begin() + 250) - logits.begin()));
  };
  run({tokens, {&rows, 1}, pages, {&last, 1}, hidden});
  for (std::int32_t i = 1; i < count; ++i) {
    const std::int32_t token = single.back();
    rows = {1, 2 + i, 1, 1, 1, Role::decode, 0};
    run({{&token, 1}, {&rows, 1}, pages, {&first, 1}, {i == 1 ? &last : &first, 1}});
  }
  EXPECT_EQ(chained, single);
}

std::int64_t total_bytes(const std::vector<backend::MemoryUse>& uses) {
  std::int64_t bytes = 0;
  for (const backend::MemoryUse& use : uses) bytes += use.bytes;
  return bytes;
}

// The plan is what is there: the weights' records, pages and states as the program has them.
TEST(GpuBackend, PlansItsMemory) {
  const Golden golden("bf16");
  Simulated gpu;
  const auto prepared = gpu.prepare(golden, kTenSequences);
  const auto memory = prepared->memory();
  ASSERT_EQ(memory.size(), 5u);
  // Found without reading a weight, and nothing more is taken: but for what rounds an allocation to 512
  // bytes.
  const kernels::MemoryCounts& taken = gpu.machine().memory().counts();
  std::int64_t planned = 0;
  for (const backend::MemoryUse& use : memory) planned += use.bytes;
  EXPECT_GE(planned, taken.bytes);
  EXPECT_LT(planned, taken.bytes + 512 * taken.allocations);
  EXPECT_EQ(total_bytes(plan_memory(golden.program(Activations::w4a16), kTenSequences, gpu.machine())),
            planned);
  // 40 pages of 64 positions, two KV heads of 64 columns, keys and values, two bytes; two caches (one of
  // MTP).
  EXPECT_EQ(memory[1].what, "KV pages");
  EXPECT_EQ(memory[1].bytes, 40 * 64 * (2 * 64) * 2 * 2 * 2);
  EXPECT_GT(memory[0].bytes, 1'000'000);
  EXPECT_EQ(memory[2].bytes % (10 * 3), 0) << "ten slots in three layers";
}

// The longest context that fits is found to the page, and said; nothing has been loaded by then.
TEST(GpuBackend, RefusesWhatDoesNotFit) {
  const Golden golden("bf16");
  const backend::Capacity two{.page_count = 64, .page_tokens = 64, .state_slot_count = 2, .row_count = 64};
  backend::Capacity fitting = two;
  fitting.page_count = 2 * 11;
  sim::Device device;
  const auto roomy = kernels::make_sim_machine(device);
  const backend::Program program = golden.program(Activations::w4a16);
  const std::int64_t enough = total_bytes(plan_memory(program, fitting, *roomy));
  EXPECT_EQ(largest_context(program, two, *roomy, enough), 11 * 64);
  EXPECT_EQ(largest_context(program, two, *roomy, enough - 1), 10 * 64);
  EXPECT_EQ(largest_context(program, two, *roomy, enough / 4), 0);

  const auto machine = kernels::make_sim_machine(device, {.memory_bytes = 2 * enough});
  const std::string hint = checkpoint::expect_error(
      Code::out_of_memory, {"bytes are needed (weights", "KV pages", "--memory-fraction 0.5 of"},
      [&] { backend::make_gpu_backend(*machine, {.memory_fraction = 0.5})->prepare(program, two); });
  EXPECT_NE(hint.find("--max-context 704"), std::string::npos) << hint;
  EXPECT_NE(hint.find("--kv fp8"), std::string::npos) << hint;
  EXPECT_EQ(machine->memory().counts().to_device, 0);
  EXPECT_NO_THROW(backend::make_gpu_backend(*machine, {.memory_fraction = 0.5})->prepare(program, fitting));

  // Two ranks that share it: half of what was free when neither had loaded, whatever is free now.
  const backend::MemoryRoom half = backend::memory_room(2 * enough, 4 * enough, 1.0, 2);
  EXPECT_EQ(half.usable, enough);
  backend::make_gpu_backend(*machine, {.room = half})->prepare(program, fitting);
  checkpoint::expect_error(Code::out_of_memory, {"may be used", "for 2 ranks on this GPU"}, [&] {
    backend::make_gpu_backend(*machine, {.room = half})->prepare(program, two);
  });
}

TEST(GpuBackend, RefusesWhatItHasNoKernelsFor) {
  const Golden golden("compressed");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto message = [&](Activations activations, const backend::Capacity& capacity) -> std::string {
    try {
      backend::make_gpu_backend(*machine, {})->prepare(golden.program(activations), capacity);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(message(Activations::f32, kTenSequences).find("16-bit activations, not f32"), std::string::npos);
  backend::Capacity small_pages = kTenSequences;
  small_pages.page_tokens = 16;
  EXPECT_NE(message(Activations::w4a16, small_pages).find("pages of 64"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::model
