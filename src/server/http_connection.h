// One client's connection: requests in, one after another, their answers out, within the limits. For
// http_server.cpp alone.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <unordered_set>
#include <vector>

#include "server/http_wire.h"

namespace fourfold::server {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

inline constexpr auto kNever = Clock::time_point::max();
inline constexpr std::size_t kIdleReadBytes = 4096, kBodyReadBytes = 65536;
inline constexpr std::size_t kReadAheadBytes = 65536;  // of pipelined requests, while one is being served
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

inline std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

class Connection;

// What connections share.
struct Hall {
  asio::io_context io{1};
  HttpOptions options;
  HttpHandler* handler = nullptr;
  HttpCounts counts;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::size_t bodies_bytes = 0;
  bool draining = false;
  std::string date;
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

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Hall& hall, std::unique_ptr<Wire> wire) : hall_(hall), wire_(std::move(wire)) {
    error_code ignored;
    socket().set_option(tcp::no_delay(true), ignored);
    socket().set_option(asio::socket_base::keep_alive(true), ignored);
    socket().set_option(asio::socket_base::send_buffer_size(limits().send_buffer_bytes), ignored);
    const tcp::endpoint peer = socket().remote_endpoint(ignored);
    if (!ignored) peer_ = peer.address().to_string();
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

  void check_time(Clock::time_point now) {
    if (now >= write_deadline_) return cut_off();
    if (now < read_deadline_) return;
    if (state_ != State::head && state_ != State::body) return close();
    ++hall_.counts.timed_out;
    reject(malformed(408, fourfold::format("the request's {} did not come in time",
                                           state_ == State::head ? "head" : "body")));
  }

  void answer(HttpResponse response) {
    const bool keep_alive = keeps_alive() && !response.close;
    out_ += response_head(
        response,
        {.length = response.body.size(), .keep_alive = keep_alive, .chunked = false, .date = hall_.date});
    if (!is_head_ && response.status != 204 && response.status != 304) out_ += response.body;
    finish_answer(keep_alive);
  }

  void begin_stream(const HttpResponse& head) {
    chunked_ = version_ == 11;
    streams_alive_ = keeps_alive() && !head.close && chunked_;
    out_ += response_head(
        head, {.length = {}, .keep_alive = streams_alive_, .chunked = chunked_, .date = hall_.date});
    state_ = State::streaming;
    flush();
  }

  void send(std::string_view bytes) {
    if (state_ != State::streaming || bytes.empty()) return;
    if (pending() + bytes.size() > limits().pending_bytes_max) return cut_off();
    if (chunked_)
      append_chunk(out_, bytes);
    else
      out_ += bytes;
    flush();
  }

  void finish_stream() {
    if (state_ != State::streaming) return;
    if (chunked_) out_ += kLastChunk;
    finish_answer(streams_alive_);
  }

  void close() {
    if (state_ == State::closed) return;
    state_ = State::closed;
    release_body();
    error_code ignored;
    socket().close(ignored);
    const auto self = shared_from_this();
    hall_.connections.erase(self);
    if (const auto call = std::exchange(call_, nullptr)) call->leave();
  }

  // A client that does not read gets no farewell: its buffers go at once.
  void cut_off() {
    ++hall_.counts.slow_readers;
    error_code ignored;
    socket().set_option(asio::socket_base::linger(true, 0), ignored);
    close();
  }

 private:
  enum class State { handshake, idle, head, body, serving, streaming, answered, linger, closed };

  tcp::socket& socket() { return wire_->socket(); }
  const HttpLimits& limits() const { return hall_.options.limits; }
  std::size_t pending() const { return writing_.size() - written_ + out_.size(); }
  bool keeps_alive() const { return keep_alive_ && !hall_.draining; }

  void next_request() {
    if (hall_.draining) return close();
    state_ = State::idle;
    read_deadline_ = Clock::now() + limits().idle_time;
    take_input();
    read();
  }

  void read() {
    if (reading_ || state_ == State::closed) return;
    const bool busy = state_ == State::serving || state_ == State::streaming || state_ == State::answered;
    if (busy && in_.size() >= kReadAheadBytes) return;  // the next one waits in the kernel
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
    hall_.counts.bytes_in += static_cast<std::int64_t>(size);
    if (state_ != State::linger) {
      in_.append(input_.data(), size);
      take_input();
    }
    read();
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
    return hall_.handler->malformed(status, what, request_.path);
  }

  // False when more bytes are needed.
  bool parse_some() {
    if (in_.empty()) return false;
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
    read_deadline_ = Clock::now() + limits().header_time;
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
    ++hall_.counts.malformed;
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
    if (const std::size_t codings = request_.count("transfer-encoding"); codings > 0)
      if (codings > 1 || version_ != 11 || lower(request_.header("transfer-encoding")) != "chunked" ||
          request_.count("content-length") > 0)
        return "Transfer-Encoding may be 'chunked', alone and without a Content-Length";
    return {};
  }

  bool take_head() {
    if (const auto problem = fill_request()) {
      ++hall_.counts.malformed;
      HttpResponse response = malformed(400, *problem);
      response.close = true;
      reject(std::move(response));
      return false;
    }
    const auto length = parser_->content_length();
    if (auto refused = hall_.handler->admit(request_)) {
      // Without a body the connection is still in step.
      refused->close = refused->close || !parser_->is_done();
      reject(std::move(*refused));
      return false;
    }
    if (!charge_body(length ? static_cast<std::size_t>(*length) : 0)) return false;
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
    read_deadline_ = Clock::now() + limits().body_time;
    parser_->eager(true);
    return true;
  }

  bool charge_body(std::size_t bytes) {
    if (bytes <= body_bytes_) return true;
    if (hall_.bodies_bytes + (bytes - body_bytes_) > limits().bodies_bytes_max) {
      reject(refusal(request_.path, 503, "overloaded", "too many large requests are being read; try again"));
      return false;
    }
    hall_.bodies_bytes += bytes - body_bytes_;
    body_bytes_ = bytes;
    return true;
  }

  void release_body() { hall_.bodies_bytes -= std::exchange(body_bytes_, 0); }

  void serve() {
    request_.body = std::move(parser_->get().body());
    parser_.reset();
    release_body();
    state_ = State::serving;
    read_deadline_ = kNever;
    call_ = std::make_shared<Call>(weak_from_this(), std::move(request_));
    hall_.handler->serve(call_);
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
    answer_keeps_alive_ = keep_alive;
    state_ = State::answered;
    if (const auto call = std::exchange(call_, nullptr)) call->complete();
    flush();
  }

  void flush() {
    if (!writing_.empty() || out_.empty() || state_ == State::closed) return;
    std::swap(writing_, out_);
    written_ = 0;
    write_some();
  }

  void write_some() {
    write_deadline_ = Clock::now() + limits().write_time;
    wire_->write(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                 [self = shared_from_this()](error_code problem, std::size_t size) {
                   self->on_written(problem, size);
                 });
  }

  void on_written(error_code problem, std::size_t size) {
    if (state_ == State::closed) return;
    if (problem) return close();
    hall_.counts.bytes_out += static_cast<std::int64_t>(size);
    written_ += size;
    if (written_ < writing_.size()) return write_some();
    writing_.clear();
    written_ = 0;
    if (writing_.capacity() > kBodyReadBytes) writing_ = {};
    write_deadline_ = kNever;
    if (!out_.empty()) return flush();
    if (state_ != State::answered) return;
    if (answer_keeps_alive_ && !hall_.draining) return next_request();
    linger();
  }

  // The client may still be sending what nobody reads; closing at once would reset the connection under the
  // answer it has not read yet.
  void linger() {
    if (at_end_) return close();
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    state_ = State::linger;
    in_.clear();
    read_deadline_ = Clock::now() + limits().linger_time;
    read();
  }

  Hall& hall_;
  std::unique_ptr<Wire> wire_;
  std::string peer_;
  State state_ = State::handshake;
  Clock::time_point read_deadline_ = kNever, write_deadline_ = kNever;
  std::vector<char> input_;
  std::string in_;  // read, not yet parsed
  bool reading_ = false, at_end_ = false;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  std::size_t head_bytes_ = 0;
  std::size_t body_bytes_ = 0;  // counted in the hall
  int version_ = 11;
  bool keep_alive_ = false, is_head_ = false, chunked_ = false;
  bool streams_alive_ = false, answer_keeps_alive_ = false;
  std::shared_ptr<Call> call_;
  std::string out_, writing_;
  std::size_t written_ = 0;
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
inline void Call::finish() {
  if (const auto connection = connection_.lock()) connection->finish_stream();
}

inline void Call::abort() {
  if (const auto connection = connection_.lock()) connection->close();
}

}  // namespace fourfold::server
