#include "http/event_reader.h"

#include "base/error.h"

namespace fourfold::http {
namespace {

constexpr std::size_t kEventBytesMax = std::size_t{16} << 20;

}  // namespace

void EventReader::take(std::string_view bytes, const Event& event) {
  while (!bytes.empty()) {
    // The LF of a CR LF whose CR has ended the line already.
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const auto end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kEventBytesMax)
      fail(Code::io, "an event of the stream is over {} bytes", kEventBytesMax);
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    line(event);
    line_.clear();
  }
}

void EventReader::line(const Event& event) {
  if (line_.empty()) {
    if (has_data_) event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  std::string_view value = line_;
  if (!value.starts_with("data")) return;
  value.remove_prefix(4);
  if (!value.empty()) {
    if (value.front() != ':') return;
    value.remove_prefix(value.starts_with(": ") ? 2 : 1);
  }
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace fourfold::http
