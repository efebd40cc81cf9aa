#include "http/answer_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace fourfold::http {
namespace {

constexpr std::size_t kHeadBytesMax = 64 << 10;
constexpr std::size_t kLineBytesMax = 4 << 10;  // of a chunk's size, or of a trailer

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// All of the text must be the number.
bool read_size(std::string_view text, int base, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

void AnswerReader::take(std::string_view bytes, std::string& body) {
  buffer_ += bytes;
  while (step(body)) {
  }
  buffer_.erase(0, at_);
  at_ = 0;
}

void AnswerReader::close() {
  if (part_ == Part::until_close) part_ = Part::done;
  if (part_ == Part::done) return;
  fail(Code::io, part_ == Part::head ? "the server closed the connection without an answer"
                                     : "the server closed the connection in the middle of its answer");
}

bool AnswerReader::step(std::string& body) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  switch (part_) {
    case Part::head: {
      // Something else than HTTP is told from its first bytes, not when its head fails to end.
      constexpr std::string_view protocol = "HTTP/1.";
      if (rest.substr(0, protocol.size()) != protocol.substr(0, rest.size()))
        fail(Code::io, "the answer is not HTTP/1.1");
      const auto end = rest.find("\r\n\r\n");
      if (std::min(end, rest.size()) > kHeadBytesMax)
        fail(Code::io, "the answer's head is over {} bytes", kHeadBytesMax);
      if (end == std::string_view::npos) return false;
      at_ += end + 4;
      read_head(rest.substr(0, end + 2));
      return true;
    }
    case Part::counted: return move_body(body, Part::done);
    case Part::chunk: return move_body(body, Part::chunk_end);
    case Part::until_close:
      body += rest;
      at_ = buffer_.size();
      return false;
    case Part::size:
    case Part::chunk_end:
    case Part::trailer: {
      const auto end = rest.find("\r\n");
      if (std::min(end, rest.size()) > kLineBytesMax)
        fail(Code::io, "a chunk of the answer has a line over {} bytes", kLineBytesMax);
      if (end == std::string_view::npos) return false;
      at_ += end + 2;
      const std::string_view line = rest.substr(0, end);
      if (part_ == Part::size) {
        if (!read_size(trimmed(line.substr(0, line.find(';'))), 16, left_))
          fail(Code::io, "a chunk of the answer has no length");
        part_ = left_ == 0 ? Part::trailer : Part::chunk;
      } else if (part_ == Part::chunk_end) {
        if (!line.empty()) fail(Code::io, "a chunk of the answer is longer than it said");
        part_ = Part::size;
      } else if (line.empty()) {
        part_ = Part::done;
      }
      return true;
    }
    case Part::done: break;
  }
  return false;
}

bool AnswerReader::move_body(std::string& body, Part next) {
  const std::size_t size = std::min(left_, buffer_.size() - at_);
  body.append(buffer_, at_, size);
  at_ += size;
  left_ -= size;
  if (left_ > 0) return false;
  part_ = next;
  return true;
}

void AnswerReader::read_head(std::string_view head) {
  std::size_t status = 0;
  if (head.size() < 14 || !read_size(head.substr(9, 3), 10, status) || status < 100)
    fail(Code::io, "the answer is not HTTP/1.1: it has no status");
  bool is_chunked = false, is_counted = false;
  for (auto end = head.find("\r\n"); end != std::string_view::npos; end = head.find("\r\n")) {
    const std::string line = lower(head.substr(0, end));
    head.remove_prefix(end + 2);
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view name = std::string_view(line).substr(0, colon);
    const std::string_view value = trimmed(std::string_view(line).substr(colon + 1));
    if (name == "transfer-encoding" && value == "chunked") is_chunked = true;
    if (name == "content-length") {
      if (!read_size(value, 10, left_)) fail(Code::io, "the answer's Content-Length is no number");
      is_counted = true;
    }
  }
  if (status < 200) return;  // 100 Continue: the answer itself follows
  status_ = static_cast<int>(status);
  if (status == 204 || status == 304)
    part_ = Part::done;
  else if (is_chunked)
    part_ = Part::size;
  else
    part_ = is_counted ? (left_ > 0 ? Part::counted : Part::done) : Part::until_close;
}

}  // namespace fourfold::http
