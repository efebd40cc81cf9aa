#include "loadgen/arrivals.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace fourfold::loadgen {
namespace {

// Marsaglia and Tsang 2000; for shapes below 1 by way of shape + 1.
double draw_gamma(Random& random, double shape) {
  if (shape < 1) {
    const double whole = draw_gamma(random, shape + 1);
    return whole * std::pow(1 - random.uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace

std::vector<double> arrivals(std::int64_t count, double rate_per_s, double burstiness, std::uint64_t seed) {
  if (!(rate_per_s > 0)) fail(Code::invalid_request, "a request rate is more than 0, not {}", rate_per_s);
  if (!(burstiness > 0) || std::isinf(burstiness))
    fail(Code::invalid_request, "burstiness is more than 0 (1 is a Poisson process), not {}", burstiness);
  std::vector<double> times;
  Random random(seed);
  double at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    times.push_back(at);
    if (!std::isinf(rate_per_s)) at += draw_gamma(random, burstiness) / (rate_per_s * burstiness);
  }
  return times;
}

}  // namespace fourfold::loadgen
