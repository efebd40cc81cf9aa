// One client's connection: requests in, one after another, their answers out, within the limits. For
// http_server.cpp alone.
#pragma once

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <vector>

#include "base/beast_chunk.h"
#include "server/server_state.h"

namespace fourfold::server {

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerState& shared, std::unique_ptr<Wire> wire) : shared_(shared), wire_(std::move(wire)) {
    error_code ignored;
    socket().set_option(tcp::no_delay(true), ignored);
    socket().set_option(asio::socket_base::keep_alive(true), ignored);
    socket().set_option(asio::socket_base::send_buffer_size(limits().send_buffer_bytes), ignored);
    const tcp::endpoint peer = socket().remote_endpoint(ignored);
    if (ignored) return;
    peer_ = peer.address().to_string();
    network_ = network_of(peer.address());
  }

  void start() {
    read_deadline_ = Clock::now() + limits().header_time;
    wire_->handshake([self = shared_from_this()](error_code problem) {
      if (self->state_ == State::closed) return;
      if (problem) return self->close();
      self->next_request();
    });
  }

  bool idle() const { return state_ == State::idle || state_ == State::handshake; }
  const std::string& network() const { return network_; }
  // What a full house closes first: connections without a request; then requests that are still being sent,
  // and answers that are not being read. Nothing: work is being done for it.
  std::optional<int> yields(Clock::time_point now) const {
    if (idle() || state_ == State::head || state_ == State::linger) return 0;
    const bool stuck = state_ == State::answered && write_deadline_ - now < limits().write_time * 3 / 4;
    if (state_ == State::body || stuck) return 1;
    return {};
  }
  Clock::time_point since() const { return since_; }

  void check_time(Clock::time_point now) {
    if (now >= write_deadline_) return cut_off();
    if (now < read_deadline_) return;
    if (state_ == State::idle) return end();
    if (state_ != State::head && state_ != State::body) return close();
    ++shared_.counts.timed_out;
    reject(malformed(408, fourfold::format("the request's {} did not come in time",
                                           state_ == State::head ? "head" : "body")));
  }

  void answer(HttpResponse response) {
    const bool in_pieces = static_cast<bool>(response.more);
    chunked_ = in_pieces && version_ == 11;
    const bool keep_alive = keeps_alive() && !response.close && (!in_pieces || chunked_);
    const auto length = in_pieces ? std::nullopt : std::optional(response.body.size());
    out_ += response_head(
        response, {.length = length, .keep_alive = keep_alive, .chunked = chunked_, .date = shared_.date});
    if (!is_head_ && response.status != 204 && response.status != 304) {
      body_ = std::move(response.body);
      more_ = std::move(response.more);
    }
    finish_answer(keep_alive);
  }

  void begin_stream(const HttpResponse& head) {
    chunked_ = version_ == 11;
    streams_alive_ = keeps_alive() && !head.close && chunked_;
    out_ += response_head(
        head, {.length = {}, .keep_alive = streams_alive_, .chunked = chunked_, .date = shared_.date});
    state_ = State::streaming;
    largest_piece_ = 0;
    flush();
  }

  void send(std::string_view bytes) {
    if (state_ != State::streaming || bytes.empty()) return;
    // Beside the largest pieces: one may be longer than all a client may leave unread (the whole of a
    // response at the ends of its stream), which says nothing about the client.
    largest_piece_ = std::max(largest_piece_, bytes.size());
    if (pending() > limits().pending_bytes_max + 2 * largest_piece_) return cut_off();
    if (chunked_)
      append_chunk(out_, bytes);
    else
      out_ += bytes;
    flush();
  }

  void hold(std::shared_ptr<const void> share) { held_ = std::move(share); }
  bool holds() const { return held_ != nullptr; }

  void finish_stream() {
    if (state_ != State::streaming) return;
    if (chunked_) out_ += kLastChunk;
    finish_answer(streams_alive_);
  }

  // Nothing more is to be said: the other side learns it in its protocol's words.
  void end() { return state_ == State::idle && wire_->has_farewell() ? linger() : close(); }

  void close() {
    if (state_ == State::closed) return;
    state_ = State::closed;
    release_body();
    more_ = nullptr;
    held_ = nullptr;
    shared_.crowd.leave(network_);
    error_code ignored;
    socket().close(ignored);
    const auto self = shared_from_this();
    shared_.connections.erase(self);
    if (const auto call = std::exchange(call_, nullptr)) call->leave();
  }

  // A client that does not read gets no farewell: its buffers go at once.
  void cut_off() {
    ++shared_.counts.slow_readers;
    error_code ignored;
    socket().set_option(asio::socket_base::linger(true, 0), ignored);
    close();
  }

 private:
  enum class State { handshake, idle, head, body, serving, streaming, answered, linger, closed };

  tcp::socket& socket() { return wire_->socket(); }
  const HttpLimits& limits() const { return shared_.options.limits; }
  std::size_t pending() const { return writing_.size() - written_ + out_.size(); }
  bool is_busy() const {
    return state_ == State::serving || state_ == State::streaming || state_ == State::answered;
  }
  bool keeps_alive() const { return keep_alive_ && !shared_.draining; }

  void next_request() {
    if (shared_.draining) return close();
    state_ = State::idle;
    since_ = Clock::now();
    read_deadline_ = since_ + limits().idle_time;
    take_input();
    read();
  }

  void read() {
    if (reading_ || state_ == State::closed) return;
    // Only here, where no read is on its way into it.
    if (const std::size_t size = state_ == State::body ? kBodyReadBytes : kIdleReadBytes;
        input_.size() != size) {
      input_.resize(size);
      input_.shrink_to_fit();
    }
    reading_ = true;
    wire_->read(asio::buffer(input_), [self = shared_from_this()](error_code problem, std::size_t size) {
      self->reading_ = false;
      self->on_read(problem, size);
    });
  }

  void on_read(error_code problem, std::size_t size) {
    if (state_ == State::closed) return;
    if (problem) {
      // A client that has its whole answer on the way may have closed its side.
      if (state_ == State::answered) {
        answer_keeps_alive_ = false;
        at_end_ = true;
        return;
      }
      return close();
    }
    shared_.counts.bytes_in += static_cast<std::int64_t>(size);
    if (is_busy() && in_.size() + size > kReadAheadBytes) overrun();
    if (state_ != State::linger && !overrun_) {
      in_.append(input_.data(), size);
      take_input();
    }
    read();
  }

  // More requests are sent ahead than are kept. They are not answered, and the connection ends with the
  // answer that is due: were they left in the kernel, so would be the news that the client has left.
  void overrun() {
    overrun_ = true;
    answer_keeps_alive_ = false;
    in_ = {};
  }

  void take_input() {
    try {
      while (state_ == State::idle || state_ == State::head || state_ == State::body)
        if (!parse_some()) return;
    } catch (const std::bad_alloc&) {
      reject(refusal("", 503, "out_of_memory", "there is no memory for this request now"));
    }
  }

  HttpResponse malformed(int status, std::string_view what) {
    // A head that is refused while it is parsed has a target all the same.
    if (request_.path.empty() && parser_)
      if (auto target = parse_target(parser_->get().target())) request_.path = std::move(target->path);
    return shared_.handler->malformed(status, what, request_.path);
  }

  // False when more bytes are needed.
  bool parse_some() {
    if (state_ == State::body && parser_->chunked() && is_beast_chunk_trap(in_)) return false;
    if (in_.empty() || (state_ == State::idle && !begins_request(in_))) return false;
    if (state_ == State::idle) begin_request();
    error_code problem;
    const std::size_t used = parser_->put(asio::buffer(in_), problem);
    in_.erase(0, used);
    // The parser's own limit is another one for a head that comes in one piece.
    if (state_ == State::head && (head_bytes_ += used) > limits().header_bytes_max)
      problem = http::error::header_limit;
    if (problem && problem != http::error::need_more) {
      reject_parse(problem);
      return false;
    }
    if (state_ == State::head && parser_->is_header_done() && !take_head()) return false;
    if (state_ == State::body) {
      if (!charge_body(parser_->get().body().size())) return false;
      limit_body_time();
      if (parser_->is_done()) {
        serve();
        return false;
      }
    }
    if (used == 0 && in_.size() > limits().header_bytes_max + kBodyReadBytes) {
      reject_parse(http::error::header_limit);
      return false;
    }
    return problem != http::error::need_more && !in_.empty();
  }

  void begin_request() {
    parser_.emplace();
    request_ = {};
    head_bytes_ = 0;
    parser_->header_limit(static_cast<std::uint32_t>(limits().header_bytes_max));
    parser_->body_limit(limits().body_bytes_max);
    parser_->eager(false);
    state_ = State::head;
    since_ = Clock::now();
    read_deadline_ = since_ + limits().header_time;
    keep_alive_ = false;
    is_head_ = false;
    version_ = 11;
  }

  void reject_parse(error_code problem) {
    const bool in_body = state_ == State::body;
    if (problem == http::error::body_limit)
      return reject(malformed(413, fourfold::format("the body is larger than the {} bytes that are allowed",
                                                    limits().body_bytes_max)));
    if (problem == http::error::header_limit || problem == http::error::buffer_overflow)
      return reject(malformed(in_body ? 400 : 431,
                              fourfold::format("the {} larger than the {} bytes that are allowed",
                                               in_body ? "line before a chunk is" : "request's head is",
                                               limits().header_bytes_max)));
    ++shared_.counts.malformed;
    reject(malformed(problem == http::error::bad_version ? 505 : 400,
                     "this is not HTTP/1.1: " + problem.message()));
  }

  // Nothing when the head is good; what HTTP has to say against it otherwise.
  std::optional<std::string> fill_request() {
    const auto& head = parser_->get();
    version_ = static_cast<int>(head.version());
    keep_alive_ = head.keep_alive();
    request_ = {};
    request_.method = head.method_string();
    is_head_ = request_.method == "HEAD";
    request_.peer = peer_;
    request_.client = network_;
    for (const auto& field : head) request_.headers.emplace_back(lower(field.name_string()), field.value());
    auto target = parse_target(head.target());
    if (!target) return "the request's target is neither a path nor a http address";
    request_.path = std::move(target->path);
    request_.query = std::move(target->query);
    const std::size_t hosts = request_.count("host");
    if (hosts > 1 || (hosts == 0 && version_ == 11)) return "there must be one Host header";
    if (hosts == 1 && !host_name(request_.header("host"))) return "the Host header is no host name";
    if (!target->authority.empty() && hosts == 1 &&
        lower(request_.header("host")) != lower(target->authority))
      return "the target names another host than the Host header";
    if (request_.count("content-length") > 1) return "there are two Content-Length headers";
    if (request_.count("authorization") > 1) return "there are two Authorization headers";
    if (const std::size_t codings = request_.count("transfer-encoding"); codings > 0)
      if (codings > 1 || version_ != 11 || lower(request_.header("transfer-encoding")) != "chunked" ||
          request_.count("content-length") > 0)
        return "Transfer-Encoding may be 'chunked', alone and without a Content-Length";
    return {};
  }

  bool take_head() {
    if (const auto problem = fill_request()) {
      ++shared_.counts.malformed;
      HttpResponse response = malformed(400, *problem);
      response.close = true;
      reject(std::move(response));
      return false;
    }
    if (auto refused = shared_.handler->admit(request_)) {
      // Without a body the connection is still in step.
      refused->close = refused->close || !parser_->is_done();
      reject(std::move(*refused));
      return false;
    }
    if (const std::string expect = lower(request_.header("expect")); !expect.empty()) {
      if (expect != "100-continue") {
        reject(refusal(request_.path, 417, "bad_http", "Expect may be 100-continue only"));
        return false;
      }
      if (!parser_->is_done() && version_ == 11) {
        out_ += kContinue;
        flush();
      }
    }
    state_ = State::body;
    body_begun_ = Clock::now();
    limit_body_time();
    parser_->eager(true);
    return true;
  }

  // Whoever sends may take some time, and as much more as its bytes take at the slowest rate.
  void limit_body_time() {
    const auto by_rate = std::chrono::milliseconds(body_bytes_ * 1000 / limits().body_rate_min);
    read_deadline_ = body_begun_ + std::min(limits().body_time, limits().body_start_time + by_rate);
  }

  // By what has come, not by what is announced.
  bool charge_body(std::size_t bytes) {
    if (bytes <= body_bytes_) return true;
    const auto answer = shared_.bodies.take(request_.client, bytes - body_bytes_);
    if (answer != ClientShares::Answer::taken) {
      const bool own = answer == ClientShares::Answer::client_has_its_share;
      reject(refusal(request_.path, own ? 429 : 503, "overloaded",
                     own ? "too many large requests of this client are being read; try again"
                         : "too many large requests are being read; try again"));
      return false;
    }
    body_bytes_ = bytes;
    return true;
  }

  void release_body() { shared_.bodies.give_back(request_.client, std::exchange(body_bytes_, 0)); }

  void serve() {
    request_.body = std::move(parser_->get().body());
    parser_.reset();
    release_body();
    state_ = State::serving;
    read_deadline_ = kNever;
    call_ = std::make_shared<Call>(weak_from_this(), std::move(request_));
    shared_.handler->serve(call_);
  }

  void reject(HttpResponse response) {
    if (state_ == State::closed) return;
    const bool in_step = parser_ && parser_->is_header_done() && parser_->is_done() && !response.close;
    response.close = !in_step;
    release_body();
    read_deadline_ = kNever;
    answer(std::move(response));
  }

  void finish_answer(bool keep_alive) {
    answer_keeps_alive_ = keep_alive && !overrun_;
    state_ = State::answered;
    if (const auto call = std::exchange(call_, nullptr)) call->complete();
    flush();
  }

  void flush() {
    if (!writing_.empty() || state_ == State::closed) return;
    if (out_.empty() && !refill()) return;
    std::swap(writing_, out_);
    written_ = 0;
    write_some();
  }

  // The rest of an answer, as the client takes it.
  bool refill() {
    if (!body_.empty()) {
      std::swap(out_, body_);
    } else if (more_) {
      std::string piece;
      try {
        piece = more_();
      } catch (const std::exception&) {
        close();  // without its last chunk, so that it is not taken for whole
        return false;
      }
      if (chunked_)
        append_chunk(out_, piece);
      else
        out_ = piece;
      if (piece.empty()) {
        more_ = nullptr;
        if (chunked_) out_ += kLastChunk;
      }
    }
    return !out_.empty();
  }

  void write_some() {
    if (write_deadline_ == kNever || progress_ >= kWriteProgress) {
      write_deadline_ = Clock::now() + limits().write_time;
      progress_ = 0;
    }
    wire_->write(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                 [self = shared_from_this()](error_code problem, std::size_t size) {
                   self->on_written(problem, size);
                 });
  }

  void on_written(error_code problem, std::size_t size) {
    if (state_ == State::closed) return;
    if (problem) return close();
    shared_.counts.bytes_out += static_cast<std::int64_t>(size);
    written_ += size;
    progress_ += size;
    if (written_ < writing_.size()) return write_some();
    writing_.clear();
    written_ = 0;
    if (writing_.capacity() > kBodyReadBytes) writing_ = {};
    flush();
    if (!writing_.empty()) return;
    write_deadline_ = kNever;
    if (state_ != State::answered) return;
    held_ = nullptr;
    if (answer_keeps_alive_ && !shared_.draining) return next_request();
    linger();
  }

  // The client may still be sending what is not read; closing at once would reset the connection under the
  // answer it has not read yet.
  void linger() {
    if (at_end_) return close();
    state_ = State::linger;
    in_.clear();
    read_deadline_ = Clock::now() + limits().linger_time;
    wire_->end_writing([self = shared_from_this()] {});
    read();
  }

  ServerState& shared_;
  std::unique_ptr<Wire> wire_;
  std::string peer_, network_;
  Clock::time_point since_ = Clock::now();  // it has waited for a request, or been receiving one
  State state_ = State::handshake;
  Clock::time_point read_deadline_ = kNever, write_deadline_ = kNever;
  std::vector<char> input_;
  std::string in_;  // read, not yet parsed
  bool reading_ = false, at_end_ = false, overrun_ = false;
  std::optional<http::request_parser<ReceivedBody>> parser_;
  HttpRequest request_;
  std::size_t head_bytes_ = 0, body_bytes_ = 0;  // received; the body's are charged to the client
  Clock::time_point body_begun_{};
  int version_ = 11;
  bool keep_alive_ = false, is_head_ = false, chunked_ = false;
  bool streams_alive_ = false, answer_keeps_alive_ = false;
  std::size_t largest_piece_ = 0;  // of the stream
  std::shared_ptr<Call> call_;
  // An answer on its way: what is being written, what is next, and the rest of a long one.
  std::string writing_, out_, body_;
  std::function<std::string()> more_;
  std::size_t written_ = 0, progress_ = 0;
  std::shared_ptr<const void> held_;  // by the answer, until it is written
};

inline void Call::answer(HttpResponse response) {
  if (const auto connection = connection_.lock()) connection->answer(std::move(response));
}
inline void Call::begin_stream(HttpResponse head) {
  if (const auto connection = connection_.lock()) connection->begin_stream(head);
}
inline void Call::send(std::string_view bytes) {
  if (const auto connection = connection_.lock()) connection->send(bytes);
}
inline void Call::hold(std::shared_ptr<const void> share) {
  if (const auto connection = connection_.lock()) connection->hold(std::move(share));
}
inline bool Call::holds() const {
  const auto connection = connection_.lock();
  return connection && connection->holds();
}
inline void Call::finish() {
  if (const auto connection = connection_.lock()) connection->finish_stream();
}
inline void Call::abort() {
  if (const auto connection = connection_.lock()) connection->close();
}

}  // namespace fourfold::server
