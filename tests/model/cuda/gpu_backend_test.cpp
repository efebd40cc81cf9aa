// The GPU backend on the simulated GPU: the golden models from embedding to logits, the same launches as on
// silicon, every kernel checked for races and reads of what nobody wrote; and the same bits for a row
// whatever shares its batch.
#include <numeric>

#include "backend/cuda/cuda.h"
#include "base/random.h"
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

class Simulated {
 public:
  explicit Simulated(const plan::ArchFacts& arch = plan::kSm120)
      : machine_(kernels::make_sim_machine(device_, {.arch = &arch})) {}
  std::unique_ptr<backend::Prepared> prepare(const Loaded& model, const backend::Capacity& capacity,
                                             bool keep_values = false,
                                             backend::KvFormat kv = backend::KvFormat::bf16,
                                             Activations activations = Activations::w4a16) {
    return backend::make_gpu_backend(*machine_, {.keep_values = keep_values})
        ->prepare(program_of(model, kv, activations), capacity);
  }
  kernels::Machine& machine() { return *machine_; }
  static backend::Program program_of(const Loaded& model, backend::KvFormat kv, Activations activations) {
    backend::Program program = model.program(activations);
    for (backend::KvCache& cache : program.kv_caches) cache.format = kv;
    return program;
  }

 private:
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_;
};

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
INSTANTIATE_TEST_SUITE_P(Formats, GoldenOnGpu,
                         testing::Values("bf16", "compressed", "modelopt", "modelopt_mixed"));

// Hopper's own kernels: wgmma for prompts.
TEST(GoldenOnHopper, IsWithinItsBound) { expect_fine("modelopt", plan::kSm90); }

// Keys and values in fp8: the bounds know E4M3's rounding by its size (input_noise.h), not by its codec.
TEST(GoldenWithFp8Kv, IsWithinItsBound) { expect_fine("bf16", plan::kSm120, backend::KvFormat::fp8); }

// FP4 activations of all rows, or of prompts alone. On Hopper the instruction is emulated.
TEST(GoldenWithFp4Activations, IsWithinItsBound) {
  expect_fine("modelopt", plan::kSm120, backend::KvFormat::bf16, Activations::w4a4);
  for (const Activations activations : {Activations::w4a4, Activations::w4a4_prefill})
    expect_fine("compressed", plan::kSm120, backend::KvFormat::bf16, activations);
  expect_fine("compressed", plan::kSm90, backend::KvFormat::bf16, Activations::w4a4_prefill);
}

// FP8 x FP8 of prompts, with the checkpoint's input scales, on Hopper's own kernels.
TEST(GoldenWithFp8Activations, IsWithinItsBound) {
  expect_fine("modelopt_mixed", plan::kSm90, backend::KvFormat::bf16, Activations::w8a8);
}

constexpr backend::Capacity kTenSequences{
    .page_count = 40, .page_tokens = 64, .state_slot_count = 10, .row_count = 128};
constexpr std::int32_t kPages = 4;

// Sequences on a prepared program; the pages of slot s in an order of its own.
class Sequences {
 public:
  Sequences(backend::Prepared& prepared, std::uint64_t seed) : prepared_(prepared), pages_(40) {
    std::iota(pages_.begin(), pages_.end(), 0);
    Random random(seed);
    for (std::size_t i = pages_.size(); i > 1; --i) std::swap(pages_[i - 1], pages_[random.below(i)]);
  }
  struct Rows {
    std::int32_t slot;
    std::int64_t position;
    std::vector<std::int32_t> tokens;
    backend::Role role;
    std::int32_t drafts = 0;
  };
  // Logits of every row.
  std::vector<float> run(const std::vector<Rows>& parts) {
    std::vector<std::int32_t> tokens;
    std::vector<backend::SequenceRows> sequences;
    for (const Rows& part : parts) {
      sequences.push_back({static_cast<std::int32_t>(part.tokens.size()), part.position, part.slot,
                           part.slot * kPages, kPages, part.role, part.drafts});
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    std::vector<std::int32_t> asked(tokens.size());
    std::iota(asked.begin(), asked.end(), 0);
    std::vector<float> logits(tokens.size() * static_cast<std::size_t>(prepared_.program().vocab_size));
    prepared_.run(backend::Pass::main, {tokens, sequences, pages_, asked, {}}, logits);
    return logits;
  }

 private:
  backend::Prepared& prepared_;
  std::vector<std::int32_t> pages_;
};

std::vector<std::int32_t> random_tokens(Random& random, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(300)));
  return tokens;
}

using backend::Role;

// A prompt of 100 tokens and six generated ones: alone, one row at a time; and among nine others, with the
// prompt cut at 64 and generated rows verified in threes, so that every matrix takes another kernel.
void expect_same_bits(const std::string& name, Activations activations,
                      const plan::ArchFacts& arch = plan::kSm120) {
  SCOPED_TRACE(name);
  const Golden golden(name);
  const auto vocab = static_cast<std::size_t>(golden.config.vocab_size);
  Random random(3);
  const auto prompt = random_tokens(random, 100), answer = random_tokens(random, 6);
  std::vector<float> alone;
  {
    Simulated gpu(arch);
    const auto prepared = gpu.prepare(golden, kTenSequences, false, backend::KvFormat::bf16, activations);
    Sequences one(*prepared, 1);
    alone = one.run({{2, 0, prompt, Role::prefill}});
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const auto more = one.run({{2, 100 + static_cast<std::int64_t>(i), {answer[i]}, Role::decode}});
      alone.insert(alone.end(), more.begin(), more.end());
    }
  }
  Simulated gpu(arch);
  const auto prepared = gpu.prepare(golden, kTenSequences, false, backend::KvFormat::bf16, activations);
  Sequences many(*prepared, 2);
  std::vector<float> among;
  const auto take = [&](const std::vector<float>& logits, std::size_t first, std::size_t count) {
    among.insert(among.end(), logits.begin() + static_cast<std::ptrdiff_t>(first * vocab),
                 logits.begin() + static_cast<std::ptrdiff_t>((first + count) * vocab));
  };
  // Others first: prompts of 3 tokens, then one generated row each in every step.
  for (std::int32_t slot = 0; slot < 10; ++slot)
    if (slot != 2) many.run({{slot, 0, random_tokens(random, 3), Role::prefill}});
  const auto others = [&](std::int64_t position) {
    std::vector<Sequences::Rows> rows;
    for (std::int32_t slot = 0; slot < 10; ++slot)
      if (slot != 2) rows.push_back({slot, position, random_tokens(random, 1), Role::decode});
    return rows;
  };
  auto rows = others(3);
  rows.insert(rows.begin() + 4, {2, 0, {prompt.begin(), prompt.begin() + 64}, Role::prefill});
  take(many.run(rows), 4, 64);
  rows = others(4);
  rows.insert(rows.begin(), {2, 64, {prompt.begin() + 64, prompt.end()}, Role::prefill});
  take(many.run(rows), 0, 36);
  for (std::int64_t step = 0; step < 2; ++step) {
    rows = others(5 + step);
    // The third row of the first step is a draft that is thrown away and run again.
    const auto first = answer.begin() + 3 * step;
    rows.push_back({2, 100 + 3 * step, {first, first + 3}, Role::decode, 2});
    if (step == 1) {
      auto again = std::vector<Sequences::Rows>{{2, 102, {answer[2]}, Role::decode}};
      many.run(again);
    }
    take(many.run(rows), 9, 3);
  }
  ASSERT_EQ(among.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i)
    ASSERT_EQ(among[i], alone[i]) << "row " << i / vocab << ", logit " << i % vocab;
}

TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatch) {
  expect_same_bits("modelopt_mixed", Activations::w4a16);
}
TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatchWithFp4Activations) {
  // The first has a 16-bit shared expert beside FP4 experts, the second FP4 everywhere.
  for (const char* name : {"modelopt", "compressed"})
    for (const Activations activations : {Activations::w4a4_prefill, Activations::w4a4})
      expect_same_bits(name, activations);
}

TEST(GpuSameAnswer, ARowHasTheSameBitsInEveryBatchWithFp8Activations) {
  expect_same_bits("modelopt_mixed", Activations::w8a8, plan::kSm90);
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
