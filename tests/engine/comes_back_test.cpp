// Ranks on other machines are lost and come back, with nothing in their caches: what the engine does
// meanwhile.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "engine/batcher.h"
#include "engine/engine.h"
#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

constexpr backend::Capacity kSmall{
    .page_count = 8, .page_tokens = 16, .state_slot_count = 4, .row_count = 64};
constexpr backend::Capacity kWithAnchors{
    .page_count = 8, .page_tokens = 64, .state_slot_count = 4, .row_count = 128, .anchor_count = 2};

class AwayWords final : public backend::Prepared {
 public:
  explicit AwayWords(const backend::Capacity& capacity = kSmall) : capacity_(capacity) {
    program_.vocab_size = 3;
    program_.position_limit = capacity.page_count * capacity.page_tokens / 2;
    program_.main.resize(1);
  }
  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return capacity_; }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t resumable_from(std::int32_t) const override { return 0; }
  void run(backend::Pass, const backend::Batch& batch, std::span<float> logits) override {
    if (is_lost) fail(Code::device_lost, "rank 2 of 4 was lost");
    for (const backend::SequenceRows& rows : batch.sequences) first_position = rows.position;
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i % 3 == 1 ? 1.f : 0.f;
  }
  std::int64_t anchor_bytes() const override { return 1; }
  void save_anchor(std::int32_t, std::int64_t, std::int32_t) override {
    fail(Code::internal, "a state could not be copied");
  }
  std::string away() const override { return is_lost ? "rank 2 of 4 was lost" : ""; }
  bool comes_back() const override { return true; }
  bool restore() override {
    ++asked;
    return !is_lost;
  }
  std::atomic<bool> is_lost = false;
  std::atomic<int> asked = 0;
  std::atomic<std::int64_t> first_position = -1;

 private:
  backend::Program program_;
  const backend::Capacity capacity_;
};

// Why it was not taken; none where it was.
template <class Ask>
Trouble trouble_of(const Ask& ask) {
  try {
    ask();
  } catch (const NotTaken& refused) {
    return refused.trouble();
  }
  return Trouble::none;
}

TEST(ComesBack, TheEngineWaitsAndBeginsAnew) {
  AwayWords words;
  std::mutex mutex;
  std::map<RequestId, Delivery> last;
  const auto ended = [&](RequestId id) {
    const std::lock_guard lock(mutex);
    return last.contains(id) && last[id].finish != Finish::running;
  };
  const auto wait = [](const auto& truth) {
    for (int i = 0; i < 5000 && !truth(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return truth();
  };
  Engine engine(words, {}, [&](std::vector<Delivery>&& deliveries) {
    const std::lock_guard lock(mutex);
    for (Delivery& delivery : deliveries) last[delivery.id] = std::move(delivery);
  });
  const auto ask = [&] { return engine.submit({.request = greedy_request({0}, 5)}); };
  const RequestId first = ask();
  ASSERT_TRUE(wait([&] { return ended(first); }));
  EXPECT_EQ(last[first].finish, Finish::max_tokens);

  // Nothing runs: it is seen all the same, at once by who asks and soon by the engine.
  words.is_lost = true;
  EXPECT_EQ(engine.status().away, "rank 2 of 4 was lost");
  ASSERT_TRUE(wait([&] { return words.asked > 1; }));
  EXPECT_EQ(engine.status().fault, "");
  checkpoint::expect_error(Code::over_capacity, {"rank 2 of 4 was lost"}, ask);
  EXPECT_EQ(trouble_of(ask), Trouble::away);
  words.is_lost = false;
  ASSERT_TRUE(wait([&] { return engine.status().away.empty(); }));

  // In a step: the request is told, and the next one is served.
  const RequestId second = engine.submit({.request = greedy_request({0}, 50)});
  words.is_lost = true;
  ASSERT_TRUE(wait([&] { return ended(second); }));
  if (last[second].finish == Finish::failed) {
    EXPECT_EQ(last[second].error, "rank 2 of 4 was lost");
    EXPECT_EQ(last[second].trouble, Trouble::away);
  }
  words.is_lost = false;
  ASSERT_TRUE(wait([&] { return engine.status().away.empty(); }));
  EXPECT_EQ(engine.status().pages_used, 0);
  const RequestId third = ask();
  ASSERT_TRUE(wait([&] { return ended(third); }));
  EXPECT_EQ(last[third].finish, Finish::max_tokens);

  words.is_lost = true;  // and whoever stops it does not wait
  engine.stop(std::chrono::milliseconds(0));
  words.is_lost = false;
  EXPECT_EQ(trouble_of(ask), Trouble::stopping);
}

// No rank is away, so none will come back: waiting for it would hide what is wrong.
TEST(ComesBack, WhatIsNoLossIsAFaultForGood) {
  AwayWords words(kWithAnchors);
  Engine engine(words, {}, [](std::vector<Delivery>&&) {});
  engine.submit({.request = greedy_request(std::vector<TokenId>(100, 0), 50)});
  for (int i = 0; i < 5000 && engine.status().fault.empty() && engine.status().away.empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(engine.status().fault, "a state could not be copied");
  EXPECT_EQ(engine.status().away, "");
  EXPECT_EQ(trouble_of([&] { engine.submit({.request = greedy_request({0}, 5)}); }), Trouble::fault);
  EXPECT_EQ(words.asked, 0);
  checkpoint::expect_error(Code::device_lost, {"the engine has failed", "a state could not be copied"},
                           [&] { engine.submit({.request = greedy_request({0}, 5)}); });
  engine.stop(std::chrono::milliseconds(0));
}

TEST(ComesBack, NothingOfBeforeIsUsed) {
  AwayWords words;
  Batcher batcher(words, {});
  batcher.add(1, {.request = greedy_request({0}, 50)}, Batcher::Clock::now());
  std::vector<Delivery> out;
  batcher.step(out);
  EXPECT_GT(batcher.status().pages_used, 0);
  const std::int64_t steps = batcher.status().steps;
  batcher.abandon("lost", Trouble::away, out);
  batcher.begin_anew();
  EXPECT_EQ(batcher.status().pages_used, 0);
  EXPECT_EQ(batcher.status().running, 0);
  EXPECT_EQ(batcher.status().steps, steps);
  EXPECT_EQ(batcher.problem(), "");
  batcher.add(2, {.request = greedy_request({0}, 5)}, Batcher::Clock::now());
  out.clear();
  while (batcher.step(out)) {
  }
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out.back().finish, Finish::max_tokens);
}

}  // namespace
}  // namespace fourfold::engine
