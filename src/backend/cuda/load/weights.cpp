#include "backend/cuda/load/weights.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
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
    : arena_(arena),
      program_(program),
      dense_(options.dense),
      notices_(notices),
      sizes_alone_(sizes_alone),
      stream_(machine, program, options, sizes_alone) {}

void WeightLoader::require_bf16_input(MatrixId id) const {
  const MatrixUse& use = program_.matrix(id);
  if (use.input == InputFormat::bf16) return;
  if (use.input == InputFormat::f32)
    fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                   "{}: the GPU backend multiplies 16-bit activations, not f32", use.matrix->name);
  fail_with_hint(
      Code::unsupported_op, "Run it with --activations w4a4-prefill, or auto.",
      "{}: FP4 activations (w4a4) of other matrices than routed experts have no kernels in the GPU "
      "backend",
      use.matrix->name);
}

InputFormat WeightLoader::input_of(const ExpertSet& set) const {
  const MatrixUse& first = program_.matrix(set.experts.front().gate);
  for (const ExpertMatrices& expert : set.experts)
    for (const MatrixId id : {expert.gate, expert.up, expert.down})
      if (const MatrixUse& use = program_.matrix(id); use.input != first.input)
        fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                       "{} takes {} activations and {} {}: the experts of a layer must take the same",
                       first.matrix->name, quantises(first.input) ? "FP4" : "16-bit", use.matrix->name,
                       quantises(use.input) ? "FP4" : "16-bit");
  if (!quantises(first.input)) require_bf16_input(set.experts.front().gate);
  return first.input;
}

// A layer quantises a row once for the gate and up of an expert.
void WeightLoader::place_input_scales(const ExpertSet& set, ExpertRecords& out) {
  const auto scale_of = [&](MatrixId id) {
    const auto* stored = std::get_if<checkpoint::Nvfp4Storage>(&matrix(id).storage);
    if (stored == nullptr || !stored->input_scale)
      fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                     "{} has no input scale: FP4 activations need one", matrix(id).name);
    return *stored->input_scale;
  };
  std::vector<float> gate_up, gate_up_inverse, down, down_inverse;
  for (const ExpertMatrices& expert : set.experts) {
    const Nvfp4InputScale gate = scale_of(expert.gate), up = scale_of(expert.up),
                          last = scale_of(expert.down);
    if (gate.scale != up.scale || gate.inverse != up.inverse)
      fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                     "{} has the input scale {} and {} {}: gate and up must be calibrated alike",
                     matrix(expert.gate).name, gate.scale, matrix(expert.up).name, up.scale);
    gate_up.push_back(gate.scale);
    gate_up_inverse.push_back(gate.inverse);
    down.push_back(last.scale);
    down_inverse.push_back(last.inverse);
  }
  out.gate_up_input_scale = arena_.upload(gate_up, "input scales");
  out.gate_up_input_inverse = arena_.upload(gate_up_inverse, "input scales");
  out.down_input_scale = arena_.upload(down, "input scales");
  out.down_input_inverse = arena_.upload(down_inverse, "input scales");
}

WeightFormat WeightLoader::format_of(const Piece& piece) const {
  const WeightFormat format = record_format(matrix(piece.matrix), dense_);
  if (!piece.is_gate_up() || record_format(matrix(piece.up), dense_) == format) return format;
  return WeightFormat::bf16;
}

std::int64_t WeightLoader::strips_of(const Piece& piece) const {
  const std::int64_t rows = matrix(piece.matrix).rows;
  if (!piece.is_gate_up()) return rounded(rows, record::kRows) / record::kRows;
  return 2 * rounded(rows, record::kColumns) / record::kRows;  // neurons: columns of the next matrix
}

void WeightLoader::note_widened(const checkpoint::Matrix& held_as_bf16) {
  if (checkpoint::format_of(held_as_bf16) != checkpoint::MatrixFormat::bf16)
    widened_.push_back(&held_as_bf16);
}

RecordRun::Part WeightLoader::hold(const Piece& piece, WeightFormat format) {
  const auto one = [&](MatrixId id) {
    if (format == WeightFormat::bf16) note_widened(matrix(id));
    return &stream_.hold(matrix(id), format);
  };
  RecordRun::Part part{one(piece.matrix), nullptr};
  if (piece.is_gate_up()) part.up = one(piece.up);
  return part;
}

DenseGroup WeightLoader::dense(std::span<const Piece> pieces) {
  DenseGroup group;
  group.first_column.resize(pieces.size());
  // Plain pieces of each format in the order given, then the gate/up pieces of that format.
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4}) {
    std::vector<std::size_t> members;
    for (const bool gate_up : {false, true})
      for (std::size_t i = 0; i < pieces.size(); ++i)
        if (format_of(pieces[i]) == format && pieces[i].is_gate_up() == gate_up) members.push_back(i);
    if (members.empty()) continue;
    DenseMatrix out;
    out.format = format;
    out.first_column = group.width;
    const std::int64_t columns = matrix(pieces[members.front()].matrix).columns;
    out.column_records = static_cast<int>(rounded(columns, record::kColumns) / record::kColumns);
    std::vector<float> scales;
    RecordRun plain, gate_up;
    for (const std::size_t i : members) {
      require_bf16_input(pieces[i].matrix);
      const auto count = static_cast<int>(strips_of(pieces[i]));
      const RecordRun::Part part = hold(pieces[i], format);
      (pieces[i].is_gate_up() ? gate_up : plain).parts.push_back(part);
      group.first_column[i] = group.width;
      out.pieces.push_back({out.strips, count, pieces[i].is_gate_up(), nullptr, nullptr});
      if (format == WeightFormat::nvfp4) {
        const auto global = [&](const HeldMatrix& held) {
          return arena_.upload(std::vector<float>{held.factor(0)}, "global scale");
        };
        out.pieces.back().scale = global(*part.first);
        if (part.up != nullptr) out.pieces.back().scale_up = global(*part.up);
      }
      out.strips += count;
      if (!pieces[i].is_gate_up()) {
        out.plain_strips += count;
        group.width += record::kRows * count;
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
    if (std::any_of(scales.begin(), scales.end(), [](float s) { return s != 1.0f; }))
      out.row_scale = arena_.upload(scales, "row scales");
    group.matrices.push_back(out);
  }
  return group;
}

ExpertRecords WeightLoader::experts(ExpertSetId id) {
  const ExpertSet& set = program_.expert_set(id);
  const ExpertMatrices& first = set.experts.front();
  ExpertRecords out;
  out.experts = static_cast<int>(set.experts.size());
  out.hidden = static_cast<int>(matrix(first.gate).columns);
  out.intermediate = static_cast<int>(rounded(matrix(first.gate).rows, record::kColumns));
  out.format = format_of({first.gate, first.up});
  out.input = input_of(set);
  for (const ExpertMatrices& expert : set.experts) {
    for (const MatrixId matrix_id : {expert.gate, expert.up, expert.down}) {
      if (record_format(matrix(matrix_id)) != out.format) out.format = WeightFormat::bf16;
    }
    if (matrix(expert.gate).rows != matrix(first.gate).rows)
      fail(Code::unsupported_op, "{}: experts of {} and of {} neurons in one layer", set.name,
           matrix(first.gate).rows, matrix(expert.gate).rows);
  }
  if (out.format == WeightFormat::fp8) out.format = WeightFormat::bf16;
  if (quantises(out.input)) place_input_scales(set, out);
  const std::int64_t bytes = record_bytes(out.format) * out.hidden * out.intermediate /
                             (record::kRows * record::kColumns);  // of a matrix
  const auto count = static_cast<std::size_t>(out.experts);
  auto* gate_up = arena_.take<unsigned char>(count * static_cast<std::size_t>(2 * bytes), "expert records");
  auto* down = arena_.take<unsigned char>(count * static_cast<std::size_t>(bytes), "expert records");
  std::vector<float> gate_scale, up_scale, down_scale;
  const record::BitOrder order = quantises(out.input) ? record::BitOrder::fp4 : record::BitOrder::half;
  RecordRun gate_up_run{{}, gate_up, order}, down_run{{}, down, order};
  for (const ExpertMatrices& expert : set.experts) {
    const RecordRun::Part& first_two =
        gate_up_run.parts.emplace_back(hold({expert.gate, expert.up}, out.format));
    const RecordRun::Part& last = down_run.parts.emplace_back(hold({expert.down}, out.format));
    gate_scale.push_back(first_two.first->factor(0));
    up_scale.push_back(first_two.up->factor(0));
    down_scale.push_back(last.first->factor(0));
  }
  stream_.place(gate_up_run);
  stream_.place(down_run);
  out.gate_up = gate_up;
  out.down = down;
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

const std::uint16_t* WeightLoader::table(MatrixId id) {
  const auto [entry, is_new] = tables_.try_emplace(id.index, nullptr);
  if (!is_new) return entry->second;
  const checkpoint::Matrix& stored = matrix(id);
  const auto columns = static_cast<std::size_t>(stored.columns);
  auto* to = arena_.take<std::uint16_t>(static_cast<std::size_t>(stored.rows) * columns, "embedding");
  entry->second = to;
  note_widened(stored);
  stream_.place_rows(stream_.hold(stored, WeightFormat::bf16), to);
  return to;
}

void WeightLoader::finish() {
  stream_.finish(notices_);
  if (widened_.empty()) return;
  std::int64_t stored = 0, held = 0;
  for (const checkpoint::Matrix* from : widened_) {
    stored += static_cast<std::int64_t>(checkpoint::stored_bytes(*from));
    held += 2 * from->rows * from->columns;
  }
  notices_.push_back(format(
      "{} matrices (the first: {}, {}) have no kernels of their own format here; the GPU backend holds "
      "them as bf16: {} bytes instead of {}, rounded to 8 significant bits",
      widened_.size(), widened_.front()->name,
      checkpoint::format_name(checkpoint::format_of(*widened_.front())), held, stored));
}

}  // namespace fourfold::backend::cuda
