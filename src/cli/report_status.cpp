#include "cli/report_status.h"

#include <cmath>
#include <cstring>
#include <sstream>

#include "base/format.h"

namespace fourfold::cli {

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  return whole < 100 ? fourfold::format("{} s", whole) : fourfold::format("{} min", (whole + 30) / 60);
}

std::string status_of(const Apart& ended) {
  switch (ended.end) {
    case Apart::End::returned:
      return ended.status == kFine ? "done" : ended.status == kMiss ? "missed" : "failed";
    case Apart::End::killed: return "failed";
    case Apart::End::out_of_time: return "out of time";
    case Apart::End::stopped: return "stopped";
  }
  return "failed";
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line))
    if (line.find_first_not_of(" \r") != std::string::npos) last = line;
  return last;
}

std::string error_of(const Apart& ended) {
  if (ended.end == Apart::End::stopped) return "the run was interrupted";
  if (ended.end == Apart::End::out_of_time)
    return fourfold::format("stopped after {}{}; --part-minutes allows more", duration(ended.seconds),
                            ended.is_stuck ? ", and its process cannot be ended" : "");
  const std::string said = last_line(ended.err);
  if (ended.end == Apart::End::killed)
    return fourfold::format("ended by signal {} ({}){}", ended.status, strsignal(ended.status),
                            said.empty() ? "" : ": " + said);
  // The message comes last, behind facts and notices, and may have a hint in the next line.
  std::istringstream lines(ended.err);
  std::string message;
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view ours = "fourfold: ";
    if (line.starts_with(ours) && !line.starts_with("fourfold: notice:") &&
        !line.starts_with("fourfold: warning:"))
      message = line.substr(ours.size());
  }
  if (!message.empty()) return message;
  return said.empty() ? fourfold::format("ended with status {}", ended.status) : said;
}

}  // namespace fourfold::cli
