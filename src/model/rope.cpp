#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fourfold::model {
namespace {

// The factor that YaRN has for a stretch, with a weight of its own.
double magnitude(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

double amplitude_of(const checkpoint::YarnConfig& yarn) {
  if (yarn.attention_factor) return *yarn.attention_factor;
  if (yarn.mscale != 0 && yarn.mscale_all_dim != 0)
    return magnitude(yarn.factor, yarn.mscale) / magnitude(yarn.factor, yarn.mscale_all_dim);
  return magnitude(yarn.factor, 1);
}

// YaRN: frequencies that turn often within the trained length stay, those that turn less than once are
// stretched by the factor, with a ramp between.
void stretch(const checkpoint::RopeConfig& config, const checkpoint::YarnConfig& yarn, backend::Rope& rope) {
  const auto dims = static_cast<double>(config.rotary_dims);
  const auto trained = static_cast<double>(yarn.original_positions);
  // The (fractional) frequency index that makes this many turns over the trained length.
  const auto index_of = [&](double turns) {
    return dims * std::log(trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  const auto whole = [&](double index, double rounded) { return yarn.truncate ? rounded : index; };
  const double first = index_of(yarn.beta_fast), last = index_of(yarn.beta_slow);
  const double low = std::max(whole(first, std::floor(first)), 0.0);
  double high = std::min(whole(last, std::ceil(last)), dims - 1);
  if (high == low) high += 0.001;
  for (std::size_t j = 0; j < rope.inverse_frequency.size(); ++j) {
    const double stretched = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    rope.inverse_frequency[j] *= stretched / yarn.factor + (1 - stretched);
  }
  rope.amplitude = amplitude_of(yarn);
}

}  // namespace

backend::Rope make_rope(const checkpoint::RopeConfig& config) {
  backend::Rope rope;
  for (std::int64_t j = 0; j < config.rotary_dims / 2; ++j)
    rope.inverse_frequency.push_back(
        std::pow(config.theta, -2.0 * static_cast<double>(j) / static_cast<double>(config.rotary_dims)));
  if (config.yarn) stretch(config, *config.yarn, rope);
  return rope;
}

double latent_scale_factor(const checkpoint::RopeConfig& config) {
  if (!config.yarn || config.yarn->mscale_all_dim == 0) return 1;
  const double factor = magnitude(config.yarn->factor, config.yarn->mscale_all_dim);
  return factor * factor;
}

}  // namespace fourfold::model
