#include "backend/cpu/weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"

namespace fourfold::backend::cpu {
namespace {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;

kernel::PackedMatrix pack_fp8(const checkpoint::Matrix& matrix, const checkpoint::Fp8Storage& storage,
                              const kernel::StoredRow& stored_row) {
  std::int64_t segment_columns = (matrix.columns + 15) / 16 * 16;
  if (const auto* blocks = std::get_if<checkpoint::Fp8BlockScales>(&storage.scale)) {
    // A step of the kernel has one scale a row. Other block widths are multiplied as f32, and so are parts
    // that begin or end inside a step. A part that begins inside a block has narrower segments.
    const std::int64_t grain = std::gcd(blocks->block_columns, matrix.first_column);
    if (grain % kernel::kPanelColumns != 0)
      return kernel::pack_f32(matrix.rows, matrix.columns, [&](std::int64_t row, std::span<float> out) {
        checkpoint::read_row(matrix, row, out);
      });
    segment_columns = grain;
  }
  // The kernel's codes lack 2^8.
  const auto scale_of = [&](std::int64_t row, std::int64_t segment) {
    return 256.0f *
           std::visit(Overload{[](const checkpoint::Fp8TensorScale& s) { return s.scale; },
                               [&](const checkpoint::Fp8RowScales& s) {
                                 return s.scales[static_cast<std::size_t>(row)];
                               },
                               [&](const checkpoint::Fp8BlockScales& s) {
                                 const std::int64_t across =
                                     (matrix.stored_columns() + s.block_columns - 1) / s.block_columns;
                                 const std::int64_t column = matrix.first_column + segment * segment_columns;
                                 return s.scales[static_cast<std::size_t>(row / s.block_rows * across +
                                                                          column / s.block_columns)];
                               }},
                      storage.scale);
  };
  return kernel::pack_e4m3(storage.codes, matrix.rows, matrix.columns, stored_row, segment_columns, scale_of,
                           {matrix.first_column, matrix.stored_columns()});
}

// MXFP4 as NVFP4, exactly: a power of two for each half of a block. E4M3 has 2^-9 to 2^8; nothing where the
// scales of a matrix's numbers are further apart, which they are not in any that was seen.
std::optional<Nvfp4Matrix> as_nvfp4(const checkpoint::Matrix& matrix, const Mxfp4View& view) {
  constexpr int smallest = -9, largest = 8;
  const std::int64_t blocks = matrix.columns / kMxfp4BlockColumns;
  const std::int64_t first_block = matrix.first_column / kMxfp4BlockColumns;
  Nvfp4Matrix made;
  made.rows = matrix.rows;
  made.columns = matrix.columns;
  std::vector<int> exponents;  // of blocks that are not all zeros
  constexpr int zeros = std::numeric_limits<int>::min();
  int most = zeros, least = std::numeric_limits<int>::max();
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t stored = matrix.stored_row(row);
    const auto codes =
        view.codes.subspan(static_cast<std::size_t>((stored * view.columns + matrix.first_column) / 2),
                           static_cast<std::size_t>(matrix.columns / 2));
    made.codes.insert(made.codes.end(), codes.begin(), codes.end());
    for (std::int64_t block = 0; block < blocks; ++block) {
      constexpr std::size_t bytes = kMxfp4BlockColumns / 2;
      const auto own = codes.subspan(static_cast<std::size_t>(block) * bytes, bytes);
      const bool is_zero = std::ranges::all_of(own, [](std::uint8_t two) { return (two & 0x77) == 0; });
      exponents.push_back(is_zero ? zeros : view.scale(stored, first_block + block).bits - 127);
      if (is_zero) continue;
      most = std::max(most, exponents.back());
      least = std::min(least, exponents.back());
    }
  }
  const int shift = most == zeros ? 0 : most - largest;
  made.global_scale = std::ldexp(1.0f, shift);
  if (!std::isnormal(made.global_scale) || (most != zeros && least - shift < smallest)) return std::nullopt;
  for (const int exponent : exponents) {
    const E4m3 scale = to_e4m3(exponent == zeros ? 0.0f : std::ldexp(1.0f, exponent - shift));
    made.scales.insert(made.scales.end(), kMxfp4BlockColumns / kNvfp4BlockColumns, scale);
  }
  return made;
}

using ReadRow = std::function<void(std::int64_t row, std::span<float> out)>;

kernel::PackedMatrix pack_as_bf16(std::int64_t rows, std::int64_t columns, const ReadRow& read_row) {
  std::vector<Bf16> values;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    read_row(i, row);
    for (const float value : row) values.push_back(to_bf16(value));
  }
  return kernel::pack_bf16(values, rows, columns, [](std::int64_t i) { return i; }, {0, columns});
}

// The matrices of HeadLinear.
std::vector<Weight> pack_heads(const checkpoint::Matrix& matrix, const HeadLinear& op, const InputNeed& need,
                               bool is_exact) {
  const std::int64_t height = matrix.rows / op.head_count;  // of what is stored for a head
  const std::int64_t rows = op.transposed ? matrix.columns : height;
  const std::int64_t columns = op.transposed ? height : matrix.columns;
  std::vector<Weight> heads(static_cast<std::size_t>(op.head_count));
  std::vector<float> stored(static_cast<std::size_t>(height * matrix.columns));
  for (std::int64_t head = 0; head < op.head_count; ++head) {
    for (std::int64_t i = 0; i < height; ++i)
      checkpoint::read_row(matrix, head * height + i,
                           std::span(stored).subspan(static_cast<std::size_t>(i * matrix.columns),
                                                     static_cast<std::size_t>(matrix.columns)));
    const ReadRow read_row = [&](std::int64_t row, std::span<float> out) {
      for (std::int64_t i = 0; i < columns; ++i)
        out[static_cast<std::size_t>(i)] = stored[static_cast<std::size_t>(
            op.transposed ? i * matrix.columns + row : row * matrix.columns + i)];
    };
    Weight& made = heads[static_cast<std::size_t>(head)];
    made.need = need;
    made.matrix =
        is_exact ? kernel::pack_f32(rows, columns, read_row) : pack_as_bf16(rows, columns, read_row);
  }
  return heads;
}

kernel::PackedMatrix pack_mxfp4(const checkpoint::Matrix& matrix, const checkpoint::Mxfp4Storage& storage) {
  if (const auto nvfp4 = as_nvfp4(matrix, storage.view))
    return kernel::pack_nvfp4(nvfp4->view(), matrix.rows, matrix.columns,
                              [](std::int64_t row) { return row; });
  // A code times a power of two is a bf16 number.
  return pack_as_bf16(matrix.rows, matrix.columns, [&](std::int64_t row, std::span<float> out) {
    checkpoint::read_row(matrix, row, out);
  });
}

kernel::PackedMatrix pack_matrix(const checkpoint::Matrix& matrix) {
  const kernel::StoredRow stored_row = [&](std::int64_t row) { return matrix.stored_row(row); };
  const kernel::StoredColumns from{matrix.first_column, matrix.stored_columns()};
  return std::visit(
      Overload{[&](const checkpoint::Nvfp4Storage& s) {
                 return kernel::pack_nvfp4(s.view, matrix.rows, matrix.columns, stored_row, from);
               },
               [&](const checkpoint::Bf16Storage& s) {
                 return kernel::pack_bf16(s.values, matrix.rows, matrix.columns, stored_row, from);
               },
               [&](const checkpoint::Fp8Storage& s) { return pack_fp8(matrix, s, stored_row); },
               [&](const checkpoint::Mxfp4Storage& s) { return pack_mxfp4(matrix, s); },
               [&](const auto&) {
                 return kernel::pack_f32(
                     matrix.rows, matrix.columns,
                     [&](std::int64_t row, std::span<float> out) { checkpoint::read_row(matrix, row, out); });
               }},
      matrix.storage);
}

// The panels are of FP4 codes; of MXFP4 that is known when it is packed, and taken to be so before.
bool has_code_panels(const checkpoint::Matrix& matrix, const kernel::PackedMatrix& packed) {
  if (std::holds_alternative<checkpoint::Mxfp4Storage>(matrix.storage))
    return packed.rows == 0 || packed.format == WeightFormat::nvfp4;
  return std::holds_alternative<checkpoint::Nvfp4Storage>(matrix.storage);
}

// Whether the CPU has tiles and they take this matrix: segments of scales must be whole tiles.
bool takes_tiles(const checkpoint::Matrix& matrix, const kernel::PackedMatrix& packed,
                 const kernel::Kernels& kernels, bool tile_codes) {
  constexpr std::int64_t tile_columns = 32;
  if (kernels.multiply_tiles.nvfp4 == nullptr) return false;
  return std::visit(
      Overload{
          [](const checkpoint::F16Storage&) { return false; },
          [](const checkpoint::F32Storage&) { return false; },
          [&](const checkpoint::Fp8Storage& s) {
            const auto* blocks = std::get_if<checkpoint::Fp8BlockScales>(&s.scale);
            return blocks == nullptr ||
                   std::gcd(blocks->block_columns, matrix.first_column) % tile_columns == 0;
          },
          [](const checkpoint::Bf16Storage&) { return true; },
          [&](const checkpoint::Mxfp4Storage&) { return tile_codes || !has_code_panels(matrix, packed); },
          [&](const checkpoint::Nvfp4Storage&) { return tile_codes; }},
      matrix.storage);
}

InputNeed need_of(const MatrixUse& use, const kernel::PackedMatrix& packed, const kernel::Kernels& kernels,
                  bool tile_codes) {
  const auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&use.matrix->storage);
  const bool codes = has_code_panels(*use.matrix, packed);
  switch (use.input) {
    case InputFormat::f32:
      return {codes ? kernel::InputForm::three_planes : kernel::InputForm::floats, {1, 1}};
    case InputFormat::bf16:
      if (takes_tiles(*use.matrix, packed, kernels, tile_codes))
        return {kernel::InputForm::bf16_tiles, {1, 1}};
      return {codes ? kernel::InputForm::two_planes : kernel::InputForm::floats_bf16, {1, 1}};
    case InputFormat::nvfp4: break;
    case InputFormat::fp8:
    case InputFormat::fp8_prefill:
      fail_with_hint(
          Code::unsupported_op, "Run it with --activations w4a16.",
          "{}: the CPU backend has no FP8 activations (w8a8); the GPU backend and the reference do",
          use.matrix->name);
    case InputFormat::nvfp4_prefill:
      fail_with_hint(Code::unsupported_op, "Run it with --activations w4a4 or w4a16.",
                     "{}: the CPU backend quantises the inputs of a matrix for every row or for none",
                     use.matrix->name);
  }
  if (nvfp4 == nullptr || !nvfp4->input_scale)
    fail_with_hint(Code::bad_checkpoint, "run it with 16-bit activations (w4a16)",
                   "{} has no input scale, which FP4 activations need", use.matrix->name);
  return {kernel::InputForm::one_plane_bf16, *nvfp4->input_scale};
}

// Of HeadLinear, whose input is bf16 or f32 and whose weights become the same.
InputNeed need_of_heads(const MatrixUse& use, const kernel::Kernels& kernels) {
  if (use.input == InputFormat::f32) return {kernel::InputForm::floats, {1, 1}};
  return {
      kernels.multiply_tiles.bf16 != nullptr ? kernel::InputForm::bf16_tiles : kernel::InputForm::floats_bf16,
      {1, 1}};
}

// What the program does with a matrix.
struct Purpose {
  bool multiplied = false;
  bool looked_up = false;
  const HeadLinear* by_head = nullptr;
};

std::vector<Purpose> purposes(const Program& program) {  // by MatrixId
  std::vector<Purpose> all(program.matrices.size());
  const auto of = [&](MatrixId id) -> Purpose& { return all[static_cast<std::size_t>(id.index)]; };
  for (const Pass pass : {Pass::main, Pass::draft})
    for (const Op& op : program.ops(pass)) {
      if (const auto* embed = std::get_if<Embed>(&op)) of(embed->table).looked_up = true;
      if (const auto* linear = std::get_if<Linear>(&op)) of(linear->weight).multiplied = true;
      if (const auto* heads = std::get_if<HeadLinear>(&op)) of(heads->weight).by_head = heads;
      if (const auto* experts = std::get_if<RunExperts>(&op))
        for (const ExpertMatrices& expert : program.expert_set(experts->set).experts)
          for (const MatrixId id : {expert.gate, expert.up, expert.down}) of(id).multiplied = true;
    }
  return all;
}

// Which matrices the kernels have no form for and are held wider.
void note_widened(const Program& program, std::span<const Weight> weights,
                  std::vector<std::string>& notices) {
  struct Widened {
    std::int64_t count = 0, stored = 0, held = 0;
    std::string_view first;
    void add(const checkpoint::Matrix& matrix) {
      if (count++ == 0) first = matrix.name;
      stored += static_cast<std::int64_t>(checkpoint::stored_bytes(matrix));
    }
  } as_f32, as_bf16, by_head;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const checkpoint::Matrix& matrix = *program.matrices[i].matrix;
    const bool is_narrow = !std::holds_alternative<checkpoint::Bf16Storage>(matrix.storage) &&
                           !std::holds_alternative<checkpoint::F16Storage>(matrix.storage) &&
                           !std::holds_alternative<checkpoint::F32Storage>(matrix.storage);
    if (!weights[i].heads.empty() && is_narrow) {
      by_head.add(matrix);
      for (const Weight& head : weights[i].heads)
        by_head.held += static_cast<std::int64_t>(head.matrix.panels.size());
    }
    const bool is_f32 = std::holds_alternative<checkpoint::F32Storage>(matrix.storage);
    const bool is_mxfp4 = std::holds_alternative<checkpoint::Mxfp4Storage>(matrix.storage);
    if (weights[i].matrix.rows == 0 || is_f32 || weights[i].matrix.format == WeightFormat::nvfp4) continue;
    if (!is_mxfp4 && weights[i].matrix.format != WeightFormat::f32) continue;
    Widened& widened = is_mxfp4 ? as_bf16 : as_f32;
    widened.add(matrix);
    widened.held += static_cast<std::int64_t>(weights[i].matrix.panels.size());
  }
  if (as_f32.count > 0)
    notices.push_back(
        format("{} matrices (the first: {}) are F16, or FP8 with scale blocks not a multiple of {} columns "
               "wide; they are held as f32: {} bytes instead of {}",
               as_f32.count, as_f32.first, kernel::kPanelColumns, as_f32.held, as_f32.stored));
  if (as_bf16.count > 0)
    notices.push_back(
        format("{} matrices (the first: {}) are MXFP4 with scales further apart than 2^17; they are held as "
               "bf16, which is exact: {} bytes instead of {}",
               as_bf16.count, as_bf16.first, as_bf16.held, as_bf16.stored));
  if (by_head.count > 0)
    notices.push_back(
        format("{} matrices (the first: {}) are multiplied head by head; they are held as bf16 (f32 with "
               "--activations f32): {} bytes instead of {}",
               by_head.count, by_head.first, by_head.held, by_head.stored));
}

}  // namespace

kernel::MultiplyJob Weight::job() const {
  kernel::MultiplyJob job;
  job.panels = matrix.panels.data();
  job.panel_bytes = matrix.panel_bytes;
  job.panel_end = matrix.panel_count();
  job.rows = matrix.rows;
  job.block_count = matrix.padded_columns / kernel::kPanelColumns;
  job.scale = matrix.global_scale * need.scale.scale;
  job.segment_scales = matrix.segment_scales.data();
  job.segment_blocks = matrix.segment_columns / kernel::kPanelColumns;
  return job;
}

void Weight::multiply(const kernel::Kernels& kernels, const kernel::MultiplyJob& job) const {
  const bool by_tiles = need.form == kernel::InputForm::bf16_tiles;
  switch (matrix.format) {
    case WeightFormat::nvfp4:
      if (by_tiles) return kernels.multiply_tiles.nvfp4(job);
      return kernels.multiply_codes[kernel::plane_count(need.form) - 1](job);
    case WeightFormat::bf16: return by_tiles ? kernels.multiply_tiles.bf16(job) : kernels.multiply_bf16(job);
    case WeightFormat::fp8: return by_tiles ? kernels.multiply_tiles.e4m3(job) : kernels.multiply_e4m3(job);
    case WeightFormat::f32: return kernels.multiply_f32(job);
    case WeightFormat::mxfp4: break;
  }
  fail(Code::internal, "the CPU packs no {} panels", format_name(matrix.format));
}

std::vector<Weight> pack_weights(const Program& program, const CpuOptions& options,
                                 const kernel::Kernels& kernels, std::vector<std::string>& notices) {
  const std::vector<Purpose> purpose = purposes(program);
  checkpoint::LoadProgress unseen(0, {});
  checkpoint::LoadProgress& progress = options.progress != nullptr ? *options.progress : unseen;
  std::vector<Weight> weights(program.matrices.size());
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (purpose[i].multiplied)  // what it refuses is refused before anything is packed
      weights[i].need = need_of(program.matrices[i], weights[i].matrix, kernels, options.tile_codes);
  parallel_for(static_cast<std::int64_t>(weights.size()), 1, [&](std::int64_t begin, std::int64_t) {
    const auto i = static_cast<std::size_t>(begin);
    const checkpoint::Matrix& matrix = *program.matrices[i].matrix;
    const auto pack = [&](checkpoint::LoadedMatrix stored) {
      if (purpose[i].multiplied) {
        weights[i].matrix = pack_matrix(stored.matrix);
        weights[i].need = need_of(program.matrices[i], weights[i].matrix, kernels, options.tile_codes);
      }
      if (const HeadLinear* op = purpose[i].by_head)
        weights[i].heads = pack_heads(stored.matrix, *op, need_of_heads(program.matrices[i], kernels),
                                      program.matrices[i].input == InputFormat::f32);
      if (purpose[i].looked_up) weights[i].table = std::move(stored);
    };
    checkpoint::stream_matrix(matrix, pack, progress);
  });
  note_widened(program, weights, notices);
  return weights;
}

}  // namespace fourfold::backend::cpu
