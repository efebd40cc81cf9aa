// Matrices times tokens: what they are worth against exact sums, and that nothing but speed depends on the
// instruction set, the number of tokens or the panels at a time.
#include "kernels/cpu/multiply.h"

#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

constexpr Nvfp4InputScale kScale{0x1p-7f, 0x1p7f};

// A packed matrix and its weights as numbers, [rows, columns].
struct Case {
  PackedMatrix packed;
  std::vector<double> weights;
  std::vector<InputForm> forms;
};

StoredRow reversed(std::int64_t rows) {
  return [rows](std::int64_t row) { return rows - 1 - row; };
}

Case nvfp4_case(std::int64_t rows, std::int64_t columns) {
  Nvfp4Matrix matrix = quantize_nvfp4_weights(normals(rows * columns, 1), rows, columns);
  Random random(2);
  for (E4m3& scale : matrix.scales)  // every scale, subnormal ones too
    if (random.below(4) == 0) scale = {static_cast<std::uint8_t>(random.below(0x7F))};
  Case made{pack_nvfp4(matrix.view(), rows, columns, reversed(rows)),
            {},
            {InputForm::one_plane, InputForm::two_planes, InputForm::three_planes}};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      made.weights.push_back(static_cast<double>(to_float(matrix.view().code(rows - 1 - row, column))) *
                             static_cast<double>(to_float(matrix.view().scale(rows - 1 - row, column / 16))) *
                             static_cast<double>(matrix.global_scale));
  return made;
}

Case bf16_case(std::int64_t rows, std::int64_t columns) {
  std::vector<Bf16> values;
  for (const float x : normals(rows * columns, 3)) values.push_back(to_bf16(x));
  Case made{
      pack_bf16(values, rows, columns, reversed(rows)), {}, {InputForm::floats, InputForm::floats_bf16}};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      made.weights.push_back(to_float(values[static_cast<std::size_t>((rows - 1 - row) * columns + column)]));
  return made;
}

Case e4m3_case(std::int64_t rows, std::int64_t columns, std::int64_t segment) {
  std::vector<E4m3> values;
  Random random(4);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto bits = static_cast<std::uint8_t>(random.below(256));
    values.push_back({static_cast<std::uint8_t>((bits & 0x7F) == 0x7F ? 0 : bits)});
  }
  const auto scale_of = [](std::int64_t row, std::int64_t part) {
    return 256.0f * (0.5f + 0.01f * static_cast<float>(row) + 0.1f * static_cast<float>(part));
  };
  Case made{pack_e4m3(values, rows, columns, reversed(rows), segment, scale_of),
            {},
            {InputForm::floats, InputForm::floats_bf16}};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t stored = rows - 1 - row;
      made.weights.push_back(
          static_cast<double>(to_float(values[static_cast<std::size_t>(stored * columns + column)])) *
          static_cast<double>(scale_of(stored, column / segment) / 256));
    }
  return made;
}

Case f32_case(std::int64_t rows, std::int64_t columns) {
  const std::vector<float> values = normals(rows * columns, 5);
  Case made{pack_f32(rows, columns,
                     [&](std::int64_t row, std::span<float> out) {
                       std::copy_n(values.begin() + row * columns, columns, out.begin());
                     }),
            {values.begin(), values.end()},
            {InputForm::floats, InputForm::floats_bf16}};
  return made;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>(16, 16), {33, 64}, {100, 272}}) {
    cases.push_back(nvfp4_case(rows, columns));
    cases.push_back(bf16_case(rows, columns - 3));
    cases.push_back(e4m3_case(rows, columns - 5, (columns + 15) / 16 * 16));
    cases.push_back(f32_case(rows, columns - 1));
  }
  cases.push_back(e4m3_case(40, 300, 128));
  return cases;
}

struct Tokens {
  Tokens(InputForm form, std::int64_t columns, std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) {
      values.push_back(normals(columns, static_cast<std::uint64_t>(100 + t)));
      rows.emplace_back(static_cast<std::size_t>(row_bytes(form, columns)));
      make_input_row(form, values.back().data(), columns, kScale, rows.back().data());
    }
    for (const auto& row : rows) pointers.push_back(row.data());
  }
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::uint8_t>> rows;
  std::vector<const std::uint8_t*> pointers;
};

MultiplyJob whole_job(const Case& one, InputForm form) {
  const PackedMatrix& matrix = one.packed;
  MultiplyJob job;
  job.panels = matrix.panels.data();
  job.panel_bytes = matrix.panel_bytes;
  job.panel_end = matrix.panel_count();
  job.rows = matrix.rows;
  job.block_count = matrix.padded_columns / 16;
  job.scale = matrix.global_scale * (form == InputForm::one_plane ? kScale.scale : 1);
  job.segment_scales = matrix.segment_scales.data();
  job.segment_blocks = matrix.segment_columns / 16;
  job.out_stride = matrix.rows;
  return job;
}

void run(const Kernels& kernels, const Case& one, InputForm form, const MultiplyJob& job) {
  const bool tiles = form == InputForm::bf16_tiles;
  switch (one.packed.format) {
    case WeightFormat::nvfp4:
      return tiles ? kernels.multiply_tiles.nvfp4(job) : kernels.multiply_codes[plane_count(form) - 1](job);
    case WeightFormat::bf16: return tiles ? kernels.multiply_tiles.bf16(job) : kernels.multiply_bf16(job);
    case WeightFormat::fp8: return tiles ? kernels.multiply_tiles.e4m3(job) : kernels.multiply_e4m3(job);
    case WeightFormat::f32: return kernels.multiply_f32(job);
    case WeightFormat::mxfp4: FAIL() << "never packed";
  }
}

// [tokens, rows]; panels are given out `grain` at a time, tokens `batch` at a time.
std::vector<float> multiply(const Kernels& kernels, const Case& one, InputForm form, const Tokens& tokens,
                            std::int64_t grain, std::int64_t batch) {
  const PackedMatrix& matrix = one.packed;
  const auto count = static_cast<std::int64_t>(tokens.pointers.size());
  std::vector<float> out(static_cast<std::size_t>(count * matrix.rows), -1);
  for (std::int64_t first = 0; first < count; first += batch)
    for (std::int64_t panel = 0; panel < matrix.panel_count(); panel += grain) {
      MultiplyJob job = whole_job(one, form);
      job.panel_begin = panel;
      job.panel_end = std::min(panel + grain, matrix.panel_count());
      job.tokens = tokens.pointers.data() + first;
      job.token_count = std::min(batch, count - first);
      job.out = out.data() + first * matrix.rows;
      run(kernels, one, form, job);
    }
  return out;
}

// What the input is after rounding as the form says.
std::vector<double> rounded(InputForm form, const std::vector<float>& x) {
  std::vector<double> values(x.begin(), x.end());
  if (form == InputForm::floats_bf16 || form == InputForm::two_planes || form == InputForm::bf16_tiles)
    for (std::size_t i = 0; i < x.size(); ++i) values[i] = to_float(to_bf16(x[i]));
  if (form == InputForm::one_plane) {
    const auto fp4 =
        dequantize(quantize_nvfp4_activations(x, 1, static_cast<std::int64_t>(x.size()), kScale).view());
    values.assign(fp4.begin(), fp4.end());
  }
  return values;
}

// Plain C++; for tiles the CPU that has them, or nothing.
const Kernels* kernels_for(InputForm form) {
  if (form != InputForm::bf16_tiles) return &plain();
  const Kernels& best = kernels_of(available_isas().back());
  return best.multiply_tiles.nvfp4 != nullptr ? &best : nullptr;
}

// With tiles where the matrix can take them and the CPU has them.
std::vector<InputForm> forms_of(const Case& one) {
  std::vector<InputForm> forms = one.forms;
  const bool whole = one.packed.segment_columns % 32 == 0 || one.packed.segment_count() == 1;
  if (one.packed.format != WeightFormat::f32 && whole && kernels_for(InputForm::bf16_tiles) != nullptr)
    forms.push_back(InputForm::bf16_tiles);
  return forms;
}

TEST(Multiply, IsTheSumUpToItsRoundings) {
  for (const Case& one : all_cases())
    for (const InputForm form : forms_of(one)) {
      const std::int64_t columns = one.packed.columns;
      const Tokens tokens(form, columns, 3);
      const std::vector<float> out = multiply(*kernels_for(form), one, form, tokens, 1, 3);
      for (std::size_t t = 0; t < 3; ++t) {
        const std::vector<double> x = rounded(form, tokens.values[t]);
        for (std::int64_t row = 0; row < one.packed.rows; ++row) {
          double sum = 0, size = 0, planes = 0;
          for (std::int64_t k = 0; k < columns; ++k) {
            const double w = one.weights[static_cast<std::size_t>(row * columns + k)];
            double most = 0;
            for (std::int64_t i = k / 16 * 16; i < std::min(k / 16 * 16 + 16, columns); ++i)
              most = std::max(most, std::abs(x[static_cast<std::size_t>(i)]));
            sum += w * x[static_cast<std::size_t>(k)];
            size += std::abs(w * x[static_cast<std::size_t>(k)]);
            planes += std::abs(w) * most;
          }
          // One rounding an addition, and one for each scale; and what the planes leave out.
          const double steps = static_cast<double>(columns) + 4;
          double bound = steps * 0x1p-24 * size;
          if (form == InputForm::two_planes) bound += 0x1p-15 * planes;
          if (form == InputForm::three_planes) bound += 0x1p-22 * planes + steps * 0x1p-24 * planes;
          EXPECT_LE(std::abs(sum - static_cast<double>(out[t * static_cast<std::size_t>(one.packed.rows) +
                                                           static_cast<std::size_t>(row)])),
                    bound)
              << "format " << static_cast<int>(one.packed.format) << " form " << static_cast<int>(form)
              << " row " << row;
        }
      }
    }
}

TEST(Multiply, GivesTheSameBitsEverywhere) {
  for (const Case& one : all_cases())
    for (const InputForm form : forms_of(one)) {
      const Tokens tokens(form, one.packed.columns, 75);
      const std::vector<float> wanted = multiply(*kernels_for(form), one, form, tokens, 1, 1);
      for (const Isa isa : available_isas()) {
        if (form == InputForm::bf16_tiles && kernels_of(isa).multiply_tiles.nvfp4 == nullptr) continue;
        for (const auto& [grain, batch] :
             {std::pair<std::int64_t, std::int64_t>(1, 1), {2, 75}, {7, 31}, {1, 16}, {3, 7}, {2, 2}})
          EXPECT_EQ(multiply(kernels_of(isa), one, form, tokens, grain, batch), wanted)
              << isa_name(isa) << " format " << static_cast<int>(one.packed.format) << " form "
              << static_cast<int>(form) << " panels " << grain << " tokens " << batch;
      }
    }
}

TEST(Multiply, OfNoTokensWritesNothing) {
  for (const Case& one : all_cases())
    for (const InputForm form : forms_of(one))
      for (const Isa isa : available_isas()) {
        if (form == InputForm::bf16_tiles && kernels_of(isa).multiply_tiles.nvfp4 == nullptr) continue;
        MultiplyJob job = whole_job(one, form);
        job.out = nullptr;
        run(kernels_of(isa), one, form, job);
      }
}

}  // namespace
}  // namespace fourfold::cpu
