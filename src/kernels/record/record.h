// The tile record: 32 weight rows x 64 columns, contiguous and self-contained, scales inside; and the token
// record, 8 tokens x 64 columns. Everything a tensor-core step needs of an operand lies in one record, in the
// order its lanes read it. This file owns the layout; nothing else computes an offset into a record.
//
//   weight record   1,024 B  payload: 2 m16 tiles x 32 lanes x 16 B (a lane's four A registers)
//                   128 B    NVFP4 scales: word 4g + 2*tile + half, one byte per 16 columns   (MXFP4: 64 B,
//                   2-byte words)
//   token record    256 B    payload: 32 lanes x 8 B (a lane's two B registers)
//                   32 B     scales: one word per token
//
// In a tile, lane (g, t) = (lane / 4, lane % 4) and register r hold row slot g + 8*(r & 1) and columns
// 32*(r >> 1) + 8t .. +7. Records of a strip (32 rows) follow each other along K, strips along the rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fourfold::record {

inline constexpr int kRows = 32;        // weight rows of a record: one strip
inline constexpr int kColumns = 64;     // K of a record
inline constexpr int kTokens = 8;       // tokens of a token record
inline constexpr int kTileBytes = 512;  // payload of one m16 tile
inline constexpr int kPayloadBytes = 2 * kTileBytes;
inline constexpr int kTokenRecordBytes =
    288;  // 18 x 16: consecutive records start 8 banks apart, conflict free
inline constexpr int kTokenPayloadBytes = 256;

// The two number formats, as types: a kernel or a packed matrix is of one or the other, never of a flag.
struct Nvfp4 {
  static constexpr const char* name = "nvfp4";
  static constexpr int columns_per_scale = 16;
  static constexpr int scale_word_bytes = 4;  // four E4M3 a row and record
  // What the 16-bit decode leaves out: (w * 2^-126) * (scale * 2^118) = w * scale * 2^-8.
  static constexpr float half_decode_factor = 256.0f;
};
struct Mxfp4 {
  static constexpr const char* name = "mxfp4";
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

template <class Format>
inline constexpr int kRecordBytes = kPayloadBytes + 32 * Format::scale_word_bytes;

template <class Format>
struct alignas(16) WeightRecord {
  unsigned char payload[kPayloadBytes];
  unsigned char scales[32 * Format::scale_word_bytes];
};
static_assert(sizeof(WeightRecord<Nvfp4>) == 1152 && sizeof(WeightRecord<Mxfp4>) == 1088);

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
// Offset, inside the scales, of the scale word of slot 0..15 of a tile.
template <class Format>
constexpr int scale_offset(int tile, int slot) {
  return (4 * (slot & 7) + 2 * tile + (slot >> 3)) * Format::scale_word_bytes;
}

// Bytes of a packed matrix of `rows` x `columns` (multiples of 32 and 64).
template <class Format>
constexpr std::size_t packed_bytes(std::size_t rows, std::size_t columns) {
  return rows / kRows * (columns / kColumns) * kRecordBytes<Format>;
}

}  // namespace fourfold::record
