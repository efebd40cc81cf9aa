#include "backend/cuda/step/multiply.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "kernels/dense/choose.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/step/step_params.h"

namespace fourfold::backend::cuda {
namespace {

// Whether some matrix has FP4 inputs of a scale that the norm did not quantise for.
bool quantises_behind(const DenseGroup& group, const Fp4Scales& by_norm) {
  return std::ranges::any_of(group.matrices, [&](const DenseMatrix& matrix) {
    return quantises(matrix.input) && std::ranges::any_of(matrix.pieces, [&](const PieceStrips& piece) {
             return by_norm.find(piece.input.inverse) < 0;
           });
  });
}

}  // namespace

Multiplier::Multiplier(kernels::Machine& machine, const BatchTables& tables, const Buffers& buffers,
                       KernelSelector& selector, const StepWays& ways)
    : machine_(machine),
      tokens_(moe_tokens::find_token_rows(machine)),
      tables_(tables),
      buffers_(buffers),
      selector_(selector),
      ways_(ways) {}

kernels::RowHandle Multiplier::step_row(const std::string& name) {
  const auto [entry, is_new] = step_rows_.try_emplace(name);
  if (is_new) entry->second = machine_.find(kernels::RowKind::step, name);
  if (!entry->second.found()) fail(Code::unsupported_op, "{}", machine_.no_row(name));
  selector_.only(name);
  return entry->second;
}

void Multiplier::norm_rows(const DeviceNorm& norm, int row_count, float* x, const void* y, dense::NormAdd add,
                           std::uint16_t* out) {
  machine_.launch(step_row(dense::kNormRow), row_count,
                  dense::NormParams{x, y, norm.weight, out, norm.epsilon, add, norm.columns});
}

PromptInput Multiplier::norm_prompt(const DeviceNorm& norm, int row_count, const std::uint16_t* added,
                                    const DenseGroup& readers, bool wants_plain,
                                    std::optional<float> experts) {
  dense::NormPromptParams params{};
  params.norm = {buffers_.x,  added,        norm.weight,
                 nullptr,     norm.epsilon, added != nullptr ? dense::NormAdd::bf16 : dense::NormAdd::none,
                 norm.columns};
  const Fp4Scales fp4 = scales_behind_norm(readers, experts);
  if (wants_plain || quantises_behind(readers, fp4)) params.rows.plain = buffers_.normed;
  if (readers.reads_staged()) params.rows.staged = buffers_.staged;
  if (fp4.count > 0) {
    dense::NormFp4Params with_records{params.norm, params.rows, {}, row_count};
    for (int set = 0; set < fp4.count; ++set)
      with_records.fp4[set] = {buffers_.fp4.normed[set], fp4.inverse[static_cast<std::size_t>(set)]};
    machine_.launch(step_row(dense::kNormFp4Row), dense::norm_fp4_blocks(row_count), with_records);
    return {.rows = params.rows.plain, .staged = params.rows.staged, .fp4 = fp4};
  }
  if (const DenseMatrix* reader = readers.fp8_reader()) {
    params.rows.codes = buffers_.codes;
    params.rows.inverse = reader->input_inverse;
    if (reader->input_scale == nullptr) params.rows.factor = buffers_.factor;
  }
  machine_.launch(step_row(dense::kNormPromptRow), row_count, params);
  return {.rows = params.rows.plain, .staged = params.rows.staged, .has_codes = params.rows.codes != nullptr};
}

void Multiplier::add_bias(const DenseGroup& group, int row_count, float* x, int stride) {
  for (const DenseMatrix& matrix : group.matrices) add_bias(matrix, row_count, x, stride);
}

void Multiplier::add_bias(const DenseMatrix& matrix, int row_count, float* x, int stride) {
  if (matrix.bias == nullptr) return;
  const int columns = record::kRows * matrix.plain_strips;
  machine_.launch(step_row(step::kAddBias), step::add_blocks(row_count, columns),
                  step::AddBiasParams{x + matrix.first_column, matrix.bias, stride, row_count, columns});
}

void Multiplier::quantize(const PromptInput& in, int row_count, const DenseMatrix& reader) {
  const bool is_staged = in.rows == nullptr;
  const dense::QuantizeRowsParams params{is_staged ? in.staged : in.rows,
                                         buffers_.codes,
                                         reader.input_scale == nullptr ? buffers_.factor : nullptr,
                                         reader.input_inverse,
                                         row_count,
                                         reader.columns(),
                                         is_staged ? 1 : 0};
  machine_.launch(step_row(dense::kQuantizeRowsRow), dense::quantize_blocks(row_count), params);
}

void Multiplier::stage(const std::uint16_t* rows, int row_count, int columns, std::uint16_t* staged) {
  moe_tokens::launch_stage(machine_, tokens_,
                           {rows, staged, static_cast<std::int64_t>(row_count) * columns / 32});
}

// What both decode kernels take.
dense::DenseParams Multiplier::params_of(const DenseMatrix& matrix, int row_count, const DenseOutput& out) {
  dense::DenseParams params{};
  params.weights = matrix.records;
  params.row_scale = matrix.row_scale;
  params.bias = matrix.bias;
  params.scale = params.scale_gate = params.scale_up = 1.0f;
  const bool is_f32 = out.op != dense::PlainOp::store_bf16;
  if (out.out != nullptr)
    params.out = static_cast<unsigned char*>(out.out) + (is_f32 ? 4 : 2) * matrix.first_column;
  params.gate_up_out = out.inner;
  params.op = out.op;
  params.strips = matrix.strips;
  params.plain_strips = matrix.plain_strips;
  params.records = matrix.column_records;
  params.token_count = row_count;
  params.token_stride = matrix.columns();
  params.out_stride = out.stride;
  params.gate_up_stride = out.inner_stride;
  params.token_gate = out.token_gate;
  params.token_gate_stride = out.token_gate_stride;
  return params;
}

dense::DenseParams Multiplier::normed_params(const DenseMatrix& matrix, int row_count, const DenseInput& in,
                                             const DenseOutput& out, std::uint16_t* normed) {
  dense::DenseParams params = params_of(matrix, row_count, out);
  params.tokens = in.x;
  if (in.x_stride != 0) params.token_stride = in.x_stride;
  params.norm_weight = in.norm->weight;
  params.epsilon = in.norm->epsilon;
  params.normed_out = normed;
  return params;
}

bool Multiplier::together(const DenseGroup& group, int row_count, dense::TokenSource source,
                          const std::string& row) {
  for (const DenseMatrix& matrix : group.matrices)
    if (selector_.is_tuned(matrix, source, row_count)) return false;
  for (const DenseMatrix& matrix : group.matrices) selector_.together(matrix, source, row_count, row);
  return true;
}

bool Multiplier::pair(const DenseGroup& group, int row_count, const DenseInput& in, const DenseOutput& out,
                      std::uint16_t* normed) {
  if (group.matrices.size() != 2 || group.matrices[0].format != WeightFormat::bf16) return false;
  const DenseMatrix &first = group.matrices[0], &second = group.matrices[1];
  if (first.bias != nullptr || second.bias != nullptr) return false;  // a pair adds none
  const dense::PairChoice choice = dense::choose_pair(first.rows(), second.rows(), first.columns(),
                                                      second.format, row_count, machine_.sm_count());
  if (choice.row.empty() || !together(group, row_count, dense::TokenSource::norm, choice.row)) return false;
  machine_.launch(step_row(choice.row), choice.blocks,
                  dense::PairParams{normed_params(first, row_count, in, out, normed),
                                    normed_params(second, row_count, in, out, nullptr), choice.first_blocks});
  return true;
}

void Multiplier::few(const dense::DenseForm& form, const DenseMatrix& matrix, int row_count,
                     const DenseInput& in, const DenseOutput& out, std::uint16_t* normed) {
  const kernels::RowHandle row = step_row(matrix.bias != nullptr ? dense::biased_row(form.row) : form.row);
  if (form.norms) return machine_.launch(row, form.blocks, normed_params(matrix, row_count, in, out, normed));
  dense::DenseParams params = params_of(matrix, row_count, out);
  params.tokens = in.rows;
  machine_.launch(row, form.blocks, params);
}

std::size_t Multiplier::workspace_bytes(KernelSelector& selector, const DenseGroup& group, int row_count) {
  std::size_t most = many_pair_choice(group, row_count, selector.sm_count()).workspace_bytes;
  // Fewer rows may choose another form.
  for (const DenseMatrix& matrix : group.matrices)
    for (int rows = 1; rows <= row_count && !quantises(matrix.input); ++rows)
      for (const dense::TokenSource source : {dense::TokenSource::rows, dense::TokenSource::norm})
        most = std::max(most, selector.matrix(matrix, source, rows).workspace_bytes);
  return most;
}

dense::ManyParams Multiplier::many_params(const DenseMatrix& matrix, int row_count, const std::uint16_t* rows,
                                          const DenseOutput& out, std::size_t first,
                                          std::size_t bytes) const {
  check(first + bytes <= buffers_.workspace_bytes, "the workspace has room for the sums of the segments",
        first + bytes);
  dense::ManyParams params{};
  params.dense = params_of(matrix, row_count, out);
  params.dense.tokens = rows;
  params.partial = reinterpret_cast<device::F32x4*>(static_cast<unsigned char*>(buffers_.workspace) + first);
  return params;
}

// Of a bf16 matrix and one of another format, without biases and FP4 inputs; else of no row.
dense::ManyPairChoice Multiplier::many_pair_choice(const DenseGroup& group, int row_count, int sm_count) {
  if (group.matrices.size() != 2 || group.matrices[0].format != WeightFormat::bf16) return {};
  for (const DenseMatrix& matrix : group.matrices)
    if (matrix.bias != nullptr || quantises(matrix.input)) return {};
  const DenseMatrix &first = group.matrices[0], &second = group.matrices[1];
  return dense::choose_many_pair(first.rows(), second.rows(), first.columns(), second.format,
                                 std::min(row_count, dense::kManyTokens), sm_count);
}

bool Multiplier::many_pair(const DenseGroup& group, int row_count, dense::TokenSource source,
                           const std::uint16_t* rows, const DenseOutput& out) {
  const dense::ManyPairChoice choice = many_pair_choice(group, row_count, machine_.sm_count());
  if (!ways_.pairs_many || choice.row.empty() || !together(group, row_count, source, choice.row))
    return false;
  const dense::ManyPairParams params{
      many_params(group.matrices[0], row_count, rows, out, 0, choice.first_partial),
      many_params(group.matrices[1], row_count, rows, out, choice.first_partial,
                  choice.workspace_bytes - choice.first_partial),
      choice.first_blocks};
  machine_.launch(step_row(choice.row), choice.blocks, params);
  if (choice.sum_blocks > 0) machine_.launch(step_row(choice.sum), choice.sum_blocks, params);
  return true;
}

bool Multiplier::add_and_norm(const DenseGroup& group, int row_count, const std::uint16_t* rows,
                              const DenseOutput& out, const DeviceNorm& norm, std::uint16_t* normed) {
  if (group.matrices.size() != 1 || row_count > dense::kManyTokens) return false;
  const DenseMatrix& matrix = group.matrices.front();
  // The whole row is this matrix's, and a block holds it.
  if (quantises(matrix.input) || matrix.strips != matrix.plain_strips || matrix.rows() != out.stride ||
      matrix.rows() > dense::kNormColumnsMax)
    return false;
  const dense::DenseForm form = selector_.matrix(matrix, dense::TokenSource::rows, row_count);
  if (!form.many || form.sum_blocks == 0) return false;
  dense::ManyParams params = many_params(matrix, row_count, rows, out, 0, form.workspace_bytes);
  params.dense.norm_weight = norm.weight;
  params.dense.epsilon = norm.epsilon;
  params.dense.normed_out = normed;
  machine_.launch(step_row(form.row), form.blocks, params);
  machine_.launch(step_row(dense::sum_norm_row(format_name(matrix.format))), row_count, params);
  return true;
}

bool Multiplier::with_table(const DenseGroup& group, int row_count, const std::uint16_t* rows,
                            const DenseOutput& out, const moe_route::RouteParams& route) {
  const bool many = ways_.many_tables && dense::has_many_table(row_count, route.experts);
  if (group.matrices.size() != 1 || (!many && !dense::has_dense_table(row_count, route.experts)))
    return false;
  const DenseMatrix& matrix = group.matrices.front();
  if (quantises(matrix.input) || matrix.bias != nullptr) return false;
  const bool any_rule = moe_route::needs_any_rule(route.rule);
  const std::string_view format = format_name(matrix.format);
  const std::string row =
      many ? dense::many_table_row(format, any_rule) : dense::dense_table_row(format, any_rule);
  if (!machine_.find(kernels::RowKind::step, row).found()) return false;
  constexpr auto source = dense::TokenSource::rows;
  const dense::DenseForm form = selector_.matrix(matrix, source, row_count);
  // A choice of its own parts them. Sums of several segments would lie where the tables do.
  const std::string alone = many ? dense::many_of_table(matrix.format) : dense::dense_of_table(matrix.format);
  if (form.many != many || form.row != alone || form.sum_blocks > 0 ||
      selector_.is_tuned(matrix, source, row_count))
    return false;
  selector_.together(matrix, source, row_count, row);
  // The block of the tables wants an SM of its own.
  const int blocks = 1 + std::min(form.blocks, machine_.sm_count() - 1);
  if (many) {
    machine_.launch(
        step_row(row), blocks,
        dense::ManyTableParams{many_params(matrix, row_count, rows, out, 0, form.workspace_bytes), route});
    return true;
  }
  dense::DenseTableParams params{params_of(matrix, row_count, out), route};
  params.dense.tokens = rows;
  machine_.launch(step_row(row), blocks, params);
  return true;
}

// Segments of K over blocks, then their sum, which adds a bias; without a sum it is added apart, in the same
// order: (out + bias) + W x.
void Multiplier::many(const dense::DenseForm& form, const DenseMatrix& matrix, int row_count,
                      const std::uint16_t* rows, const DenseOutput& out) {
  const dense::ManyParams params = many_params(matrix, row_count, rows, out, 0, form.workspace_bytes);
  const bool sums = form.sum_blocks > 0, adds = out.op == dense::PlainOp::add_f32;
  if (!sums && adds) add_bias(matrix, row_count, static_cast<float*>(out.out), out.stride);
  machine_.launch(step_row(form.row), form.blocks, params);
  if (sums) machine_.launch(step_row(form.sum), form.sum_blocks, params);
  if (!sums && !adds) add_bias(matrix, row_count, static_cast<float*>(out.out), out.stride);
}

// Prompt rows: the rows are tokens of the one expert.
void Multiplier::gemm(const DenseMatrix& matrix, int row_count, const std::uint16_t* staged,
                      const DenseOutput& out) {
  const moe_layer::Choice choice = selector_.prompt_matrix(matrix, row_count);
  const kernels::RowHandle row = machine_.required(kernels::RowKind::gemm, choice.gate_up_row);
  const BatchTables::Tiles table = tables_.tiles(choice.tile_tokens);
  // FP4 has its global scale by piece; the others have a factor by row, and their plain pieces are one.
  const bool by_piece = matrix.format == WeightFormat::nvfp4;
  for (std::size_t i = 0; i < matrix.pieces.size(); ++i) {
    PieceStrips piece = matrix.pieces[i];
    if (!by_piece && !piece.is_gate_up) {
      piece.strips = matrix.plain_strips;
      while (i + 1 < matrix.pieces.size() && !matrix.pieces[i + 1].is_gate_up) ++i;
    }
    moe::GemmParams params{};
    params.weights = matrix.records +
                     std::int64_t{piece.first_strip} * matrix.column_records * record_bytes(matrix.format);
    params.tokens = matrix.takes_fp8() ? buffers_.codes : reinterpret_cast<const unsigned char*>(staged);
    params.token_scale = matrix.input_scale;
    if (matrix.takes_fp8() && matrix.input_scale == nullptr) params.token_factor = buffers_.factor;
    params.tiles = table.tiles;
    params.tile_count = table.count;
    params.scale = piece.scale;
    params.scale_up = piece.scale_up;
    params.row_scale =
        matrix.row_scale != nullptr && !by_piece ? matrix.row_scale + 32 * piece.first_strip : nullptr;
    params.strips = piece.strips;
    params.records = matrix.column_records;
    if (piece.is_gate_up) {
      params.op = moe::Op::gate_up;
      params.out = out.inner;
      params.out_columns = out.inner_stride;
    } else {
      const bool is_f32 = out.op != dense::PlainOp::store_bf16;
      check(!is_f32 || matrix.format != WeightFormat::nvfp4, "the tiled FP4 kernels store bf16 rows");
      params.op = out.op == dense::PlainOp::store_f32 ? moe::Op::plain_f32
                  : out.op == dense::PlainOp::add_f32 ? moe::Op::add_f32
                                                      : moe::Op::plain;
      params.out = static_cast<unsigned char*>(out.out) +
                   (is_f32 ? 4 : 2) * (matrix.first_column + 32 * piece.first_strip);
      params.out_columns = out.stride;
    }
    moe::launch_gemm(machine_, row, params);
  }
}

void Multiplier::generated(const DenseGroup& group, int row_count, const DenseInput& in,
                           const DenseOutput& out, std::uint16_t* normed, Role role) {
  for (int first = 0; first < row_count; first += dense::kManyTokens) {
    const int count = std::min(dense::kManyTokens, row_count - first);
    const int columns = group.matrices.front().columns();
    DenseInput piece = in;
    if (in.rows != nullptr) piece.rows += std::int64_t{first} * columns;
    if (in.x != nullptr) piece.x += std::int64_t{first} * (in.x_stride != 0 ? in.x_stride : columns);
    const auto records_before = [&](int width) {
      return std::int64_t{first / record::kTokens} * (width / record::kColumns) * record::kTokenRecordBytes;
    };
    if (in.records != nullptr) piece.records += records_before(columns);
    DenseOutput to = out;
    const int element = out.op == dense::PlainOp::store_bf16 ? 2 : 4;
    if (out.out != nullptr)
      to.out = static_cast<unsigned char*>(out.out) + std::int64_t{first} * out.stride * element;
    if (out.inner != nullptr) to.inner += std::int64_t{first} * out.inner_stride;
    if (out.inner_records != nullptr) to.inner_records += records_before(out.inner_stride);
    if (out.token_gate != nullptr) to.token_gate += std::int64_t{first} * out.token_gate_stride;
    generated_piece(group, count, piece, to,
                    normed != nullptr ? normed + std::int64_t{first} * columns : nullptr, role);
  }
}

bool Multiplier::norms_apart(const DenseGroup& group, int row_count) {
  const int count = std::min(row_count, dense::kManyTokens);
  return std::ranges::any_of(group.matrices, [&](const DenseMatrix& matrix) {
    return quantises(matrix.input) || !selector_.matrix(matrix, dense::TokenSource::norm, count).norms;
  });
}

// Where one of the kernels does not norm its input itself, all of them read normed rows.
void Multiplier::generated_piece(const DenseGroup& group, int row_count, const DenseInput& in,
                                 const DenseOutput& out, std::uint16_t* normed, Role role) {
  using dense::TokenSource;
  const TokenSource source = in.norm != nullptr ? TokenSource::norm : TokenSource::rows;
  std::vector<dense::DenseForm> forms;
  for (const DenseMatrix& matrix : group.matrices)
    forms.push_back(quantises(matrix.input) ? dense::DenseForm{}
                                            : selector_.matrix(matrix, source, row_count));
  const bool norms = std::all_of(forms.begin(), forms.end(), [](const auto& form) { return form.norms; });
  DenseInput given = in;
  if (in.norm != nullptr && !norms) {
    check(in.x_stride == 0, "norm_rows reads rows that lie one behind another", in.x_stride);
    norm_rows(*in.norm, row_count, const_cast<float*>(in.x), nullptr, dense::NormAdd::none, normed);
    given = {.rows = normed};
  }
  if (in.norm != nullptr && norms && pair(group, row_count, in, out, normed)) return;
  if (std::ranges::all_of(forms, &dense::DenseForm::many) &&
      many_pair(group, row_count, source, given.rows, out))
    return;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const DenseMatrix& matrix = group.matrices[i];
    if (quantises(matrix.input)) {
      generated_fp4(matrix, role, row_count, given, out);
      continue;
    }
    if (forms[i].norms && !norms) forms[i] = selector_.matrix(matrix, TokenSource::rows, row_count);
    if (forms[i].many) {
      many(forms[i], matrix, row_count, given.rows, out);
    } else {
      few(forms[i], matrix, row_count, given, out, normed);
      normed = nullptr;  // one of them writes it
    }
  }
}

void Multiplier::prompt(const DenseGroup& group, int row_count, const PromptInput& in,
                        const DenseOutput& out) {
  const std::uint16_t* staged = in.staged;
  for (const DenseMatrix& matrix : group.matrices) {
    if (quantises(matrix.input)) {
      prompt_fp4(matrix, row_count, in, out);
      continue;
    }
    if (matrix.takes_fp8()) {
      if (!in.has_codes) quantize(in, row_count, matrix);
      gemm(matrix, row_count, nullptr, out);
      continue;
    }
    if (staged == nullptr) stage(in.rows, row_count, matrix.columns(), buffers_.staged);
    staged = staged == nullptr ? buffers_.staged : staged;
    gemm(matrix, row_count, staged, out);
  }
}

}  // namespace fourfold::backend::cuda
