#include "backend/cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/pack_rows.h"
#include "base/bf16.h"
#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"
#include "kernels/record/record.h"

namespace fourfold::backend::cuda {
namespace {

// Stored in a form that has no records of its own and does not fit bf16 exactly.
bool is_widened(const checkpoint::Matrix& matrix) {
  const auto format = checkpoint::format_of(matrix);
  return format == checkpoint::MatrixFormat::f16 || format == checkpoint::MatrixFormat::f32 ||
         format == checkpoint::MatrixFormat::fp8_blocks;
}

const void* data_of(const checkpoint::Matrix& matrix) {
  return std::visit(
      [](const auto& storage) -> const void* {
        using Storage = std::decay_t<decltype(storage)>;
        if constexpr (std::is_same_v<Storage, checkpoint::Nvfp4Storage>)
          return storage.view.codes.data();
        else if constexpr (std::is_same_v<Storage, checkpoint::Fp8Storage>)
          return storage.codes.data();
        else
          return storage.values.data();
      },
      matrix.storage);
}

constexpr std::int64_t strips(std::int64_t rows) { return (rows + record::kRows - 1) / record::kRows; }

}  // namespace

RecordFormat record_format(const checkpoint::Matrix& matrix) {
  switch (checkpoint::format_of(matrix)) {
    case checkpoint::MatrixFormat::nvfp4: return RecordFormat::nvfp4;
    case checkpoint::MatrixFormat::fp8_tensor:
    case checkpoint::MatrixFormat::fp8_rows: return RecordFormat::fp8;
    default: return RecordFormat::bf16;
  }
}

std::int64_t record_bytes(RecordFormat format) {
  switch (format) {
    case RecordFormat::bf16: return record::kRecordBytes<record::Bf16Format>;
    case RecordFormat::fp8: return record::kRecordBytes<record::Fp8Format>;
    case RecordFormat::nvfp4: break;
  }
  return record::kRecordBytes<record::Nvfp4>;
}

WeightLoader::WeightLoader(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
                           const LoadOptions& options, std::vector<std::string>& notices)
    : machine_(machine),
      arena_(arena),
      program_(program),
      options_(options),
      notices_(notices),
      upload_(machine.memory()) {}

void WeightLoader::require_bf16_input(MatrixId id) const {
  const MatrixUse& use = program_.matrix(id);
  if (use.input == InputFormat::bf16) return;
  fail_with_hint(Code::unsupported_op, "Run it with --activations w4a16.",
                 "{}: the GPU backend multiplies 16-bit activations; this program asks for {}",
                 use.matrix->name, use.input == InputFormat::f32 ? "f32" : "nvfp4 (w4a4)");
}

RecordFormat WeightLoader::format_of(const Piece& piece) const {
  const RecordFormat format = record_format(matrix(piece.matrix));
  if (!piece.is_gate_up() || record_format(matrix(piece.up)) == format) return format;
  return RecordFormat::bf16;
}

std::int64_t WeightLoader::strips_of(const Piece& piece) const {
  if (!piece.is_gate_up()) return strips(matrix(piece.matrix).rows);
  return 2 * strips(matrix(piece.matrix).rows);  // an odd half strip is padded with the other
}

void WeightLoader::read(const checkpoint::Matrix& stored,
                        const std::function<void(const checkpoint::Matrix&)>& use) {
  checkpoint::LoadProgress nobody(0, {});
  checkpoint::LoadProgress& progress = options_.progress != nullptr ? *options_.progress : nobody;
  if (options_.checkpoint != nullptr) return stream_matrix(*options_.checkpoint, stored, use, progress);
  checkpoint::validate(stored);
  use(stored);
  progress.add(checkpoint::stored_bytes(stored));
}

// Both matrices must be in memory when they are interleaved: streamed one inside the other.
void WeightLoader::pack(const Piece& piece, RecordFormat format, std::span<unsigned char> to) {
  for (const MatrixId id : {piece.matrix, piece.up})
    if (id.index >= 0 && format == RecordFormat::bf16 && is_widened(matrix(id)))
      widened_.push_back(&matrix(id));
  read(matrix(piece.matrix), [&](const checkpoint::Matrix& first) {
    if (!piece.is_gate_up()) return pack_rows(format, first, nullptr, to);
    read(matrix(piece.up), [&](const checkpoint::Matrix& up) { pack_rows(format, first, &up, to); });
  });
}

void WeightLoader::place(const Piece& piece, RecordFormat format, unsigned char* to) {
  const checkpoint::Matrix& first = matrix(piece.matrix);
  const std::size_t bytes =
      static_cast<std::size_t>(strips_of(piece) * (first.columns / record::kColumns) * record_bytes(format));
  // The same stored bytes give the same records; where rows are gathered, the same table and count do.
  const std::array<const void*, 4> key{
      data_of(first), piece.is_gate_up() ? data_of(matrix(piece.up)) : nullptr,
      reinterpret_cast<const void*>(static_cast<std::uintptr_t>(first.rows)),
      reinterpret_cast<const void*>(static_cast<std::uintptr_t>(first.columns))};
  // A checkpoint's gathered rows differ though their table is one; only its own tables repeat.
  const bool may_repeat = options_.checkpoint == nullptr;
  if (const auto found = placed_.find(key); may_repeat && found != placed_.end()) {
    machine_.memory().copy(to, found->second, bytes);
    return;
  }
  packed_.resize(bytes);
  pack(piece, format, packed_);
  upload_.send(to, bytes, [&](std::span<std::byte> part, std::size_t offset) {
    std::memcpy(part.data(), packed_.data() + offset, part.size());
  });
  placed_[key] = to;
}

void WeightLoader::append_scales(const Piece& piece, RecordFormat format, std::vector<float>& scales) const {
  for (const MatrixId id : {piece.matrix, piece.up}) {
    if (id.index < 0) continue;
    const checkpoint::Matrix& from = matrix(id);
    const std::int64_t padded = strips(from.rows) * record::kRows;
    for (std::int64_t row = 0; row < padded; ++row)
      scales.push_back(row < from.rows ? row_factor(format, from, row) : 1.0f);
  }
}

DenseGroup WeightLoader::dense(std::span<const Piece> pieces) {
  DenseGroup group;
  group.first_column.resize(pieces.size());
  // Plain pieces of each format in the order given, then the gate/up pieces of that format.
  for (const RecordFormat format : {RecordFormat::bf16, RecordFormat::fp8, RecordFormat::nvfp4}) {
    std::vector<std::size_t> members;
    for (const bool gate_up : {false, true})
      for (std::size_t i = 0; i < pieces.size(); ++i)
        if (format_of(pieces[i]) == format && pieces[i].is_gate_up() == gate_up) members.push_back(i);
    if (members.empty()) continue;
    DenseMatrix out;
    out.format = format;
    out.first_column = group.width;
    const std::int64_t columns = matrix(pieces[members.front()].matrix).columns;
    if (columns % record::kColumns != 0)
      fail(Code::unsupported_op, "{}: {} columns; the GPU backend needs a multiple of {}",
           matrix(pieces[members.front()].matrix).name, columns, record::kColumns);
    out.column_records = static_cast<int>(columns / record::kColumns);
    std::vector<float> scales;
    for (const std::size_t i : members) {
      require_bf16_input(pieces[i].matrix);
      const auto count = static_cast<int>(strips_of(pieces[i]));
      group.first_column[i] = group.width;
      out.pieces.push_back({out.strips, count, pieces[i].is_gate_up(), nullptr, nullptr});
      if (format == RecordFormat::nvfp4) {
        out.pieces.back().scale = arena_.upload(
            std::vector<float>{row_factor(format, matrix(pieces[i].matrix), 0)}, "global scale");
        if (pieces[i].is_gate_up())
          out.pieces.back().scale_up =
              arena_.upload(std::vector<float>{row_factor(format, matrix(pieces[i].up), 0)}, "global scale");
      }
      out.strips += count;
      if (!pieces[i].is_gate_up()) {
        out.plain_strips += count;
        group.width += record::kRows * count;
      }
      append_scales(pieces[i], format, scales);
    }
    const std::int64_t strip_bytes = out.column_records * record_bytes(format);
    auto* records =
        arena_.take<unsigned char>(static_cast<std::size_t>(out.strips * strip_bytes), "weight records");
    std::int64_t at = 0;
    for (const std::size_t i : members) {
      place(pieces[i], format, records + at * strip_bytes);
      at += strips_of(pieces[i]);
    }
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
  out.intermediate = static_cast<int>(matrix(first.gate).rows);
  out.format = format_of({first.gate, first.up});
  if (out.hidden % record::kColumns != 0 || out.intermediate % record::kColumns != 0)
    fail(Code::unsupported_op, "{}: experts of {} x {}; the GPU backend needs multiples of {}", set.name,
         out.hidden, out.intermediate, record::kColumns);
  for (const ExpertMatrices& expert : set.experts) {
    for (const MatrixId matrix_id : {expert.gate, expert.up, expert.down}) {
      require_bf16_input(matrix_id);
      if (record_format(matrix(matrix_id)) != out.format) out.format = RecordFormat::bf16;
    }
    if (matrix(expert.gate).rows != out.intermediate)
      fail(Code::unsupported_op, "{}: experts of {} and of {} neurons in one layer", set.name,
           out.intermediate, matrix(expert.gate).rows);
  }
  if (out.format == RecordFormat::fp8) out.format = RecordFormat::bf16;
  const std::int64_t bytes = record_bytes(out.format) * out.hidden * out.intermediate /
                             (record::kRows * record::kColumns);  // of a matrix
  const auto count = static_cast<std::size_t>(out.experts);
  auto* gate_up = arena_.take<unsigned char>(count * static_cast<std::size_t>(2 * bytes), "expert records");
  auto* down = arena_.take<unsigned char>(count * static_cast<std::size_t>(bytes), "expert records");
  std::vector<float> gate_scale, up_scale, down_scale;
  for (std::size_t e = 0; e < count; ++e) {
    const ExpertMatrices& expert = set.experts[e];
    place({expert.gate, expert.up}, out.format, gate_up + static_cast<std::int64_t>(e) * 2 * bytes);
    place({expert.down}, out.format, down + static_cast<std::int64_t>(e) * bytes);
    gate_scale.push_back(row_factor(out.format, matrix(expert.gate), 0));
    up_scale.push_back(row_factor(out.format, matrix(expert.up), 0));
    down_scale.push_back(row_factor(out.format, matrix(expert.down), 0));
  }
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
  if (is_widened(stored)) widened_.push_back(&stored);
  read(stored, [&](const checkpoint::Matrix& from) {
    const std::size_t row_bytes = 2 * columns;
    const std::size_t rows_each = std::max<std::size_t>(1, Upload::kBufferBytes / row_bytes);
    for (std::size_t row = 0; row < static_cast<std::size_t>(from.rows); row += rows_each) {
      const std::size_t count = std::min(rows_each, static_cast<std::size_t>(from.rows) - row);
      upload_.send(to + row * columns, count * row_bytes, [&](std::span<std::byte> part, std::size_t) {
        bf16_rows(from, static_cast<std::int64_t>(row), reinterpret_cast<std::uint16_t*>(part.data()),
                  static_cast<std::int64_t>(count));
      });
    }
  });
  return to;
}

void WeightLoader::finish() {
  upload_.finish();
  if (widened_.empty()) return;
  std::int64_t stored = 0, held = 0;
  for (const checkpoint::Matrix* from : widened_) {
    stored += static_cast<std::int64_t>(checkpoint::stored_bytes(*from));
    held += 2 * from->rows * from->columns;
  }
  notices_.push_back(
      format("{} matrices (the first: {}) are F16, F32 or FP8 with block scales; the GPU backend holds them "
             "as bf16: "
             "{} bytes instead of {}, rounded to 8 significant bits",
             widened_.size(), widened_.front()->name, held, stored));
}

}  // namespace fourfold::backend::cuda
