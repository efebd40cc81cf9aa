// Threads: who asks, who cancels and who looks are not the one who runs.
#include "engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "backend/cpu/cpu.h"
#include "base/error.h"
#include "tests/engine/support.h"

namespace fourfold::engine {
namespace {

using namespace std::chrono_literals;

// Collects what an engine delivers; waits for ends.
class Inbox {
 public:
  Deliver deliver() {
    return [this](std::vector<Delivery>&& deliveries) {
      const std::lock_guard lock(mutex_);
      for (Delivery& delivery : deliveries) {
        EXPECT_FALSE(ends_.contains(delivery.id)) << "something behind the end";
        for (const sample::Sampled& token : delivery.tokens) tokens_[delivery.id].push_back(token.token);
        if (delivery.finish != Finish::running) ends_.emplace(delivery.id, std::move(delivery));
      }
      changed_.notify_all();
    };
  }
  Delivery wait(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_.contains(id); });
    return ends_.at(id);
  }
  std::vector<TokenId> tokens(RequestId id) {
    const std::lock_guard lock(mutex_);
    return tokens_[id];
  }
  std::size_t end_count() {
    const std::lock_guard lock(mutex_);
    return ends_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<TokenId>> tokens_;
  std::map<RequestId, Delivery> ends_;
};

struct Micro {
  Micro() : golden("bf16"), prompt(golden.ids("long.input_ids")) {
    prepared = backend::make_cpu_backend({.threads = 1})
                   ->prepare(golden.program(model::Activations::automatic), {.page_count = 24,
                                                                             .page_tokens = 64,
                                                                             .state_slot_count = 3,
                                                                             .row_count = 128,
                                                                             .anchor_count = 4});
  }
  Request request(std::size_t prompt_count, std::int64_t max_tokens) const {
    return greedy_request({prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(prompt_count)},
                          max_tokens);
  }
  model::Golden golden;
  std::vector<TokenId> prompt;
  std::unique_ptr<backend::Prepared> prepared;
};

TEST(Engine, ManyThreadsAskCancelAndLook) {
  Micro micro;
  std::map<std::size_t, std::vector<TokenId>> alone;
  for (const std::size_t count : {5u, 20u, 70u})
    alone[count] = answer_of(*micro.prepared, micro.request(count, 8));
  Inbox inbox;
  Engine engine(*micro.prepared, {.max_queue = 64}, inbox.deliver());
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done)
      EXPECT_GE(engine.status().page_count, engine.status().pages_used), std::this_thread::yield();
  });
  std::vector<std::thread> askers;
  std::atomic<int> wrong = 0;
  for (int asker = 0; asker < 4; ++asker)
    askers.emplace_back([&, asker] {
      for (int i = 0; i < 12; ++i) {
        const std::size_t count = i % 3 == 0 ? 5 : i % 3 == 1 ? 20 : 70;
        const RequestId id = engine.submit({.request = micro.request(count, 8)});
        if ((i + asker) % 4 == 0) engine.cancel(id);
        const Delivery end = inbox.wait(id);
        std::vector<TokenId> expected = alone.at(count);
        if (end.finish == Finish::cancelled) expected.resize(inbox.tokens(id).size());
        if (inbox.tokens(id) != expected) ++wrong;
      }
    });
  for (std::thread& asker : askers) asker.join();
  done = true;
  watcher.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(inbox.end_count(), 48u);
  const EngineStatus status = engine.status();
  EXPECT_EQ(status.running + status.waiting, 0);
  EXPECT_EQ(status.finished + status.cancelled, 48);
  EXPECT_EQ(status.pages_used, status.pages_cached);
  EXPECT_GT(status.steps, 0);
}

TEST(Engine, RefusesMoreThanRunAndWait) {
  Micro micro;
  Inbox inbox;
  Engine engine(*micro.prepared, {.max_sequences = 1, .max_queue = 1}, inbox.deliver());
  const RequestId first = engine.submit({.request = micro.request(20, 400)});
  const RequestId second = engine.submit({.request = micro.request(20, 400)});
  try {
    engine.submit({.request = micro.request(20, 4)});
    ADD_FAILURE() << "a third was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::over_capacity);
  }
  EXPECT_EQ(engine.status().refused, 1);
  engine.cancel(first);
  engine.cancel(second);
  EXPECT_EQ(inbox.wait(first).finish, Finish::cancelled);
  EXPECT_EQ(inbox.wait(second).finish, Finish::cancelled);
  const RequestId third = engine.submit({.request = micro.request(20, 4)});
  EXPECT_EQ(inbox.wait(third).finish, Finish::max_tokens);
  engine.cancel(third);   // it has ended
  engine.cancel(999999);  // nobody
}

TEST(Engine, StopLetsThoseFinishWhoCanAndTellsTheOthers) {
  Micro micro;
  Inbox inbox;
  Engine engine(*micro.prepared, {.max_sequences = 1}, inbox.deliver());
  const RequestId quick = engine.submit({.request = micro.request(5, 2)});
  const RequestId endless = engine.submit({.request = micro.request(5, 1000)});
  inbox.wait(quick);
  engine.stop(1ms);
  EXPECT_EQ(inbox.wait(quick).finish, Finish::max_tokens);
  EXPECT_EQ(inbox.wait(endless).finish, Finish::shutdown);
  EXPECT_THROW(engine.submit({.request = micro.request(5, 2)}), Error);
}

TEST(Engine, StopWithGraceWaitsForTheLastToken) {
  Micro micro;
  Inbox inbox;
  Engine engine(*micro.prepared, {}, inbox.deliver());
  const RequestId id = engine.submit({.request = micro.request(70, 20)});
  engine.stop(60s);
  EXPECT_EQ(inbox.wait(id).finish, Finish::max_tokens);
  EXPECT_EQ(inbox.tokens(id).size(), 20u);
}

}  // namespace
}  // namespace fourfold::engine
