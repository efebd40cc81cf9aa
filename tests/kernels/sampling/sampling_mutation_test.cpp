// Removes the synchronisations of the sort of many ranked tokens, which the proofs of step_mutation_test.cpp
// have too few of.
#include "base/random.h"
#include "tests/kernels/mutations.h"
#include "tests/kernels/sampling/choices.h"

namespace fourfold::sampling {
namespace {

TEST(SamplingMutation, SortOfManyTokens) {
  // Of two parts the second has one token above the rest, and the first many above that one: all of them are
  // ranked. More than two for each thread: with two it reads behind the sort what it wrote itself.
  constexpr int good = 2 * kChooseThreads + 90, tokens = kPartTokens + 8;
  Choices choices;
  choices.tokens = tokens;
  choices.logits.emplace_back(tokens, -10.0f);
  for (int i = 0; i < good; ++i)
    choices.logits[0][static_cast<std::size_t>(i)] =
        static_cast<float>(random_bits(5, static_cast<std::uint64_t>(i)) % 1000) / 500;
  choices.logits[0].back() = -5.0f;
  choices.sampling.push_back(plain_row(1.0));
  choices.sampling[0].top_p = 0.9;
  choices.positions.push_back(3);
  choices.step_tokens.push_back(1);
  choices.histories.emplace_back();
  ChoiceRun chosen(choices);
  const test::Run<std::uint32_t> run = [&] {
    const Chosen got = chosen.sample();
    std::vector<std::uint32_t> all(got.faults);
    for (const std::int32_t token : got.tokens) all.push_back(static_cast<std::uint32_t>(token));
    return all;
  };
  const test::Survivor survivors[] = {{sim::SyncOp::sync_block, "block_tools.h", "the scratch is free",
                                       "on this way barriers of the sort stand between two uses of the "
                                       "scratch; StepMutation.Sampling needs it"}};
  test::mutate_all<std::uint32_t>(chosen.device(), "sort of many", {}, survivors, run, {"block_tools.h"});
  const auto& sites = chosen.device().executed_sites();
  const auto in_network = [](const sim::SyncSite& site) {
    return test::source_line(site).find("the stage before is done") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(sites.begin(), sites.end(), in_network)) << "too few tokens for the network";
}

}  // namespace
}  // namespace fourfold::sampling
