// The anchored rule against the recurrence it unrolls, one token at a time in double.
#include "backend/reference/delta.h"

#include "tests/backend/support.h"

namespace fourfold::backend::reference {
namespace {

const DeltaState kSizes{"state", 2, 4, 8, 6, 4};

// decay, read with k, rank-1 update, read with q.
struct PlainRule {
  std::vector<double> state = std::vector<double>(4 * 8 * 6);

  std::vector<double> next(const DeltaInput& input) {
    std::vector<double> out(4 * 6);
    for (int h = 0; h < 4; ++h) {
      const int key_head = h / 2;
      std::vector<double> q(8), k(8);
      double qq = 1e-6;
      double kk = 1e-6;
      for (int i = 0; i < 8; ++i) {
        q[i] = input.qkv[key_head * 8 + i], k[i] = input.qkv[16 + key_head * 8 + i];
        qq += q[i] * q[i], kk += k[i] * k[i];
      }
      const double y = static_cast<double>(input.decay[h]) + input.dt_bias[h];
      const double g =
          -std::exp(static_cast<double>(input.a_log[h])) * (y > 20 ? y : std::log(1 + std::exp(y)));
      const double beta = 1 / (1 + std::exp(-static_cast<double>(input.beta[h])));
      double* s = &state[h * 48];
      for (int i = 0; i < 48; ++i) s[i] *= std::exp(g);
      for (int v = 0; v < 6; ++v) {
        double known = 0;
        for (int i = 0; i < 8; ++i) known += s[i * 6 + v] * k[i] / std::sqrt(kk);
        const double d = beta * (input.qkv[32 + h * 6 + v] - known);
        for (int i = 0; i < 8; ++i) s[i * 6 + v] += k[i] / std::sqrt(kk) * d;
        for (int i = 0; i < 8; ++i) out[h * 6 + v] += s[i * 6 + v] * q[i] / std::sqrt(qq) / std::sqrt(8.0);
      }
    }
    return out;
  }
};

// Rounded to f32 are q, k, d and, every 64 tokens, S: with |k| = 1 and beta <= 1 an error of one row passes
// on to later ones without growing, and at most the 64 rows of a block and the anchor add up: 66 * 2^-24 of
// values below 4 per read, a few reads; 2e-5 in all.
TEST(DeltaRule, IsTheRecurrenceUnrolled) {
  DeltaMemory memory(kSizes);
  PlainRule plain;
  const auto a_log = random_floats(4, 1);
  const auto dt_bias = random_floats(4, 2);
  std::vector<float> out(24);
  for (std::int64_t position = 0; position < 300; ++position) {
    const auto qkv = random_floats(16 + 16 + 24, 100 + position);
    const auto beta = random_floats(4, 1000 + position);
    const auto decay = random_floats(4, 2000 + position, 3);
    const DeltaInput input{qkv, beta, decay, a_log, dt_bias};
    delta_rule(kSizes, position, input, memory, out);
    const auto wanted = plain.next(input);
    for (int i = 0; i < 24; ++i) ASSERT_NEAR(out[i], wanted[i], 2e-5) << "position " << position;
  }
}

TEST(CausalConv, SeesItsTapsAndZerosBeforeTheSequence) {
  DeltaMemory memory(kSizes);
  const std::int64_t channels = kSizes.conv_dim();
  const auto taps = random_floats(channels * 4, 5);
  std::vector<std::vector<float>> inputs;
  std::vector<float> out(channels);
  for (std::int64_t position = 0; position < 400; ++position) {
    inputs.push_back(random_floats(channels, 10 + position));
    causal_conv(kSizes, position, taps, inputs.back(), memory, out);
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t back = 0; back < 4 && back <= position; ++back)
        sum += static_cast<double>(taps[c * 4 + 3 - back]) * inputs[position - back][c];
      ASSERT_NEAR(out[c], sum / (1 + std::exp(-sum)), 0x1p-23 * std::max(1.0, std::abs(sum)));
    }
  }
}

}  // namespace
}  // namespace fourfold::backend::reference
