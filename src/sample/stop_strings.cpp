#include "sample/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/sampling_limits.h"

namespace fourfold::sample {
namespace {

// The longest end of the text that is the beginning of `stop`, but not all of it.
std::size_t started_bytes(std::string_view text, std::string_view stop) {
  for (std::size_t count = std::min(text.size(), stop.size() - 1); count > 0; --count)
    if (text.ends_with(stop.substr(0, count))) return count;
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops, Keep keep) : stops_(std::move(stops)), keep_(keep) {
  if (stops_.size() > kStopCountMax)
    fail(Code::invalid_request, "{} stop strings; at most {}", stops_.size(), kStopCountMax);
  for (const std::string& stop : stops_)
    if (stop.empty() || stop.size() > kStopBytesMax)
      fail(Code::invalid_request, "a stop string has {} bytes; it must have at least 1 and at most {}",
           stop.size(), kStopBytesMax);
}

std::string StopStrings::push(std::string_view piece, bool may_end) {
  if (stopped_) return {};
  held_ += piece;
  if (!may_end) endless_ = held_.size();
  std::size_t cut = std::string::npos;
  std::size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop, endless_ >= stop.size() ? endless_ - stop.size() + 1 : 0);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < cut)) {
      first_end = end;
      cut = at;
      found_ = stop;
    }
  }
  stopped_ = cut != std::string::npos;
  if (stopped_ && keep_ == Keep::shown) cut = first_end;
  if (!stopped_) {
    std::size_t waiting = 0;
    for (const std::string& stop : stops_) waiting = std::max(waiting, started_bytes(held_, stop));
    cut = held_.size() - waiting;
  }
  std::string out = held_.substr(0, cut);
  held_.erase(0, stopped_ ? std::string::npos : cut);
  endless_ -= std::min(endless_, cut);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace fourfold::sample
