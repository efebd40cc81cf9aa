#include "nodes/leader.h"

#include <atomic>
#include <list>
#include <map>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "nodes/group.h"
#include "nodes/handshake.h"
#include "nodes/remote_rank.h"

namespace fourfold::nodes {
namespace {

// Connections that have not proved anything yet; more are closed at once.
constexpr int kStrangersMax = 32;
constexpr std::chrono::milliseconds kAcceptTime{200};
// For one that was refused or is not needed any more, to read why.
constexpr std::chrono::seconds kFarewellTime{2};
// Before the same refusal of the same machine is in the log again.
constexpr std::chrono::minutes kSayAgain{10};

// Set when a link is lost and nobody but its holders knows it any more.
class End {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    news_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return is_set_; });
  }
  void wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, time, [&] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool is_set_ = false;
};

}  // namespace

struct Leader::Body {
  explicit Body(LeaderOptions given)
      : options(std::move(given)),
        group(std::make_shared<Group>(options.settings.rank_count)),
        listening(options.listen) {
    thread = std::thread([this] { accept(); });
  }
  ~Body() {
    stops = true;
    thread.join();
    tell_all(Frame::bye);
    // Who reads it leaves; a connection that is closed first may take the word back.
    for (const auto until = Clock::now() + kFarewellTime; Clock::now() < until && !group->links().empty();)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const std::shared_ptr<Link>& link : group->links()) link->close("the leader ends");
    {
      const std::lock_guard lock(mutex);
      for (Visit& visit : visits)
        if (visit.is_stranger) visit.socket.shut();
    }
    for (Visit& visit : visits) visit.thread.join();
  }

  // A connection, from its first byte to its end.
  struct Visit {
    Socket socket;
    bool is_stranger = true;  // and the socket is here
    std::atomic<bool> is_over = false;
    std::thread thread;
  };

  void accept();
  void receive(Visit& visit);
  std::optional<Settings> greet(Visit& visit, const std::string& peer);
  void load(const Settings& settings, const std::string& peer, Link& link, End& end);
  const TensorSums& own_sums();
  // Whoever is lost meanwhile is noticed elsewhere.
  void tell_all(Frame kind) const {
    for (const std::shared_ptr<Link>& link : group->links()) {
      try {
        link->send(kind);
      } catch (const LinkLost&) {
      }
    }
  }
  bool is_news(const std::string& peer, const std::string& why);
  void say(const std::string& line) const {
    if (options.log) options.log(line);
  }
  std::string name(int rank) const { return fourfold::format("rank {} of {}", rank, group->rank_count()); }

  const LeaderOptions options;
  const std::shared_ptr<Group> group;
  ListeningSocket listening;
  std::atomic<bool> stops = false;
  std::mutex mutex;  // of the visits' sockets
  std::list<Visit> visits;
  std::atomic<int> strangers = 0;
  std::map<std::string, Clock::time_point> refusals;  // said, by host and reason; under the mutex
  std::mutex sums_mutex;
  std::optional<TensorSums> sums;  // of this machine's tensors, made once
  std::thread thread;
};

void Leader::Body::accept() {
  while (!stops) {
    std::optional<Socket> socket = listening.accept(kAcceptTime);
    if (options.is_stopped && options.is_stopped())
      group->end_waits("the server was asked to end before all ranks were there");
    std::erase_if(visits, [](Visit& visit) {
      if (!visit.is_over) return false;
      visit.thread.join();
      return true;
    });
    if (!socket || strangers >= kStrangersMax) continue;
    ++strangers;
    Visit& visit = visits.emplace_back();
    visit.socket = std::move(*socket);
    try {
      visit.thread = std::thread([this, &visit] {
        receive(visit);
        visit.is_over = true;
      });
    } catch (const std::system_error&) {  // no thread is left: it may come again
      visits.pop_back();
      --strangers;
    }
  }
}

// Who has proved itself, and which rank it is; nothing: it was turned away.
std::optional<Settings> Leader::Body::greet(Visit& visit, const std::string& peer) {
  int rank = -1;
  std::optional<Settings> settings;
  try {
    settings = welcome_rank(visit.socket,
                            {.token = options.token, .version = options.version, .place = [&](int wanted) {
                               rank = group->take(wanted);
                               Settings mine = options.settings;
                               mine.rank = rank;
                               return mine;
                             }});
  } catch (const Refused& refused) {
    if (is_news(peer, refused.what())) say(fourfold::format("{} was refused: {}", peer, refused.what()));
  } catch (const std::exception& error) {
    if (!stops) say(fourfold::format("{} came to the port of the ranks and is none: {}", peer, error.what()));
    if (rank != -1) group->leave(rank);
  }
  const std::lock_guard lock(mutex);
  visit.is_stranger = false;
  --strangers;
  return settings;
}

// A spare rank asks twice a second, and is said once in a while.
bool Leader::Body::is_news(const std::string& peer, const std::string& why) {
  const std::lock_guard lock(mutex);
  const auto now = Clock::now();
  std::erase_if(refusals, [&](const auto& said) { return now - said.second >= kSayAgain; });
  return refusals.emplace(peer.substr(0, peer.rfind(':')) + " " + why, now).second;
}

void Leader::Body::receive(Visit& visit) {
  const std::string peer = visit.socket.peer();
  const std::optional<Settings> settings = greet(visit, peer);
  if (!settings) {
    Socket(std::move(visit.socket));  // closed
    return;
  }
  const int rank = settings->rank;
  const auto end = std::make_shared<End>();
  const auto link = std::make_shared<Link>(
      std::move(visit.socket), options.timing, [this, rank, peer, end](const std::string& why) {
        // It is known to be away before anybody who waits for it is woken, and its place is free behind that.
        if (group->lose(rank, why))
          options.collective->give_up(rank, fourfold::format("{} was lost: {}", name(rank), why));
        group->leave(rank);
        if (!stops) say(fourfold::format("{} ({}) is gone: {}", name(rank), peer, why));
        end->set();
      });
  group->begin(rank, link);
  try {
    link->start();
    if (stops) throw LinkLost("the leader ends");  // and may have looked for links to close before this one
    load(*settings, peer, *link, *end);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    // Else it is told that the leader ends, by whoever ends it.
    if (known == nullptr || known->code() != Code::cancelled) link->close(error.what());
  }
  end->wait();
}

void Leader::Body::load(const Settings& settings, const std::string& peer, Link& link, End& end) {
  const int rank = settings.rank;
  say(fourfold::format("{} has joined from {}", name(rank), peer));
  const auto turn_away = [&](const std::string& why) {
    say(fourfold::format("{} ({}) was refused: {}", name(rank), peer, why));
    link.send(Frame::refuse, ByteWriter().put(std::uint8_t{0}).put_text(why).take());
    end.wait_for(kFarewellTime);
    link.close(why);
  };
  const auto next = [&](Frame wanted) {
    Message message = link.receive();
    if (message.kind == Frame::failed) {
      // Said here: it leaves at once, and that may be what is heard of it first.
      const std::string why =
          fourfold::format("it cannot load the model: {}", ByteReader(message.bytes).get_text());
      say(fourfold::format("{} ({}): {}", name(rank), peer, why));
      throw LinkLost(why);
    }
    if (message.kind != wanted) throw LinkLost("it says what it was not asked");
    return message;
  };
  const ModelSums theirs = ModelSums::read(next(Frame::opened).bytes);
  if (const std::string_view what = difference(options.model, theirs); !what.empty())
    return turn_away(fourfold::format("its model is not the leader's: {}", what));
  link.send(Frame::sum);
  const TensorSums& ours = own_sums();  // while it makes its own
  const TensorSums tensors = TensorSums::read(next(Frame::summed).bytes);
  if (const std::string what = difference(ours, tensors, options.tensor_name); !what.empty())
    return turn_away(fourfold::format("its weights are not the leader's: {}", what));
  link.send(Frame::load);
  group->finish(rank, Loaded::read(next(Frame::loaded).bytes));
  say(fourfold::format("{} ({}) is ready", name(rank), peer));
}

const TensorSums& Leader::Body::own_sums() {
  const std::lock_guard lock(sums_mutex);
  if (!sums) sums = options.sum_tensors([this] { return stops.load(); });
  return *sums;
}

Leader::Leader(LeaderOptions options) {
  check(options.settings.rank_count > 1 && options.collective != nullptr && options.sum_tensors != nullptr,
        "there are ranks to lead", options.settings.rank_count);
  body_ = std::make_shared<Body>(std::move(options));
}

Leader::~Leader() = default;

std::uint16_t Leader::port() const { return body_->listening.port(); }

std::shared_ptr<backend::Backend> Leader::rank(int rank) {
  const LeaderOptions& options = body_->options;
  return make_remote_rank(
      {.rank = rank,
       .group = body_->group,
       .collective = options.collective,
       .join_patience = options.join_patience,
       .join_hint =
           fourfold::format("On its machine: fourfold rank --join {}:{} --token-file FILE", "HOST", port())});
}

std::function<bool(int rank)> Leader::presence() const {
  return [group = body_->group](int rank) { return group->any_link(rank) != nullptr; };
}

std::string Leader::away() const { return body_->group->away(); }

bool Leader::mend() {
  if (!body_->group->mend()) return false;
  body_->options.collective->mend();
  body_->tell_all(Frame::anew);
  return true;
}

void Leader::give_up(int rank, const std::string& why) {
  body_->options.collective->give_up(rank, why);
  if (body_->options.meets_elsewhere) body_->tell_all(Frame::give_up);
  if (rank == backend::kNoRank) return;
  if (rank == 0) return body_->group->end_waits(why);
  if (const std::shared_ptr<Link> link = body_->group->any_link(rank)) link->close(why);
}

}  // namespace fourfold::nodes
