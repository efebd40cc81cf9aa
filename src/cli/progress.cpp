#include "cli/progress.h"

#include "base/format.h"

namespace fourfold::cli {
namespace {

constexpr double kQuietSeconds = 5.0;
constexpr double kTerminalSeconds = 0.5;
constexpr double kLogSeconds = 30.0;

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  return whole < 100 ? fourfold::format("{} s", whole)
                     : fourfold::format("{} min {} s", whole / 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine(const Console& console, std::string what)
    : console_(console), what_(std::move(what)) {}

void ProgressLine::update(int done, int count, double share) {
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double since = std::chrono::duration<double>(now - last_).count();
  const bool due = !shown_ || since >= (console_.err_rewrites() ? kTerminalSeconds : kLogSeconds);
  if (elapsed < kQuietSeconds || !due || share <= 0.0) return;
  const std::string text =
      fourfold::format("{}: {} of {} ({} %), about {} left", what_, done, count,
                       static_cast<int>(100.0 * share), duration(elapsed * (1.0 - share) / share));
  console_.err << (console_.err_rewrites() ? "\r\033[K" : "") << text << (console_.err_rewrites() ? "" : "\n")
               << std::flush;
  last_ = now;
  shown_ = true;
}

void ProgressLine::clear() {
  if (shown_ && console_.err_rewrites()) console_.err << "\r\033[K" << std::flush;
  shown_ = false;
}

}  // namespace fourfold::cli
