// Random requests come, grow, end and are cancelled; after every step the books are checked, and a model of
// the caches knows whether what a sequence would read is what it should be.
#include "schedule/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace fourfold::schedule {
namespace {

// A cell of a cache: whose tokens up to here it was computed from. Equal chains are equal contents.
using Chain = std::uint64_t;
Chain extend(Chain chain, std::int32_t token) {
  return random_bits(chain ^ 0x9E3779B97F4A7C15ull, static_cast<std::uint64_t>(token));
}

class World {
 public:
  World(std::uint64_t seed, const Limits& limits)
      : random_(seed),
        limits_(limits),
        scheduler_(limits),
        cells_(static_cast<std::size_t>(limits.page_count * limits.page_tokens)),
        anchors_(static_cast<std::size_t>(limits.anchor_count)) {
    for (auto& beginning : beginnings_) beginning = random_tokens(300, 1000);
  }

  void run(int step_count) {
    for (int step = 0; step < step_count; ++step) {
      while (std::ssize(requests_) < 12 && random_.below(3) == 0) arrive();
      if (!requests_.empty() && random_.below(12) == 0) cancel();
      take_step();
      if (testing::Test::HasFailure()) return;
    }
    // Nobody new: all that are here must come to their end.
    for (int step = 0; !requests_.empty(); ++step) {
      ASSERT_LT(step, 4000) << "somebody starves";
      take_step();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(scheduler_.idle());
    EXPECT_LT(scheduler_.counts().lookups, static_cast<std::int64_t>(next_id_)) << "one is looked up twice";
    EXPECT_LE(scheduler_.counts().hits, scheduler_.counts().lookups);
    EXPECT_EQ(scheduler_.free_pages() + scheduler_.cached_pages(), limits_.page_count) << "a page is lost";
  }
  const Scheduler& scheduler() const { return scheduler_; }
  std::int64_t ended() const { return ended_; }

 private:
  struct Request {
    std::vector<std::int32_t> tokens;
    std::int64_t prompt_count = 0, end_limit = 0, position = 0, drafts = 0, furthest = 0;
    std::int32_t slot = -1;
    Chain state = 1;  // of its tokens up to `position`
    bool measures = false;
    std::int64_t measured = 0;  // rows of its prompt that have been run
    std::int64_t waited = 0;
  };

  std::vector<std::int32_t> random_tokens(std::size_t count, std::uint64_t kinds) {
    std::vector<std::int32_t> out(count);
    for (auto& token : out) token = static_cast<std::int32_t>(random_.below(kinds));
    return out;
  }

  void arrive() {
    Request request;
    const auto& beginning = beginnings_[random_.below(std::size(beginnings_))];
    const auto common = static_cast<std::ptrdiff_t>(random_.below(beginning.size()));
    request.tokens.assign(beginning.begin(), beginning.begin() + common);
    for (const std::int32_t token : random_tokens(1 + random_.below(40), 1000))
      request.tokens.push_back(token);
    request.prompt_count = std::ssize(request.tokens);
    request.end_limit = request.prompt_count + 1 + static_cast<std::int64_t>(random_.below(250));
    if (!scheduler_.fits(request.end_limit)) return;
    request.measures = random_.below(5) == 0;
    scheduler_.arrive({next_id_, request.tokens, request.end_limit, random_.below(4) == 0 ? "salt" : "",
                       request.measures, random_.below(3)});
    requests_.emplace(next_id_++, std::move(request));
  }

  void cancel() {
    auto victim = requests_.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random_.below(requests_.size())));
    leave(victim->first);
  }

  void leave(Id id) {
    save(id, scheduler_.leave(id, true));
    requests_.erase(id);
  }

  Chain chain_of(const Request& request, std::int64_t end) const {
    Chain chain = 1;
    for (std::int64_t at = 0; at < end; ++at)
      chain = extend(chain, request.tokens[static_cast<std::size_t>(at)]);
    return chain;
  }

  void save(Id id, const std::optional<AnchorSave>& save) {
    if (!save) return;
    const Request& request = requests_.at(id);
    ASSERT_EQ(save->slot, request.slot);
    ASSERT_EQ(save->position % kAnchorTokens, 0);
    ASSERT_LE(save->position, request.position);
    ASSERT_GE(save->position, (request.furthest / kAnchorTokens - 1) * kAnchorTokens)
        << "the slot has it no more";
    anchors_.at(static_cast<std::size_t>(save->anchor)) = chain_of(request, save->position);
  }

  Chain& cell(const Request&, std::span<const std::int32_t> pages, std::int64_t position) {
    const std::int32_t page = pages[static_cast<std::size_t>(position / limits_.page_tokens)];
    return cells_.at(static_cast<std::size_t>(page * limits_.page_tokens + position % limits_.page_tokens));
  }

  void take_step() {
    const auto draft_room = static_cast<std::int64_t>(random_.below(4));
    const StepPlan plan = scheduler_.plan(draft_room);
    ASSERT_EQ(scheduler_.problem(), "");
    for (const Id id : plan.preempted) {
      Request& request = requests_.at(id);
      request.slot = -1, request.position = request.furthest = request.drafts = 0, request.state = 1;
    }
    for (const Admission& one : plan.admitted) {
      Request& request = requests_.at(one.id);
      request.slot = one.slot;
      request.position = request.furthest = one.cached_count;
      request.state = chain_of(request, one.cached_count);
      if (one.cached_count == 0) continue;
      if (request.measures && request.measured < request.prompt_count) {
        ASSERT_LE(one.cached_count, request.measured) << "rows that nobody has measured are left out";
      }
      ASSERT_EQ(one.cached_count % kAnchorTokens, 0);
      if (limits_.recurrent)
        ASSERT_EQ(anchors_.at(static_cast<std::size_t>(one.anchor)), request.state) << "another's state";
      else
        ASSERT_EQ(one.anchor, -1);
    }
    std::int64_t rows = 0;
    std::int64_t measured = 0;
    for (const Work& work : plan.work) {
      rows += work.row_count;
      const Request& request = requests_.at(work.id);
      if (request.measures && request.position < request.prompt_count) measured += work.row_count;
    }
    ASSERT_LE(rows, limits_.step_rows);
    ASSERT_LE(measured, limits_.measured_rows);
    ASSERT_TRUE(requests_.empty() || !plan.work.empty()) << "nobody gets on";
    for (const Work& work : plan.work) run_work(work, draft_room);
    ASSERT_EQ(scheduler_.problem(), "");
  }

  void run_work(const Work& work, std::int64_t draft_room) {
    Request& request = requests_.at(work.id);
    const auto pages = scheduler_.pages(work.id);
    // What it reads is what its own tokens wrote, or ones with the same beginning.
    Chain chain = 1;
    for (std::int64_t at = 0; at < request.position; ++at) {
      chain = extend(chain, request.tokens[static_cast<std::size_t>(at)]);
      ASSERT_EQ(cell(request, pages, at), chain)
          << "request " << work.id << " reads another's position " << at;
    }
    const bool decodes =
        request.position == std::ssize(request.tokens) - 1 && request.position >= request.prompt_count;
    for (std::int64_t row = 0; row < work.row_count; ++row) {
      const std::int64_t at = request.position + row;
      const bool is_draft = at >= std::ssize(request.tokens);
      chain = extend(chain, is_draft ? -1 : request.tokens[static_cast<std::size_t>(at)]);
      cell(request, pages, at) = chain;
    }
    request.furthest = std::max(request.furthest, request.position + work.row_count);
    request.measured = std::min(std::max(request.measured, request.furthest), request.prompt_count);
    std::vector<std::int32_t> appended;
    std::int64_t kept = work.row_count;
    if (decodes) {
      kept = 1 + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(1 + request.drafts)));
      appended = random_tokens(static_cast<std::size_t>(kept), 1000);
    } else if (request.position + work.row_count == std::ssize(request.tokens)) {
      appended = random_tokens(1, 1000);
    }
    while (std::ssize(request.tokens) + std::ssize(appended) > request.end_limit) appended.pop_back(), --kept;
    // A draft that stands was computed from the token it was, so its cell is what it should be.
    const std::int64_t old_size = std::ssize(request.tokens);
    request.tokens.insert(request.tokens.end(), appended.begin(), appended.end());
    request.position = std::min(request.position + kept, std::ssize(request.tokens) - 1);
    chain = chain_of(request, std::min(old_size, request.position));
    for (std::int64_t at = old_size; at < request.position; ++at)
      cell(request, pages, at) = chain = extend(chain, request.tokens[static_cast<std::size_t>(at)]);
    const bool ends = std::ssize(request.tokens) == request.end_limit || (decodes && random_.below(200) == 0);
    request.drafts =
        request.position < std::ssize(request.tokens) - 1 || request.position < request.prompt_count
            ? 0
            : std::min(draft_room, request.end_limit - std::ssize(request.tokens) - 1);
    if (request.drafts < 0) request.drafts = 0;
    save(work.id, scheduler_.advance(work.id, {request.position, request.position, request.furthest, appended,
                                               request.drafts}));
    if (!ends) return;
    ++ended_;
    leave(work.id);
  }

  Random random_;
  Limits limits_;
  Scheduler scheduler_;
  std::vector<Chain> cells_, anchors_;
  std::vector<std::int32_t> beginnings_[3];
  std::map<Id, Request> requests_;
  Id next_id_ = 1;
  std::int64_t ended_ = 0;
};

TEST(Scheduler, KeepsItsBooksUnderRandomEvents) {
  std::int64_t ended = 0, preempted = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Limits limits;
    limits.page_tokens = 8 << random.below(4);
    limits.page_count = (600 + static_cast<std::int64_t>(random.below(400))) / limits.page_tokens;
    limits.sequence_count = 1 + static_cast<std::int64_t>(random.below(6));
    limits.step_rows = random.below(3) == 0 ? 6 + static_cast<std::int64_t>(random.below(60))
                                            : 64 + static_cast<std::int64_t>(random.below(200));
    limits.measured_rows = 64 << random.below(2);
    limits.anchor_count = static_cast<std::int64_t>(random.below(9));
    limits.recurrent = random.below(3) != 0;
    limits.shares_answers = random.below(2) == 0;
    limits.overlap = static_cast<std::int64_t>(random.below(2));
    World world(seed, limits);
    world.run(400);
    if (HasFailure()) return;
    ended += world.ended();
    preempted += world.scheduler().counts().preempted;
    hits += world.scheduler().counts().hits;
  }
  // What was not met was not tested.
  EXPECT_GT(ended, 500);
  EXPECT_GT(preempted, 100);
  EXPECT_GT(hits, 100);  // of requests that were admitted for the first time
}

// Nine requests of one client before two of another and one of a third: slots go to whoever has the fewest.
TEST(Scheduler, ClientsTakeTurns) {
  Scheduler scheduler({.page_count = 100, .page_tokens = 8, .sequence_count = 3, .step_rows = 64});
  for (Id id = 1; id <= 12; ++id)
    scheduler.arrive({id, std::vector<std::int32_t>(4, 7), 32, "", false, id <= 9 ? 1u : id <= 11 ? 2u : 3u});
  std::vector<Id> order;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan(0);
    for (const Admission& one : plan.admitted) order.push_back(one.id);
    ASSERT_EQ(scheduler.problem(), "");
    ASSERT_FALSE(order.empty());
    for (const Admission& one : plan.admitted) scheduler.leave(one.id, false);
  }
  EXPECT_EQ(order, (std::vector<Id>{1, 10, 12, 2, 11, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Scheduler, TheOldestIsNeverDroppedAndTheYoungestFirst) {
  Scheduler scheduler({.page_count = 6, .page_tokens = 8, .sequence_count = 3, .step_rows = 64});
  for (Id id = 1; id <= 3; ++id) scheduler.arrive({id, std::vector<std::int32_t>(6, 7), 32, ""});
  std::map<Id, std::int64_t> position, size;
  std::vector<Id> preempted;
  for (int step = 0; step < 300 && !scheduler.idle(); ++step) {
    const StepPlan plan = scheduler.plan(0);
    ASSERT_EQ(scheduler.problem(), "");
    for (const Id id : plan.preempted) position[id] = 0, preempted.push_back(id);
    for (const Work& work : plan.work) {
      position[work.id] += work.row_count;
      std::int64_t& count = size.try_emplace(work.id, 6).first->second;
      std::vector<std::int32_t> appended;
      if (position[work.id] == count) appended.push_back(9), ++count;
      scheduler.advance(work.id, {position[work.id], position[work.id], position[work.id], appended, 0});
      if (count == 32) scheduler.leave(work.id, false);
    }
  }
  EXPECT_TRUE(scheduler.idle());
  ASSERT_FALSE(preempted.empty());
  EXPECT_EQ(preempted.front(), 3u);
  EXPECT_EQ(std::ranges::count(preempted, Id{1}), 0);
}

// What one tenant asked is found again by that tenant alone.
TEST(Scheduler, SaltsShareNothing) {
  Scheduler scheduler(
      {.page_count = 8, .page_tokens = 64, .sequence_count = 1, .step_rows = 128, .anchor_count = 4});
  Id id = 0;
  const auto cached = [&](const std::string& salt) {
    scheduler.arrive({++id, std::vector<std::int32_t>(100, 7), 120, salt});
    const std::int64_t found = scheduler.plan(0).admitted.at(0).cached_count;
    const std::vector<std::int32_t> answer{5};
    scheduler.advance(id, {100, 100, 100, answer, 0});
    scheduler.leave(id, true);
    return found;
  };
  EXPECT_EQ(cached("mine"), 0);
  EXPECT_EQ(cached("mine"), 64);
  EXPECT_EQ(cached("yours"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("mine"), 64);
}

// Two rows a step for three: whoever was served and is preempted in the same step leaves its row to the
// third.
TEST(Scheduler, RowsOfADroppedOneGoToTheOthers) {
  int drops = 0;
  for (std::int64_t first = 1; first <= 12; ++first) {
    Scheduler scheduler({.page_count = 8, .page_tokens = 8, .sequence_count = 3, .step_rows = 2});
    std::map<Id, std::int64_t> position, size{{1, first}, {2, 3}, {3, 20}};
    for (const auto& [id, count] : size)
      scheduler.arrive({id, std::vector<std::int32_t>(static_cast<std::size_t>(count), 7), 60, ""});
    for (int step = 0; step < 200; ++step) {
      const StepPlan plan = scheduler.plan(0);
      ASSERT_EQ(scheduler.problem(), "");
      if (!plan.preempted.empty()) {  // its three pages are enough for the other two
        EXPECT_EQ(plan.preempted, std::vector<Id>{3});
        EXPECT_EQ(plan.work.size(), 2u) << first << " " << step;
        ++drops;
        break;
      }
      for (const Work& work : plan.work) {
        std::int64_t& at = position[work.id];
        at += work.row_count;
        const std::vector<std::int32_t> appended(at == size[work.id] ? 1 : 0, 5);
        size[work.id] += std::ssize(appended);
        scheduler.advance(work.id, {at, at, at, appended, 0});
      }
    }
  }
  EXPECT_EQ(drops, 12);
}

// Its pages and its state, the answer's included, were kept by another with the same tokens: it goes on with
// generated rows in the very step that admits it.
TEST(Scheduler, ADroppedOneGoesOnBehindItsPromptWhereTheAnswerWasKept) {
  Scheduler scheduler({.page_count = 7,
                       .page_tokens = 64,
                       .sequence_count = 3,
                       .step_rows = 64,
                       .anchor_count = 4,
                       .shares_answers = true});
  std::map<Id, std::int64_t> position, size{{1, 60}, {2, 10}, {3, 10}};
  scheduler.arrive({1, std::vector<std::int32_t>(60, 9), 448, ""});
  for (const Id id : {2, 3}) scheduler.arrive({id, std::vector<std::int32_t>(10, 7), 400, ""});
  std::vector<Id> preempted;
  for (int step = 0; step < 400 && preempted.empty(); ++step) {
    const StepPlan plan = scheduler.plan(0);
    ASSERT_EQ(scheduler.problem(), "");
    preempted = plan.preempted;
    for (const Work& work : plan.work) {
      std::int64_t& at = position[work.id];
      at += work.row_count;
      const std::vector<std::int32_t> appended(at == size[work.id] ? 1 : 0, 5);
      size[work.id] += std::ssize(appended);
      scheduler.advance(work.id, {at, at, at, appended, 0});
      if (work.id != 3 || size[3] != 135) continue;
      EXPECT_TRUE(scheduler.leave(3, true)) << "the state at 128 is kept";
    }
  }
  ASSERT_EQ(preempted, std::vector<Id>{2});
  scheduler.leave(1, false);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].cached_count, 128);
  ASSERT_EQ(plan.work.size(), 1u);
  EXPECT_EQ(plan.work[0].row_count, std::min(kReplayRows, size[2] - 1 - 128));
}

TEST(Scheduler, PromptsAreCutAtMultiplesOf64AndGetTheirTurnBesideGeneratedRows) {
  Scheduler scheduler({.page_count = 64, .page_tokens = 64, .sequence_count = 8, .step_rows = 66});
  for (Id id = 1; id <= 6; ++id) scheduler.arrive({id, {1}, 200, ""});
  for (const Work& work : scheduler.plan(0).work)
    scheduler.advance(work.id, {1, 1, 1, std::vector<std::int32_t>{5}, 0});
  scheduler.arrive({7, std::vector<std::int32_t>(300, 2), 400, ""});
  std::int64_t position = 0;
  std::map<Id, std::int64_t> turns;
  for (int step = 0; step < 30 && position < 300; ++step)
    for (const Work& work : StepPlan(scheduler.plan(0)).work) {
      ++turns[work.id];
      if (work.id == 7) {
        position += work.row_count;
        EXPECT_TRUE(position % 64 == 0 || position == 300) << position;
        scheduler.advance(7, {position, position, position, {}, 0});
      } else {
        const std::int64_t at = 1 + turns[work.id];
        scheduler.advance(work.id, {at, at, at, std::vector<std::int32_t>{5}, 0});
      }
    }
  EXPECT_EQ(position, 300);
  for (Id id = 1; id <= 6; ++id) EXPECT_GT(turns[id], 2) << id;
}

// Logits of prompts have their own share of a step; other prompts take what is left of it.
TEST(Scheduler, PromptsThatAreMeasuredShareTheirRows) {
  Scheduler scheduler({.page_count = 64,
                       .page_tokens = 64,
                       .sequence_count = 4,
                       .step_rows = 512,
                       .measured_rows = 128,
                       .anchor_count = 4});
  const std::vector<std::int32_t> prompt(300, 2);
  for (const Id id : {1, 2}) scheduler.arrive({id, prompt, 300, "", true});
  scheduler.arrive({3, std::vector<std::int32_t>(250, 3), 300, ""});
  std::map<Id, std::int64_t> position;
  const auto step = [&] {
    std::map<Id, std::int64_t> rows;
    for (const Work& work : StepPlan(scheduler.plan(0)).work) {
      const std::int64_t at = position[work.id] += rows[work.id] = work.row_count;
      scheduler.advance(work.id, {at, at, at, std::vector<std::int32_t>(work.id == 3 && at >= 250, 5), 0});
      if (work.id < 3 && at == 300) scheduler.leave(work.id, true);
    }
    return rows;
  };
  EXPECT_EQ(step(), (std::map<Id, std::int64_t>{{1, 128}, {3, 250}}));
  EXPECT_EQ(step(), (std::map<Id, std::int64_t>{{1, 128}, {3, 1}}));
  EXPECT_EQ(step(), (std::map<Id, std::int64_t>{{1, 44}, {2, 64}, {3, 1}}));
  EXPECT_EQ(step(), (std::map<Id, std::int64_t>{{2, 128}, {3, 1}}));
  // Another that measures has the same prompt, whose pages are all there.
  scheduler.arrive({4, prompt, 300, "", true});
  scheduler.arrive({5, prompt, 301, ""});
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.admitted.size(), 2u);
  EXPECT_EQ(plan.admitted[0].cached_count, 0);
  EXPECT_EQ(plan.admitted[1].cached_count, 256);
  EXPECT_EQ(scheduler.counts().lookups, 2) << "those that measure do not look";
}

// One that measures and was preempted goes on from the state that it left itself.
TEST(Scheduler, APromptThatIsMeasuredSkipsWhatItHasMeasured) {
  Scheduler scheduler({.page_count = 44,
                       .page_tokens = 64,
                       .sequence_count = 2,
                       .step_rows = 128,
                       .measured_rows = 64,
                       .anchor_count = 8});
  const std::vector<std::int32_t> prompt(2500, 2);
  std::map<Id, std::int64_t> position;
  scheduler.arrive({1, {1}, 2800, ""});
  scheduler.arrive({2, prompt, 2500, "", true});
  StepPlan plan;
  // The older one takes ever more pages, once the state at 2,048 has been kept.
  for (int step = 0; step < 200 && plan.preempted.empty(); ++step) {
    plan = scheduler.plan(64);
    ASSERT_EQ(scheduler.problem(), "");
    for (const Work& work : plan.work) {
      std::int64_t& at = position[work.id];
      at += work.row_count;
      std::vector<std::int32_t> appended;
      if (work.id == 1) appended.assign(static_cast<std::size_t>(work.row_count), 5);
      scheduler.advance(work.id, {at, at, at, appended, position[2] >= 2112 ? 63 : 0});
    }
  }
  ASSERT_EQ(plan.preempted, std::vector<Id>{2});
  EXPECT_GT(position[2], 2112);
  EXPECT_LT(position[2], 2500);
  scheduler.leave(1, false);
  plan = scheduler.plan(0);
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].cached_count, kAnchorStride);
  EXPECT_EQ(scheduler.counts().lookups, 1) << "those that measure are not counted";
}

// With rows for one block alone, prompts that wait for each other do not keep everybody else waiting.
TEST(Scheduler, TwoPromptsLeaveTurnsToGeneratedRowsInTheSmallestSteps) {
  Scheduler scheduler({.page_count = 64, .page_tokens = 64, .sequence_count = 3, .step_rows = 64});
  scheduler.arrive({1, {1}, 200, ""});
  for (const Work& work : scheduler.plan(0).work)
    scheduler.advance(work.id, {1, 1, 1, std::vector<std::int32_t>{5}, 0});
  for (const Id id : {2, 3}) scheduler.arrive({id, std::vector<std::int32_t>(512, 2), 600, ""});
  std::map<Id, std::int64_t> rows;
  for (int step = 0; step < 16; ++step)
    for (const Work& work : StepPlan(scheduler.plan(0)).work) {
      rows[work.id] += work.row_count;
      const std::int64_t at = (work.id == 1 ? 1 : 0) + rows[work.id];
      const std::vector<std::int32_t> token(work.id == 1 ? 1 : 0, 5);
      scheduler.advance(work.id, {at, at, at, token, 0});
    }
  EXPECT_GE(rows[1], 7);
  EXPECT_GE(rows[2], 448);
}

}  // namespace
}  // namespace fourfold::schedule
