// Ranks on simulated GPUs, each a device and a thread of its own: the same launches as on silicon, sums
// through memory between devices. A rank that is lost inside a step is missed where it was, and nothing comes
// out; the norm that goes along with a sum changes no bit.
#include <atomic>
#include <future>
#include <numeric>

#include "tests/model/support.h"
#include "tests/support/ranks.h"
#include "tests/support/sim_ranks.h"

namespace fourfold::model {
namespace {

using backend::Door;
using backend::Pass;
using backend::RankLost;
using backend::Role;
using backend::SimRanks;

constexpr backend::Capacity kTenRows{
    .page_count = 10, .page_tokens = 64, .state_slot_count = 10, .row_count = 16};

std::unique_ptr<backend::Prepared> prepare_sim(const Loaded& model, const std::shared_ptr<SimRanks>& all,
                                               Activations activations = Activations::w4a16) {
  return backend::prepare_sim(model, all, kTenRows, activations);
}

// One generated row of each of `count` sequences; all of their logits. `logits` keeps what it had when the
// step fails.
void run_rows(backend::Prepared& prepared, int count, std::int64_t position, std::vector<float>& logits,
              Pass pass = Pass::main) {
  std::vector<std::int32_t> tokens, pages(10), asked(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::iota(asked.begin(), asked.end(), 0);
  std::vector<backend::SequenceRows> sequences;
  for (std::int32_t slot = 0; slot < count; ++slot) {
    sequences.push_back({1, position, slot, slot, 1, Role::decode, 0});
    tokens.push_back(7 + 29 * slot + static_cast<std::int32_t>(position));
  }
  logits.assign(asked.size() * static_cast<std::size_t>(prepared.program().vocab_size), -77.0f);
  std::span<const std::int32_t> hidden;
  if (pass == Pass::draft) hidden = asked;
  prepared.run(pass, {tokens, sequences, pages, asked, hidden}, logits);
}

// A prompt and generated rows of two ranks: alone, and among others.
void expect_same_bits(const Golden& golden, Activations activations, const plan::ArchFacts& arch) {
  const std::vector<std::int32_t> pages{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto vocab = static_cast<std::size_t>(golden.config.vocab_size);
  const auto run = [&](int others) {
    const auto all = std::make_shared<SimRanks>(2, all_reduce::ExchangeOptions{.wait_seconds = 600}, arch);
    const auto prepared = prepare_sim(golden, all, activations);
    std::vector<float> kept;
    for (const Role role : {Role::prefill, Role::decode}) {
      const std::int32_t count = role == Role::prefill ? 5 : 1;
      std::vector<std::int32_t> tokens, asked;
      std::vector<backend::SequenceRows> sequences;
      for (std::int32_t slot = 0; slot <= others; ++slot) {
        sequences.push_back({count, role == Role::prefill ? 0 : 5, slot, slot, 1, role, 0});
        for (std::int32_t i = 0; i < count; ++i) tokens.push_back(11 + 40 * slot + i);
      }
      for (std::size_t i = 0; i < tokens.size(); ++i) asked.push_back(static_cast<std::int32_t>(i));
      std::vector<float> logits(tokens.size() * vocab);
      prepared->run(Pass::main, {tokens, sequences, pages, asked, {}}, logits);
      kept.insert(kept.end(), logits.begin(),
                  logits.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * vocab));
    }
    return kept;
  };
  EXPECT_EQ(run(0), run(2));
}
TEST(SimRanks, RowsHaveTheSameBitsInEveryBatchWithFp4Activations) {
  const Golden golden("compressed");
  for (const Activations activations : {Activations::w4a4_prefill, Activations::w4a4})
    expect_same_bits(golden, activations, plan::kSm120);
}
TEST(SimRanks, RowsHaveTheSameBitsInEveryBatchWithFp8Activations) {
  expect_same_bits(Golden("modelopt_mixed"), Activations::w8a8, plan::kSm90);
}

// Nine rows are more than a matrix's kernel norms itself. With a block for each of them the norm goes along
// with the sum; with two blocks it does not.
TEST(SimRanks, TheNormThatGoesAlongWithASumSavesKernelsAndChangesNoBit) {
  const Golden golden("bf16");
  std::vector<std::vector<float>> logits;
  std::vector<std::int64_t> kernels, norms;
  for (const int blocks : {2, 9}) {
    const auto all =
        std::make_shared<SimRanks>(2, all_reduce::ExchangeOptions{.blocks = blocks, .wait_seconds = 600});
    const auto prepared = prepare_sim(golden, all);
    const std::int64_t before = all->machines[1]->launch_count();
    norms.push_back(0);
    all->machines[1]->listen([&](std::string_view kernel) {
      norms.back() += kernel == "norm_rows" ? 1 : kernel == "all_reduce one_shot norm" ? 100 : 0;
    });
    run_rows(*prepared, 9, 0, logits.emplace_back());
    kernels.push_back(all->machines[1]->launch_count() - before);
    all->machines[1]->listen(nullptr);
    run_rows(*prepared, 9, 1, logits.emplace_back());
  }
  EXPECT_EQ(logits[0], logits[2]);
  EXPECT_EQ(logits[1], logits[3]);
  // Four layers: a norm in front of each half; the first follows no sum.
  EXPECT_EQ(norms[0], 8);
  EXPECT_EQ(norms[1], 1 + 7 * 100);
  EXPECT_EQ(kernels[0] - kernels[1], 7);
}

// Column cuts are taken out of whole rows, which every rank reads; nothing else is read twice but what every
// rank holds.
TEST(SimRanks, WhatEachRankReads) {
  const Golden golden("bf16");
  const auto all =
      std::make_shared<SimRanks>(2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 600});
  const auto prepared = prepare_sim(golden, all);
  const auto bytes_of = [&](auto&& wants) {
    std::uint64_t bytes = 0;
    checkpoint::for_each_matrix(golden.model.weights, [&](const checkpoint::Matrix& matrix) {
      if (wants(matrix.name)) bytes += checkpoint::stored_bytes(matrix);
    });
    return bytes;
  };
  const auto is_cut = [](std::string_view name) {
    return name.find("down_proj") != name.npos || name.find("o_proj") != name.npos ||
           name.find("out_proj") != name.npos;
  };
  const std::uint64_t cut = bytes_of(is_cut);
  ASSERT_GT(cut, 0u);
  for (const backend::LoadReport& report : all->reports)
    EXPECT_EQ(report.bytes_in_rows - report.bytes_read, cut / 2) << "the other rank's columns";
  const std::uint64_t together = all->reports[0].bytes_read + all->reports[1].bytes_read;
  EXPECT_GE(together, bytes_of([](std::string_view) { return true; }));
  RecordProperty("bytes_in_rows", std::to_string(all->reports[0].bytes_in_rows));
}

// Exchanges of a step and of a draft behind it: the first sum, the second, the logits, the draft's first sum.
struct Place {
  int call;
  int rank;  // that is lost there; every rank at every call: tests/kernels/all_reduce
  const char* name;
};
constexpr Place kPlaces[] = {{0, 0, "layers.0.mixer_sum"},
                             {1, 1, "layers.0.mlp_sum"},
                             {8, 0, "logits"},
                             {9, 1, "mtp.layers.0.mixer_sum"}};

bool is_exchange(std::string_view kernel) { return kernel.starts_with("all_"); }

void expect_lost(backend::Prepared& prepared, int rank, const std::string& words) {
  for (const char* when : {"then", "and ever after"}) {
    std::vector<float> logits;
    try {
      run_rows(prepared, 1, 0, logits);
      run_rows(prepared, 1, 0, logits, Pass::draft);
      ADD_FAILURE() << "rank " << rank << " was not missed, " << when;
    } catch (const RankLost& lost) {
      EXPECT_EQ(lost.code(), Code::device_lost);
      EXPECT_EQ(lost.rank(), rank) << lost.what();
      EXPECT_NE(std::string(lost.what()).find(words), std::string::npos)
          << words << " is not in " << lost.what();
    }
    for (const float logit : logits) ASSERT_EQ(logit, -77.0f) << "something came out";
  }
}

// Two and four ranks, which share KV heads: the same token, and the exchanges that are lost below.
TEST(LostSimRank, AStepHasThesePlaces) {
  const Golden golden("bf16");
  std::vector<std::ptrdiff_t> best;
  for (const int count : {2, 4}) {
    const auto all =
        std::make_shared<SimRanks>(count, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 600});
    const auto prepared = prepare_sim(golden, all);
    int exchanges = 0;
    all->machines[0]->listen([&](std::string_view kernel) { exchanges += is_exchange(kernel); });
    std::vector<float> logits;
    run_rows(*prepared, 1, 0, logits);
    EXPECT_EQ(exchanges, 9) << "two a layer, and the logits";
    best.push_back(std::ranges::max_element(logits) - logits.begin());
    run_rows(*prepared, 1, 0, logits, Pass::draft);
    EXPECT_EQ(exchanges, 9 + 3);
  }
  EXPECT_EQ(best[0], best[1]);
}

// It throws in front of its exchange, and the other is told to stop.
TEST(LostSimRank, KilledInsideAStep) {
  const Golden golden("bf16");
  for (const Place& place : kPlaces) {
    const auto all = std::make_shared<SimRanks>(
        2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 3600, .overlaps = true});
    const auto prepared = prepare_sim(golden, all);
    all->machines[static_cast<std::size_t>(place.rank)]->listen(
        [&, call = 0](std::string_view kernel) mutable {
          if (is_exchange(kernel) && call++ == place.call) throw std::runtime_error("killed");
        });
    expect_lost(*prepared, place.rank, format("rank {} of 2 failed: killed", place.rank));
  }
}

// It does not come, and the other gives it up where it waited. All cases at the same time.
TEST(LostSimRank, StalledInsideAStep) {
  constexpr double patience = 3;  // seconds
  const Golden golden("bf16");
  std::vector<std::weak_ptr<SimRanks>> kept;
  std::vector<std::shared_ptr<Door>> doors;
  {
    std::vector<std::future<void>> cases;
    for (const Place& place : kPlaces) {
      const auto all =
          std::make_shared<SimRanks>(2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = patience});
      kept.push_back(all);
      doors.push_back(std::make_shared<Door>());
      std::shared_ptr<backend::Prepared> prepared = prepare_sim(golden, all);
      all->machines[static_cast<std::size_t>(place.rank)]->listen(
          [&place, door = doors.back(), call = 0](std::string_view kernel) mutable {
            if (is_exchange(kernel) && call++ == place.call) door->pass();
          });
      cases.push_back(std::async(std::launch::async, [=] {
        expect_lost(*prepared, place.rank,
                    format("rank {} had no answer from rank {} at {}: it waited {} s", 1 - place.rank,
                           place.rank, place.name, patience));
      }));
    }
  }
  EXPECT_TRUE(std::ranges::any_of(kept, [](const auto& all) { return !all.expired(); }))
      << "those who were left behind keep what they may touch";
  for (const auto& door : doors) door->open();
  const auto all_gone = [&] {
    return std::ranges::all_of(kept, [](const auto& all) { return all.expired(); });
  };
  for (int i = 0; i < 2000 && !all_gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(all_gone());
}

// A step is recorded when it comes again, for each of the two places its hidden rows are left in turn; nobody
// replays it before all have recorded it, and it gives what the launches gave.
TEST(LostSimRank, StalledWhileAStepIsRecorded) {
  const Golden golden("bf16");
  const auto door = std::make_shared<Door>();
  const auto all = std::make_shared<SimRanks>(2, all_reduce::ExchangeOptions{.blocks = 1, .wait_seconds = 3});
  const auto prepared = prepare_sim(golden, all);
  std::vector<float> launched, logits;
  run_rows(*prepared, 1, 0, launched);
  run_rows(*prepared, 1, 0, logits);
  const std::int64_t before = all->machines[1]->launch_count();
  run_rows(*prepared, 1, 0, logits);
  EXPECT_EQ(logits, launched);
  EXPECT_GT(all->machines[1]->launch_count(), before) << "recorded";
  all->machines[1]->listen([door](std::string_view) { door->pass(); });
  try {
    run_rows(*prepared, 1, 0, logits);
    ADD_FAILURE() << "rank 1 was not missed";
  } catch (const RankLost& lost) {
    EXPECT_EQ(lost.rank(), 1);
    EXPECT_STREQ(lost.what(), "rank 1 has not recorded its step, rank 0 has: it waited 3 s");
  }
  door->open();
}

}  // namespace
}  // namespace fourfold::model
