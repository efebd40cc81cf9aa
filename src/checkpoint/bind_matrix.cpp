#include "checkpoint/bind_matrix.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/ue8m0.h"
#include "checkpoint/load_matrix.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::int64_t kFp8Block = 128;

std::string wanted(std::string_view types, const Shape& shape) {
  return std::string(types) + " " + to_string(shape);
}

bool is_plain(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32; }

std::int64_t element_count(const TensorView& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape.sizes()) count *= size;
  return count;
}

template <class T>
std::vector<float> widened_as(const Checkpoint& checkpoint, const TensorView& tensor) {
  const auto stored = elements<T>(tensor);
  std::vector<T> values(stored.size());
  checkpoint.read(std::as_bytes(stored), std::as_writable_bytes(std::span(values)));
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    std::vector<float> out;
    out.reserve(values.size());
    for (const T value : values) out.push_back(to_float(value));
    return out;
  }
}

// The caller has seen to it that the type is plain.
std::vector<float> widened(const TensorPool& pool, const TensorView& tensor) {
  if (tensor.dtype == DType::bf16) return widened_as<Bf16>(pool.checkpoint(), tensor);
  if (tensor.dtype == DType::f16) return widened_as<F16>(pool.checkpoint(), tensor);
  return widened_as<float>(pool.checkpoint(), tensor);
}

bool all_finite(const std::vector<float>& values) {
  for (const float value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

std::optional<float> scalar_of(TensorPool& pool, const TensorView* tensor) {
  if (tensor == nullptr) return std::nullopt;
  if (!is_plain(tensor->dtype) || element_count(*tensor) != 1) {
    pool.misshapen(*tensor, "one F32, F16 or BF16 number");
    return std::nullopt;
  }
  return widened(pool, *tensor).front();
}

bool all_positive(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value) && value > 0; });
}

// What codes of inputs are multiplied by: inputs are divided by it.
bool is_input_scale(float scale) { return std::isnormal(scale) && scale > 0 && std::isnormal(1 / scale); }
constexpr const char* kNoInputScale = "not a positive number with a reciprocal";

// base refuses bad scales with a message of its own; here it gets the tensor's name and joins the list.
template <class Make>
auto usable(TensorPool& pool, const std::string& name, const Make& make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error& error) {
    pool.unusable(name, error.what());
    return std::nullopt;
  }
}

struct Nvfp4Parts {
  const TensorView* codes;
  const TensorView* scales;
  std::optional<float> global_scale;
  std::optional<Nvfp4InputScale> input_scale;
};

void bind_nvfp4(TensorPool& pool, const Nvfp4Parts& parts, Matrix& matrix) {
  if (parts.codes == nullptr || parts.scales == nullptr || !parts.global_scale) return;  // already noted
  const Shape code_shape{matrix.rows, matrix.columns / 2};
  const Shape scale_shape{matrix.rows, matrix.columns / kNvfp4BlockColumns};
  const bool whole_blocks = matrix.columns % kNvfp4BlockColumns == 0;
  const bool codes_fit = parts.codes->dtype == DType::u8 && parts.codes->shape == code_shape && whole_blocks;
  const bool scales_fit =
      parts.scales->dtype == DType::f8_e4m3 && parts.scales->shape == scale_shape && whole_blocks;
  const std::string blocks =
      whole_blocks ? "" : fourfold::format(" of {} columns, a multiple of 16", matrix.columns);
  if (!codes_fit) pool.misshapen(*parts.codes, wanted("U8", code_shape) + blocks);
  if (!scales_fit) pool.misshapen(*parts.scales, wanted("F8_E4M3", scale_shape) + blocks);
  if (!codes_fit || !scales_fit) return;
  matrix.storage = Nvfp4Storage{.view = {.rows = matrix.rows,
                                         .columns = matrix.columns,
                                         .codes = elements<std::uint8_t>(*parts.codes),
                                         .scales = elements<E4m3>(*parts.scales),
                                         .global_scale = *parts.global_scale},
                                .input_scale = parts.input_scale};
}

// Scales are powers of two in a byte, under U8 or the name of their own.
bool is_mxfp4(const TensorView* scales) {
  return scales != nullptr && (scales->dtype == DType::u8 || scales->dtype == DType::f8_e8m0);
}

std::string not_whole_blocks(std::int64_t columns) {
  return fourfold::format(" of {} columns, a multiple of 32", columns);
}

void bind_mxfp4(TensorPool& pool, const TensorView& codes, const TensorView& scales, Matrix& matrix) {
  const Shape code_shape{matrix.rows, matrix.columns / 2};
  const Shape scale_shape{matrix.rows, matrix.columns / kMxfp4BlockColumns};
  const bool whole_blocks = matrix.columns % kMxfp4BlockColumns == 0;
  const bool codes_fit = codes.dtype == DType::u8 && codes.shape == code_shape && whole_blocks;
  const bool scales_fit = scales.shape == scale_shape && whole_blocks;
  const std::string blocks = whole_blocks ? "" : not_whole_blocks(matrix.columns);
  if (!codes_fit) pool.misshapen(codes, wanted("U8", code_shape) + blocks);
  if (!scales_fit) pool.misshapen(scales, wanted("U8 or F8_E8M0", scale_shape) + blocks);
  if (!codes_fit || !scales_fit) return;
  matrix.storage = Mxfp4Storage{{.rows = matrix.rows,
                                 .columns = matrix.columns,
                                 .codes = elements<std::uint8_t>(codes),
                                 .scales = as_ue8m0(scales.bytes)}};
}

// AWQ: inputs are to be multiplied by factors, one for each column, before the matrix is. The columns take
// them instead, in f32, which is exact; FP4 could not hold the products. Backends hold the matrix as they do
// f32, and say so.
void fold_input_factors(TensorPool& pool, const TensorView& factors, Matrix& matrix) {
  if (!is_plain(factors.dtype) || factors.shape != Shape{matrix.columns})
    return pool.misshapen(factors, wanted("BF16, F16 or F32", Shape{matrix.columns}));
  const std::vector<float> factor = widened(pool, factors);
  if (!all_finite(factor)) return pool.unusable(factors.name, "a factor is NaN or infinite");
  if (matrix.stored_rows() != matrix.rows) return;  // a problem noted above
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const auto count = static_cast<std::size_t>(matrix.rows) * columns;
  const std::shared_ptr<float[]> values(new (std::nothrow) float[count]);
  if (values == nullptr)
    fail(Code::out_of_memory, "{}: {} bytes cannot be allocated", matrix.name, count * sizeof(float));
  const LoadedMatrix loaded = load(matrix);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::span<float> out(values.get() + static_cast<std::size_t>(row) * columns, columns);
    read_row(loaded.matrix, row, out);
    for (std::size_t i = 0; i < columns; ++i) out[i] *= factor[i];
  }
  matrix.storage = F32Storage{{values.get(), count}};
  matrix.source = nullptr;
  pool.keep({std::string(matrix.name), values, {values.get(), count}});
}

void bind_model_opt(TensorPool& pool, const std::string& module, const TensorView* weight, Matrix& matrix) {
  Nvfp4Parts parts{weight, pool.take(module + ".weight_scale"), std::nullopt, std::nullopt};
  if (is_mxfp4(parts.scales)) return bind_mxfp4(pool, *weight, *parts.scales, matrix);
  const std::string global_name = module + ".weight_scale_2";
  if (const auto stored = scalar_of(pool, pool.take(global_name)))
    parts.global_scale = usable(pool, global_name, [&] { return global_scale(ModelOptScale{*stored}); });
  const std::string input_name = module + ".input_scale";
  if (const auto stored = bind_optional_scalar(pool, input_name))
    parts.input_scale =
        usable(pool, input_name, [&] { return nvfp4_input_scale(ModelOptInputScale{*stored}); });
  bind_nvfp4(pool, parts, matrix);
  if (const TensorView* factors = pool.take_if_present(module + ".pre_quant_scale"))
    fold_input_factors(pool, *factors, matrix);
}

void bind_compressed_tensors(TensorPool& pool, const std::string& module, const TensorView* packed,
                             Matrix& matrix) {
  Nvfp4Parts parts{packed, pool.take(module + ".weight_scale"), std::nullopt, std::nullopt};
  if (is_mxfp4(parts.scales)) return bind_mxfp4(pool, *packed, *parts.scales, matrix);
  const std::string global_name = module + ".weight_global_scale";
  if (const auto stored = scalar_of(pool, pool.take(global_name)))
    parts.global_scale =
        usable(pool, global_name, [&] { return global_scale(CompressedTensorsScale{*stored}); });
  const std::string input_name = module + ".input_global_scale";
  if (const auto stored = bind_optional_scalar(pool, input_name))
    parts.input_scale =
        usable(pool, input_name, [&] { return nvfp4_input_scale(CompressedTensorsInputScale{*stored}); });
  bind_nvfp4(pool, parts, matrix);
}

// MXFP8: a power of two for 32 columns of a row, in bytes of either type.
void bind_mxfp8(TensorPool& pool, const TensorView& weight, const TensorView& scale, Matrix& matrix) {
  const Shape wanted_shape{matrix.rows, matrix.columns / kMxfp8BlockColumns};
  if (matrix.columns % kMxfp8BlockColumns != 0 || scale.shape != wanted_shape)
    return pool.misshapen(scale, fourfold::format("{} of {} columns, a multiple of 32",
                                                  wanted("U8 or F8_E8M0", wanted_shape), matrix.columns));
  const auto stored = elements<std::uint8_t>(scale);
  std::vector<std::uint8_t> bytes(stored.size());
  pool.checkpoint().read(std::as_bytes(stored), std::as_writable_bytes(std::span(bytes)));
  std::vector<float> scales;
  scales.reserve(bytes.size());
  for (const std::uint8_t byte : bytes) scales.push_back(to_float(Ue8m0{byte}));
  if (!all_finite(scales)) return pool.unusable(scale.name, "a scale is NaN");
  matrix.storage = Fp8Storage{.codes = elements<E4m3>(weight),
                              .scale = Fp8BlockScales{1, kMxfp8BlockColumns, std::move(scales)},
                              .input_scale = {}};
}

// Shape tells the kind of scale: one number, one a row, one a 128 x 128 block, from ModelOpt as
// [rows, 1, columns, 1]. Blocks, and the one number of transformers' static FP8, also stand under the name
// weight_scale_inv, which in spite of it multiplies.
void bind_fp8(TensorPool& pool, const std::string& module, const TensorView& weight, Matrix& matrix) {
  const TensorView* scale = pool.take_if_present(module + ".weight_scale_inv");
  if (scale == nullptr) scale = pool.take(module + ".weight_scale");
  // The second name is transformers', and so that of Mistral's releases.
  std::string input_name = module + ".input_scale";
  if (!pool.has(input_name)) input_name = module + ".activation_scale";
  const auto input_scale = bind_optional_scalar(pool, input_name);
  if (input_scale && !is_input_scale(*input_scale)) return pool.unusable(input_name, kNoInputScale);
  if (scale == nullptr) return;
  if (scale->dtype == DType::u8 || scale->dtype == DType::f8_e8m0)
    return bind_mxfp8(pool, weight, *scale, matrix);
  const Shape rows{matrix.rows};
  const Shape rows_column{matrix.rows, 1};
  const Shape blocks{(matrix.rows + kFp8Block - 1) / kFp8Block, (matrix.columns + kFp8Block - 1) / kFp8Block};
  const Shape blocks_apart{blocks.sizes()[0], 1, blocks.sizes()[1], 1};
  const bool one = element_count(*scale) == 1;
  const bool per_row = scale->shape == rows || scale->shape == rows_column;
  const bool per_block = scale->shape == blocks || scale->shape == blocks_apart;
  if (!is_plain(scale->dtype) || (!one && !per_row && !per_block)) {
    pool.misshapen(*scale, fourfold::format("F32 [], {} or {}", to_string(rows_column), to_string(blocks)));
    return;
  }
  std::vector<float> scales = widened(pool, *scale);
  if (!all_positive(scales)) return pool.unusable(scale->name, "a scale is not a positive number");
  Fp8Storage storage{.codes = elements<E4m3>(weight), .scale = {}, .input_scale = input_scale};
  if (one)
    storage.scale = Fp8TensorScale{scales.front()};
  else if (per_row)
    storage.scale = Fp8RowScales{std::move(scales)};
  else
    storage.scale = Fp8BlockScales{kFp8Block, kFp8Block, std::move(scales)};
  matrix.storage = std::move(storage);
}

void bind_plain(const TensorView& tensor, Matrix& matrix) {
  if (tensor.dtype == DType::bf16)
    matrix.storage = Bf16Storage{elements<Bf16>(tensor)};
  else if (tensor.dtype == DType::f16)
    matrix.storage = F16Storage{elements<F16>(tensor)};
  else
    matrix.storage = F32Storage{elements<float>(tensor)};
}

// A tensor [count, rows, columns] as one matrix. FP8, where it may be, is without its scales, which are each
// expert's own.
Matrix stacked(TensorPool& pool, const TensorView* tensor, std::int64_t count, MatrixShape shape,
               bool may_be_fp8) {
  Matrix matrix{.name = {},
                .rows = count * shape.rows,
                .columns = shape.columns,
                .storage = {},
                .gather = {},
                .source = &pool.checkpoint()};
  if (tensor == nullptr) return matrix;
  matrix.name = tensor->name;
  const bool is_fp8 = may_be_fp8 && tensor->dtype == DType::f8_e4m3;
  const Shape whole{count, shape.rows, shape.columns};
  if ((!is_fp8 && !is_plain(tensor->dtype)) || tensor->shape != whole)
    pool.misshapen(*tensor, wanted(is_fp8 ? "F8_E4M3" : "BF16, F16 or F32", whole));
  else if (is_fp8)
    matrix.storage = Fp8Storage{.codes = elements<E4m3>(*tensor), .scale = {}, .input_scale = {}};
  else
    bind_plain(*tensor, matrix);
  return matrix;
}

// A number for each expert, or for each of its parts. Empty after a problem, and without a tensor.
std::vector<float> expert_scales(TensorPool& pool, const TensorView* tensor, std::int64_t count,
                                 std::int64_t parts) {
  if (tensor == nullptr) return {};
  const std::int64_t stored = element_count(*tensor);
  if (!is_plain(tensor->dtype) || tensor->shape.rank() == 0 || tensor->shape[0] != count ||
      (stored != count && stored != count * parts)) {
    pool.misshapen(*tensor, wanted("BF16, F16 or F32", Shape{count, 1, 1}));
    return {};
  }
  const std::vector<float> scales = widened(pool, *tensor);
  if (!all_positive(scales)) {
    pool.unusable(tensor->name, "a scale is not a positive number");
    return {};
  }
  std::vector<float> out;
  for (std::int64_t i = 0; i < count * parts; ++i)
    out.push_back(scales[static_cast<std::size_t>(stored == count ? i / parts : i)]);
  return out;
}

}  // namespace

std::optional<float> bind_optional_scalar(TensorPool& pool, const std::string& name) {
  return scalar_of(pool, pool.take_if_present(name));
}

Matrix bind_matrix(TensorPool& pool, const std::string& module, MatrixShape shape) {
  Matrix matrix{.name = module,
                .rows = shape.rows,
                .columns = shape.columns,
                .storage = {},
                .gather = {},
                .source = &pool.checkpoint()};
  if (const TensorView* packed = pool.take_if_present(module + ".weight_packed")) {
    matrix.name = packed->name;
    bind_compressed_tensors(pool, module, packed, matrix);
    return matrix;
  }
  const TensorView* weight = pool.take(module + ".weight");
  matrix.name = weight == nullptr ? std::string_view() : weight->name;
  if (weight == nullptr) return matrix;
  if (weight->dtype == DType::u8) {
    bind_model_opt(pool, module, weight, matrix);
  } else if (weight->shape != Shape{shape.rows, shape.columns}) {
    pool.misshapen(*weight, to_string(Shape{shape.rows, shape.columns}));
  } else if (weight->dtype == DType::f8_e4m3) {
    bind_fp8(pool, module, *weight, matrix);
  } else if (is_plain(weight->dtype)) {
    bind_plain(*weight, matrix);
  } else {
    pool.misshapen(*weight, "BF16, F16, F32, F8_E4M3 or U8");
  }
  return matrix;
}

Matrix bind_stacked(TensorPool& pool, const std::string& name, std::int64_t count, MatrixShape shape) {
  return stacked(pool, pool.take(name), count, shape, false);
}

std::vector<Matrix> bind_experts(TensorPool& pool, const std::string& name, std::int64_t count,
                                 std::int64_t parts, MatrixShape shape) {
  const Matrix all = stacked(pool, pool.take(name), count, {parts * shape.rows, shape.columns}, true);
  const bool is_fp8 = std::holds_alternative<Fp8Storage>(all.storage);
  std::vector<float> scales, input_scales;
  if (is_fp8) {
    scales = expert_scales(pool, pool.take(name + "_scale_inv"), count, parts);
    const TensorView* inputs = pool.take_if_present(name + "_activation_scale");
    input_scales = expert_scales(pool, inputs, count, parts);
    if (!std::all_of(input_scales.begin(), input_scales.end(), is_input_scale))
      pool.unusable(inputs->name, kNoInputScale);
  }
  // A problem noted above leaves nothing to slice; the error comes at the end.
  if (all.stored_rows() != all.rows || (is_fp8 && scales.empty())) return {};
  std::vector<Matrix> matrices;
  for (std::int64_t i = 0; i < count * parts; ++i) {
    matrices.push_back(slice_rows(all, {i * shape.rows, shape.rows}));
    auto* fp8 = std::get_if<Fp8Storage>(&matrices.back().storage);
    if (fp8 == nullptr) continue;
    fp8->scale = Fp8TensorScale{scales[static_cast<std::size_t>(i)]};
    if (!input_scales.empty()) fp8->input_scale = input_scales[static_cast<std::size_t>(i)];
  }
  return matrices;
}

Matrix bind_mxfp4_blocks(TensorPool& pool, const std::string& name, std::int64_t count, MatrixShape shape) {
  Matrix matrix{.name = {},
                .rows = count * shape.rows,
                .columns = shape.columns,
                .storage = {},
                .gather = {},
                .source = &pool.checkpoint()};
  const TensorView* codes = pool.take(name + "_blocks");
  const TensorView* scales = pool.take(name + "_scales");
  if (codes == nullptr || scales == nullptr) return matrix;
  matrix.name = codes->name;
  const std::int64_t blocks = shape.columns / kMxfp4BlockColumns;
  const Shape code_shape{count, shape.rows, blocks, kMxfp4BlockColumns / 2};
  const Shape scale_shape{count, shape.rows, blocks};
  const bool whole_blocks = shape.columns % kMxfp4BlockColumns == 0;
  const bool codes_fit = codes->dtype == DType::u8 && codes->shape == code_shape && whole_blocks;
  const bool scales_fit = is_mxfp4(scales) && scales->shape == scale_shape && whole_blocks;
  const std::string of = whole_blocks ? "" : not_whole_blocks(shape.columns);
  if (!codes_fit) pool.misshapen(*codes, wanted("U8", code_shape) + of);
  if (!scales_fit) pool.misshapen(*scales, wanted("U8 or F8_E8M0", scale_shape) + of);
  if (codes_fit && scales_fit)
    matrix.storage = Mxfp4Storage{{.rows = matrix.rows,
                                   .columns = matrix.columns,
                                   .codes = elements<std::uint8_t>(*codes),
                                   .scales = as_ue8m0(scales->bytes)}};
  return matrix;
}

std::vector<float> bind_vector(TensorPool& pool, const std::string& name, const Shape& shape) {
  const TensorView* tensor = pool.take(name);
  if (tensor == nullptr) return {};
  if (!is_plain(tensor->dtype) || tensor->shape != shape) {
    pool.misshapen(*tensor, wanted("BF16, F16 or F32", shape));
    return {};
  }
  std::vector<float> values = widened(pool, *tensor);
  if (!all_finite(values)) pool.unusable(name, "a value is NaN or infinite");
  return values;
}

}  // namespace fourfold::checkpoint
