// An HTTP/1.1 answer from the bytes of a connection, however they are cut. Boost.Beast parses; no sockets
// here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace fourfold::http {

class AnswerReader {
 public:
  AnswerReader();
  ~AnswerReader();

  // What of these bytes is body is appended to `body`; bytes after the answer's end are left alone. Throws io
  // for what is no HTTP/1.1 answer.
  void take(std::string_view bytes, std::string& body);
  // The connection has ended. Throws io when the answer had not.
  void close();

  bool has_head() const { return status_ != 0; }
  bool done() const { return done_; }
  int status() const { return status_; }  // 0 before the head is there
  // A field of the head; empty without one.
  std::string field(std::string_view name) const;
  // The answer is whole, nothing came behind it, and the server will take another request.
  bool may_ask_again() const;

 private:
  struct Parser;

  bool step(std::string& body);  // whether there may be more to do with what is there
  void take_head();

  std::unique_ptr<Parser> parser_;
  std::string buffer_;          // what the parser has not taken yet
  std::size_t head_bytes_ = 0;  // what it has taken of the head
  int status_ = 0;
  bool done_ = false;
};

}  // namespace fourfold::http
