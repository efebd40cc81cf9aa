#include "cli/byte_bar.h"

#include <cstdio>

#include "cli/figures.h"

namespace fourfold::cli {
namespace {

constexpr double kQuietSeconds = 2.0;
constexpr double kTerminalSeconds = 0.2;
constexpr double kLogSeconds = 15.0;

}  // namespace

std::string byte_line(const std::string& verb, std::uint64_t bytes_done, std::uint64_t bytes_total,
                      double seconds, std::uint64_t bytes_before) {
  const auto done = static_cast<double>(bytes_done);
  const auto total = static_cast<double>(bytes_total);
  char text[120];
  const double rate = seconds > 0 ? (done - static_cast<double>(bytes_before)) / seconds : 0;
  const bool large = total >= 1e9;
  const double unit = large ? 1e9 : 1e6;
  int length =
      std::snprintf(text, sizeof text, " %.1f of %.1f %s", done / unit, total / unit, large ? "GB" : "MB");
  std::string line = verb + std::string(text, static_cast<std::size_t>(length));
  if (rate <= 0) return line;  // nothing has come yet: no speed, and nobody knows how long
  length = std::snprintf(text, sizeof text, ", %s/s, about %.0f s left", as_bytes(rate).c_str(),
                         (total - done) / rate);
  return line + std::string(text, static_cast<std::size_t>(length));
}

void ByteBar::update(std::uint64_t bytes_done, std::uint64_t bytes_total, std::uint64_t bytes_before) {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double since = std::chrono::duration<double>(now - last_).count();
  const double pause = console_.err_rewrites() ? kTerminalSeconds : kLogSeconds;
  if (elapsed < kQuietSeconds || (shown_ && since < pause)) return;
  // In a log the next line is far away: this one waits until it has something to say.
  if (bytes_done == bytes_before && !console_.err_rewrites()) return;
  const std::string text = byte_line(verb_, bytes_done, bytes_total, elapsed, bytes_before);
  console_.err << (console_.err_rewrites() ? "\r\033[K" : "fourfold: ") << text
               << (console_.err_rewrites() ? "" : "\n") << std::flush;
  last_ = now;
  shown_ = true;
}

void ByteBar::clear() {
  if (shown_ && console_.err_rewrites()) console_.err << "\r\033[K" << std::flush;
  shown_ = false;
}

}  // namespace fourfold::cli
