#include "http/answer_reader.h"

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/beast_chunk.h"
#include "base/error.h"

namespace fourfold::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using beast::error_code;
using BeastError = beast::http::error;

constexpr std::size_t kHeadBytesMax = 64 << 10;
constexpr std::size_t kLineBytesMax = 4 << 10;  // of a chunk's size, or of the trailers

// A body that is handed on as it comes. (Beast's own string would reserve whatever length a server claims.)
struct PassedOn {
  using value_type = std::string;

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, error_code& problem) { problem = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& problem) {
      problem = {};
      const std::size_t before = body_.size();
      for (const asio::const_buffer piece : beast::buffers_range_ref(buffers))
        body_.append(static_cast<const char*>(piece.data()), piece.size());
      return body_.size() - before;
    }
    void finish(error_code& problem) { problem = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace

struct AnswerReader::Parser : beast::http::response_parser<PassedOn> {
  Parser() {
    header_limit(kHeadBytesMax);
    body_limit(boost::none);
    eager(false);  // until the head is there, so that its bytes can be counted
  }

  [[noreturn]] void refuse(error_code problem, std::string_view rest) const {
    if (problem == BeastError::header_limit)
      fail(Code::io, "the answer's head is over {} bytes", kHeadBytesMax);
    if (problem == BeastError::bad_status) fail(Code::io, "the answer is not HTTP/1.1: it has no status");
    if (problem == BeastError::bad_content_length && get().count(beast::http::field::transfer_encoding) == 0)
      fail(Code::io, "the answer's Content-Length is no number");
    if (problem == BeastError::bad_chunk)
      fail(Code::io, has_chunk && !rest.starts_with("\r\n") ? "a chunk of the answer is longer than it said"
                                                            : "a chunk of the answer has no length");
    fail(Code::io, "the answer is not HTTP/1.1: {}", problem.message());
  }

  bool has_chunk = false;  // has begun to read one, which ends with a line end
};

AnswerReader::AnswerReader() : parser_(std::make_unique<Parser>()) {}
AnswerReader::~AnswerReader() = default;

void AnswerReader::take(std::string_view bytes, std::string& body) {
  buffer_ += bytes;
  while (!done_ && step(body)) {
  }
}

void AnswerReader::close() {
  if (has_head() && parser_->need_eof()) done_ = true;
  if (done_) return;
  fail(Code::io, !has_head() ? "the server closed the connection without an answer"
                             : "the server closed the connection in the middle of its answer");
}

std::string AnswerReader::field(std::string_view name) const {
  return has_head() ? std::string(parser_->get()[name]) : std::string();
}

bool AnswerReader::may_ask_again() const { return done_ && buffer_.empty() && parser_->keep_alive(); }

bool AnswerReader::step(std::string& body) {
  // Something else than HTTP is told from its first bytes, not when its first line fails to end.
  constexpr std::string_view protocol = "HTTP/1.";
  if (!has_head() && head_bytes_ == 0 &&
      std::string_view(buffer_).substr(0, protocol.size()) != protocol.substr(0, buffer_.size()))
    fail(Code::io, "the answer is not HTTP/1.1");
  // Beast judges a part of a head by how it was cut; a whole one it always judges alike.
  if (!has_head() && buffer_.find("\r\n\r\n") == std::string::npos) {
    if (head_bytes_ + buffer_.size() > kHeadBytesMax)
      fail(Code::io, "the answer's head is over {} bytes", kHeadBytesMax);
    return false;
  }
  if (buffer_.empty() || (has_head() && parser_->chunked() && is_beast_chunk_trap(buffer_))) return false;
  error_code problem;
  const std::size_t used = parser_->put(asio::buffer(buffer_), problem);
  buffer_.erase(0, used);
  const std::string piece = std::exchange(parser_->get().body(), {});
  body += piece;
  parser_->has_chunk |= !piece.empty();
  const bool waits = problem == BeastError::need_more;
  if (!has_head()) {
    head_bytes_ += used;
    if (head_bytes_ + (waits ? buffer_.size() : 0) > kHeadBytesMax) problem = BeastError::header_limit;
  } else if (waits && buffer_.size() > kLineBytesMax) {
    fail(Code::io, "a chunk of the answer has a line over {} bytes", kLineBytesMax);
  }
  if (problem && problem != BeastError::need_more) parser_->refuse(problem, buffer_);
  if (!has_head() && parser_->is_header_done()) take_head();
  done_ = has_head() && parser_->is_done();
  return !waits;
}

void AnswerReader::take_head() {
  const auto status = static_cast<int>(parser_->get().result_int());
  if (status < 100) fail(Code::io, "the answer is not HTTP/1.1: it has no status");
  head_bytes_ = 0;
  if (status < 200) {  // 100 Continue: the answer itself follows
    parser_ = std::make_unique<Parser>();
    return;
  }
  status_ = status;
  parser_->eager(true);
}

}  // namespace fourfold::http
