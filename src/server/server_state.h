// What connections share, and a call as its handler sees it. For http_server.cpp alone.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/message.hpp>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include "server/client_shares.h"
#include "server/http_wire.h"

namespace fourfold::server {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

inline constexpr auto kNever = Clock::time_point::max();
inline constexpr std::size_t kIdleReadBytes = 4096, kBodyReadBytes = 65536;
inline constexpr std::size_t kReadAheadBytes = 65536;  // of pipelined requests, while one is being served
inline constexpr std::size_t kWriteProgress = 16384;   // what a reader takes in its time, or is cut off
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

inline std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

class Connection;

// How many connections each network has, and which has the most.
class Crowd {
 public:
  void enter(const std::string& network) { move(network, 1); }
  void leave(const std::string& network) { move(network, -1); }
  std::size_t of(const std::string& network) const {
    const auto found = counts_.find(network);
    return found == counts_.end() ? 0 : found->second;
  }
  // Empty without any.
  std::string largest() const {
    return by_count_.empty() ? std::string() : *by_count_.rbegin()->second.begin();
  }

 private:
  void move(const std::string& network, int by) {
    std::size_t& count = counts_[network];
    if (count > 0) {
      const auto old = by_count_.find(count);
      old->second.erase(network);
      if (old->second.empty()) by_count_.erase(old);
    }
    count += static_cast<std::size_t>(by);
    if (count > 0)
      by_count_[count].insert(network);
    else
      counts_.erase(network);
  }

  std::map<std::string, std::size_t> counts_;
  std::map<std::size_t, std::set<std::string>> by_count_;
};

struct ServerState {
  explicit ServerState(HttpOptions given)
      : options(std::move(given)), bodies(options.limits.bodies_bytes_max, options.limits.body_bytes_max) {}

  asio::io_context io{1};
  HttpOptions options;
  HttpHandler* handler = nullptr;
  HttpCounts counts;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  Crowd crowd;
  ClientShares bodies;  // bytes that were received and not yet handed over
  bool draining = false;
  std::string date;
};

// Addresses of one network count as one client: whoever has an IPv6 network has 2^64 of them.
inline std::string network_of(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  const auto bytes = v6.to_bytes();
  std::string out;
  for (std::size_t i = 0; i < 8; i += 2) out += fourfold::format("{}:", bytes[i] * 256 + bytes[i + 1]);
  return out + ":/64";
}

// A body as it comes. Beast's own makes room for as much as is announced, which costs whoever announces
// nothing.
struct ReceivedBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, error_code& problem) { problem = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& problem) {
      problem = {};
      const std::size_t before = body_.size();
      for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers); ++at)
        body_.append(static_cast<const char*>(at->data()), at->size());
      return body_.size() - before;
    }
    void finish(error_code& problem) { problem = {}; }

   private:
    value_type& body_;
  };
};

class Call final : public HttpCall {
 public:
  Call(std::weak_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}
  HttpRequest& request() override { return request_; }
  bool open() const override { return !connection_.expired(); }
  void answer(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void send(std::string_view bytes) override;
  void hold(std::shared_ptr<const void> share) override;
  bool holds() const override;
  void finish() override;
  void abort() override;
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }

  void leave() {
    connection_.reset();
    if (const auto gone = std::exchange(gone_, nullptr)) gone();
  }
  void complete() {
    connection_.reset();
    gone_ = nullptr;
  }

 private:
  std::weak_ptr<Connection> connection_;
  HttpRequest request_;
  std::function<void()> gone_;
};

}  // namespace fourfold::server
