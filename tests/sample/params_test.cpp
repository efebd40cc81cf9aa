#include "sample/params.h"

#include <limits>

#include "tests/sample/support.h"

namespace fourfold::sample {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Params, TheDefaultsAndTheEdgesAreGood) {
  EXPECT_NO_THROW(require_valid(Params{}, 10));
  Params edge;
  edge.temperature = 0;
  edge.top_p = 1e-9;
  edge.min_p = 1;
  edge.repetition_penalty = 0.01;
  edge.presence_penalty = -2;
  edge.frequency_penalty = 2;
  edge.top_k = 1'000'000'000'000;
  edge.logit_bias = {{0, -100}, {9, 100}};
  edge.logprob_count = 20;
  EXPECT_NO_THROW(require_valid(edge, 10));
  edge.presence_penalty = 2;
  edge.frequency_penalty = -2;
  EXPECT_NO_THROW(require_valid(edge, 10));
}

TEST(Params, EachIsRefusedByNameWithItsNumbers) {
  struct Case {
    std::string name;
    double Params::*member;
    std::vector<double> bad;
  };
  for (const Case& c : std::vector<Case>{
           {"temperature", &Params::temperature, {-0.1, 101, kNan, kInfinity}},
           {"top_p", &Params::top_p, {0, -1, 1.01, kNan}},
           {"min_p", &Params::min_p, {-0.01, 1.5, kNan}},
           {"repetition_penalty", &Params::repetition_penalty, {0, -1, 1e-308, 0.0099, 101, kNan, kInfinity}},
           {"presence_penalty", &Params::presence_penalty, {-2.1, 2.1, kNan}},
           {"frequency_penalty", &Params::frequency_penalty, {-2.1, 2.1, kNan}}})
    for (const double value : c.bad) {
      Params params;
      params.*c.member = value;
      expect_refusal({c.name, format("is {}", value)}, [&] { require_valid(params, 10); });
    }
  Params params;
  params.top_k = -1;
  expect_refusal({"top_k is -1"}, [&] { require_valid(params, 10); });
  params = {};
  params.logprob_count = 21;
  expect_refusal({"logprobs is 21", "20"}, [&] { require_valid(params, 10); });
}

TEST(Params, BiasNamesItsToken) {
  for (const auto& [bias, parts] : std::vector<std::pair<std::vector<LogitBias>, std::vector<std::string>>>{
           {{{10, 1}}, {"logit_bias", "10"}},
           {{{-1, 1}}, {"logit_bias", "-1"}},
           {{{3, 1}, {3, 2}}, {"token id 3 twice"}},
           {{{3, 100.5}}, {"logit_bias is 100.5"}},
           {{{3, kNan}}, {"logit_bias is nan"}}}) {
    Params params;
    params.logit_bias = bias;
    expect_refusal(parts, [&] { require_valid(params, 10); });
  }
}

}  // namespace
}  // namespace fourfold::sample
