// Whole groups on loopback: what a rank of another machine brings is what a thread would.
#include "nodes/leader.h"

#include "nodes/handshake.h"
#include "tests/checkpoint/support.h"
#include "tests/nodes/house.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;
using backend::Collective;
using backend::Pass;
using backend::Prepared;
using backend::RankLost;

TEST(Leader, SumsAreThoseOfOneProcessBitForBit) {
  House house(4);
  house.start_all();
  house.prepare();
  const auto alone = in_one_process(4);
  for (std::int32_t token = 1; token < 20; ++token) {
    const std::vector<float> wanted = logits_of(*alone, token);
    ASSERT_EQ(logits_of(*house.prepared, token), wanted) << token;
    EXPECT_NE(wanted.front(), wanted.back());
  }
  EXPECT_EQ(house.prepared->anchor_bytes(), 40);
  ASSERT_EQ(house.prepared->memory().size(), 4u);
  EXPECT_EQ(house.prepared->memory()[3].what, "rank 3 toys");
  EXPECT_EQ(house.prepared->memory()[3].bytes, 103);
  EXPECT_EQ(std::vector<std::string>(house.prepared->notices().begin(), house.prepared->notices().end()),
            (std::vector<std::string>{"a toy"}));
  house.prepared = nullptr;
  house.leader = nullptr;  // and every rank ends as it should
  for (auto& worker : house.workers) EXPECT_EQ(worker->join(), "well");
}

TEST(Leader, EveryCallOfTheDoorReachesTheRanks) {
  House house(2);
  house.start_all();
  house.prepare();
  house.prepared->save_anchor(1, 64, 2);
  house.prepared->restore_anchor(2, 1, 64);  // each rank compares
  const std::vector<backend::SeenToken> seen{{.token = 5, .count = 1, .bias = 1}};
  house.prepared->set_history(1, seen);
  const std::vector<std::int32_t> tokens{7};
  const backend::Batch batch{
      .tokens = tokens, .sequences = {}, .pages = {}, .logits_rows = {}, .hidden_rows = {}};
  const std::vector<backend::Choice> rows{{.top_k = 3}};
  std::vector<std::int32_t> chosen(1), drafts(2);
  ASSERT_TRUE(house.prepared->run_sampled(Pass::main, batch, {100, rows}, {chosen, {}}));
  EXPECT_EQ(chosen[0], 10);
  EXPECT_FALSE(house.prepared->run_sampled(Pass::main, batch, {0, rows}, {chosen, {}}));
  const std::vector<int> counts{2};
  ASSERT_TRUE(house.prepared->run_drafts(batch, {100, rows}, counts, drafts));
  EXPECT_EQ(drafts, (std::vector<std::int32_t>{2, 2}));
}

TEST(Leader, WhatAllRanksRefuseIsRefusedAndNobodyIsLost) {
  House house(3);
  house.start_all();
  house.prepare();
  checkpoint::expect_error(Code::invalid_request, {"token -5"}, [&] { logits_of(*house.prepared, -5); });
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(3), 3));
  EXPECT_EQ(house.prepared->away(), "");
}

TEST(Leader, ARankThatIsNotThisModelIsTurnedAway) {
  House house(2);
  WorkerThread& other = house.start(worker_options(house.address()), toy_model({1, 9, 3}));
  EXPECT_EQ(other.join(), "its model is not the leader's: its weights differ");
  EXPECT_TRUE(house.says("was refused: its model is not the leader's: its weights differ"));
  // Its place is free again.
  house.start(worker_options(house.address(), 1), toy_model());
  house.prepare();
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
}

TEST(Leader, WrongTokensVersionsAndPlacesAreRefused) {
  House house(2);
  WorkerOptions stranger = worker_options(house.address());
  stranger.token = Token("another secret, as long");
  EXPECT_EQ(WorkerThread(stranger, toy_model()).join(), "the token is not the leader's");
  WorkerOptions old = worker_options(house.address());
  old.version = "0.9";
  EXPECT_NE(WorkerThread(old, toy_model()).join().find("this is fourfold 0.9, the leader is fourfold 1.0"),
            std::string::npos);
  EXPECT_NE(WorkerThread(worker_options(house.address(), 2), toy_model()).join().find("there is no rank 2"),
            std::string::npos);
  EXPECT_NE(
      WorkerThread(worker_options(house.address(), 0), toy_model()).join().find("rank 0 is the leader's"),
      std::string::npos);
  house.start(worker_options(house.address()), toy_model());
  EXPECT_TRUE(house.says("rank 1 of 2 (127.0.0.1"));
  WorkerOptions late = worker_options(house.address(), 1);
  late.patience = 300ms;
  EXPECT_EQ(WorkerThread(late, toy_model()).join(), "rank 1 is there already");
}

TEST(Leader, ARankThatCannotLoadSaysWhy) {
  House house(2);
  RankModel broken = toy_model();
  broken.load = [](const Settings&, std::shared_ptr<Collective>) -> std::shared_ptr<Prepared> {
    fail(Code::out_of_memory, "no room for the toys");
  };
  EXPECT_EQ(WorkerThread(worker_options(house.address()), broken).join(), "no room for the toys");
  EXPECT_TRUE(house.says("it cannot load the model: no room for the toys"));
}

TEST(Leader, WhoeverDoesNotComeIsNamed) {
  const auto collective = backend::make_host_collective(2, 60s);
  LeaderOptions options = leader_options(2, collective);
  options.join_patience = 100ms;
  Leader leader(std::move(options));
  backend::Program program;
  program.part = {1, 2};
  const std::string hint = checkpoint::expect_error(Code::io, {"rank 1 of 2 has not joined within 0 s"}, [&] {
    leader.rank(1)->prepare(std::move(program), kCapacity);
  });
  EXPECT_NE(hint.find("fourfold rank --join HOST:"), std::string::npos);
}

TEST(Leader, NobodyIsWaitedForWhenRankZeroCannotBe) {
  House house(2);
  std::jthread fails([&] {
    std::this_thread::sleep_for(50ms);
    house.leader->give_up(0, "no room for rank 0");
  });
  const auto begin = Clock::now();
  checkpoint::expect_error(Code::device_lost, {"no room for rank 0"}, [&] { house.prepare(); });
  EXPECT_LT(Clock::now() - begin, 10s);
}

// Scanners, half-open connections and garbage: more of them than are let in at a time.
TEST(Leader, StrangersStopNobody) {
  House house(2);
  std::vector<Socket> half_open;
  for (int i = 0; i < 20; ++i) half_open.push_back(Socket::connect(house.address(), 5s));
  const std::string_view http = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 10; ++i) {
    Socket scanner = Socket::connect(house.address(), 5s);
    scanner.send(std::as_bytes(std::span(http)), {}, 5s);
  }
  EXPECT_TRUE(house.says("came to the port of the ranks and is none: what came is not the protocol"));
  house.start(worker_options(house.address()), toy_model());
  house.prepare();
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
  for (int i = 0; i < 100; ++i) half_open.push_back(Socket::connect(house.address(), 5s));
  EXPECT_EQ(logits_of(*house.prepared, 4), logits_of(*in_one_process(2), 4));
  const auto begin = Clock::now();
  house.prepared = nullptr;
  house.leader = nullptr;  // does not wait for them
  EXPECT_LT(Clock::now() - begin, 4s);
}

// Beyond so many that have proved nothing, a connection is closed without a word.
TEST(Leader, ThereAreOnlySoManyStrangersAtATime) {
  House house(2);
  const auto begin = Clock::now();
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Socket::connect(house.address(), 5s));
  int greeted = 0;
  for (Socket& one : strangers) {
    std::byte first{};
    try {
      one.receive(std::span(&first, 1), Clock::now() + 20s);
      ++greeted;
    } catch (const LinkLost&) {
    }
  }
  // On a machine that takes so long for it, the first have had their time, and others their places.
  const bool in_time = Clock::now() - begin < kHandshakeTime;
  EXPECT_TRUE(greeted == 32 || (greeted > 32 && !in_time)) << greeted;
}

// What a rank of this program never says.
TEST(Leader, ARankThatChoosesAnotherNumberOfTokensIsLost) {
  House house(2);
  std::jthread rank([&] {
    try {
      Socket socket = Socket::connect(house.address(), 5s);
      join_leader(socket, {.token = kToken, .version = "1.0"});
      Link link(std::move(socket), {});
      link.start();
      link.send(Frame::opened, ModelSums{1, 2, 3}.bytes());
      EXPECT_EQ(link.receive().kind, Frame::sum);
      link.send(Frame::summed, kTensorSums.bytes());
      EXPECT_EQ(link.receive().kind, Frame::load);
      link.send(Frame::loaded, Loaded{}.bytes());
      EXPECT_EQ(link.receive().kind, Frame::call);
      link.send(Frame::answer, Answer{.done = true, .tokens = {1}}.bytes());
      link.receive();
    } catch (const LinkLost&) {  // it is hung up on
    }
  });
  house.prepare();
  const std::vector<std::int32_t> tokens{7};
  const backend::Batch batch{
      .tokens = tokens, .sequences = {}, .pages = {}, .logits_rows = {}, .hidden_rows = {}};
  const std::vector<backend::Choice> rows{{.top_k = 3}};
  std::vector<std::int32_t> chosen(2);
  checkpoint::expect_error(Code::device_lost, {"rank 1 of 2 was lost: it chose 1 tokens where 2 were asked"},
                           [&] {
                             house.prepared->run_sampled(Pass::main, batch, {100, rows}, {chosen, {}});
                           });
}

// Waits for the toys' next sum, and lets the test go on there.
class Stop {
 public:
  void arm() { is_armed_ = true; }
  void pass() {
    if (!is_armed_.exchange(false)) return;
    has_come_ = true;
    while (!is_free_) std::this_thread::sleep_for(1ms);
  }
  bool has_come() const { return has_come_; }
  void free() { is_free_ = true; }

 private:
  std::atomic<bool> is_armed_ = false, has_come_ = false, is_free_ = false;
};

// A worker behind a wire, whose collective stops where a test wants.
class StoppingCollective final : public Collective {
 public:
  StoppingCollective(std::shared_ptr<Collective> inner, Stop& stop) : inner_(std::move(inner)), stop_(stop) {}
  int rank_count() const override { return inner_->rank_count(); }
  void all_reduce(int rank, std::string_view where, std::span<const float> in,
                  std::span<float> out) override {
    stop_.pass();
    inner_->all_reduce(rank, where, in, out);
  }
  void all_gather(int rank, std::string_view where, std::int64_t rows, std::span<const float> in,
                  std::span<float> out) override {
    inner_->all_gather(rank, where, rows, in, out);
  }
  void give_up(int rank, const std::string& why) override { inner_->give_up(rank, why); }
  void mend() override { inner_->mend(); }

 private:
  std::shared_ptr<Collective> inner_;
  Stop& stop_;
};

RankModel stopping_model(Stop& stop) {
  RankModel model = toy_model();
  model.load = [&stop](const Settings& settings,
                       std::shared_ptr<Collective> collective) -> std::shared_ptr<Prepared> {
    return std::make_shared<ToyPart>(backend::PartOf{settings.rank, settings.rank_count}, settings.capacity,
                                     std::make_shared<StoppingCollective>(std::move(collective), stop));
  };
  return model;
}

// Counts what a worker gathers and gets nothing back of.
class WatchingCollective final : public Collective {
 public:
  WatchingCollective(std::shared_ptr<Collective> inner, std::atomic<int>& unread)
      : inner_(std::move(inner)), unread_(unread) {}
  int rank_count() const override { return inner_->rank_count(); }
  void all_reduce(int rank, std::string_view where, std::span<const float> in,
                  std::span<float> out) override {
    inner_->all_reduce(rank, where, in, out);
  }
  void all_gather(int rank, std::string_view where, std::int64_t rows, std::span<const float> in,
                  std::span<float> out) override {
    constexpr float kMark = -123.5f;
    std::ranges::fill(out, kMark);
    inner_->all_gather(rank, where, rows, in, out);
    if (!out.empty() && std::ranges::count(out, kMark) == std::ssize(out)) ++unread_;
  }
  void give_up(int rank, const std::string& why) override { inner_->give_up(rank, why); }
  void mend() override { inner_->mend(); }

 private:
  std::shared_ptr<Collective> inner_;
  std::atomic<int>& unread_;
};

// The leader samples: a worker's copy of the logits would be read by nobody.
TEST(Leader, LogitsDoNotGoBackToWorkers) {
  std::atomic<int> unread = 0;
  RankModel model = toy_model();
  model.load = [&unread](const Settings& settings,
                         std::shared_ptr<Collective> collective) -> std::shared_ptr<Prepared> {
    return std::make_shared<ToyPart>(backend::PartOf{settings.rank, settings.rank_count}, settings.capacity,
                                     std::make_shared<WatchingCollective>(std::move(collective), unread));
  };
  House house(3);
  house.start(worker_options(house.address(), 1), model);
  house.start(worker_options(house.address(), 2), model);
  house.prepare();
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(3), 3));
  EXPECT_EQ(unread, 2);
}

enum class How { cut, frozen };

// In the middle of a step, with the timing people have: noticed within five seconds, and back again.
void lose_in_a_step(How how) {
  Stop stop;
  House house(3);
  Wire& wire = house.add_wire();
  house.start(worker_options(house.address(), 1), toy_model());
  house.start(worker_options(wire.address(), 2), stopping_model(stop));
  house.prepare();
  const std::vector<float> wanted = logits_of(*in_one_process(3), 5);
  ASSERT_EQ(logits_of(*house.prepared, 5), wanted);
  stop.arm();
  std::string told;
  int named = 0;
  Clock::time_point noticed;
  std::jthread step([&] {
    try {
      logits_of(*house.prepared, 6);
    } catch (const RankLost& error) {
      told = error.what(), named = error.rank();
    }
    noticed = Clock::now();
  });
  ASSERT_TRUE(comes_true([&] { return stop.has_come(); }));
  const auto begin = Clock::now();
  how == How::cut ? wire.cut() : wire.freeze();
  step.join();
  EXPECT_LT(noticed - begin, 5s);
  EXPECT_EQ(named, 2) << told;
  EXPECT_NE(told.find("rank 2 of 3 was lost"), std::string::npos) << told;
  EXPECT_NE(house.prepared->away().find("rank 2 of 3 was lost"), std::string::npos);
  EXPECT_THROW(logits_of(*house.prepared, 5), RankLost);  // and ever after, until it is back
  stop.free();
  if (how == How::frozen) wire.cut(), wire.thaw();
  wait_until_restored(*house.prepared);
  EXPECT_EQ(logits_of(*house.prepared, 5), wanted);
}

TEST(Leader, ARankCutOffInAStepIsNoticedAndComesBack) { lose_in_a_step(How::cut); }
TEST(Leader, ARankThatIsSilentInAStepIsNoticedWithinFiveSeconds) { lose_in_a_step(How::frozen); }

TEST(Leader, ARankLostWhileNothingRunsIsNoticedWithinFiveSeconds) {
  House house(2);
  Wire& wire = house.add_wire();
  house.start(worker_options(wire.address()), toy_model());
  house.prepare();
  EXPECT_EQ(house.prepared->away(), "");
  const auto begin = Clock::now();
  wire.freeze();
  ASSERT_TRUE(comes_true([&] { return !house.prepared->away().empty(); }));
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(house.prepared->away(), "rank 1 of 2 was lost: nothing was heard for too long; it is waited for");
  EXPECT_FALSE(house.prepared->restore());
  wire.cut(), wire.thaw();
  wait_until_restored(*house.prepared);
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
}

// It is there, and does not come: after the patience of a collective it is given up, and its connection with
// it.
TEST(Leader, ARankThatHangsIsGivenUp) {
  Stop stop;
  House house(2, {}, 300ms);
  house.start(worker_options(house.address()), stopping_model(stop));
  house.prepare();
  stop.arm();
  checkpoint::expect_error(Code::device_lost, {"rank 1 of 2 has not come to toy within 300 ms"},
                           [&] { logits_of(*house.prepared, 3); });
  EXPECT_NE(house.prepared->away(), "");
  stop.free();
  wait_until_restored(*house.prepared);
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
}

TEST(Leader, ARankThatBreaksEndsAndAnotherTakesItsPlace) {
  House house(3);
  house.start(worker_options(house.address(), 2), toy_model());
  WorkerThread& breaks = house.start(worker_options(house.address(), 1));
  house.prepare();
  checkpoint::expect_error(Code::device_lost, {"rank 1 of 3", "the toy broke"},
                           [&] { logits_of(*house.prepared, 666); });
  EXPECT_EQ(breaks.join(), "the toy broke");
  EXPECT_TRUE(house.prepared->comes_back());
  EXPECT_FALSE(house.prepared->restore());
  house.start(worker_options(house.address()), toy_model());
  wait_until_restored(*house.prepared);
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(3), 3));
}

// A connection that broke costs a moment, not a load.
TEST(Worker, KeepsItsPartWhenTheLeaderIsLost) {
  std::atomic<int> loads = 0;
  RankModel model = toy_model();
  model.load = [&, load = model.load](const Settings& settings, std::shared_ptr<Collective> collective) {
    ++loads;
    return load(settings, std::move(collective));
  };
  House house(2);
  Wire& wire = house.add_wire();
  house.start(worker_options(wire.address()), model);
  house.prepare();
  wire.cut();
  ASSERT_TRUE(comes_true([&] { return !house.prepared->away().empty(); }));
  wait_until_restored(*house.prepared);
  EXPECT_EQ(logits_of(*house.prepared, 3), logits_of(*in_one_process(2), 3));
  EXPECT_EQ(loads, 1);
}

}  // namespace
}  // namespace fourfold::nodes
