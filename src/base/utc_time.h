// "2026-11-17T02:29:00Z"
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace fourfold {

inline std::string utc_time(std::int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace fourfold
