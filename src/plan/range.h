// A number that is not known exactly: between what and what, and why one believes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::plan {

// measured: by this project, files in bench/results; emulated: the same on a GPU that was made like the one
// asked for
enum class Evidence { measured, emulated, published, assumed };
constexpr std::string_view evidence_name(Evidence evidence) {
  switch (evidence) {
    case Evidence::measured: return "measured here";
    case Evidence::emulated: return "emulated";
    case Evidence::published: return "published";
    case Evidence::assumed: break;
  }
  return "assumed";
}

struct Range {
  double low = 0;
  double high = 0;
  Range& operator+=(const Range& other) {
    low += other.low, high += other.high;
    return *this;
  }
  friend Range operator*(double factor, const Range& range) {
    return {factor * range.low, factor * range.high};
  }
};

struct Estimate {
  std::string what;
  Range us;
  Evidence evidence;
  std::string because;
};
inline Range total_us(const std::vector<Estimate>& estimates) {
  Range total;
  for (const Estimate& estimate : estimates) total += estimate.us;
  return total;
}

}  // namespace fourfold::plan
