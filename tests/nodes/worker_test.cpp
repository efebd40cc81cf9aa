// Leaders and ranks that say what theirs never say: each side against one that a test speaks for.
#include "nodes/worker.h"

#include "nodes/handshake.h"
#include "tests/checkpoint/support.h"
#include "tests/nodes/support.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

Message next(Socket& socket) {
  for (;;) {
    Message message = receive_frame(socket, kMemberBytes, {.silence = 10s});
    if (message.kind != Frame::beat) return message;
  }
}

// A rank of a test's own leader: what it loaded how often, and what it said.
struct Lone {
  Lone() {
    RankModel model = toy_model();
    model.load = [this, load = model.load](const Settings& settings,
                                           std::shared_ptr<backend::Collective> collective) {
      ++loads;
      return load(settings, std::move(collective));
    };
    WorkerOptions options = worker_options({"127.0.0.1", listening.port()});
    options.timing.silence = 10s;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex);
      log += line + "\n";
    };
    worker = std::make_unique<WorkerThread>(std::move(options), std::move(model));
  }
  // It joins as this rank of this model, and has loaded it.
  Socket lead(const std::string& model) {
    Socket socket = listening.accept(10s).value();
    Settings settings = leader_options(2, nullptr).settings;
    settings.rank = 1;
    settings.model = model;
    welcome_rank(socket, {.token = kToken, .version = "1.0", .place = [&](int) { return settings; }});
    EXPECT_EQ(next(socket).kind, Frame::opened);
    send_frame(socket, Frame::sum, {}, {}, 5s);
    EXPECT_EQ(next(socket).kind, Frame::summed);
    send_frame(socket, Frame::load, {}, {}, 5s);
    EXPECT_EQ(next(socket).kind, Frame::loaded);
    return socket;
  }
  // As a leader does that is not needed any more; what the rank said until then.
  std::string end(Socket& leader) {
    send_frame(leader, Frame::bye, {}, {}, 5s);
    EXPECT_EQ(worker->join(), "well");
    const std::lock_guard lock(mutex);
    return log;
  }

  ListeningSocket listening{kAnyPort};
  std::atomic<int> loads = 0;
  std::mutex mutex;
  std::string log;
  std::unique_ptr<WorkerThread> worker;
};

// Its part is of what the leader before wanted.
TEST(Worker, LoadsAnewForALeaderThatWantsAnother) {
  Lone lone;
  { const Socket first = lone.lead("one"); }
  { const Socket same = lone.lead("one"); }
  EXPECT_EQ(lone.loads, 1);
  Socket other = lone.lead("another");
  EXPECT_EQ(lone.loads, 2);
  lone.end(other);
}

TEST(Worker, TakesNoSumOfAnotherLength) {
  constexpr std::ptrdiff_t whole = ToyPart::kColumns * sizeof(float);
  for (const std::ptrdiff_t bytes : {whole - 4, whole + 4}) {
    Lone lone;
    Socket leader = lone.lead("one");
    Call call{.task = Task::run};
    call.tokens = {5};
    call.logit_count = 2 * ToyPart::kColumns;
    send_frame(leader, Frame::call, call.bytes(), {}, 5s);
    EXPECT_EQ(next(leader).kind, Frame::part);
    send_frame(leader, Frame::result, Bytes(static_cast<std::size_t>(bytes)), {}, 5s);
    EXPECT_THROW(next(leader), LinkLost) << "it hangs up";
    Socket again = lone.lead("one");
    EXPECT_NE(lone.end(again).find(format("the leader sent {} bytes for {} at toy", bytes, whole)),
              std::string::npos);
  }
}

TEST(Worker, IsSeenByItsLeaderWhileItHasAConnection) {
  auto leader = std::make_unique<Leader>(leader_options(3, backend::make_host_collective(3, 60s)));
  const std::function<bool(int)> is_there = leader->presence();
  EXPECT_FALSE(is_there(1));
  const WorkerThread rank(worker_options({"127.0.0.1", leader->port()}, 1), toy_model());
  EXPECT_TRUE(comes_true([&] { return is_there(1); }));
  EXPECT_FALSE(is_there(2));
  leader = nullptr;
  EXPECT_FALSE(is_there(1));
}

// Twice a second it asks, and the leader's log says so once.
TEST(Worker, ThatIsSpareFillsNoLog) {
  LeaderOptions options = leader_options(2, backend::make_host_collective(2, 60s));
  Lines lines;
  options.log = lines.writer();
  auto leader = std::make_unique<Leader>(std::move(options));
  const Address address{"127.0.0.1", leader->port()};
  const WorkerThread rank(worker_options(address, 1), toy_model());
  const std::function<bool(int)> is_there = leader->presence();
  ASSERT_TRUE(comes_true([&] { return is_there(1); }));
  for (int i = 0; i < 3; ++i) {
    WorkerOptions spare = worker_options(address, 1);
    spare.patience = 0ms;
    EXPECT_EQ(WorkerThread(spare, toy_model()).join(), "rank 1 is there already");
  }
  leader = nullptr;
  const std::string log = lines.text(), line = "was refused: rank 1 is there already";
  const std::size_t first = log.find(line);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(line, first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace fourfold::nodes
