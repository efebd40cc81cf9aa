#include "backend/reference/dense.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/load_matrix.h"

namespace fourfold::backend::reference {

Weight expand(const MatrixUse& use) {
  Weight weight{Rows(use.matrix->rows, use.matrix->columns), use.input, {1, 1}, {}};
  const checkpoint::LoadedMatrix stored = checkpoint::load(*use.matrix);
  for (std::int64_t row = 0; row < use.matrix->rows; ++row)
    checkpoint::read_row(stored.matrix, row, weight.rows.row(row));
  if (const auto* fp8 = std::get_if<checkpoint::Fp8Storage>(&use.matrix->storage); fp8 && fp8->input_scale)
    weight.fp8_scale = fp8_input_factor(*fp8->input_scale);
  if (!quantises(use.input)) return weight;
  const auto* storage = std::get_if<checkpoint::Nvfp4Storage>(&use.matrix->storage);
  if (storage == nullptr || !storage->input_scale)
    fail_with_hint(Code::bad_checkpoint, "run it with 16-bit activations (w4a16)",
                   "{} has no input scale, which FP4 activations need", use.matrix->name);
  weight.input_scale = *storage->input_scale;
  return weight;
}

namespace {

void round_to_fp8(const Weight& weight, std::span<float> row) {
  float largest = 0;
  for (const float x : row) largest = std::fmax(largest, std::fabs(x));
  const Fp8RowFactor by = weight.fp8_scale ? *weight.fp8_scale : fp8_row_factor(largest);
  for (float& x : row) x = to_float(to_e4m3(x * by.inverse)) * by.factor;
}

}  // namespace

std::vector<float> rounded_input(const Weight& weight, Role role, std::span<const float> in, InputOf of) {
  std::vector<float> row(in.begin(), in.end());
  const InputFormat format = input_of(weight.input, role);
  const bool is_bf16 = format == InputFormat::bf16 || format == InputFormat::fp8 ||
                       (format == InputFormat::nvfp4 && of == InputOf::rows);
  if (is_bf16)
    for (float& x : row) x = to_float(to_bf16(x));
  switch (format) {
    case InputFormat::f32:
    case InputFormat::bf16: break;
    case InputFormat::nvfp4:
      return dequantize(
          quantize_nvfp4_activations(row, 1, static_cast<std::int64_t>(row.size()), weight.input_scale)
              .view());
    case InputFormat::fp8: round_to_fp8(weight, row); break;
    case InputFormat::nvfp4_prefill:
    case InputFormat::fp8_prefill: check(false, "a role has one format");
  }
  return row;
}

// Four products side by side: each sum is added in its own order, as dot() adds it, and waits for itself
// alone.
void linear(const Weight& weight, Role role, std::span<const float> in, std::span<float> out, InputOf of,
            std::span<const float> bias) {
  const std::vector<float> row = rounded_input(weight, role, in, of);
  std::size_t begin = 0;
  for (; begin + 4 <= out.size(); begin += 4) {
    const std::span<const float> a = weight.rows.row(begin), b = weight.rows.row(begin + 1),
                                 c = weight.rows.row(begin + 2), d = weight.rows.row(begin + 3);
    double sums[4]{};
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double x = row[i];
      sums[0] += a[i] * x;
      sums[1] += b[i] * x;
      sums[2] += c[i] * x;
      sums[3] += d[i] * x;
    }
    for (std::size_t i = 0; i < 4; ++i) out[begin + i] = static_cast<float>(sums[i]);
  }
  for (std::size_t i = begin; i < out.size(); ++i) out[i] = static_cast<float>(dot(weight.rows.row(i), row));
  for (std::size_t i = 0; i < bias.size(); ++i) out[i] += bias[i];
}

void rms_norm(std::span<const float> in, std::span<const float> weight, bool adds_one, double epsilon,
              std::span<float> out) {
  const double mean = dot(in, in) / static_cast<double>(in.size());
  const double factor = 1.0 / std::sqrt(mean + epsilon);
  for (std::size_t i = 0; i < in.size(); ++i)
    out[i] = static_cast<float>(in[i] * factor * (static_cast<double>(weight[i]) + (adds_one ? 1.0 : 0.0)));
}

void swiglu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(silu(gate[i]) * static_cast<double>(up[i]));
}

void rotate(const Rope& rope, std::int64_t position, std::span<float> head) {
  const std::size_t pairs = rope.inverse_frequency.size();
  for (std::size_t j = 0; j < pairs; ++j) {
    const double angle = static_cast<double>(position) * rope.inverse_frequency[j];
    const double c = std::cos(angle) * rope.amplitude;
    const double s = std::sin(angle) * rope.amplitude;
    const double a = head[j];
    const double b = head[j + pairs];
    head[j] = static_cast<float>(a * c - b * s);
    head[j + pairs] = static_cast<float>(b * c + a * s);
  }
}

void head_norm_rope(const HeadNormRope& op, const Rope& rope, std::span<const float> weight,
                    std::int64_t position, std::span<const float> in, std::span<float> out) {
  for (std::int64_t head = 0; head < op.head_count; ++head) {
    const auto from = in.subspan(head * op.head_stride, op.head_dim);
    const auto to = out.subspan(head * op.head_dim, op.head_dim);
    if (weight.empty())
      std::ranges::copy(from, to.begin());
    else
      rms_norm(from, weight, op.adds_one, op.epsilon, to);
    rotate(rope, position, to);
  }
}

void head_linear(const HeadLinear& op, const Weight& weight, std::span<const float> in,
                 std::span<float> out) {
  const bool is_bf16 = weight.input != InputFormat::f32;
  const auto rounded = [&](float x) { return is_bf16 ? to_float(to_bf16(x)) : x; };
  const std::int64_t from = std::ssize(in) / op.head_count, to = std::ssize(out) / op.head_count;
  for (std::int64_t head = 0; head < op.head_count; ++head)
    for (std::int64_t i = 0; i < to; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < from; ++j) {
        const float w =
            op.transposed ? weight.rows.row(head * from + j)[i] : weight.rows.row(head * to + i)[j];
        sum += static_cast<double>(rounded(w)) * static_cast<double>(rounded(in[head * from + j]));
      }
      out[head * to + i] = static_cast<float>(sum);
    }
}

void head_gate(std::int64_t head_dim, std::span<const float> in, std::span<const float> gate,
               std::span<float> out) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(in.size()); ++i) {
    const std::int64_t head = i / head_dim;
    out[i] = static_cast<float>(in[i] * sigmoid(gate[(2 * head + 1) * head_dim + i % head_dim]));
  }
}

void gated_head_norm(GateKind kind, double epsilon, std::span<const float> in, std::span<const float> gate,
                     std::span<const float> weight, std::span<float> out) {
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < in.size(); begin += width) {
    const auto head = in.subspan(begin, width);
    const double factor = 1.0 / std::sqrt(dot(head, head) / static_cast<double>(width) + epsilon);
    for (std::size_t i = 0; i < width; ++i) {
      const double z = gate[begin + i];
      const double opened = kind == GateKind::silu ? silu(z) : sigmoid(z);
      out[begin + i] = static_cast<float>(head[i] * factor * static_cast<double>(weight[i]) * opened);
    }
  }
}

}  // namespace fourfold::backend::reference
