#include "events/publisher.h"

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "events/endpoint.h"
#include "events/peer.h"

namespace fourfold::events {
namespace {

constexpr std::chrono::seconds kConnectPause{1};
constexpr std::string_view kReplayEnd("\xff\xff\xff\xff\xff\xff\xff\xff", 8);  // -1

std::string number_bytes(std::uint64_t number) {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xff);
  return out;
}

std::uint64_t number_of(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<std::uint8_t>(c);
  return number;
}

// One of the two sockets: whoever is connected, by listening or by connecting to one address.
class PeerGroup {
 public:
  PeerGroup(asio::io_context& io, ZmtpPeer::Role role, Peer::OnMessage on_message, std::string_view text,
            std::string_view option)
      : io_(io),
        role_(role),
        on_message_(std::move(on_message)),
        endpoint_(Endpoint::parse(text, option)),
        acceptor_(io),
        resolver_(io),
        timer_(io) {
    if (role == ZmtpPeer::Role::router) endpoint_.listens = true;
    if (endpoint_.listens)
      listen(option);
    else
      connect();
  }

  const std::set<std::shared_ptr<Peer>>& peers() const { return peers_; }
  std::int64_t count() const { return count_; }  // any thread
  std::string text() const {
    const std::string host =
        endpoint_.host.find(':') == std::string::npos ? endpoint_.host : "[" + endpoint_.host + "]";
    const std::string port =
        endpoint_.listens ? std::to_string(acceptor_.local_endpoint().port()) : endpoint_.port;
    return fourfold::format("tcp://{}:{}", host == "0.0.0.0" ? "*" : host, port);
  }
  void end() {
    error_code ignored;
    acceptor_.close(ignored);
    timer_.cancel();
    while (!peers_.empty()) (*peers_.begin())->end();
  }

 private:
  void listen(std::string_view option) {
    error_code problem;
    const auto found = resolver_.resolve(endpoint_.host, endpoint_.port,
                                         tcp::resolver::passive | tcp::resolver::numeric_service, problem);
    if (problem || found.empty())
      fail(Code::io, "{}: {} is no address of this machine: {}", option, endpoint_.host, problem.message());
    const tcp::endpoint at = found.begin()->endpoint();
    acceptor_.open(at.protocol(), problem);
    if (!problem) acceptor_.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem && at.address().is_v6())
      acceptor_.set_option(asio::ip::v6_only(!at.address().is_unspecified()), problem);
    if (!problem) acceptor_.bind(at, problem);
    if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
    if (problem)
      fail_with_hint(Code::io, "Choose another port, or 0 for one that is free.", "{}: port {} of {}: {}",
                     option, endpoint_.port, endpoint_.host, problem.message());
    accept();
  }

  void accept() {
    acceptor_.async_accept([this](error_code problem, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!problem && peers_.size() < Publisher::kPeersMax) add(std::move(socket));
      if (!problem) return accept();
      // No descriptors, perhaps: not at once again.
      timer_.expires_after(kConnectPause);
      timer_.async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
    });
  }

  void connect() {
    resolver_.async_resolve(endpoint_.host, endpoint_.port, [this](error_code problem, const auto& found) {
      if (problem) return connect_later();
      auto socket = std::make_shared<tcp::socket>(io_);
      asio::async_connect(*socket, found, [this, socket](error_code failed, const tcp::endpoint&) {
        if (failed) return connect_later();
        add(std::move(*socket));
      });
    });
  }

  void connect_later() {
    timer_.expires_after(kConnectPause);
    timer_.async_wait([this](error_code stopped) {
      if (!stopped) connect();
    });
  }

  void add(tcp::socket socket) {
    const auto peer = std::make_shared<Peer>(std::move(socket), role_, on_message_,
                                             [this](const std::shared_ptr<Peer>& one) {
                                               peers_.erase(one);
                                               count_ = std::ssize(peers_);
                                               if (!endpoint_.listens) connect_later();
                                             });
    peers_.insert(peer);
    count_ = std::ssize(peers_);
    peer->begin();
  }

  asio::io_context& io_;
  ZmtpPeer::Role role_;
  Peer::OnMessage on_message_;
  Endpoint endpoint_;
  tcp::acceptor acceptor_;
  tcp::resolver resolver_;
  asio::steady_timer timer_;
  std::set<std::shared_ptr<Peer>> peers_;
  std::atomic<std::int64_t> count_{0};
};

struct Batch {
  std::uint64_t number = 0;
  double seconds = 0;
  std::int64_t block_tokens = 0;
  std::vector<schedule::BlockEvent> events;
};

struct Kept {
  std::uint64_t number = 0;
  Bytes message;
};

}  // namespace

struct Publisher::Body {
  explicit Body(const PublisherOptions& from)
      : options(from),
        publishing(
            io, ZmtpPeer::Role::publisher, [](Peer&, const auto&) {}, from.endpoint, "--kv-events") {
    if (from.buffer_steps < 0 || from.buffer_steps > 1'000'000)
      fail(Code::invalid_request, "--kv-events-buffer-steps {}: 0 to 1000000", from.buffer_steps);
    if (from.topic.size() > 255)
      fail(Code::invalid_request, "--kv-events-topic has {} bytes; at most 255", from.topic.size());
    if (!from.replay_endpoint.empty())
      replaying.emplace(
          io, ZmtpPeer::Role::router, [this](Peer& peer, const auto& message) { replay(peer, message); },
          from.replay_endpoint, "--kv-events-replay-endpoint");
    endpoint = publishing.text();
    if (replaying) replay_endpoint = replaying->text();
    std::string delimiter;
    append_frame(delimiter, {}, true);
    replay_head = std::make_shared<const std::string>(delimiter);
    append_frame(delimiter, {}, true);
    append_frame(delimiter, kReplayEnd, true);
    append_frame(delimiter, {}, false);
    replay_end = std::make_shared<const std::string>(delimiter);
    thread = std::thread([this] { io.run(); });
  }

  void take_queue();
  void send(const Batch& batch);
  void replay(Peer& peer, const ZmtpPeer::Message& message);

  const PublisherOptions options;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  PeerGroup publishing;
  std::optional<PeerGroup> replaying;
  std::string endpoint, replay_endpoint;
  Bytes replay_head, replay_end;
  std::deque<Kept> kept;  // of the thread
  std::size_t kept_bytes = 0;

  std::mutex mutex;  // of the four below
  std::deque<Batch> queue;
  std::uint64_t next_number = 0;
  bool woken = false;
  std::int64_t dropped = 0;
  std::atomic<std::int64_t> batches{0}, subscriber_dropped{0}, replays{0};
  std::thread thread;
};

void Publisher::Body::take_queue() {
  std::deque<Batch> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(queue);
    woken = false;
  }
  for (const Batch& batch : taken) send(batch);
}

void Publisher::Body::send(const Batch& batch) {
  std::string bytes;
  append_frame(bytes, options.topic, true);
  append_frame(bytes, number_bytes(batch.number), true);
  append_frame(bytes, kv_batch(batch.events, {batch.seconds, batch.block_tokens, options.form}), false);
  const Bytes message = std::make_shared<const std::string>(std::move(bytes));
  for (const auto& peer : publishing.peers()) {
    if (!peer->wants(options.topic)) continue;
    if (peer->waiting_count() < options.subscriber_max &&
        peer->waiting_bytes() < options.subscriber_bytes_max)
      peer->send(message);
    else
      ++subscriber_dropped;
  }
  ++batches;
  if (!replaying || options.buffer_steps == 0) return;
  kept.push_back({batch.number, message});
  kept_bytes += message->size();
  while (std::ssize(kept) > options.buffer_steps || (kept_bytes > kBufferBytesMax && kept.size() > 1)) {
    kept_bytes -= kept.front().message->size();
    kept.pop_front();
  }
}

// [empty, first number] is answered by a message [empty, topic, number, batch] for each that is kept, and
// [empty, empty, -1, empty].
void Publisher::Body::replay(Peer& peer, const ZmtpPeer::Message& message) {
  const bool is_question = message.size() == 2 && message[0].empty() && message[1].size() == 8;
  // Whoever asks again and again without reading what it got is let go.
  if (!is_question || peer.waiting_count() > 4 * (kept.size() + 1) ||
      peer.waiting_bytes() > options.subscriber_bytes_max)
    return peer.end();
  ++replays;
  const std::uint64_t first = number_of(message[1]);
  for (const Kept& one : kept) {
    if (one.number < first) continue;
    peer.send(replay_head);
    peer.send(one.message);
  }
  peer.send(replay_end);
}

Publisher::Publisher(const PublisherOptions& options) : body_(std::make_unique<Body>(options)) {}

Publisher::~Publisher() {
  asio::post(body_->io, [body = body_.get()] {
    body->publishing.end();
    if (body->replaying) body->replaying->end();
    body->io.stop();
  });
  body_->thread.join();
}

bool Publisher::publish(std::vector<schedule::BlockEvent>&& events, std::int64_t block_tokens) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  bool wake = false;
  {
    const std::lock_guard lock(body_->mutex);
    const std::uint64_t number = body_->next_number++;
    if (body_->queue.size() >= body_->options.queue_max) {
      ++body_->dropped;
      return false;
    }
    body_->queue.push_back({number, seconds, block_tokens, std::move(events)});
    wake = !std::exchange(body_->woken, true);
  }
  if (wake) asio::post(body_->io, [body = body_.get()] { body->take_queue(); });
  return true;
}

PublisherCounts Publisher::counts() const {
  PublisherCounts out;
  out.batches = body_->batches;
  out.subscribers = body_->publishing.count();
  out.subscriber_dropped = body_->subscriber_dropped;
  out.replays = body_->replays;
  const std::lock_guard lock(body_->mutex);
  out.dropped = body_->dropped;
  return out;
}

std::string Publisher::endpoint() const { return body_->endpoint; }
std::string Publisher::replay_endpoint() const { return body_->replay_endpoint; }

}  // namespace fourfold::events
