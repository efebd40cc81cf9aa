#include "cli/figures.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/format.h"

namespace fourfold::cli {

std::string rounded(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 1e15) return fourfold::format("{}", value);
  if (size >= 99.95) return with_commas(std::llround(value));
  char text[32];
  if (size != 0 && size < 0.0995)
    std::snprintf(text, sizeof text, "%.3g", value);
  else
    std::snprintf(text, sizeof text, "%.*f", size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3, value);
  std::string out = text;
  // 2 s is as good as 2.00 s.
  if (out.find('.') != std::string::npos && out.find('e') == std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.ends_with('.')) out.pop_back();
  }
  return out;
}

std::string as_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"bytes", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 999.5 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return rounded(bytes) + " " + units[unit];
}

std::string as_count(double count) {
  if (count >= 999.5e6) return rounded(count / 1e9) + " billion";
  if (count >= 999.5e3) return rounded(count / 1e6) + " million";
  return rounded(count);
}

std::string counted(std::int64_t count, std::string_view what) {
  return fourfold::format("{} {}{}", with_commas(count), what, count == 1 ? "" : "s");
}

}  // namespace fourfold::cli
