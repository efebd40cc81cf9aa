#include "evaluate/input_noise.h"

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace fourfold::evaluate {

namespace {
double relative_e4m3_noise() { return 0x1p-3 / std::sqrt(12.0) * std::sqrt(3 / (8 * std::numbers::ln2)); }
}  // namespace

// bf16: eight significant bits, so steps of 2^-7 between 1 and 2, and an error uniform within half a step
// either way: 2^-7 / sqrt(12) at 1 and half of that at 2. Over an octave, where mantissas m are spread evenly
// in their logarithm, 1/m^2 is 3 / (8 ln 2) on average: together 1.66e-3. Times sqrt(2), because keys and
// values are rounded once more when they go to the cache and this program has no other place to put that.
//
// nvfp4: in a block whose largest value is 6 units, steps are 0.5, 1 and 2 units (below 2, below 4, above),
// with deviations of 0.144, 0.289 and 0.577. The largest of 16 normal values is 2.1 deviations on average, so
// one deviation is 2.85 units; 52 %, 32 % and 16 % of the values lie in the three ranges, and the root of
// 0.52 * 0.0208 + 0.32 * 0.0833 + 0.16 * 0.333 is 0.30 units: 0.106 of a deviation. The E4M3 rounding of the
// block's scale moves the steps by 6 % at most and adds nothing that matters.
double relative_input_noise(backend::InputFormat format) {
  switch (format) {
    case backend::InputFormat::f32: return 0;
    case backend::InputFormat::bf16:
      return std::sqrt(2.0) * 0x1p-7 / std::sqrt(12.0) * std::sqrt(3 / (8 * std::numbers::ln2));
    case backend::InputFormat::nvfp4:
    case backend::InputFormat::nvfp4_prefill: return 0.106;  // of the rows that are quantised
    case backend::InputFormat::fp8:
    case backend::InputFormat::fp8_prefill: return relative_e4m3_noise();
  }
  return 0;
}

// E4M3: four significant bits, so what was said of bf16 with steps of 2^-3: 2.66e-2. Rows of activations are
// scaled to 224 and more, where smaller steps end 14 binary places below the largest number. Below 2^-6 steps
// are 2^-9 whatever the number, less than that beside numbers of a deviation of 0.02 and more: keys are
// normed, and values are sums like other activations.
double relative_kv_noise(backend::KvFormat format) {
  return format == backend::KvFormat::fp8 ? relative_e4m3_noise() : 0;
}

namespace {

// By matrix: the noise of the cache that its rows go to, as keys (through norm and rotation) or values.
std::vector<double> kv_noise(const backend::Program& program) {
  std::vector<double> noise(program.matrices.size());
  for (const backend::Pass pass : {backend::Pass::main, backend::Pass::draft}) {
    const auto& ops = program.ops(pass);
    const auto mark = [&](backend::ValueId value, double of_cache) {
      for (const backend::Op& op : ops)
        if (const auto* rotated = std::get_if<backend::HeadNormRope>(&op); rotated && rotated->out == value)
          value = rotated->in;
      for (const backend::Op& op : ops)
        if (const auto* normed = std::get_if<backend::RmsNorm>(&op); normed && normed->out == value)
          value = normed->in;
      for (const backend::Op& op : ops)
        if (const auto* linear = std::get_if<backend::Linear>(&op); linear && linear->out == value)
          noise[static_cast<std::size_t>(linear->weight.index)] = of_cache;
    };
    for (const backend::Op& op : ops)
      if (const auto* write = std::get_if<backend::WriteKv>(&op)) {
        const double of_cache = relative_kv_noise(program.kv_cache(write->cache).format);
        mark(write->key, of_cache), mark(write->value, of_cache);
      }
  }
  return noise;
}

}  // namespace

NoisyProgram::NoisyProgram(const backend::Program& program, std::uint64_t seed) : program_(program) {
  std::vector<bool> is_table(program.matrices.size());  // looked up, not multiplied: nothing rounds there
  for (const backend::Pass pass : {backend::Pass::main, backend::Pass::draft})
    for (const backend::Op& op : program.ops(pass))
      if (const auto* embed = std::get_if<backend::Embed>(&op))
        is_table[static_cast<std::size_t>(embed->table.index)] = true;
  const std::vector<double> of_caches = kv_noise(program);
  Random random(seed);
  const double uniform_edge = std::sqrt(3.0);  // of deviation 1
  for (std::size_t i = 0; i < program_.matrices.size(); ++i) {
    backend::MatrixUse& use = program_.matrices[i];
    const double noise = is_table[i] ? 0 : std::hypot(relative_input_noise(use.input), of_caches[i]);
    use.input = backend::InputFormat::f32;
    if (noise == 0) continue;
    std::vector<float>& values = values_.emplace_back(checkpoint::read_all(*use.matrix));
    for (float& w : values) w *= static_cast<float>(1 + noise * random.uniform(-uniform_edge, uniform_edge));
    const checkpoint::Matrix& stored = *use.matrix;
    use.matrix = &matrices_.emplace_back(
        checkpoint::Matrix{stored.name, stored.rows, stored.columns, checkpoint::F32Storage{values}, {}});
  }
  for (backend::KvCache& cache : program_.kv_caches) cache.format = backend::KvFormat::f32;
}

}  // namespace fourfold::evaluate
