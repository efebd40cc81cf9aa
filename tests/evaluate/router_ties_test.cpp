// A router's choice that rounding leaves open is told from one that is wrong: the first is named and either
// side of it is right, the second stays beyond its bounds.
#include "evaluate/router_ties.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "backend/reference/experts.h"
#include "evaluate/compare.h"
#include "evaluate/input_noise.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"

namespace fourfold::evaluate {
namespace {

using backend::ExpertChoice;
using backend::Program;
using backend::TopKExperts;
using model::Activations;

std::int32_t best_left_out(const ExpertChoice& choice) {
  std::vector<float> keys(choice.keys.begin(), choice.keys.end());
  for (const std::int32_t expert : choice.experts)
    keys[static_cast<std::size_t>(expert)] = -std::numeric_limits<float>::infinity();
  return static_cast<std::int32_t>(std::ranges::max_element(keys) - keys.begin());
}

class RouterTies : public testing::TestWithParam<const char*> {
 protected:
  static Program make_program(const std::filesystem::path& folder, std::optional<model::Loaded>& loaded) {
    model::make_model(folder, GetParam(), "bf16");
    loaded.emplace(folder);
    return loaded->program(Activations::w4a16);
  }
  const Program& program() const { return program_; }
  Program exact() const { return loaded_->program(Activations::f32); }
  const PromptReference& prompt() const { return reference_.prompts().front(); }
  const backend::Capacity& capacity() const { return capacity_; }

  // W4A16 on the reference backend, whatever is changed in the program or in its choices, against bounds of
  // the program as it is.
  Comparison run(Program changed, backend::ChoiceWatcher watcher = {}) {
    const auto prepared =
        backend::ReferenceBackend({}, std::move(watcher)).prepare(std::move(changed), capacity_);
    return compare(*prepared, reference_, bounds_);
  }
  template <typename Change>
  Comparison run_with_routers(Change change) {
    Program changed = program_;
    for (backend::Op& op : changed.main)
      if (auto* router = std::get_if<TopKExperts>(&op)) change(changed, *router);
    return run(std::move(changed));
  }

 private:
  checkpoint::TempFolder temp_;
  std::optional<model::Loaded> loaded_;
  Program program_ = make_program(temp_.path() / "model", loaded_);
  ReferenceFile reference_{model::family_reference(GetParam()), program_};
  backend::Capacity capacity_ = trace_capacity(reference_.prompts());
  Bounds bounds_{program_, reference_, capacity_};
};
// The second family takes seven times as long: ./dev test --long shortened.
std::vector<const char*> tied_families() {
  std::vector<const char*> out = {"tiny-minimax"};
  if (test::wants_all()) out.push_back("tiny-mistral");
  return out;
}
INSTANTIATE_TEST_SUITE_P(Families, RouterTies, testing::ValuesIn(tied_families()));

// Some choices are open and most are not: those further apart than the errors reach.
TEST_P(RouterTies, AreTheChoicesThatErrorsTurn) {
  const ReferenceRun clean = run_reference(exact(), capacity(), prompt(), {});
  const std::vector<RouterTie> ties = find_ties(program(), capacity(), prompt(), clean);
  const auto rows = static_cast<std::int64_t>(prompt().ids.size() + prompt().greedy_ids.size() - 1);
  ASSERT_EQ(std::ssize(clean.choices), 3 * rows);  // three layers
  EXPECT_GT(ties.size(), 0u);
  EXPECT_LT(ties.size(), clean.choices.size() / 4);
  for (const RouterTie& tie : ties) {
    const RouterChoice& choice = clean.choices.at(tie.choice);
    ASSERT_EQ(tie.leave.size(), 1u);  // one expert for another: these have no groups
    ASSERT_EQ(tie.come.size(), 1u);
    EXPECT_NE(std::ranges::find(choice.experts, tie.leave.front()), choice.experts.end());
    EXPECT_EQ(std::ranges::find(choice.experts, tie.come.front()), choice.experts.end());
    EXPECT_GE(tie.margin, 0) << tie.router;
    EXPECT_LE(tie.margin, kLargestFactor * tie.moved * (1 + 1e-5)) << tie.router;
  }
  // A run in f32 has no errors.
  EXPECT_TRUE(find_ties(exact(), capacity(), prompt(), clean).empty());
}

// By the same noisy runs, written down once more: errors have no sign of their own, so both are tried.
TEST_P(RouterTies, AreAllThatErrorsOfEitherSignTurn) {
  const ReferenceRun clean = run_reference(exact(), capacity(), prompt(), {});
  HeldChoices held;
  for (std::size_t i = 0; i < clean.choices.size(); ++i) held[i] = clean.choices[i].experts;
  using Turn = std::pair<std::size_t, std::vector<std::int32_t>>;
  std::set<Turn> wanted[2], found;  // by sign
  for (std::uint64_t seed = 1; seed <= kNoiseRuns; ++seed) {
    const ReferenceRun noisy =
        run_reference(NoisyProgram(program(), seed).program(), capacity(), prompt(), held);
    for (std::size_t i = 0; i < clean.choices.size(); ++i)
      for (const int sign : {0, 1}) {
        const RouterChoice& choice = clean.choices[i];
        std::vector<float> keys = choice.keys;
        for (std::size_t k = 0; k < keys.size(); ++k)
          keys[k] += static_cast<float>((sign == 0 ? 1 : -1) * kLargestFactor *
                                        (double{noisy.choices[i].keys[k]} - double{choice.keys[k]}));
        std::vector<std::int32_t> experts(choice.experts.size()), own = choice.experts;
        backend::reference::choose_experts(choice.op, keys, experts);
        std::ranges::sort(experts), std::ranges::sort(own);
        if (experts != own) wanted[sign].insert({i, experts});
      }
  }
  EXPECT_NE(wanted[0], wanted[1]);
  wanted[0].merge(wanted[1]);
  for (const RouterTie& tie : find_ties(program(), capacity(), prompt(), clean))
    EXPECT_TRUE(found.insert({tie.choice, tie.experts}).second) << "twice";
  EXPECT_EQ(found, wanted[0]);
}

// Held to what it chose anyway, a run gives the same bits; held to another choice it gives others, from that
// row on.
TEST_P(RouterTies, AreTurnedWhereTheyAre) {
  const ReferenceRun clean = run_reference(exact(), capacity(), prompt(), {});
  HeldChoices same;
  for (std::size_t i = 0; i < clean.choices.size(); ++i) same[i] = clean.choices[i].experts;
  EXPECT_EQ(run_reference(exact(), capacity(), prompt(), same).trace.logits, clean.trace.logits);
  const std::size_t columns = clean.trace.logits.size() / prompt().rows.size();
  const std::vector<RouterTie> ties = find_ties(program(), capacity(), prompt(), clean);
  const auto tie = std::ranges::find_if(ties, [](const RouterTie& item) { return item.position < 68; });
  ASSERT_NE(tie, ties.end());
  const Trace turned = run_reference(exact(), capacity(), prompt(), {{tie->choice, tie->experts}}).trace;
  for (std::size_t i = 0; i < prompt().rows.size(); ++i) {
    const auto row = [&](const Trace& trace) {
      return std::vector(trace.logits.begin() + static_cast<std::ptrdiff_t>(i * columns),
                         trace.logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
    };
    EXPECT_TRUE(prompt().rows[i] >= tie->position || row(turned) == row(clean.trace)) << prompt().rows[i];
  }
  EXPECT_NE(turned.greedy, clean.trace.greedy);
}

// A turned tie is right, and where it shows it is that tie which is named. (Most stay within what flips in
// the noisy runs let numbers differ.)
TEST_P(RouterTies, AreRightEitherWay) {
  const ReferenceRun clean = run_reference(exact(), capacity(), prompt(), {});
  for (const RouterTie& tie : find_ties(program(), capacity(), prompt(), clean)) {
    std::size_t number = 0;
    const Comparison result = run(program(), [&](const ExpertChoice& choice) {
      if (number++ == tie.choice) std::ranges::copy(tie.experts, choice.experts.begin());
    });
    EXPECT_TRUE(result.fine()) << tie.router << " " << tie.position;
    if (result.turned.empty()) continue;
    ASSERT_EQ(result.turned.size(), 1u);
    EXPECT_EQ(result.turned.front().tie.choice, tie.choice);
    EXPECT_EQ(result.turned.front().tie.come, tie.come);
    return;
  }
  FAIL() << "no tie showed";
}

// The same for a choice that is not open: the first layer's of row 16, whose numbers the file has.
TEST_P(RouterTies, AreNoExcuseForAnotherChoice) {
  ASSERT_NE(std::ranges::find(prompt().rows, 16), prompt().rows.end());
  std::size_t number = 0;
  EXPECT_FALSE(run(program(), [&](const ExpertChoice& choice) {
                 if (number++ == 16) choice.experts.back() = best_left_out(choice);
               }).fine());
}

// Routers that are wrong: none of this is a tie.
TEST_P(RouterTies, AreNoExcuseForAWrongRouter) {
  EXPECT_TRUE(run(program()).fine());
  EXPECT_FALSE(run_with_routers([](Program&, TopKExperts& op) { op.normalize = !op.normalize; }).fine());
  EXPECT_FALSE(run(program(),
                   [](const ExpertChoice& choice) {  // an expert's neighbour in its place
                     for (std::int32_t& expert : choice.experts) expert = (expert + 1) % 8;
                   })
                   .fine());
  EXPECT_FALSE(run(program(),
                   [](const ExpertChoice& choice) {  // the third best in place of the second
                     choice.experts.back() = best_left_out(choice);
                   })
                   .fine());
}

// MiniMax's bias is for choosing alone.
class RouterBias : public RouterTies {};
INSTANTIATE_TEST_SUITE_P(Families, RouterBias, testing::Values("tiny-minimax"));

TEST_P(RouterBias, LeftOutOrInTheWeightsIsBeyondTheBounds) {
  EXPECT_FALSE(run_with_routers([](Program&, TopKExperts& op) { op.choice_bias = {}; }).fine());
  int moved = 0;
  EXPECT_FALSE(run_with_routers([&](Program& changed, TopKExperts& op) {
                 for (backend::Op& other : changed.main)
                   if (auto* linear = std::get_if<backend::Linear>(&other);
                       linear != nullptr && linear->out == op.logits) {
                     linear->bias = std::exchange(op.choice_bias, {});
                     ++moved;
                   }
               }).fine());
  EXPECT_EQ(moved, 3);
}

// The odd GLM has experts in four groups, of which two are kept.
class RouterGroups : public RouterTies {};
INSTANTIATE_TEST_SUITE_P(Families, RouterGroups, testing::Values("tiny-glm-odd"));

TEST_P(RouterGroups, IgnoredAreBeyondTheBounds) {
  int ignored = 0;
  EXPECT_FALSE(run_with_routers([&](Program&, TopKExperts& op) {
                 ignored += op.groups_kept < op.group_count;
                 op.groups_kept = op.group_count;
               }).fine());
  EXPECT_GT(ignored, 0);
}

}  // namespace
}  // namespace fourfold::evaluate
