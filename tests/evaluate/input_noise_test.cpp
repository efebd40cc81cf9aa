#include "evaluate/input_noise.h"

#include <cmath>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/nvfp4.h"
#include "base/random.h"
#include "tests/model/support.h"

namespace fourfold::evaluate {
namespace {

using model::Activations;
using model::Golden;

double relative_rms(const std::vector<float>& values, const std::vector<float>& rounded) {
  double squares = 0, off = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += static_cast<double>(values[i]) * values[i];
    off += std::pow(static_cast<double>(rounded[i]) - values[i], 2);
  }
  return std::sqrt(off / squares);
}

// The derived sizes against the codecs themselves, on normal inputs.
TEST(InputNoise, IsWhatRoundingDoes) {
  Random random(5);
  std::vector<float> values(16 * 4096), rounded;
  for (float& x : values) x = static_cast<float>(random.normal());
  for (const float x : values) rounded.push_back(to_float(to_bf16(x)));
  const double bf16 = relative_input_noise(backend::InputFormat::bf16) / std::sqrt(2.0);
  EXPECT_NEAR(relative_rms(values, rounded) / bf16, 1, 0.05);

  rounded.clear();
  for (const float x : values) rounded.push_back(to_float(to_e4m3(x)));
  EXPECT_NEAR(relative_rms(values, rounded) / relative_kv_noise(backend::KvFormat::fp8), 1, 0.05);

  const auto scale = nvfp4_input_scale(ModelOptInputScale{8.0f / (6 * 448)});
  rounded = dequantize(quantize_nvfp4_activations(values, 4096, 16, scale).view());
  EXPECT_NEAR(relative_rms(values, rounded) / relative_input_noise(backend::InputFormat::nvfp4), 1, 0.15);
  EXPECT_EQ(relative_input_noise(backend::InputFormat::f32), 0);
}

TEST(InputNoise, ChangesEveryMatrixButTheEmbedding) {
  const Golden golden("bf16");
  const backend::Program program = golden.program(Activations::w4a16);
  const NoisyProgram noisy(program, 1);
  EXPECT_TRUE(problems_of(noisy.program()).empty());
  int same = 0;
  for (std::size_t i = 0; i < program.matrices.size(); ++i) {
    const auto before = checkpoint::read_all(*program.matrices[i].matrix);
    const auto after = checkpoint::read_all(*noisy.program().matrices[i].matrix);
    EXPECT_EQ(noisy.program().matrices[i].input, backend::InputFormat::f32);
    if (before == after) {
      ++same;
      continue;
    }
    const double noise = relative_input_noise(backend::InputFormat::bf16);
    EXPECT_NEAR(relative_rms(before, after) / noise, 1, 0.2) << program.matrices[i].matrix->name;
  }
  EXPECT_EQ(same, 1);
}

// Keys and values in fp8: the rows of their projections, in the attention layer and in MTP's, and nothing
// else.
TEST(InputNoise, OfFp8KvIsInItsProjections) {
  const Golden golden("bf16");
  backend::Program program = golden.program(Activations::f32);
  for (backend::KvCache& cache : program.kv_caches) cache.format = backend::KvFormat::fp8;
  const NoisyProgram noisy(program, 1);
  int changed = 0;
  for (std::size_t i = 0; i < program.matrices.size(); ++i) {
    const auto before = checkpoint::read_all(*program.matrices[i].matrix);
    const auto after = checkpoint::read_all(*noisy.program().matrices[i].matrix);
    if (before == after) continue;
    ++changed;
    const std::string name(program.matrices[i].matrix->name);
    EXPECT_TRUE(name.find("k_proj") != name.npos || name.find("v_proj") != name.npos) << name;
    EXPECT_NEAR(relative_rms(before, after) / relative_kv_noise(backend::KvFormat::fp8), 1, 0.2) << name;
  }
  EXPECT_EQ(changed, 2 * static_cast<int>(program.kv_caches.size()));
}

}  // namespace
}  // namespace fourfold::evaluate
