// What an answer of one token leaves to the next request.
#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "engine/batcher.h"
#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

using model::Activations;
using model::Golden;

// Requests whose first token is their last, as those that only warm a prefix up, leave their prompt to the
// next one; the draft layer's part of it is what it would have computed itself.
TEST(OneToken, LeavesItsPromptToTheNextRequest) {
  const Golden golden("bf16");
  const auto prepared = backend::make_cpu_backend({.threads = 1})
                            ->prepare(golden.program(Activations::automatic), {.page_count = 64,
                                                                               .page_tokens = 8,
                                                                               .state_slot_count = 2,
                                                                               .row_count = 256,
                                                                               .anchor_count = 8});
  Random random(3);
  std::vector<TokenId> prompt;
  for (int i = 0; i < 200; ++i) prompt.push_back(static_cast<TokenId>(random.below(64)));
  Request longer = greedy_request(prompt, 24), first = greedy_request(prompt, 1);
  longer.prompt.back() = 7;
  struct Seen {
    Delivery last;
    std::vector<TokenId> tokens;
    std::int64_t cached = 0;
  };
  const auto serve = [&](int mtp, std::vector<Request> requests) {
    Batcher batcher(*prepared, {.max_sequences = 1, .mtp = mtp});
    Seen seen;
    for (std::size_t i = 0; i < requests.size(); ++i)
      batcher.add(i + 1, {.request = requests[i], .guide = nullptr}, Batcher::Clock::now());
    for (std::vector<Delivery> out; batcher.step(out); out.clear())
      for (Delivery& delivery : out)
        if (delivery.id == requests.size()) {
          for (const sample::Sampled& token : delivery.tokens) seen.tokens.push_back(token.token);
          seen.last = std::move(delivery);
        }
    seen.cached = batcher.status().cached_tokens;
    return seen;
  };
  const Seen alone = serve(2, {longer});
  Request stopped = greedy_request(prompt, 9);
  stopped.stop_ids = {serve(0, {first}).tokens.at(0)};
  for (const Request& before : {first, stopped}) {
    const Seen behind = serve(2, {before, longer});
    EXPECT_EQ(behind.cached, 192);
    EXPECT_EQ(behind.cached, serve(0, {before, longer}).cached);
    EXPECT_EQ(behind.tokens, alone.tokens);
    EXPECT_EQ(behind.last.usage.drafts.verified, alone.last.usage.drafts.verified);
    EXPECT_EQ(behind.last.usage.drafts.accepted, alone.last.usage.drafts.accepted);
  }
  EXPECT_GT(alone.last.usage.drafts.verified, 0);
}

}  // namespace
}  // namespace fourfold::engine
