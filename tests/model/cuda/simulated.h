// Models on the simulated GPU: the same launches as on silicon, every kernel checked for races and reads of
// what nobody wrote; and a row among others, whose bits must be those it has alone.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "base/random.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"

namespace fourfold::model {

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

inline constexpr backend::Capacity kTenSequences{
    .page_count = 40, .page_tokens = 64, .state_slot_count = 10, .row_count = 128};
inline constexpr std::int32_t kPages = 4;

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

inline std::vector<std::int32_t> random_tokens(Random& random, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(300)));
  return tokens;
}

using backend::Role;

// A prompt of 100 tokens and six generated ones: alone, one row at a time; and among nine others, with the
// prompt cut at 64 and generated rows verified in threes, so that every matrix takes another kernel.
inline void expect_same_bits(const Loaded& golden, Activations activations,
                             const plan::ArchFacts& arch = plan::kSm120) {
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

}  // namespace fourfold::model
