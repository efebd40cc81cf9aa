#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

}  // namespace

bool LineReader::take_line(std::string& line) {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (!at_end_ || buffer_.empty()) return false;
    line = std::exchange(buffer_, {});
  } else {
    line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

LineReader::Outcome LineReader::read(std::string& line) {
  for (;;) {
    if (take_line(line)) return Outcome::line;
    if (at_end_) return Outcome::end;
    if (buffer_.size() > kLineBytesMax)
      fail(Code::invalid_request, "a line of the input has more than {} bytes", kLineBytesMax);
    pollfd waits[2] = {{descriptor_, POLLIN, 0}, {watch_.descriptor(), POLLIN, 0}};
    const int ready = ::poll(waits, 2, -1);
    if (watch_.interrupted()) return Outcome::interrupted;
    if (ready < 0 && errno == EINTR) continue;
    char bytes[65536];
    const ssize_t count = ::read(descriptor_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(Code::io, "cannot read the input: {}", std::strerror(errno));
    if (count == 0)
      at_end_ = true;
    else
      buffer_.append(bytes, static_cast<std::size_t>(count));
  }
}

}  // namespace fourfold::cli
