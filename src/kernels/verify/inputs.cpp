#include "kernels/verify/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/e2m1.h"
#include "base/e4m3.h"
#include "base/mxfp4.h"
#include "base/nvfp4.h"

namespace fourfold::verify {
namespace {

std::uint8_t random_scale(Random& random, bool mxfp4) {
  if (mxfp4) return static_cast<std::uint8_t>(117 + random.below(21));
  switch (random.below(32)) {
    case 0: return 0;                                               // a block scaled away
    case 1: return static_cast<std::uint8_t>(1 + random.below(7));  // subnormal
    case 2: return 0x7E;                                            // 448
    default: return static_cast<std::uint8_t>(0x20 + random.below(0x30));
  }
}

E2m1 code_at(const CheckpointMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::uint8_t pair = matrix.codes[static_cast<std::size_t>(row * (matrix.columns / 2) + column / 2)];
  return column % 2 ? e2m1_odd(pair) : e2m1_even(pair);
}

void set_code(CheckpointMatrix& matrix, std::int64_t row, std::int64_t column, E2m1 code) {
  std::uint8_t& pair = matrix.codes[static_cast<std::size_t>(row * (matrix.columns / 2) + column / 2)];
  pair = column % 2 ? static_cast<std::uint8_t>((pair & 0x0F) | code.bits << 4)
                    : static_cast<std::uint8_t>((pair & 0xF0) | code.bits);
}

CheckpointMatrix empty_matrix(std::int64_t rows, std::int64_t columns, bool mxfp4) {
  CheckpointMatrix matrix{rows, columns, mxfp4, {}, {}};
  matrix.codes.assign(static_cast<std::size_t>(rows * columns / 2), 0);
  matrix.scales.assign(static_cast<std::size_t>(rows * columns / (mxfp4 ? 32 : 16)), mxfp4 ? 127 : 0);
  return matrix;
}

}  // namespace

CheckpointMatrix random_matrix(Random& random, std::int64_t rows, std::int64_t columns, bool mxfp4) {
  CheckpointMatrix matrix = empty_matrix(rows, columns, mxfp4);
  for (auto& byte : matrix.codes) byte = static_cast<std::uint8_t>(random.below(256));
  for (auto& byte : matrix.scales) byte = random_scale(random, mxfp4);
  // One block in sixteen is all zero.
  const std::int64_t block = mxfp4 ? 32 : 16;
  for (std::int64_t b = 0; b < rows * columns / block; ++b)
    if (random.below(16) == 0)
      std::memset(matrix.codes.data() + b * block / 2, random.below(2) ? 0x00 : 0x88,
                  static_cast<std::size_t>(block / 2));
  return matrix;
}

reference::Weights reference_of(const CheckpointMatrix& matrix) {
  reference::Weights weights;
  weights.rows = matrix.rows;
  weights.columns = matrix.columns;
  weights.columns_per_scale = matrix.mxfp4 ? 32 : 16;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; ++column)
      weights.codes.push_back(code_at(matrix, row, column));
  weights.scale_bytes = matrix.scales;
  return weights;
}

DenseMatrix random_dense(Random& random, std::int64_t rows, std::int64_t columns,
                         record::DenseSource source) {
  DenseMatrix matrix{rows, columns, source, {}};
  const auto count = static_cast<std::size_t>(rows * columns);
  for (std::size_t i = 0; i < count; ++i) {
    if (source == record::DenseSource::e4m3) {
      // Every number of the format, subnormals and both zeros among them; 0x7F and 0xFF are NaN.
      const auto code = static_cast<std::uint8_t>(random.below(0x7F));
      matrix.bytes.push_back(static_cast<std::uint8_t>(code | random.below(2) << 7));
      continue;
    }
    Bf16 value = to_bf16(static_cast<float>(random.normal() * 0.1));
    if (random.below(16) == 0) value.bits = static_cast<std::uint16_t>(random.below(2) << 15);
    if (random.below(64) == 0) value.bits = static_cast<std::uint16_t>(1 + random.below(0x7F));  // subnormal
    matrix.bytes.push_back(static_cast<std::uint8_t>(value.bits & 0xFF));
    matrix.bytes.push_back(static_cast<std::uint8_t>(value.bits >> 8));
  }
  return matrix;
}

reference::Weights reference_of(const DenseMatrix& matrix) {
  reference::Weights weights;
  weights.rows = matrix.rows;
  weights.columns = matrix.columns;
  const auto count = static_cast<std::size_t>(matrix.rows * matrix.columns);
  for (std::size_t i = 0; i < count; ++i)
    weights.values.push_back(
        matrix.source == record::DenseSource::e4m3
            ? to_bf16(to_float(E4m3{matrix.bytes[i]}))
            : Bf16{static_cast<std::uint16_t>(matrix.bytes[2 * i] | matrix.bytes[2 * i + 1] << 8)});
  return weights;
}

std::vector<std::uint8_t> pack_dense(const DenseMatrix& matrix) {
  record::DenseJob job{matrix.bytes.data(), nullptr, nullptr,       matrix.rows,
                       matrix.columns,      0,       matrix.source, record::RowOrder::plain};
  std::vector<std::uint8_t> records(record::dense_bytes(job));
  job.records = records.data();
  record::pack_dense(job);
  return records;
}

std::vector<std::uint8_t> pack_dense(const DenseMatrix& gate, const DenseMatrix& up) {
  record::DenseJob job{gate.bytes.data(), up.bytes.data(),          nullptr, 2 * gate.rows, gate.columns, 0,
                       gate.source,       record::RowOrder::gate_up};
  std::vector<std::uint8_t> records(record::dense_bytes(job));
  job.records = records.data();
  record::pack_dense(job);
  return records;
}

std::vector<Bf16> random_tokens(Random& random, std::int64_t rows, std::int64_t columns) {
  std::vector<Bf16> tokens;
  tokens.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const double size = random.below(8) == 0 ? 300.0 : 1.0;
    for (std::int64_t column = 0; column < columns; ++column) {
      double value = random.normal() * size;
      if (random.below(16) == 0) value = random.below(2) ? 0.0 : value * 0x1p-130;
      tokens.push_back(to_bf16(static_cast<float>(value)));
    }
  }
  return tokens;
}

Assignment random_assignment(Random& random, const std::vector<int>& tokens_per_expert, int token_count,
                             int tile_tokens) {
  Assignment assignment;
  for (std::size_t expert = 0; expert < tokens_per_expert.size(); ++expert) {
    const int count = tokens_per_expert[expert];
    const int first = static_cast<int>(assignment.slots());
    for (int place = 0; place < moe::round_up(count, moe::kSlotGroup); ++place) {
      const bool real = place < count;
      assignment.slot_token.push_back(
          real ? static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(token_count))) : 0);
      assignment.slot_weight.push_back(real ? static_cast<float>(random.uniform(0.05, 1.0)) : 0.0f);
      assignment.slot_expert.push_back(real ? static_cast<std::int32_t>(expert) : -1);
    }
    const int tiles = (count + tile_tokens - 1) / tile_tokens;
    if (tiles == 0) continue;
    const int each = moe::round_up((count + tiles - 1) / tiles, moe::kSlotGroup);
    for (int begin = 0; begin < count; begin += each)
      assignment.tiles.push_back(
          {static_cast<std::int32_t>(expert), first + begin, std::min(each, count - begin), 0});
  }
  return assignment;
}

CheckpointMatrix quantize_slots(const std::vector<Bf16>& tokens, std::int64_t columns,
                                const Assignment& assignment, const std::vector<float>& inverse_input_scale) {
  CheckpointMatrix slots = empty_matrix(assignment.slots(), columns, false);
  for (std::int64_t slot = 0; slot < slots.rows; ++slot) {
    const int expert = assignment.slot_expert[static_cast<std::size_t>(slot)];
    if (expert < 0) continue;
    const float inverse = inverse_input_scale[static_cast<std::size_t>(expert)];
    const Bf16* row = tokens.data() + assignment.slot_token[static_cast<std::size_t>(slot)] * columns;
    for (std::int64_t block = 0; block < columns / 16; ++block) {
      float amax = 0.0f;
      for (int i = 0; i < 16; ++i) amax = std::max(amax, std::abs(to_float(row[16 * block + i])));
      const E4m3 scale = nvfp4_activation_scale(amax, inverse);
      const float multiplier = nvfp4_activation_multiplier(scale, inverse);
      slots.scales[static_cast<std::size_t>(slot * (columns / 16) + block)] = scale.bits;
      for (int i = 0; i < 16; ++i)
        set_code(slots, slot, 16 * block + i,
                 nvfp4_activation_code(to_float(row[16 * block + i]), multiplier));
    }
  }
  return slots;
}

CheckpointMatrix quantize_slots_mxfp4(const std::vector<Bf16>& tokens, std::int64_t columns,
                                      const Assignment& assignment) {
  CheckpointMatrix slots = empty_matrix(assignment.slots(), columns, true);
  for (std::int64_t slot = 0; slot < slots.rows; ++slot) {
    if (assignment.slot_expert[static_cast<std::size_t>(slot)] < 0) continue;
    const Bf16* row = tokens.data() + assignment.slot_token[static_cast<std::size_t>(slot)] * columns;
    for (std::int64_t block = 0; block < columns / 32; ++block) {
      float amax = 0.0f;
      for (int i = 0; i < 32; ++i) amax = std::max(amax, std::abs(to_float(row[32 * block + i])));
      const Ue8m0 scale = mxfp4_block_scale(amax);
      slots.scales[static_cast<std::size_t>(slot * (columns / 32) + block)] = scale.bits;
      for (int i = 0; i < 32; ++i)
        set_code(slots, slot, 32 * block + i, mxfp4_code(to_float(row[32 * block + i]), scale));
    }
  }
  return slots;
}

std::vector<std::uint8_t> token_records(const CheckpointMatrix& slots) {
  const std::int64_t records = slots.columns / record::kColumns, groups = slots.rows / record::kTokens;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(groups * records * record::kTokenRecordBytes), 0);
  const int per_record = slots.mxfp4 ? 2 : 4;
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t r = 0; r < records; ++r) {
      std::uint8_t* to = out.data() + (group * records + r) * record::kTokenRecordBytes;
      for (int token = 0; token < record::kTokens; ++token) {
        const std::int64_t slot = group * record::kTokens + token;
        for (int column = 0; column < record::kColumns; ++column) {
          const int lane = 4 * token + (column % 32) / 8;
          const int byte = 8 * lane + 4 * (column / 32) + (column % 8) / 2;
          const std::uint8_t code = code_at(slots, slot, r * record::kColumns + column).bits;
          to[byte] = static_cast<std::uint8_t>(to[byte] | (column % 2 ? code << 4 : code));
        }
        for (int b = 0; b < per_record; ++b)
          to[record::kTokenPayloadBytes + 4 * token + b] = slots.scales[static_cast<std::size_t>(
              slot * (slots.columns / (64 / per_record)) + r * per_record + b)];
      }
    }
  return out;
}

CheckpointMatrix from_token_records(const std::uint8_t* in, std::int64_t slots, std::int64_t columns) {
  CheckpointMatrix matrix = empty_matrix(slots, columns, false);
  const std::int64_t records = columns / record::kColumns;
  for (std::int64_t slot = 0; slot < slots; ++slot)
    for (std::int64_t r = 0; r < records; ++r) {
      const std::uint8_t* from = in + (slot / record::kTokens * records + r) * record::kTokenRecordBytes;
      const int token = static_cast<int>(slot % record::kTokens);
      for (int column = 0; column < record::kColumns; ++column) {
        const std::uint8_t pair =
            from[8 * (4 * token + (column % 32) / 8) + 4 * (column / 32) + (column % 8) / 2];
        set_code(matrix, slot, r * record::kColumns + column, column % 2 ? e2m1_odd(pair) : e2m1_even(pair));
      }
      for (int b = 0; b < 4; ++b)
        matrix.scales[static_cast<std::size_t>(slot * (columns / 16) + r * 4 + b)] =
            from[record::kTokenPayloadBytes + 4 * token + b];
    }
  return matrix;
}

// Some biases are equal, so that equal scores stay equal; some outweigh any score, so that leaving the bias
// out, or in the weights, is seen.
std::vector<float> random_choice_bias(Random& random, Routing routing, int experts) {
  std::vector<float> bias;
  for (int expert = 0; routing != Routing::softmax && expert < experts; ++expert)
    bias.push_back(random.below(2) ? static_cast<float>(random.uniform(-1.5, 1.5))
                                   : 0.25f * static_cast<float>(random.below(3)));
  return bias;
}

moe_route::RouteRule rule_of(Routing routing, bool renormalise, const float* bias) {
  moe_route::RouteRule rule{.renormalise = renormalise};
  if (routing == Routing::softmax) return rule;
  rule.sigmoid = true;
  rule.choice_bias = bias;
  rule.scale = 2.5f;
  if (routing == Routing::groups) rule.groups = 3, rule.groups_kept = 2;
  return rule;
}

const char* name_of(Routing routing) {
  constexpr const char* names[] = {"", " sigmoid", " sigmoid in groups"};
  return names[static_cast<int>(routing)];
}

}  // namespace fourfold::verify
