// An HTTP/1.1 answer from the bytes of a connection, however they are cut. No sockets here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fourfold::http {

class AnswerReader {
 public:
  // What of these bytes is body is appended to `body`; bytes after the answer's end are left alone. Throws io
  // for what is no HTTP/1.1 answer.
  void take(std::string_view bytes, std::string& body);
  // The connection has ended. Throws io when the answer had not.
  void close();

  bool has_head() const { return part_ != Part::head; }
  bool done() const { return part_ == Part::done; }
  int status() const { return status_; }  // 0 before the head is there

 private:
  enum class Part { head, counted, size, chunk, chunk_end, trailer, until_close, done };

  bool step(std::string& body);  // whether there may be more to do with what is there
  void read_head(std::string_view head);
  bool move_body(std::string& body, Part next);

  std::string buffer_;
  std::size_t at_ = 0;  // what of the buffer is done
  Part part_ = Part::head;
  std::size_t left_ = 0;  // of the body, or of the chunk
  int status_ = 0;
};

}  // namespace fourfold::http
