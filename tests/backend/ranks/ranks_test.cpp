// The door over several ranks, on ranks that say what a test wants. Real ones: tests/model/shard_test.cpp and
// lost_rank_test.cpp.
#include "backend/ranks/ranks.h"

#include <gtest/gtest.h>

#include "backend/collective.h"
#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

// What a rank of a test answers.
struct Script {
  bool chooses = true;
  std::int32_t token = 3;
  std::vector<std::string> notices = {};
  std::string refuses_to_load = {};
};

class ScriptedPrepared final : public Prepared {
 public:
  ScriptedPrepared(Program program, const Capacity& capacity, const Script& script)
      : program_(std::move(program)), capacity_(capacity), script_(script) {
    memory_.push_back({"weights", 100 + program_.part.rank});
  }
  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass, const Batch& batch, std::span<float> logits) override {
    std::ranges::fill(logits, static_cast<float>(program_.part.rank) + static_cast<float>(batch.tokens[0]));
  }
  bool run_sampled(Pass, const Batch&, const Choices& choices, const Chosen& chosen) override {
    if (!script_.chooses) return false;
    for (std::size_t i = 0; i < chosen.tokens.size(); ++i)
      if (!choices.rows[i].wants_logits) chosen.tokens[i] = script_.token;
    std::ranges::fill(chosen.logits, 0.5f);
    return true;
  }
  bool run_drafts(const Batch&, const Choices&, std::span<const int> counts,
                  std::span<std::int32_t> drafts) override {
    for (std::size_t i = 0; i < drafts.size(); ++i) drafts[i] = script_.token + counts[0];
    return script_.chooses;
  }
  std::int64_t history_limit() const override { return 9; }
  std::span<const float> value(ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t slot) const override { return 64 + slot; }
  std::int64_t anchor_bytes() const override { return 10; }
  bool roles_agree() const override { return false; }
  std::span<const MemoryUse> memory() const override { return memory_; }
  std::span<const std::string> notices() const override { return script_.notices; }

 private:
  Program program_;
  Capacity capacity_;
  Script script_;
  std::vector<MemoryUse> memory_;
};

class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(Script script) : script_(std::move(script)) {}
  std::string_view name() const override { return "scripted"; }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override {
    if (!script_.refuses_to_load.empty())
      fail_with_hint(Code::out_of_memory, "use more ranks", "{}", script_.refuses_to_load);
    return std::make_unique<ScriptedPrepared>(std::move(program), capacity, script_);
  }

 private:
  Script script_;
};

std::unique_ptr<Prepared> prepare(const std::vector<Script>& scripts) {
  std::vector<Rank> ranks;
  for (const Script& script : scripts) {
    Program program;
    program.vocab_size = 2;
    program.part = {static_cast<int>(ranks.size()), static_cast<int>(scripts.size())};
    ranks.push_back({std::make_shared<ScriptedBackend>(script), std::move(program)});
  }
  return prepare_ranks(std::move(ranks), {.page_count = 7}, {});
}

// One row that asks for its token, and one whose logits the host wants.
struct TwoRows {
  std::vector<std::int32_t> tokens{40, 41}, logits_rows{0, 1};
  std::vector<SequenceRows> sequences{{.row_count = 2}};
  std::vector<Choice> choices{{}, {.wants_logits = true}};
  std::vector<std::int32_t> chosen = std::vector<std::int32_t>(2, -9);
  std::vector<float> logits = std::vector<float>(2);
  Batch batch() const { return {tokens, sequences, {}, logits_rows, {}}; }
  bool choose(Prepared& prepared) {
    return prepared.run_sampled(Pass::main, batch(), {2, choices}, {chosen, logits});
  }
};

TEST(Ranks, AnswersAreThoseOfTheFirst) {
  const auto prepared = prepare({{.token = 3}, {.token = 3}});
  TwoRows rows;
  std::vector<float> logits(4);
  prepared->run(Pass::main, rows.batch(), logits);
  EXPECT_EQ(logits, std::vector<float>(4, 40));
  EXPECT_TRUE(rows.choose(*prepared));
  EXPECT_EQ(rows.chosen, (std::vector<std::int32_t>{3, -9})) << "a row that wants logits is left alone";
  EXPECT_EQ(rows.logits, std::vector<float>(2, 0.5f));
  std::vector<std::int32_t> drafts(2);
  const int counts[] = {2};
  EXPECT_TRUE(prepared->run_drafts(rows.batch(), {2, rows.choices}, counts, drafts));
  EXPECT_EQ(drafts, (std::vector<std::int32_t>{5, 5}));
  EXPECT_EQ(prepared->program().part.rank, 0);
  EXPECT_EQ(prepared->capacity().page_count, 7);
  EXPECT_EQ(prepared->resumable_from(1), 65);
  EXPECT_EQ(prepared->history_limit(), 9);
  EXPECT_FALSE(prepared->roles_agree());
  EXPECT_EQ(prepared->anchor_bytes(), 20) << "each rank keeps its own";
}

TEST(Ranks, OneThatCannotChooseSaysSo) {
  TwoRows rows;
  EXPECT_FALSE(rows.choose(*prepare({{.chooses = false}, {.chooses = false}})));
  EXPECT_THROW(rows.choose(*prepare({{.chooses = true}, {.chooses = false}})), RankLost);
}

// Memory between devices that changes what it carries.
TEST(Ranks, RanksThatChooseOtherTokensAreFoundOut) {
  const auto prepared = prepare({{.token = 3}, {.token = 3}, {.token = 4}});
  TwoRows rows;
  for (int i = 0; i < 2; ++i) {
    try {
      rows.choose(*prepared);
      ADD_FAILURE() << "nobody noticed";
    } catch (const RankLost& lost) {
      EXPECT_EQ(lost.rank(), 2);
      EXPECT_STREQ(lost.what(), "rank 2 chose token 4 in place 0, rank 0 chose 3: their logits differ");
    }
  }
  EXPECT_EQ(rows.chosen.front(), -9) << "no wrong token comes out";
}

TEST(Ranks, NoticesAndMemoryNameTheRank) {
  const auto prepared = prepare({{.notices = {"both", "mine"}}, {.notices = {"both"}}});
  EXPECT_EQ(std::vector(prepared->notices().begin(), prepared->notices().end()),
            (std::vector<std::string>{"both", "rank 0: mine"}));
  ASSERT_EQ(prepared->memory().size(), 2u);
  EXPECT_EQ(prepared->memory()[1].what, "rank 1 weights");
  EXPECT_EQ(prepared->memory()[1].bytes, 101);
}

// A width that the ranks do not divide evenly: each has bytes of its own.
TEST(Ranks, ANoticeWithOtherNumbersIsSaidOnce) {
  const auto said = [](const std::vector<Script>& scripts) {
    const auto prepared = prepare(scripts);
    return std::vector(prepared->notices().begin(), prepared->notices().end());
  };
  const Script wide{.notices = {"9 matrices: 768 bytes", "one for all"}},
      narrow{.notices = {"9 matrices: 704 bytes", "one for all"}};
  EXPECT_EQ(said({wide, narrow, narrow, narrow}),
            (std::vector<std::string>{
                "every rank, each with numbers of its own; rank 0's: 9 matrices: 768 bytes", "one for all"}));
  EXPECT_EQ(said({{}, wide, narrow}),
            (std::vector<std::string>{
                "ranks 1 and 2, each with numbers of its own; rank 1's: 9 matrices: 768 bytes",
                "ranks 1 and 2: one for all"}));
  // Two of a kind by one rank are two.
  EXPECT_EQ(said({{.notices = {"layer 1", "layer 2"}}, {.notices = {"layer 2"}}}),
            (std::vector<std::string>{"rank 0: layer 1", "layer 2"}));
}

TEST(Ranks, NamesOfRanks) {
  EXPECT_EQ(names_of_ranks(std::vector{3}), "rank 3");
  EXPECT_EQ(names_of_ranks(std::vector{3, 4}), "ranks 3 and 4");
  EXPECT_EQ(names_of_ranks(std::vector{1, 2, 3}), "ranks 1 to 3");
  EXPECT_EQ(names_of_ranks(std::vector{0, 2, 3}), "ranks 0, 2 and 3");
}

TEST(Ranks, ARankThatCannotLoadIsNamed) {
  try {
    prepare({{}, {.refuses_to_load = "5 GB are missing"}});
    ADD_FAILURE() << "it loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_STREQ(error.what(), "rank 1 of 2 failed: 5 GB are missing");
    EXPECT_EQ(error.hint(), "use more ranks");
  }
}

}  // namespace
}  // namespace fourfold::backend
