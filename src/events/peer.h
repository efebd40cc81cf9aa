// One connection of a publisher's socket: its handshake, what it says, and what is on its way to it.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "events/zmtp.h"

namespace fourfold::events {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

using Bytes = std::shared_ptr<const std::string>;

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  // Called when it has asked something, and once when the connection has ended.
  using OnMessage = std::function<void(Peer& peer, const ZmtpPeer::Message& message)>;
  using OnEnd = std::function<void(const std::shared_ptr<Peer>& peer)>;

  Peer(tcp::socket socket, ZmtpPeer::Role role, OnMessage on_message, OnEnd on_end)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        zmtp_(role),
        on_message_(std::move(on_message)),
        on_end_(std::move(on_end)) {}

  void begin() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    deadline_.expires_after(kHandshakeTime);
    deadline_.async_wait([self = shared_from_this()](error_code problem) {
      if (!problem && !self->zmtp_.is_ready()) self->end();
    });
    send(std::make_shared<const std::string>(ZmtpPeer::greeting()));
    read();
  }

  void send(Bytes bytes) {
    waiting_bytes_ += bytes->size();
    waiting_.push_back(std::move(bytes));
    if (under_way_.empty()) write();
  }

  void end() {
    if (ended_) return;
    ended_ = true;
    deadline_.cancel();
    error_code ignored;
    socket_.close(ignored);
    on_end_(shared_from_this());
  }

  bool is_ready() const { return zmtp_.is_ready(); }
  bool wants(std::string_view topic) const { return zmtp_.is_ready() && zmtp_.wants(topic); }
  std::size_t waiting_count() const { return waiting_.size(); }
  std::size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  static constexpr std::chrono::seconds kHandshakeTime{10};
  static constexpr std::size_t kWriteMax = 64;  // messages of one write
  static constexpr std::size_t kAnswersMax = 1 << 20;

  void read() {
    socket_.async_read_some(asio::buffer(in_),
                            [self = shared_from_this()](error_code problem, std::size_t got) {
                              if (self->ended_) return;
                              if (problem) return self->end();
                              self->take({self->in_.data(), got});
                            });
  }

  void take(std::string_view bytes) {
    std::string answer;
    try {
      zmtp_.take(bytes, answer);
    } catch (const Error&) {  // it is no peer of ours, and there is nobody to tell
      return end();
    }
    // Whoever asks and does not read is let go.
    unread_answer_bytes_ += answer.size();
    if (unread_answer_bytes_ > kAnswersMax) return end();
    if (!answer.empty()) send(std::make_shared<const std::string>(std::move(answer)));
    for (const ZmtpPeer::Message& message : zmtp_.take_messages()) {
      on_message_(*this, message);
      if (ended_) return;
    }
    read();
  }

  void write() {
    std::vector<asio::const_buffer> buffers;
    while (!waiting_.empty() && under_way_.size() < kWriteMax) {
      waiting_bytes_ -= waiting_.front()->size();
      under_way_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      buffers.push_back(asio::buffer(*under_way_.back()));
    }
    asio::async_write(socket_, buffers, [self = shared_from_this()](error_code problem, std::size_t) {
      self->under_way_.clear();
      if (self->ended_) return;
      if (problem) return self->end();
      if (!self->waiting_.empty()) return self->write();
      self->unread_answer_bytes_ = 0;
    });
  }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  ZmtpPeer zmtp_;
  OnMessage on_message_;
  OnEnd on_end_;
  std::array<char, 4096> in_{};
  std::deque<Bytes> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::size_t unread_answer_bytes_ = 0;  // since nothing was waiting
  std::vector<Bytes> under_way_;
  bool ended_ = false;
};

}  // namespace fourfold::events
