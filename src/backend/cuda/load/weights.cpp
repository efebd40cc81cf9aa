#include "backend/cuda/load/weights.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "base/fp8_rows.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {
namespace {

constexpr std::int64_t rounded(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }

// The factors of the part's rows, padding 1.
void append_scales(const RecordRun::Part& part, std::vector<float>& scales) {
  for (const HeldMatrix* held : {part.first, part.up}) {
    if (held == nullptr) continue;
    const std::int64_t rows = held->matrix->rows;
    for (std::int64_t row = 0; row < rounded(rows, part.up != nullptr ? record::kColumns : record::kRows);
         ++row)
      scales.push_back(row < rows ? held->factor(row) : 1.0f);
  }
}

}  // namespace

WeightLoader::WeightLoader(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
                           const LoadOptions& options, std::vector<std::string>& notices, bool sizes_alone)
    : arch_(machine.arch()),
      arena_(arena),
      program_(program),
      dense_(options.dense),
      notices_(notices),
      sizes_alone_(sizes_alone),
      stream_(machine, program, options, sizes_alone) {}

const DenseMatrix* DenseGroup::fp8_reader() const {
  const auto found = std::ranges::find_if(matrices, &DenseMatrix::takes_fp8);
  return found == matrices.end() ? nullptr : &*found;
}

bool DenseGroup::reads_staged() const {
  return std::ranges::any_of(
      matrices, [](const DenseMatrix& matrix) { return !matrix.takes_fp8() && !quantises(matrix.input); });
}

void Fp4Scales::want(float its) {
  if (find(its) < 0 && count < dense::kFp4Sets) inverse[static_cast<std::size_t>(count++)] = its;
}

int Fp4Scales::find(float its) const {
  const auto end = inverse.begin() + count, found = std::find(inverse.begin(), end, its);
  return found == end ? -1 : static_cast<int>(found - inverse.begin());
}

Fp4Scales scales_behind_norm(const DenseGroup& group, std::optional<float> experts) {
  Fp4Scales scales;
  if (experts) scales.want(*experts);
  for (const DenseMatrix& matrix : group.matrices)
    for (const PieceStrips& piece : matrix.pieces)
      if (quantises(matrix.input)) scales.want(piece.input.inverse);
  return scales;
}

InputFormat WeightLoader::common_input(std::span<const MatrixId> ids, std::string_view what) const {
  const MatrixUse& first = program_.matrix(ids.front());
  if (first.input == InputFormat::f32)
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{}: the GPU backend multiplies 16-bit activations, not f32", first.matrix->name);
  // FP8 rows are made for each matrix where it reads them, so only FP4 has to be the same everywhere.
  const auto as_fp4 = [](InputFormat input) { return quantises(input) ? input : InputFormat::bf16; };
  for (const MatrixId id : ids)
    if (const MatrixUse& use = program_.matrix(id); as_fp4(use.input) != as_fp4(first.input))
      fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                     "{} takes {} activations and {} {}: {} must take the same", first.matrix->name,
                     quantises(first.input) ? "FP4" : "16-bit", use.matrix->name,
                     quantises(use.input) ? "FP4" : "16-bit", what);
  return first.input;
}

InputFormat WeightLoader::input_of(const ExpertSet& set) const {
  std::vector<MatrixId> ids;
  for (const ExpertMatrices& expert : set.experts)
    ids.insert(ids.end(), {expert.gate, expert.up, expert.down});
  return common_input(ids, "the experts of a layer");
}

InputFormat WeightLoader::input_of(const Piece& piece) const {
  if (!piece.is_gate_up()) return common_input(std::array{piece.matrix}, "");
  return common_input(std::array{piece.matrix, piece.up, piece.down}, "the matrices of an MLP");
}

Nvfp4InputScale WeightLoader::input_scale_of(MatrixId id) const {
  const auto* stored = std::get_if<checkpoint::Nvfp4Storage>(&matrix(id).storage);
  if (stored == nullptr || !stored->input_scale)
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{} has no input scale: FP4 activations need one", matrix(id).name);
  return *stored->input_scale;
}

Nvfp4InputScale WeightLoader::input_scale_of(MatrixId gate_id, MatrixId up_id) const {
  const Nvfp4InputScale gate = input_scale_of(gate_id), up = input_scale_of(up_id);
  if (gate.scale != up.scale || gate.inverse != up.inverse)
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{} has the input scale {} and {} {}: gate and up must be calibrated alike",
                   matrix(gate_id).name, gate.scale, matrix(up_id).name, up.scale);
  return gate;
}

void WeightLoader::place_input_scales(const ExpertSet& set, ExpertRecords& out) {
  std::vector<float> gate_up, gate_up_inverse, down, down_inverse;
  for (const ExpertMatrices& expert : set.experts) {
    const Nvfp4InputScale first = input_scale_of(expert.gate, expert.up), last = input_scale_of(expert.down);
    gate_up.push_back(first.scale);
    gate_up_inverse.push_back(first.inverse);
    down.push_back(last.scale);
    down_inverse.push_back(last.inverse);
  }
  // Codes follow from the reciprocal alone.
  if (std::ranges::adjacent_find(gate_up_inverse, std::not_equal_to{}) == gate_up_inverse.end())
    out.common_inverse = gate_up_inverse.front();
  else
    apart_.push_back(set.name);
  out.gate_up_input_scale = arena_.upload(gate_up, "input scales");
  out.gate_up_input_inverse = arena_.upload(gate_up_inverse, "input scales");
  out.down_input_scale = arena_.upload(down, "input scales");
  out.down_input_inverse = arena_.upload(down_inverse, "input scales");
}

void WeightLoader::place_input_scale(const Piece& piece, PieceStrips& out) {
  const auto upload = [&](float value) { return arena_.upload(std::vector<float>{value}, "input scale"); };
  out.input = piece.is_gate_up() ? input_scale_of(piece.matrix, piece.up) : input_scale_of(piece.matrix);
  out.input_scale = upload(out.input.scale);
  out.input_inverse = upload(out.input.inverse);
  if (piece.is_gate_up()) out.next_inverse = upload(input_scale_of(piece.down).inverse);
}

// MXFP4 has rows for experts alone.
WeightFormat WeightLoader::format_of(const Piece& piece) const {
  const WeightFormat format = record_format(matrix(piece.matrix), dense_);
  if (format == WeightFormat::mxfp4) return WeightFormat::bf16;
  if (!piece.is_gate_up() || record_format(matrix(piece.up), dense_) == format) return format;
  return WeightFormat::bf16;
}

std::int64_t WeightLoader::strips_of(const Piece& piece) const {
  const std::int64_t rows = matrix(piece.matrix).rows;
  if (!piece.is_gate_up()) return rounded(rows, record::kRows) / record::kRows;
  return 2 * rounded(rows, record::kColumns) / record::kRows;  // neurons: columns of the next matrix
}

void WeightLoader::note_widened(const checkpoint::Matrix& held_as_bf16, bool is_mixed) {
  if (is_mixed)
    mixed_.push_back(&held_as_bf16);
  else if (checkpoint::format_of(held_as_bf16) != checkpoint::MatrixFormat::bf16)
    widened_.push_back(&held_as_bf16);
}

RecordRun::Part WeightLoader::hold(const Piece& piece, WeightFormat format, bool is_mixed) {
  const auto one = [&](MatrixId id) {
    if (format == WeightFormat::bf16) note_widened(matrix(id), is_mixed);
    return &stream_.hold(matrix(id), format);
  };
  RecordRun::Part part{one(piece.matrix), nullptr};
  if (piece.is_gate_up()) part.up = one(piece.up);
  return part;
}

// Matrices that read the same rows see the same codes of them.
void WeightLoader::place_fp8_scale(std::span<const Piece> pieces, std::span<const std::size_t> members,
                                   DenseMatrix& out) {
  const checkpoint::Matrix* first = nullptr;
  std::optional<float> scale;
  const auto see = [&](MatrixId id) {
    const checkpoint::Matrix& stored = matrix(id);
    const auto* fp8 = std::get_if<checkpoint::Fp8Storage>(&stored.storage);
    const std::optional<float> its = fp8 != nullptr ? fp8->input_scale : std::nullopt;
    const auto text = [](std::optional<float> value) { return value ? format("{}", *value) : "none"; };
    if (first != nullptr && its != scale)
      fail_with_hint(
          Code::unsupported_op, "Run it with --activations w4a16.",
          "{} has the input scale {} and {} {}: FP8 activations (w8a8) of matrices that share their "
          "input must be calibrated alike",
          first->name, text(scale), stored.name, text(its));
    first = &stored;
    scale = its;
  };
  for (const std::size_t i : members) {
    see(pieces[i].matrix);
    if (pieces[i].is_gate_up()) see(pieces[i].up);
  }
  if (!scale) return;
  const Fp8RowFactor factor = fp8_input_factor(*scale);
  out.input_scale = arena_.upload(std::vector<float>{factor.factor}, "input scale");
  out.input_inverse = factor.inverse;
}

DenseGroup WeightLoader::dense(std::span<const Piece> pieces) {
  DenseGroup group;
  group.first_column.resize(pieces.size());
  std::vector<InputFormat> inputs;
  for (const Piece& piece : pieces) {
    // A gate in FP8 whose up is not is widened with it, and takes what bf16 takes; so does an FP8 up.
    const InputFormat input = input_of(piece);
    const bool is_fp8 = format_of(piece) == WeightFormat::fp8 && input == InputFormat::fp8_prefill;
    inputs.push_back(is_fp8 || quantises(input) ? input : InputFormat::bf16);
  }
  // Plain pieces of each format and input in the order given, then the gate/up pieces of the same.
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
    for (const InputFormat input :
         {InputFormat::bf16, InputFormat::nvfp4, InputFormat::nvfp4_prefill, InputFormat::fp8_prefill}) {
      std::vector<std::size_t> members;
      for (const bool gate_up : {false, true})
        for (std::size_t i = 0; i < pieces.size(); ++i)
          if (format_of(pieces[i]) == format && inputs[i] == input && pieces[i].is_gate_up() == gate_up)
            members.push_back(i);
      if (!members.empty()) group.matrices.push_back(dense_matrix(pieces, members, format, input, group));
    }
  return group;
}

// FP4 has its global scale by piece; the others have a factor by row.
DenseMatrix WeightLoader::dense_matrix(std::span<const Piece> pieces, std::span<const std::size_t> members,
                                       WeightFormat format, InputFormat input, DenseGroup& group) {
  if (input == InputFormat::fp8_prefill && !moe_layer::has_fp8_prompts(arch_))
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{}: {} has no kernels for FP8 activations (w8a8)",
                   matrix(pieces[members.front()].matrix).name, arch_.name);
  DenseMatrix out;
  out.format = format;
  out.input = input;
  out.first_column = group.width;
  const std::int64_t columns = matrix(pieces[members.front()].matrix).columns;
  out.column_records = static_cast<int>(rounded(columns, record::kColumns) / record::kColumns);
  std::vector<float> scales, biases;
  bool has_bias = false;
  float before = 0;  // global scale of the piece before
  const record::BitOrder order = quantises(input) ? record::BitOrder::fp4 : record::BitOrder::half;
  RecordRun plain{{}, nullptr, order}, gate_up{{}, nullptr, order};
  for (const std::size_t i : members) {
    const auto count = static_cast<int>(strips_of(pieces[i]));
    const RecordRun::Part part = hold(pieces[i], format);
    (pieces[i].is_gate_up() ? gate_up : plain).parts.push_back(part);
    group.first_column[i] = group.width;
    PieceStrips piece{out.strips, count, pieces[i].is_gate_up()};
    if (format == WeightFormat::nvfp4) {
      const auto global = [&](const HeldMatrix& held) {
        return arena_.upload(std::vector<float>{held.factor(0)}, "global scale");
      };
      piece.scale = global(*part.first);
      if (part.up != nullptr) piece.scale_up = global(*part.up);
    }
    if (quantises(input)) place_input_scale(pieces[i], piece);
    // Query, key and value are mostly quantised alike: they are one launch then.
    const bool joins = quantises(input) && !piece.is_gate_up && !out.pieces.empty() &&
                       part.first->factor(0) == before && piece.input == out.pieces.back().input;
    before = part.first->factor(0);
    if (joins)
      out.pieces.back().strips += count;
    else
      out.pieces.push_back(piece);
    out.strips += count;
    if (!piece.is_gate_up) {
      out.plain_strips += count;
      group.width += record::kRows * count;
      if (pieces[i].bias.is_there()) {
        has_bias = true;
        const std::span<const float> values = program_.vector(pieces[i].bias).values;
        biases.insert(biases.end(), values.begin(), values.end());
      }
      biases.resize(static_cast<std::size_t>(record::kRows * out.plain_strips));
    }
    append_scales(part, scales);
  }
  const std::int64_t strip_bytes = out.column_records * record_bytes(format);
  auto* records =
      arena_.take<unsigned char>(static_cast<std::size_t>(out.strips * strip_bytes), "weight records");
  plain.to = records;
  gate_up.to = records + out.plain_strips * strip_bytes;
  if (!plain.parts.empty()) stream_.place(plain);
  if (!gate_up.parts.empty()) stream_.place(gate_up);
  out.records = records;
  if (!quantises(input) && std::any_of(scales.begin(), scales.end(), [](float s) { return s != 1.0f; }))
    out.row_scale = arena_.upload(scales, "row scales");
  if (has_bias && quantises(input))
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{}: a bias on a matrix with FP4 activations; the GPU backend has no kernels for it",
                   matrix(pieces[members.front()].matrix).name);
  if (has_bias) out.bias = arena_.upload(biases, "biases");
  if (out.takes_fp8()) place_fp8_scale(pieces, members, out);
  return out;
}

// As the rows of the packed matrices lie: neurons up to a whole record, whose padding has none.
void WeightLoader::place_biases(const ExpertSet& set, ExpertRecords& out) {
  // Most models have none, and then nothing is laid out: zeros of every expert were two fifths of what a plan
  // takes.
  if (!set.gate_bias.is_there() && !set.up_bias.is_there() && !set.down_bias.is_there()) return;
  const std::int64_t neurons = matrix(set.experts.front().gate).rows;
  const auto append = [&](OptionalVectorId id, std::size_t expert, std::int64_t rows, std::int64_t padded,
                          std::vector<float>& to) {
    std::vector<float> row(static_cast<std::size_t>(padded));
    if (id.is_there()) {
      const auto values = program_.vector(id).values.subspan(expert * static_cast<std::size_t>(rows),
                                                             static_cast<std::size_t>(rows));
      std::copy(values.begin(), values.end(), row.begin());
    }
    to.insert(to.end(), row.begin(), row.end());
  };
  std::vector<float> gate_up, down;
  for (std::size_t expert = 0; expert < set.experts.size(); ++expert) {
    append(set.gate_bias, expert, neurons, out.intermediate, gate_up);
    append(set.up_bias, expert, neurons, out.intermediate, gate_up);
    append(set.down_bias, expert, out.hidden, out.hidden, down);
  }
  if (set.gate_bias.is_there() || set.up_bias.is_there())
    out.gate_up_bias = arena_.upload(gate_up, "expert biases");
  if (set.down_bias.is_there()) out.down_bias = arena_.upload(down, "expert biases");
}

ExpertRecords WeightLoader::experts(ExpertSetId id) {
  const ExpertSet& set = program_.expert_set(id);
  const ExpertMatrices& first = set.experts.front();
  ExpertRecords out;
  out.experts = static_cast<int>(set.experts.size());
  out.hidden = static_cast<int>(matrix(first.gate).columns);
  out.intermediate = static_cast<int>(rounded(matrix(first.gate).rows, record::kColumns));
  out.format = record_format(matrix(first.gate));
  out.input = input_of(set);
  bool is_mixed = false;
  for (const ExpertMatrices& expert : set.experts) {
    for (const MatrixId matrix_id : {expert.gate, expert.up, expert.down})
      is_mixed = is_mixed || record_format(matrix(matrix_id)) != out.format;
    if (matrix(expert.gate).rows != matrix(first.gate).rows)
      fail(Code::unsupported_op, "{}: experts of {} and of {} neurons in one layer", set.name,
           matrix(first.gate).rows, matrix(expert.gate).rows);
  }
  if (is_mixed) {
    out.format = WeightFormat::bf16;
    mixed_layers_.push_back(set.name);
  }
  if (quantises(out.input)) place_input_scales(set, out);
  place_biases(set, out);
  const std::int64_t bytes = record_bytes(out.format) * out.hidden * out.intermediate /
                             (record::kRows * record::kColumns);  // of a matrix
  const auto count = static_cast<std::size_t>(out.experts);
  auto* gate_up = arena_.take<unsigned char>(count * static_cast<std::size_t>(2 * bytes), "expert records");
  auto* down = arena_.take<unsigned char>(count * static_cast<std::size_t>(bytes), "expert records");
  std::vector<float> gate_scale, up_scale, down_scale, gate_up_rows, down_rows;
  const record::BitOrder order = quantises(out.input) ? record::BitOrder::fp4 : record::BitOrder::half;
  RecordRun gate_up_run{{}, gate_up, order}, down_run{{}, down, order};
  for (const ExpertMatrices& expert : set.experts) {
    const RecordRun::Part& first_two =
        gate_up_run.parts.emplace_back(hold({expert.gate, expert.up}, out.format, is_mixed));
    const RecordRun::Part& last = down_run.parts.emplace_back(hold({expert.down}, out.format, is_mixed));
    if (out.format == WeightFormat::fp8) {
      append_scales(first_two, gate_up_rows);
      append_scales(last, down_rows);
      continue;
    }
    gate_scale.push_back(first_two.first->factor(0));
    up_scale.push_back(first_two.up->factor(0));
    down_scale.push_back(last.first->factor(0));
  }
  stream_.place(gate_up_run);
  stream_.place(down_run);
  out.gate_up = gate_up;
  out.down = down;
  if (out.format == WeightFormat::fp8) {
    out.gate_up_row_scale = arena_.upload(gate_up_rows, "expert scales");
    out.down_row_scale = arena_.upload(down_rows, "expert scales");
    return out;
  }
  out.gate_scale = arena_.upload(gate_scale, "expert scales");
  out.up_scale = arena_.upload(up_scale, "expert scales");
  out.down_scale = arena_.upload(down_scale, "expert scales");
  return out;
}

const float* WeightLoader::vector(VectorId id) {
  const std::span<const float> values = program_.vector(id).values;
  return arena_.upload(std::vector<float>(values.begin(), values.end()), "vector");
}

const float* WeightLoader::norm(const Norm& norm) {
  const std::span<const float> values = program_.vector(norm.weight).values;
  std::vector<float> weight(values.begin(), values.end());
  if (norm.adds_one)
    for (float& w : weight) w += 1.0f;
  return arena_.upload(weight, "norm");
}

const std::uint16_t* WeightLoader::table(MatrixId id, const char* what) {
  const auto [entry, is_new] = tables_.try_emplace(id.index, nullptr);
  if (!is_new) return entry->second;
  const checkpoint::Matrix& stored = matrix(id);
  const auto columns = static_cast<std::size_t>(rounded(stored.columns, record::kColumns));
  auto* to = arena_.take<std::uint16_t>(static_cast<std::size_t>(stored.rows) * columns, what);
  entry->second = to;
  note_widened(stored);
  stream_.place_rows(stream_.hold(stored, WeightFormat::bf16), to);
  return to;
}

void WeightLoader::mention_mixed() {
  if (mixed_layers_.empty()) return;
  std::int64_t stored = 0, held = 0;
  std::vector<std::string_view> formats;
  for (const checkpoint::Matrix* from : mixed_) {
    stored += static_cast<std::int64_t>(checkpoint::stored_bytes(*from));
    held += 2 * from->rows * from->columns;
    const std::string_view name = checkpoint::format_name(checkpoint::format_of(*from));
    if (std::ranges::find(formats, name) == formats.end()) formats.push_back(name);
  }
  std::string names;
  for (const std::string_view name : formats) names += (names.empty() ? "" : ", ") + std::string(name);
  notices_.push_back(
      format("{} layers (the first: {}) have experts in different formats ({}): the GPU backend multiplies "
             "those of a layer in one and holds them as bf16: {} bytes instead of {}, rounded to 8 "
             "significant bits. Quantised alike they would stay as they are stored",
             mixed_layers_.size(), mixed_layers_.front(), names, held, stored));
}

void WeightLoader::finish() {
  stream_.finish(notices_);
  if (!apart_.empty())
    notices_.push_back(
        format("{} layers (the first: {}) have experts with different input scales: a prompt's rows are "
               "quantised after routing, once for each of a row's experts. Calibrated with one scale for all "
               "experts of a layer, the norm before them would do it",
               apart_.size(), apart_.front()));
  mention_mixed();
  if (widened_.empty()) return;
  std::int64_t stored = 0, held = 0;
  for (const checkpoint::Matrix* from : widened_) {
    stored += static_cast<std::int64_t>(checkpoint::stored_bytes(*from));
    held += 2 * from->rows * from->columns;
  }
  const auto is_f32_router = [](const checkpoint::Matrix* matrix) {
    return checkpoint::format_of(*matrix) == checkpoint::MatrixFormat::f32 &&
           matrix->role == checkpoint::TensorRole::router;
  };
  if (const auto routers = std::ranges::count_if(widened_, is_f32_router); routers > 0)
    notices_.push_back(
        format("{} routers are stored in f32, and the GPU backend holds them as bf16: where two "
               "experts are nearly level it may choose another than the CPU does",
               routers));
  notices_.push_back(format(
      "{} matrices (the first: {}, {}) have no kernels of their own format here; the GPU backend holds "
      "them as bf16: {} bytes instead of {}, rounded to 8 significant bits",
      widened_.size(), widened_.front()->name,
      checkpoint::format_name(checkpoint::format_of(*widened_.front())), held, stored));
}

}  // namespace fourfold::backend::cuda
