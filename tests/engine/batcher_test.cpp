// Exactness: whatever happens around a request, its tokens are those it gets alone. Random scenarios of
// arrivals, cancels, pages that run out, common beginnings, drafts and guides; see FOURFOLD_SCENARIOS below.
#include "engine/batcher.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/error.h"
#include "base/random.h"
#include "engine/engine.h"
#include "kernels/launch/sim_machine.h"
#include "tests/engine/block_router.h"
#include "tests/engine/support.h"
#include "tests/engine/unequal_roles.h"
#include "tests/support/long_test.h"

namespace fourfold::engine {
namespace {

using model::Activations;
using model::Golden;

// Allows a few tokens at a time, which ones depends on all tokens before: a mask of the wrong moment shows.
class PickyGuide final : public TokenGuide {
 public:
  explicit PickyGuide(std::uint64_t seed) : state_(seed) {}
  void allowed(std::span<std::uint64_t> bits) override {
    for (std::size_t i = 0; i < bits.size(); ++i)
      bits[i] = random_bits(state_, 2 * i) & random_bits(state_, 2 * i + 1);
  }
  void accept(TokenId token) override {
    state_ = random_bits(state_, static_cast<std::uint64_t>(token) + 77);
  }

 private:
  std::uint64_t state_;
};

struct Wish {
  Request request;
  std::optional<std::uint64_t> guide_seed;
  std::vector<TokenId> alone;
  std::vector<sample::Logprobs> prompt_logprobs;  // alone
  std::unique_ptr<TokenGuide> guide() const {
    return guide_seed ? std::make_unique<PickyGuide>(*guide_seed) : nullptr;
  }
};

void run_alone(backend::Prepared& prepared, Wish& wish) {
  Home all_pages;
  for (std::int32_t page = 0; page < prepared.capacity().page_count; ++page) all_pages.pages.push_back(page);
  Sequence sequence(prepared.program(), wish.request, std::move(all_pages), wish.guide());
  Sequence* all[] = {&sequence};
  StepLoop loop(prepared);
  while (!sequence.finished()) loop.step(all);
  wish.alone.assign(sequence.answer().begin(), sequence.answer().end());
  wish.prompt_logprobs = sequence.take_prompt_logprobs();
}

class Scenarios {
 public:
  // window: of the model's attention, which has none otherwise. Alone, requests keep every position.
  explicit Scenarios(bool equal_roles, std::int64_t window = 0) : golden_("bf16"), equal_roles_(equal_roles) {
    Random random(equal_roles ? 11 : 12);
    for (checkpoint::LayerKind& layer : golden_.config.layers) layer.window = window;
    for (int i = 0; i < 3; ++i) beginnings_.push_back(random_tokens(random, 130));
    // 250 tokens are the longest wish; those that run together need more pages than there are.
    const auto lonely = prepare({.page_count = 32, .page_tokens = 8, .state_slot_count = 1, .row_count = 64},
                                /*keeps_all=*/true);
    for (int i = 0; i < 40; ++i) wishes_.push_back(make_wish(random));
    for (Wish& wish : wishes_) run_alone(*lonely, wish);
    const auto add = [&](std::int64_t page_count, std::int64_t page_tokens, std::int64_t slot_count,
                         std::int64_t row_count, std::int64_t anchor_count) {
      machines_.push_back(prepare({.page_count = page_count,
                                   .page_tokens = page_tokens,
                                   .state_slot_count = slot_count,
                                   .row_count = row_count,
                                   .anchor_count = anchor_count}));
    };
    add(32, 8, 5, 64, 6);
    add(5, 64, 3, 200, 3);
    add(20, 32, 6, 128, 20);
    if (equal_roles) add(17, 16, 4, 9, 0);
  }

  void run(std::uint64_t seed) {
    Random random(seed);
    backend::Prepared& prepared = *machines_[random.below(machines_.size())];
    EngineOptions options;
    options.mtp = static_cast<int>(random.below(7)) - 1;  // auto, 0 to 5
    if (random.below(5) == 0) options.prefix_cache_bytes = 0;
    BlockRouter router{Random(seed + 1)};
    if (seed % 2 == 0)
      options.on_blocks = [&](std::vector<schedule::BlockEvent>&& events, std::int64_t block_tokens) {
        EXPECT_EQ(block_tokens, prepared.capacity().page_tokens);
        return router.told(events);
      };
    Batcher batcher(prepared, options);
    std::map<RequestId, const Wish*> wishes;
    std::map<RequestId, std::vector<TokenId>> answers;
    RequestId next_id = 1;
    std::vector<Delivery> out;
    const std::uint64_t wanted = 3 + random.below(9);
    while (next_id <= wanted || !batcher.idle()) {
      while (next_id <= wanted && random.below(3) == 0) {
        const Wish& wish = wishes_[random.below(wishes_.size())];
        Submission submission{.request = wish.request, .guide = wish.guide()};
        if (random.below(6) == 0) submission.cache_salt = "apart";
        batcher.require_valid(submission);
        batcher.add(next_id, std::move(submission), Batcher::Clock::now());
        wishes[next_id++] = &wish;
      }
      if (random.below(40) == 0 && next_id > 1)
        batcher.end(1 + random.below(next_id - 1), Finish::cancelled, out);
      batcher.step(out);
      batcher.tell_blocks();
      ASSERT_EQ(batcher.problem(), "");
      for (Delivery& delivery : out) take(delivery, wishes, answers);
      out.clear();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(wishes.empty());
    const EngineStatus status = batcher.status();
    EXPECT_EQ(status.pages_used, status.pages_cached) << "a page is lost";
    router.misses = false;
    batcher.tell_blocks();
    EXPECT_EQ(std::ssize(router.blocks), options.on_blocks ? status.pages_cached : 0);
    total.steps += status.steps;
    total.preempted += status.preempted;
    total.prefix_hits += status.prefix_hits;
    total.cancelled += status.cancelled;
    total.finished += status.finished;
    total.drafts.accepted += status.drafts.accepted;
    total.drafts.verified += status.drafts.verified;
  }

  EngineStatus total;

 private:
  std::vector<TokenId> random_tokens(Random& random, std::size_t count) {
    std::vector<TokenId> out(count);
    for (TokenId& token : out) token = static_cast<TokenId>(random.below(300));
    return out;
  }

  Wish make_wish(Random& random) {
    Wish wish;
    Request& request = wish.request;
    const auto& beginning = beginnings_[random.below(beginnings_.size())];
    const std::uint64_t common = random.below(3) == 0 ? random.below(131) : 70 + random.below(61);
    request.prompt.assign(beginning.begin(), beginning.begin() + static_cast<int>(common));
    for (const TokenId token : random_tokens(random, 1 + random.below(30))) request.prompt.push_back(token);
    request.max_tokens = 1 + static_cast<std::int64_t>(random.below(90));
    request.params.temperature = random.below(2) == 0 ? 0 : 0.9;
    request.params.seed = random.bits();
    if (random.below(3) == 0) request.params.top_k = 12, request.params.top_p = 0.9;
    if (random.below(4) == 0) request.params.repetition_penalty = 1.3;
    if (random.below(4) == 0) request.params.logprob_count = 2;
    if (random.below(3) == 0) wish.guide_seed = random.bits();
    if (random.below(3) == 0) request.stop_ids = {3, 5, 8, 13, 21, 34, 55, 89, 144, 233};
    if (random.below(3) == 0) request.min_tokens = static_cast<std::int64_t>(random.below(12));
    request.min_tokens = std::min(request.min_tokens, request.max_tokens);
    if (random.below(6) == 0) request.prompt_logprobs = static_cast<int>(random.below(4));
    if (request.prompt_logprobs && random.below(3) == 0) request.max_tokens = request.min_tokens = 0;
    request.token_limit = 310;
    return wish;
  }

  std::unique_ptr<backend::Prepared> prepare(const backend::Capacity& capacity, bool keeps_all = false) {
    backend::Program program = golden_.program(Activations::automatic);
    if (keeps_all)
      for (backend::KvCache& cache : program.kv_caches) cache.window = 0;
    auto inner = backend::make_cpu_backend({.threads = 1})->prepare(std::move(program), capacity);
    if (equal_roles_) return inner;
    return std::make_unique<UnequalRoles>(std::move(inner));
  }

  void take(const Delivery& delivery, std::map<RequestId, const Wish*>& wishes,
            std::map<RequestId, std::vector<TokenId>>& answers) {
    ASSERT_TRUE(wishes.contains(delivery.id)) << "more than one end";
    std::vector<TokenId>& answer = answers[delivery.id];
    const Wish& wish = *wishes.at(delivery.id);
    const bool is_first = answer.empty() && delivery.finish != Finish::cancelled;
    EXPECT_TRUE(is_first ? same_logprobs(delivery.prompt_logprobs, wish.prompt_logprobs)
                         : delivery.prompt_logprobs.empty());
    for (const sample::Sampled& token : delivery.tokens) answer.push_back(token.token);
    if (delivery.finish == Finish::running) return;
    ASSERT_NE(delivery.finish, Finish::failed) << delivery.error;
    std::vector<TokenId> expected = wish.alone;
    if (delivery.finish == Finish::cancelled) expected.resize(std::min(expected.size(), answer.size()));
    ASSERT_EQ(answer, expected) << "request " << delivery.id << ", prompt of " << wish.request.prompt.size();
    wishes.erase(delivery.id);
  }

  Golden golden_;
  bool equal_roles_;
  std::vector<std::vector<TokenId>> beginnings_;
  std::vector<Wish> wishes_;
  std::vector<std::unique_ptr<backend::Prepared>> machines_;
};

// FOURFOLD_SCENARIOS=1000 runs so many, FOURFOLD_SEED=n begins with that one.
std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void expect_tokens_alone(Scenarios equal, Scenarios unequal) {
  const std::uint64_t count = from_environment("FOURFOLD_SCENARIOS", 30);
  const std::uint64_t first = from_environment("FOURFOLD_SEED", 1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "FOURFOLD_SEED=" << seed);
    (seed % 2 == 0 ? equal : unequal).run(seed);
    if (testing::Test::HasFailure()) return;
  }
  for (const auto& [name, total] : {std::pair{"equal", equal.total}, std::pair{"unequal", unequal.total}}) {
    std::printf(
        "seeds %llu to %llu, %s roles: %lld batches, %lld finished, %lld cancelled, %lld dropped, %lld "
        "prefix "
        "hits, %lld of %lld drafts accepted\n",
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1), name,
        static_cast<long long>(total.steps), static_cast<long long>(total.finished),
        static_cast<long long>(total.cancelled), static_cast<long long>(total.preempted),
        static_cast<long long>(total.prefix_hits), static_cast<long long>(total.drafts.accepted),
        static_cast<long long>(total.drafts.verified));
    // What was not met was not tested.
    if (count < 60) continue;
    EXPECT_GT(total.finished, 100);
    EXPECT_GT(total.cancelled, 5);
    EXPECT_GT(total.preempted, 5);
    EXPECT_GT(total.prefix_hits, 20);
    EXPECT_GT(total.drafts.accepted, 0);
  }
}

TEST(Batcher, RandomScenariosGiveTheTokensOfEachRequestAlone) {
  expect_tokens_alone(Scenarios(true), Scenarios(false));
}

// Layers that see a window give pages back; what is said is what is said where every position is kept.
TEST(Batcher, RandomScenariosWithWindowsGiveTheTokensOfEachRequestAlone) {
  expect_tokens_alone(Scenarios(true, 21), Scenarios(false, 37));
}

// On the GPU backend the two kinds of rows do not agree. The second request finds the first one's page and
// state; the third is taken out of its home and computed again.
void expect_prefixes_change_nothing(const std::string& name, Activations activations) {
  SCOPED_TRACE(name);
  const Golden golden(name);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(
      device, {.arch = activations == Activations::w8a8 ? &plan::kSm90 : &plan::kSm120});
  const auto prepared = backend::make_gpu_backend(*machine, {})
                            ->prepare(golden.program(activations), {.page_count = 4,
                                                                    .page_tokens = 64,
                                                                    .state_slot_count = 2,
                                                                    .row_count = 128,
                                                                    .anchor_count = 2});
  auto prompt = golden.ids("long.input_ids");
  while (prompt.size() < 70) prompt.push_back(static_cast<TokenId>(prompt.size()));
  prompt.resize(70);
  std::vector<Wish> wishes(2);
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    wishes[i].request = greedy_request(prompt, 4);
    wishes[i].request.prompt.back() = static_cast<TokenId>(i);
  }
  wishes[1].guide_seed = 5;
  wishes[1].request.params.temperature = 0.8;
  for (Wish& wish : wishes) run_alone(*prepared, wish);

  Batcher batcher(*prepared, {.max_sequences = 1, .mtp = 2});
  std::map<RequestId, std::vector<TokenId>> answers;
  for (std::size_t i = 0; i < wishes.size(); ++i)
    batcher.add(i + 1, {.request = wishes[i].request, .guide = wishes[i].guide()}, Batcher::Clock::now());
  for (std::vector<Delivery> out; batcher.step(out); out.clear())
    for (const Delivery& delivery : out)
      for (const sample::Sampled& token : delivery.tokens) answers[delivery.id].push_back(token.token);
  for (std::size_t i = 0; i < wishes.size(); ++i) EXPECT_EQ(answers[i + 1], wishes[i].alone) << i;
  EXPECT_EQ(batcher.status().prefix_hits, 1);
  EXPECT_EQ(batcher.status().cached_tokens, 64);

  Sequence moved(prepared->program(), wishes[0].request, {0, {0, 1}});
  Sequence* all[] = {&moved};
  StepLoop loop(*prepared);
  while (moved.answer().size() < 3) loop.step(all);
  moved.move({1, {3, 2}}, 0);
  while (!moved.finished()) loop.step(all);
  EXPECT_EQ(std::vector<TokenId>(moved.answer().begin(), moved.answer().end()), wishes[0].alone);
}

TEST(Batcher, OnTheSimulatedGpuPrefixesAndSecondHomesChangeNoToken) {
  expect_prefixes_change_nothing("compressed", Activations::w4a16);
  expect_prefixes_change_nothing("compressed", Activations::w4a4);
  if (!test::wants_all()) return;  // the other two are the longest half
  expect_prefixes_change_nothing("compressed", Activations::w4a4_prefill);
  expect_prefixes_change_nothing("modelopt_mixed", Activations::w8a8);
}

// The third word's row of logits is not a number.
class SickWords final : public backend::Prepared {
 public:
  static constexpr backend::Capacity kSmall{
      .page_count = 8, .page_tokens = 16, .state_slot_count = 4, .row_count = 64};
  explicit SickWords(const backend::Capacity& capacity = kSmall) : capacity_(capacity) {
    program_.vocab_size = 3;
    program_.position_limit = capacity.page_count * capacity.page_tokens / 2;
    program_.main.resize(1);
  }
  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return capacity_; }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t) const override { return 0; }
  void run(backend::Pass, const backend::Batch& batch, std::span<float> logits) override {
    if (is_lost) fail(Code::device_lost, "rank 2 of 4 has not come");
    if (breaks) fail(Code::internal, "a kernel failed");
    std::size_t i = 0;
    for (const std::int32_t row : batch.logits_rows)
      for (int word = 0; word < 3; ++word)
        logits[i++] = batch.tokens[static_cast<std::size_t>(row)] == 2
                          ? std::numeric_limits<float>::quiet_NaN()
                          : static_cast<float>(word == 1);
  }
  std::int64_t anchor_bytes() const override { return 1; }
  void save_anchor(std::int32_t, std::int64_t, std::int32_t) override {
    if (!keeps_states) fail(Code::device_lost, "the device was lost");
  }
  void restore_anchor(std::int32_t, std::int32_t, std::int64_t) override {}
  bool keeps_states = false;
  bool is_lost = false;
  bool breaks = false;

 private:
  backend::Program program_;
  backend::Capacity capacity_;
};

std::map<RequestId, Delivery> run_all(Batcher& batcher) {
  std::map<RequestId, Delivery> last;
  std::vector<Delivery> out;
  while (batcher.step(out)) {
    for (Delivery& delivery : out) last[delivery.id] = std::move(delivery);
    out.clear();
  }
  return last;
}

TEST(Batcher, LogitsThatAreNotNumbersFailTheirOwnRequestAlone) {
  SickWords words;
  Batcher batcher(words, {});
  batcher.add(1, {.request = greedy_request({0}, 5)}, Batcher::Clock::now());
  batcher.add(2, {.request = greedy_request({2}, 5)}, Batcher::Clock::now());
  const auto last = run_all(batcher);
  EXPECT_EQ(last.at(1).finish, Finish::max_tokens);
  EXPECT_EQ(last.at(2).finish, Finish::failed);
  EXPECT_NE(last.at(2).error.find("NaN"), std::string::npos) << last.at(2).error;
  EXPECT_EQ(batcher.status().failed, 1);
  EXPECT_EQ(batcher.status().pages_used, 0);
}

TEST(Batcher, AStepThatFailsEndsThoseItRanAndTheNextOnesAreServed) {
  SickWords words;
  Batcher batcher(words, {});
  batcher.add(1, {.request = greedy_request({0}, 5)}, Batcher::Clock::now());
  words.breaks = true;
  EXPECT_EQ(run_all(batcher).at(1).error, "a kernel failed");
  words.breaks = false;
  batcher.add(2, {.request = greedy_request({0}, 5)}, Batcher::Clock::now());
  EXPECT_EQ(run_all(batcher).at(2).finish, Finish::max_tokens);
}

// What a step that failed has left in pages and states is not known, so nothing from before it is used again.
TEST(Batcher, AfterAStepThatFailedNothingIsShared) {
  SickWords words(
      {.page_count = 16, .page_tokens = 64, .state_slot_count = 2, .row_count = 128, .anchor_count = 4});
  words.keeps_states = true;
  Batcher batcher(words, {});
  RequestId id = 0;
  const auto ask = [&] {
    batcher.add(++id, {.request = greedy_request(std::vector<TokenId>(100, 0), 2)}, Batcher::Clock::now());
    return run_all(batcher).at(id);
  };
  EXPECT_EQ(ask().usage.cached_count, 0);
  EXPECT_EQ(ask().usage.cached_count, 64);
  words.breaks = true;
  EXPECT_EQ(ask().finish, Finish::failed);
  words.breaks = false;
  EXPECT_EQ(ask().usage.cached_count, 0);
  EXPECT_EQ(ask().usage.cached_count, 64);
}

// What the step before gave is not given again with the error.
TEST(Batcher, AStepThatFailsGivesNoTokenTwice) {
  SickWords words;
  Batcher batcher(words, {});
  batcher.add(1, {.request = greedy_request({0}, 5)}, Batcher::Clock::now());
  std::vector<Delivery> out;
  batcher.step(out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].tokens.size(), 1u);
  words.breaks = true;
  out.clear();
  batcher.step(out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].finish, Finish::failed);
  EXPECT_TRUE(out[0].tokens.empty());
}

// A state that cannot be kept is no fault of a step: the engine tells everybody and takes nobody any more.
TEST(Batcher, AnEngineThatBreaksDownTellsEverybodyOnce) {
  SickWords words(
      {.page_count = 8, .page_tokens = 64, .state_slot_count = 4, .row_count = 128, .anchor_count = 2});
  std::mutex mutex;
  std::map<RequestId, std::vector<Finish>> ends;
  Engine engine(words, {}, [&](std::vector<Delivery>&& deliveries) {
    const std::lock_guard lock(mutex);
    for (const Delivery& delivery : deliveries)
      if (delivery.finish != Finish::running) ends[delivery.id].push_back(delivery.finish);
  });
  const RequestId id = engine.submit({.request = greedy_request(std::vector<TokenId>(100, 0), 50)});
  while (engine.status().fault.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine.status().fault, "the device was lost");
  checkpoint::expect_error(Code::device_lost, {"the device was lost"},
                           [&] { engine.submit({.request = greedy_request({0}, 5)}); });
  engine.stop(std::chrono::milliseconds(0));
  EXPECT_EQ(ends[id], std::vector<Finish>{Finish::failed});
}

// No step can follow a lost device: those that wait are told now, not one after another.
TEST(Batcher, ALostDeviceBreaksTheEngineDown) {
  SickWords words;
  words.is_lost = true;
  std::mutex mutex;
  std::string error;
  Engine engine(words, {}, [&](std::vector<Delivery>&& deliveries) {
    const std::lock_guard lock(mutex);
    for (const Delivery& delivery : deliveries) error = delivery.error;
  });
  engine.submit({.request = greedy_request({0}, 5)});
  while (engine.status().fault.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine.status().fault, "rank 2 of 4 has not come");
  checkpoint::expect_error(Code::device_lost, {"rank 2 of 4 has not come"},
                           [&] { engine.submit({.request = greedy_request({0}, 5)}); });
  engine.stop(std::chrono::milliseconds(0));
  EXPECT_EQ(error, "rank 2 of 4 has not come");
}

TEST(Batcher, ATimeLimitEndsARequestWhereverItIs) {
  SickWords words;
  Batcher batcher(words, {.max_sequences = 1});
  const auto past = Batcher::Clock::now() - std::chrono::seconds(2);
  batcher.add(1, {.request = greedy_request({0}, 50)}, Batcher::Clock::now());
  batcher.add(2, {.request = greedy_request({0}, 5), .time_limit = std::chrono::seconds(1)}, past);
  std::vector<Delivery> out;
  batcher.step(out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].id, 2u);
  EXPECT_EQ(out[0].finish, Finish::time_limit);
  EXPECT_EQ(out[1].finish, Finish::running);
}

TEST(Batcher, RefusesWhatCannotEverRun) {
  SickWords words;
  Batcher batcher(words, {});
  const auto refused = [&](Request request) {
    Submission submission{.request = std::move(request)};
    EXPECT_THROW(batcher.require_valid(submission), Error);
  };
  refused(greedy_request({}, 5));
  refused(greedy_request({0}, 200));
  refused(greedy_request({0}, 5, 2));
  EXPECT_THROW(Batcher(words, {.max_sequences = 5}), Error);
  EXPECT_THROW(Batcher(words, {.step_rows = 65}), Error);
  EXPECT_THROW(Batcher(words, {.mtp = 3}), Error) << "it has no draft layer";
}

}  // namespace
}  // namespace fourfold::engine
