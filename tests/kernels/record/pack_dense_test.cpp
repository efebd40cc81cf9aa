// Records of dense matrices against the words of record.h: where each weight lies, what a lane makes of it,
// and that padding is zero.
#include "kernels/record/pack_dense.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "base/random.h"
#include "kernels/device/sim/cta.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/record/lane_tile.h"
#include "kernels/verify/inputs.h"

namespace fourfold::record {
namespace {

using Host = device::SimCta;
using verify::DenseMatrix;

struct Packed {
  DenseMatrix matrix, up;
  std::vector<std::uint8_t> records;
  DenseJob job{};
  Packed(std::int64_t rows, std::int64_t columns, DenseSource source, RowOrder order,
         std::uint64_t seed = 1) {
    Random random(seed);
    const bool gate_up = order == RowOrder::gate_up;
    matrix = verify::random_dense(random, gate_up ? rows / 2 : rows, columns, source);
    if (gate_up) up = verify::random_dense(random, rows / 2, columns, source);
    job = {matrix.bytes.data(), up.bytes.data(), nullptr, rows, columns, 0, source, order};
    records.assign(dense_bytes(job), 0xCD);
    job.records = records.data();
    pack_dense(job);
  }
  // The weight in a slot; zero where the matrix has none.
  float weight(std::int64_t strip, int tile, int slot, std::int64_t column) const {
    const DenseMatrix& from = job.row_order == RowOrder::gate_up && slot >= 8 ? up : matrix;
    const std::int64_t row = row_of_slot(job.row_order, BitOrder::half, static_cast<int>(strip), tile, slot);
    if (row >= from.rows || column >= from.columns) return 0.0f;
    const auto at = static_cast<std::size_t>(row * from.columns + column);
    if (job.source == DenseSource::e4m3) return to_float(E4m3{from.bytes[at]});
    std::uint16_t bits;
    std::memcpy(&bits, from.bytes.data() + 2 * at, 2);
    return to_float(Bf16{bits});
  }
};

// Every lane's operands, tile by tile and from both loaders, hold the columns record.h says.
template <class Format>
void check_operands(const Packed& packed) {
  const auto read = [](const auto* from) { return *from; };
  const std::int64_t strips = dense_strips(packed.job), records = dense_records(packed.job);
  for (std::int64_t at = 0; at < strips * records; ++at) {
    alignas(16) unsigned char record[kRecordBytes<Format>];
    std::memcpy(record, packed.records.data() + at * kRecordBytes<Format>, sizeof record);
    for (int lane = 0; lane < 32; ++lane) {
      LaneTiles<Format, 2> both;
      both.load(lane, read, record, 0);
      for (int tile = 0; tile < 2; ++tile)
        for (int half = 0; half < 2; ++half) {
          LaneTile<Format> one;
          one.load_half(lane, read, record, tile, half);
          std::uint32_t steps[2][4], same[2][4];
          one.template decode<Host>(lane, half, steps);
          both.template decode<Host>(lane, tile, 0, half, same);
          ASSERT_EQ(std::memcmp(steps, same, sizeof steps), 0);
          for (int i = 0; i < 16; ++i) {
            const int step = i / 8, r = i % 8 / 2, slot = lane / 4 + 8 * (r & 1);
            const std::int64_t column =
                kColumns * (at % records) + 32 * half + 8 * (lane % 4) + 4 * step + 2 * (r >> 1) + i % 2;
            const auto bits = static_cast<std::uint16_t>(steps[step][r] >> (16 * (i % 2)));
            const float expected = packed.weight(at / records, tile, slot, column);
            ASSERT_EQ(bits, to_bf16(expected).bits)
                << "strip " << at / records << " tile " << tile << " slot " << slot << " column " << column;
          }
        }
    }
  }
}

TEST(PackDense, LanesFindTheirOperands) {
  for (const RowOrder order : {RowOrder::plain, RowOrder::gate_up}) {
    check_operands<Bf16Format>(Packed(128, 192, DenseSource::bf16, order));
    check_operands<Fp8Format>(Packed(128, 192, DenseSource::e4m3, order));
  }
}

TEST(PackDense, WhatDoesNotFillARecordIsPaddedWithZeros) {
  for (const RowOrder order : {RowOrder::plain, RowOrder::gate_up}) {
    check_operands<Bf16Format>(Packed(70, 75, DenseSource::bf16, order));
    check_operands<Fp8Format>(Packed(70, 75, DenseSource::e4m3, order));
  }
  const DenseJob job{nullptr, nullptr, nullptr, 70, 75, 0, DenseSource::bf16, RowOrder::gate_up};
  EXPECT_EQ(dense_strips(job), 4);  // gate_up pairs strips
  EXPECT_EQ(dense_records(job), 2);
  EXPECT_EQ(dense_bytes(job), std::size_t{4 * 2 * 4096});
}

TEST(PackDense, EveryE4m3CodeDecodesExactly) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    const device::U32x2 pairs =
        decode_fp8_word<Host>(to_fp8_order(static_cast<std::uint32_t>(code) * 0x01010101u));
    const std::uint16_t exact = to_bf16(to_float(E4m3{static_cast<std::uint8_t>(code)})).bits;
    EXPECT_EQ(to_float(Bf16{exact}), to_float(E4m3{static_cast<std::uint8_t>(code)}));
    for (const std::uint32_t pair : pairs.v) {
      EXPECT_EQ(pair & 0xFFFFu, exact) << code;
      EXPECT_EQ(pair >> 16, exact) << code;
    }
  }
  EXPECT_EQ(from_fp8_order(to_fp8_order(0x04030201u)), 0x04030201u);
}

TEST(PackDense, F32IsRoundedToNearestEven) {
  Random random(3);
  std::vector<float> values(32 * 64);
  for (float& value : values) value = static_cast<float>(random.normal());
  values[0] = 0x1.01p0f;  // halfway: to even
  std::vector<std::uint16_t> rounded;
  for (const float value : values) rounded.push_back(to_bf16(value).bits);
  EXPECT_EQ(rounded[0], 0x3F80);
  std::vector<std::uint8_t> from_f32(4096), from_bf16(4096);
  pack_dense({values.data(), nullptr, from_f32.data(), 32, 64, 0, DenseSource::f32, RowOrder::plain});
  pack_dense({rounded.data(), nullptr, from_bf16.data(), 32, 64, 0, DenseSource::bf16, RowOrder::plain});
  EXPECT_EQ(from_f32, from_bf16);
}

TEST(PackDense, UnpackingGivesTheMatrixBack) {
  for (const DenseSource source : {DenseSource::bf16, DenseSource::e4m3})
    for (const RowOrder order : {RowOrder::plain, RowOrder::gate_up}) {
      const Packed packed(74, 100, source, order);
      std::vector<std::uint8_t> matrix(packed.matrix.bytes.size()), up(packed.up.bytes.size());
      unpack_dense({packed.records.data(), matrix.data(), up.data(), 74, 100, source, order});
      EXPECT_EQ(matrix, packed.matrix.bytes);
      EXPECT_EQ(up, packed.up.bytes);
    }
}

TEST(PackDense, AStrideTakesColumnsOutOfAWiderMatrix) {
  const Packed wide(64, 256, DenseSource::bf16, RowOrder::plain);
  std::vector<std::uint16_t> narrow;
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t column = 128; column < 192; ++column) {
      std::uint16_t bits;
      std::memcpy(&bits, wide.matrix.bytes.data() + 2 * (256 * row + column), 2);
      narrow.push_back(bits);
    }
  std::vector<std::uint8_t> strided(2 * 4096), copied(2 * 4096);
  pack_dense({wide.matrix.bytes.data() + 2 * 128, nullptr, strided.data(), 64, 64, 256, DenseSource::bf16,
              RowOrder::plain});
  pack_dense({narrow.data(), nullptr, copied.data(), 64, 64, 0, DenseSource::bf16, RowOrder::plain});
  EXPECT_EQ(strided, copied);
}

TEST(PackDense, RefusesWhatIsNoMatrix) {
  std::vector<std::uint8_t> codes(32 * 64, 0x38), records(2048);
  const auto job = [&](std::int64_t rows, std::int64_t columns, RowOrder order = RowOrder::plain) {
    return DenseJob{codes.data(), nullptr, records.data(), rows, columns, 0, DenseSource::e4m3, order};
  };
  EXPECT_THROW(pack_dense(job(0, 64)), Error);
  EXPECT_THROW(pack_dense(job(32, 0)), Error);
  EXPECT_THROW(pack_dense(job(32, 64, RowOrder::gate_up)), Error);  // no up matrix
  codes[3 * 64 + 5] = 0xFF;
  try {
    pack_dense(job(32, 64));
    FAIL() << "a NaN was packed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("row 3, column 5"), std::string::npos) << error.what();
  }
  EXPECT_THROW(require_for_device(job(32, 60)), Error);
}

}  // namespace
}  // namespace fourfold::record
