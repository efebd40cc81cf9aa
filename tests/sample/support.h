// What the tests of sampling share: exact distributions computed another way, and the chi-square test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/params.h"

namespace fourfold::sample {

inline constexpr int kDraws = 100'000;

// Runs it and expects invalid_request (or another code) whose message holds every part.
inline void expect_refusal(const std::vector<std::string>& parts, const std::function<void()>& run,
                           Code code = Code::invalid_request) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(code_name(error.code()), code_name(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in: " << error.what();
    return;
  }
  ADD_FAILURE() << "nothing was refused";
}

inline std::vector<double> softmax(const std::vector<double>& scores, double temperature = 1) {
  const double best = *std::max_element(scores.begin(), scores.end());
  std::vector<double> out;
  double total = 0;
  for (const double score : scores) total += out.emplace_back(std::exp((score - best) / temperature));
  for (double& x : out) x /= total;
  return out;
}

// The value that chi-square exceeds once in a thousand for this many degrees of freedom, by Wilson and
// Hilferty's cube root, which is 1.2 % too high for five, 0.1 % for a hundred.
inline double chi_square_critical(int degrees) {
  constexpr double z = 3.0902;  // of the normal distribution, 0.001 above
  const double spread = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - spread + z * std::sqrt(spread), 3);
}

struct ChiSquare {
  double value = 0;
  int degrees = -1;
  bool impossible = false;  // something of probability zero occurred
  bool fits() const { return !impossible && value <= chi_square_critical(degrees); }
};

// Counts against exact probabilities. What is expected less than five times is put together, since the test
// is meant for larger counts.
inline ChiSquare chi_square(const std::vector<std::int64_t>& counts, const std::vector<double>& exact) {
  ChiSquare out;
  double draws = 0;
  for (const std::int64_t count : counts) draws += static_cast<double>(count);
  double rare_count = 0, rare_expected = 0;
  const auto add = [&](double count, double expected) {
    out.value += (count - expected) * (count - expected) / expected;
    ++out.degrees;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    const double expected = exact[i] * draws;
    if (expected == 0) {
      out.impossible |= count > 0;
    } else if (expected < 5) {
      rare_count += count;
      rare_expected += expected;
    } else {
      add(count, expected);
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  return out;
}

}  // namespace fourfold::sample
