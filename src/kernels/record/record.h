// The tile record: 32 weight rows x 64 columns, contiguous and self-contained, scales inside; and the token
// record, 8 tokens x 64 columns. Everything a tensor-core step needs of an operand lies in one record, in the
// order its lanes read it. This file owns the layout; nothing else computes an offset into a record.
//
//   weight record   1,024 B  FP4 payload: 2 m16 tiles x 32 lanes x 16 B (a lane's four A registers)
//                   128 B    NVFP4 scales: word 4g + 2*tile + half, one byte per 16 columns   (MXFP4: 64 B,
//                   2-byte words)
//   token record    256 B    payload: 32 lanes x 8 B (a lane's two B registers)
//                   32 B     scales: one word per token
//
// In an FP4 tile, lane (g, t) = (lane / 4, lane % 4) and register r hold row slot g + 8*(r & 1) and columns
// 32*(r >> 1) + 8t .. +7. Records of a strip (32 rows) follow each other along K, strips along the rows.
//
//   bf16 record     4,096 B  [tile 2][half 2][step 2] x 32 lanes x 16 B: the A registers of one k16 step, row
//                            slot g + 8*(r & 1) and columns 32*half + 8t + 4*step + 2*(r >> 1), + 1
//   fp8 record      2,048 B  [tile 2][half 2] x 32 lanes x 16 B: word w holds row slot g + 8*(w >> 1) and
//                            columns 32*half + 8t + 4*(w & 1) .. +3, in the byte order 2, 0, 3, 1
//
// Both meet a token in the column order of the FP4 records, and both are without scales: fp8 has a factor a
// row (or one a matrix) beside its records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/weight_format.h"
#include "plan/record_size.h"

namespace fourfold::record {

inline constexpr int kRows = plan::kRecordRows;        // weight rows of a record: one strip
inline constexpr int kColumns = plan::kRecordColumns;  // K of a record
inline constexpr int kTokens = 8;                      // tokens of a token record
inline constexpr int kTileBytes = 512;                 // payload of one m16 tile
inline constexpr int kPayloadBytes = 2 * kTileBytes;
inline constexpr int kTokenRecordBytes =
    288;  // 18 x 16: consecutive records start 8 banks apart, conflict free
inline constexpr int kTokenPayloadBytes = 256;

// The number formats, as types: a kernel or a packed matrix is of one of them, never of a flag.
struct Nvfp4 {
  static constexpr const char* name = format_name(WeightFormat::nvfp4).data();
  static constexpr int tile_bytes = kTileBytes;
  static constexpr int columns_per_scale = 16;
  static constexpr int scale_word_bytes = 4;  // four E4M3 a row and record
  // What the 16-bit decode leaves out: (w * 2^-126) * (scale * 2^118) = w * scale * 2^-8.
  static constexpr float half_decode_factor = 256.0f;
};
struct Mxfp4 {
  static constexpr const char* name = format_name(WeightFormat::mxfp4).data();
  static constexpr int tile_bytes = kTileBytes;
  static constexpr int columns_per_scale = 32;
  static constexpr int scale_word_bytes = 2;  // two UE8M0 a row and record
  // (w * 2^-126) * (2^(e - 127) * 2^64) = w * scale * 2^-62.
  static constexpr int half_exponent_shift = 64;
  static constexpr float half_decode_factor = 4611686018427387904.0f;  // 2^62
  // Exponent bytes for which that product is exact in bf16: the multiplier's exponent field e + 64 stays
  // below 255 and the smallest product, 2^-1 * 2^(e - 127 - 62), stays a multiple of 2^-133.
  static constexpr int smallest_scale_byte = 57;
  static constexpr int largest_scale_byte = 190;
};

struct Bf16Format {
  static constexpr const char* name = format_name(WeightFormat::bf16).data();
  static constexpr int tile_bytes = 2048;
  static constexpr int weight_bytes = 2;
  static constexpr int scale_word_bytes = 0;
  static constexpr float half_decode_factor = 1.0f;
};
struct Fp8Format {  // E4M3
  static constexpr const char* name = format_name(WeightFormat::fp8).data();
  static constexpr int tile_bytes = 1024;
  static constexpr int weight_bytes = 1;
  static constexpr int scale_word_bytes = 0;
  static constexpr float half_decode_factor = 1.0f;  // the decode multiplies with 2^120 itself
};
template <class Format>
inline constexpr bool kHasBlockScales = Format::scale_word_bytes != 0;

template <class Format>
inline constexpr int kRecordBytes = 2 * Format::tile_bytes + 32 * Format::scale_word_bytes;

template <class Format>
struct alignas(16) WeightRecord {
  unsigned char payload[kPayloadBytes];
  unsigned char scales[32 * Format::scale_word_bytes];
};
template <class Format>
requires(!kHasBlockScales<Format>) struct alignas(16) WeightRecord<Format> {
  unsigned char payload[2 * Format::tile_bytes];
};
static_assert(sizeof(WeightRecord<Nvfp4>) == 1152 && sizeof(WeightRecord<Mxfp4>) == 1088);
static_assert(sizeof(WeightRecord<Bf16Format>) == 4096 && sizeof(WeightRecord<Fp8Format>) == 2048);

struct alignas(16) TokenRecord {
  unsigned char payload[kTokenPayloadBytes];
  unsigned char scales[4 * kTokens];
};
static_assert(sizeof(TokenRecord) == kTokenRecordBytes);

// How the codes of a lane's registers are arranged.
//   fp4: as the FP4 instruction reads them, code j of register r in bits 4j..4j+3.
//   half: so that three of four bf16 pairs come out of a word with one mask (bit_order.h); for the 16-bit
//   paths.
enum class BitOrder : std::uint8_t { fp4, half };

// Which matrix row sits in a slot. What a kernel stores decides it: the sums of a lane must lie next to each
// other.
//   plain: row 32p + 16*tile + 2g + (slot >> 3): a lane holds two neighbours, a tile 16 rows in a row.
//   gate_up: slot g is the gate and slot g + 8 the up row of one neuron, so one lane's sums hold both.
//     fp4 order: neuron 16p + 2g + tile. A lane's two tiles are the two codes of a byte, a strip one
//     16-block. half order: neuron 32(p/2) + 8(g/2) + 2j + g%2 with j = 2(p%2) + tile. A tile is one 16-byte
//     chunk of the staged column order in which the next GEMM reads its tokens (moe/epilogue.h).
enum class RowOrder : std::uint8_t { plain, gate_up };

// Row of the named matrix (gate_up: of gate or of up, chosen by slot >> 3) for slot 0..15 of a tile of strip
// p.
constexpr int row_of_slot(RowOrder order, BitOrder bits, int strip, int tile, int slot) {
  const int g = slot & 7;
  if (order == RowOrder::plain) return 32 * strip + 16 * tile + 2 * g + (slot >> 3);
  if (bits == BitOrder::fp4) return 16 * strip + 2 * g + tile;
  return 32 * (strip / 2) + 8 * (g / 2) + 2 * (2 * (strip % 2) + tile) + g % 2;
}

constexpr int payload_offset(int tile, int lane) { return tile * kTileBytes + lane * 16; }
// The same for the formats whose tile is several 16-byte words a lane: bf16 has four (half, step), fp8 two
// (half).
constexpr int bf16_offset(int tile, int half, int step, int lane) {
  return tile * Bf16Format::tile_bytes + (2 * half + step) * 512 + lane * 16;
}
constexpr int fp8_offset(int tile, int half, int lane) {
  return tile * Fp8Format::tile_bytes + half * 512 + lane * 16;
}
// Place (0..3, from the low end) of column i of four in an fp8 word: two masks and a shift make bf16 pairs of
// it (decode.h).
constexpr int fp8_byte(int i) { return i == 0 ? 1 : i == 1 ? 3 : i == 2 ? 0 : 2; }
// Where a column of a token row in E4M3 lies: 16 bytes of each 32 meet words 0 and 2 of a lane's sixteen, the
// next 16 words 1 and 3, so that those words are the A operands of one k32 step as they lie.
constexpr int fp8_token_byte(int column) {
  const int t = column / 8 % 4, upper = column / 4 % 2;
  return (column & ~31) + 16 * upper + 4 * t + fp8_byte(column % 4);
}
// Offset, inside the scales, of the scale word of slot 0..15 of a tile.
template <class Format>
constexpr int scale_offset(int tile, int slot) {
  return (4 * (slot & 7) + 2 * tile + (slot >> 3)) * Format::scale_word_bytes;
}

// Rows and columns of a matrix once padded with zeros to whole records; gate_up pairs strips.
constexpr std::int64_t padded_rows(std::int64_t rows, RowOrder order = RowOrder::plain) {
  const std::int64_t multiple = order == RowOrder::gate_up ? 2 * kRows : kRows;
  return (rows + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t padded_columns(std::int64_t columns) {
  return (columns + kColumns - 1) / kColumns * kColumns;
}

// Bytes of a packed matrix of `rows` x `columns` (multiples of 32 and 64).
template <class Format>
constexpr std::size_t packed_bytes(std::size_t rows, std::size_t columns) {
  return rows / kRows * (columns / kColumns) * kRecordBytes<Format>;
}

}  // namespace fourfold::record
