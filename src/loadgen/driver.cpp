#include "loadgen/driver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "loadgen/stream_reader.h"

namespace fourfold::loadgen {
namespace {

constexpr double kStopSeconds = 0.1;  // how often `stop` is asked

using Address = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Address find_address(const http::Url& url) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &wanted, &found); error != 0)
    fail(Code::io, "{} has no address: {}", url.host, gai_strerror(error));
  return {found, freeaddrinfo};
}

// A stream is a descriptor, and the usual limit of a shell is 1,024.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// One request on its connection.
class Flight {
 public:
  Flight(std::size_t index, std::string_view request, double now)
      : index_(index), unsent_(request), sent_(now), reader_(now) {}
  ~Flight() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  std::size_t index() const { return index_; }
  int descriptor() const { return descriptor_; }
  double sent() const { return sent_; }
  // Answers are read while the request is still being sent: a refusal may come early.
  short events() const { return static_cast<short>(POLLIN | (unsent_.empty() ? 0 : POLLOUT)); }

  // All of these throw io when the request has failed.
  void open(const addrinfo* address) {
    int error = 0;
    for (; address != nullptr; address = address->ai_next) {
      const int made = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (made < 0) {
        error = errno;
        continue;
      }
      const int on = 1;
      setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(made, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS) {
        descriptor_ = made;
        next_ = address->ai_next;
        return;
      }
      error = errno;
      close(made);
    }
    fail(Code::io, "no connection: {}", std::strerror(error));
  }

  template <class Clock>
  void advance(short ready, const Clock& clock) {
    if (!connected_) {
      if ((ready & (POLLOUT | POLLERR | POLLHUP)) == 0) return;
      if (!finish_connecting()) return;
    }
    if ((ready & POLLOUT) != 0) send();
    if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) receive(clock);
  }
  bool done() const { return reader_.done(); }
  Timeline finish(double now) { return reader_.finish(now); }
  Timeline fail_with(std::string why, double now) { return reader_.fail_with(std::move(why), now); }
  std::size_t chunks_seen() const { return reader_.chunk_count(); }

 private:
  // False when the next address of the host is being tried.
  bool finish_connecting() {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) {
      connected_ = true;
      return true;
    }
    close(descriptor_);
    descriptor_ = -1;
    if (next_ == nullptr) fail(Code::io, "no connection: {}", std::strerror(error));
    open(next_);
    return false;
  }

  void send() {
    while (!unsent_.empty()) {
      const ssize_t sent = ::send(descriptor_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        // What the server said before it closed is still to be read.
        unsent_ = {};
        return;
      }
      unsent_.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  template <class Clock>
  void receive(const Clock& clock) {
    char buffer[64 << 10];
    while (!reader_.done()) {
      const ssize_t got = recv(descriptor_, buffer, sizeof buffer, 0);
      if (got < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return;
        fail(Code::io, "the connection broke: {}", std::strerror(errno));
      }
      const double now = clock();
      if (got == 0) return reader_.close(now);
      reader_.take({buffer, static_cast<std::size_t>(got)}, now);
    }
  }

  std::size_t index_;
  std::string_view unsent_;
  double sent_;
  StreamReader reader_;
  int descriptor_ = -1;
  bool connected_ = false;
  const addrinfo* next_ = nullptr;
};

class Driver {
 public:
  Driver(const DriveOptions& options, std::span<const std::string> requests)
      : options_(options), requests_(requests), address_(find_address(options.url)), lines_(requests.size()) {
    if (!options_.clock)
      options_.clock = [] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      };
    progress_.count = requests.size();
  }

  std::vector<Timeline> run() {
    allow_many_descriptors();
    start_ = options_.clock();
    while (next_ < requests_.size() || !flights_.empty()) {
      if (options_.stop && options_.stop()) {
        end_all("stopped by the user");
        break;
      }
      launch();
      wait();
      expire();
      progress_.running = flights_.size();
      if (options_.show) options_.show(progress_);
    }
    return std::move(lines_);
  }

 private:
  double due() const { return options_.arrivals.empty() ? start_ : start_ + options_.arrivals.at(next_); }

  void launch() {
    while (next_ < requests_.size() && flights_.size() < options_.concurrency && due() <= options_.clock()) {
      auto flight = std::make_unique<Flight>(next_, requests_[next_], options_.clock());
      ++next_;
      try {
        flight->open(address_.get());
        flights_.push_back(std::move(flight));
      } catch (const Error& error) {
        keep(flight->index(), flight->fail_with(error.what(), options_.clock()));
      }
    }
  }

  double wait_seconds() const {
    const double now = options_.clock();
    double seconds = kStopSeconds;
    if (next_ < requests_.size() && flights_.size() < options_.concurrency)
      seconds = std::min(seconds, due() - now);
    for (const auto& flight : flights_)
      seconds = std::min(seconds, flight->sent() + options_.timeout_s - now);
    return std::max(0.0, seconds);
  }

  void wait() {
    watched_.clear();
    for (const auto& flight : flights_) watched_.push_back({flight->descriptor(), flight->events(), 0});
    const auto nanoseconds = static_cast<long>(wait_seconds() * 1e9);
    const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    if (ppoll(watched_.data(), watched_.size(), &limit, nullptr) <= 0) return;
    for (std::size_t i = 0; i < watched_.size(); ++i)
      if (watched_[i].revents != 0) advance(flights_[i], watched_[i].revents);
    std::erase(flights_, nullptr);
  }

  void advance(std::unique_ptr<Flight>& flight, short ready) {
    const std::size_t before = flight->chunks_seen();
    try {
      flight->advance(ready, options_.clock);
      progress_.chunks += flight->chunks_seen() - before;
      if (!flight->done()) return;
      keep(flight->index(), flight->finish(options_.clock()));
    } catch (const Error& error) {
      keep(flight->index(), flight->fail_with(error.what(), options_.clock()));
    }
    flight.reset();
  }

  void expire() {
    const double now = options_.clock();
    for (auto& flight : flights_)
      if (now - flight->sent() >= options_.timeout_s) {
        keep(flight->index(),
             flight->fail_with(fourfold::format("timed out after {} s", options_.timeout_s), now));
        flight.reset();
      }
    std::erase(flights_, nullptr);
  }

  // Requests that were never sent are failures too: they were asked for.
  void end_all(const std::string& why) {
    const double now = options_.clock();
    for (auto& flight : flights_) keep(flight->index(), flight->fail_with(why, now));
    flights_.clear();
    for (; next_ < requests_.size(); ++next_) keep(next_, StreamReader(now).fail_with(why, now));
  }

  void keep(std::size_t index, Timeline line) {
    ++progress_.done;
    progress_.failed += line.failed();
    lines_[index] = std::move(line);
  }

  DriveOptions options_;
  std::span<const std::string> requests_;
  Address address_;
  std::vector<Timeline> lines_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<pollfd> watched_;
  std::size_t next_ = 0;  // the request to send next
  double start_ = 0;
  Progress progress_;
};

}  // namespace

std::vector<Timeline> drive(const DriveOptions& options, std::span<const std::string> requests) {
  if (options.concurrency == 0) fail(Code::invalid_request, "nothing can be sent by 0 users");
  if (!options.arrivals.empty() && options.arrivals.size() != requests.size())
    fail(Code::internal, "{} arrivals for {} requests", options.arrivals.size(), requests.size());
  return Driver(options, requests).run();
}

}  // namespace fourfold::loadgen
