// Records against the words of record.h: where each code and scale lies, and that nothing is lost on the way.
#include "kernels/record/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "base/error.h"
#include "base/nvfp4.h"
#include "base/parallel.h"
#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/record/launch_pack.h"
#include "kernels/verify/inputs.h"

namespace fourfold::record {
namespace {

using verify::CheckpointMatrix;

template <class Format>
constexpr bool kMx = Format::scale_word_bytes == 2;

// Every byte a scale may have, in both bit orders.
template <class Format>
CheckpointMatrix matrix_of(Random& random, std::int64_t rows, std::int64_t columns) {
  CheckpointMatrix matrix = verify::random_matrix(random, rows, columns, kMx<Format>);
  for (auto& byte : matrix.scales)
    byte = static_cast<std::uint8_t>(kMx<Format> ? 57 + random.below(134) : random.below(0x7F));
  return matrix;
}

struct Orders {
  RowOrder rows;
  BitOrder bits;
};
constexpr Orders kOrders[] = {{RowOrder::plain, BitOrder::fp4},
                              {RowOrder::plain, BitOrder::half},
                              {RowOrder::gate_up, BitOrder::fp4},
                              {RowOrder::gate_up, BitOrder::half}};

// A matrix, or gate and up, and its packed form.
template <class Format>
struct Packed {
  CheckpointMatrix matrix, up;
  std::vector<std::uint8_t> records;
  PackJob job{};
  Packed(std::int64_t rows, std::int64_t columns, Orders orders, std::uint64_t seed = 1) {
    Random random(seed);
    const bool gate_up = orders.rows == RowOrder::gate_up;
    matrix = matrix_of<Format>(random, gate_up ? rows / 2 : rows, columns);
    if (gate_up) up = matrix_of<Format>(random, rows / 2, columns);
    records.resize(packed_bytes<Format>(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)));
    job = {{matrix.codes.data(), matrix.scales.data()},
           {up.codes.data(), up.scales.data()},
           records.data(),
           rows,
           columns,
           orders.rows,
           orders.bits};
    pack_records<Format>(job);
  }
};

std::uint32_t code_at(const CheckpointMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::uint8_t pair = matrix.codes[static_cast<std::size_t>(row * matrix.columns / 2 + column / 2)];
  return column % 2 ? pair >> 4 : pair & 15u;
}

// The code a record keeps: NVFP4 codes of a scale of zero are zero in half order.
template <class Format>
std::uint32_t kept_code(const Orders& orders, const CheckpointMatrix& matrix, std::int64_t row,
                        std::int64_t column) {
  const auto scale = matrix.scales[static_cast<std::size_t>(row * matrix.columns / Format::columns_per_scale +
                                                            column / Format::columns_per_scale)];
  return recodes_scales<Format>(orders.bits) && scale == 0 ? 0u : code_at(matrix, row, column);
}

template <class Format>
class PackTest : public testing::Test {};
using Formats = testing::Types<Nvfp4, Mxfp4>;
TYPED_TEST_SUITE(PackTest, Formats);

TYPED_TEST(PackTest, ComesBack) {
  for (const Orders orders : kOrders)
    for (const auto& [rows, columns] : {std::pair{64, 64}, std::pair{64, 192}, std::pair{320, 128}}) {
      Packed<TypeParam> packed(rows, columns, orders);
      CheckpointMatrix matrix = packed.matrix, up = packed.up;
      for (auto* bytes : {&matrix.codes, &matrix.scales, &up.codes, &up.scales})
        bytes->assign(bytes->size(), 0xEE);
      unpack_records<TypeParam>({packed.records.data(), matrix.codes.data(), matrix.scales.data(),
                                 up.codes.data(), up.scales.data(), rows, columns, orders.rows, orders.bits});
      EXPECT_EQ(matrix.scales, packed.matrix.scales);
      EXPECT_EQ(up.scales, packed.up.scales);
      const bool gate_up = orders.rows == RowOrder::gate_up;
      for (int row = 0; row < (gate_up ? rows / 2 : rows); ++row)
        for (int column = 0; column < columns; ++column) {
          ASSERT_EQ(code_at(matrix, row, column), kept_code<TypeParam>(orders, packed.matrix, row, column));
          if (gate_up) {
            ASSERT_EQ(code_at(up, row, column), kept_code<TypeParam>(orders, packed.up, row, column));
          }
        }
    }
}

// The layout as the head of record.h tells it, read without the packer's own functions.
TYPED_TEST(PackTest, LanesHoldWhatTheLayoutSays) {
  constexpr int rows = 128, columns = 128, record_bytes = kRecordBytes<TypeParam>;
  for (const Orders orders : kOrders) {
    const Packed<TypeParam> packed(rows, columns, orders);
    for (int strip = 0; strip < rows / 32; ++strip)
      for (int record = 0; record < columns / 64; ++record) {
        const std::uint8_t* const at =
            packed.records.data() + (strip * (columns / 64) + record) * record_bytes;
        for (int tile = 0; tile < 2; ++tile)
          for (int slot = 0; slot < 16; ++slot) {
            const int row = row_of_slot(orders.rows, orders.bits, strip, tile, slot);
            const CheckpointMatrix& from =
                orders.rows == RowOrder::gate_up && slot >= 8 ? packed.up : packed.matrix;
            for (int column = 0; column < 64; ++column) {
              const int lane = 4 * (slot % 8) + column % 32 / 8;
              std::uint32_t words[4];
              std::memcpy(words, at + 512 * tile + 16 * lane, 16);
              const int half = column / 32;
              const std::uint32_t word = orders.bits == BitOrder::half
                                             ? from_half_order(words[2 * half + slot / 8])
                                             : words[2 * half + slot / 8];
              ASSERT_EQ(word >> (4 * (column % 8)) & 15u,
                        kept_code<TypeParam>(orders, from, row, 64 * record + column))
                  << "strip " << strip << " tile " << tile << " slot " << slot << " column " << column;
            }
            constexpr int word_bytes = TypeParam::scale_word_bytes;
            const std::uint8_t* const scales =
                at + 1024 + (4 * (slot % 8) + 2 * tile + slot / 8) * word_bytes;
            for (int i = 0; i < word_bytes; ++i) {
              const std::uint8_t byte =
                  from.scales[static_cast<std::size_t>((row * (columns / 64) + record) * word_bytes + i)];
              ASSERT_EQ(scales[i], recodes_scales<TypeParam>(orders.bits) ? to_half_scale(byte) : byte);
            }
          }
      }
  }
}

TEST(RowOrder, EveryRowHasOneSlot) {
  for (const Orders orders : kOrders) {
    std::multiset<int> low, high;  // gate_up: gate rows and up rows
    for (int strip = 0; strip < 6; ++strip)
      for (int tile = 0; tile < 2; ++tile)
        for (int slot = 0; slot < 16; ++slot)
          (orders.rows == RowOrder::gate_up && slot >= 8 ? high : low)
              .insert(row_of_slot(orders.rows, orders.bits, strip, tile, slot));
    const int rows = orders.rows == RowOrder::gate_up ? 96 : 192;
    for (const auto* set : {&low, &high}) {
      if (set->empty()) continue;
      EXPECT_EQ(set->size(), static_cast<std::size_t>(rows));
      EXPECT_EQ(std::set<int>(set->begin(), set->end()).size(), set->size());
      EXPECT_EQ(*set->begin(), 0);
      EXPECT_EQ(*set->rbegin(), rows - 1);
    }
  }
}

TYPED_TEST(PackTest, OneThreadGivesTheSameBytes) {
  for (const Orders orders : kOrders) {
    Packed<TypeParam> packed(1024, 512, orders);
    std::vector<std::uint8_t> alone(packed.records.size(), 0xEE);
    packed.job.records = alone.data();
    // Inside a parallel_for, another one works in place: one thread.
    parallel_for(1, 1, [&](std::int64_t, std::int64_t) { pack_records<TypeParam>(packed.job); });
    EXPECT_EQ(alone, packed.records);
  }
}

TYPED_TEST(PackTest, TheKernelGivesTheSameBytes) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  for (const std::uint64_t seed : {0u, 5u})
    for (const Orders orders : kOrders) {
      Packed<TypeParam> packed(128, 192, orders, 2);
      kernels::Arena arena(machine->memory());
      device.set_seed(seed);
      PackJob job = packed.job;
      job.matrix = {arena.upload(packed.matrix.codes, "codes"), arena.upload(packed.matrix.scales, "scales")};
      job.up = {arena.upload(packed.up.codes, "up codes"), arena.upload(packed.up.scales, "up scales")};
      job.records = arena.template take<std::uint8_t>(packed.records.size(), "records");
      machine->memory().forget(job.records, packed.records.size());
      launch_pack(*machine, find_pack_rows(*machine), job, kMx<TypeParam>);
      std::vector<std::uint8_t> got(packed.records.size());
      machine->memory().read(got.data(), job.records, got.size());
      EXPECT_EQ(got, packed.records);
    }
}

// ---- from a checkpoint of either convention to values and back ----

TEST(Pack, BothCheckpointConventionsGiveTheSameValues) {
  Random random(3);
  constexpr std::int64_t rows = 64, columns = 128;
  std::vector<float> values;
  for (int i = 0; i < rows * columns; ++i) values.push_back(static_cast<float>(random.normal()));
  const Nvfp4Matrix original = quantize_nvfp4_weights(values, rows, columns);
  const std::vector<float> expected = dequantize(original.view());
  // The bytes are the same in both conventions; one stores the factor, the other its reciprocal.
  const float factors[] = {global_scale(ModelOptScale{original.global_scale}),
                           global_scale(to_compressed_tensors(ModelOptScale{original.global_scale}))};
  for (const BitOrder order : {BitOrder::fp4, BitOrder::half})
    for (const float factor : factors) {
      std::vector<std::uint8_t> records(packed_bytes<Nvfp4>(rows, columns));
      const auto* const scale_bytes = reinterpret_cast<const std::uint8_t*>(original.scales.data());
      pack_records<Nvfp4>(
          {{original.codes.data(), scale_bytes}, {}, records.data(), rows, columns, RowOrder::plain, order});
      Nvfp4Matrix back{rows, columns, std::vector<std::uint8_t>(original.codes.size()),
                       std::vector<E4m3>(original.scales.size()), factor};
      unpack_records<Nvfp4>({records.data(), back.codes.data(),
                             reinterpret_cast<std::uint8_t*>(back.scales.data()), nullptr, nullptr, rows,
                             columns, RowOrder::plain, order});
      const std::vector<float> got = dequantize(back.view());
      for (std::size_t i = 0; i < got.size(); ++i) {
        // Two reciprocals are rounded for the second convention, and the product either way: 3 * 2^-24.
        const double allowed = factor == original.global_scale ? 0.0 : std::abs(expected[i]) * 3 * 0x1p-24;
        ASSERT_NEAR(got[i], expected[i], allowed) << i;
      }
    }
}

// ---- refusals ----

// The error, after checking that not one byte of the output was touched.
template <class Format>
Error refusal_of(Packed<Format>& packed) {
  std::fill(packed.records.begin(), packed.records.end(), 0xAB);
  try {
    pack_records<Format>(packed.job);
  } catch (const Error& error) {
    EXPECT_EQ(packed.records, std::vector<std::uint8_t>(packed.records.size(), 0xAB));
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::internal, "none");
}
bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

TEST(Pack, ShapesAreRefusedByNumber) {
  Packed<Nvfp4> packed(64, 128, kOrders[0]);
  for (const int rows : {0, -32, 48, 65}) {
    packed.job.rows = rows;
    const Error error = refusal_of(packed);
    EXPECT_EQ(error.code(), Code::invalid_request);
    EXPECT_TRUE(says(error, "32 rows; got " + std::to_string(rows))) << error.what();
  }
  packed.job.rows = 64;
  for (const int columns : {0, -64, 96, 127}) {
    packed.job.columns = columns;
    EXPECT_TRUE(says(refusal_of(packed), "64 columns; got " + std::to_string(columns)));
  }
}

TEST(Pack, NullPointersAreNamed) {
  const auto broken = [](auto breaks) {
    Packed<Nvfp4> packed(64, 64, kOrders[2]);
    breaks(packed.job);
    const Error error = refusal_of(packed);
    EXPECT_EQ(error.code(), Code::invalid_request);
    return std::string(error.what());
  };
  EXPECT_EQ(broken([](PackJob& job) { job.records = nullptr; }), "the packed output is a null pointer");
  EXPECT_EQ(broken([](PackJob& job) { job.matrix.codes = nullptr; }), "the codes is a null pointer");
  EXPECT_EQ(broken([](PackJob& job) { job.matrix.scales = nullptr; }), "the scales is a null pointer");
  EXPECT_EQ(broken([](PackJob& job) { job.up.codes = nullptr; }), "the up codes is a null pointer");
  EXPECT_EQ(broken([](PackJob& job) { job.up.scales = nullptr; }), "the up scales is a null pointer");
}

TEST(Pack, BadScalesAreRefusedWithTheirPlace) {
  const auto with_nvfp4 = [](Orders orders, bool in_up, std::uint8_t byte) {
    Packed<Nvfp4> packed(64, 128, orders);
    (in_up ? packed.up : packed.matrix).scales[3 * 8 + 5] = byte;
    const Error error = refusal_of(packed);
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    EXPECT_TRUE(says(error, "row 3, block 5")) << error.what();
    return error;
  };
  EXPECT_TRUE(says(with_nvfp4(kOrders[0], false, 0x7F), "0x7F"));
  EXPECT_TRUE(says(with_nvfp4(kOrders[3], true, 0x7F), "0x7F"));
  with_nvfp4(kOrders[1], false, 0xFF);
  EXPECT_TRUE(says(with_nvfp4(kOrders[2], false, 0x85), "negative scale"));

  const auto with_mxfp4 = [](BitOrder order, std::uint8_t byte) {
    Packed<Mxfp4> packed(64, 128, {RowOrder::plain, order});
    packed.matrix.scales[3 * 4 + 2] = byte;
    const Error error = refusal_of(packed);
    EXPECT_TRUE(says(error, "row 3, block 2")) << error.what();
    return error;
  };
  EXPECT_TRUE(says(with_mxfp4(BitOrder::fp4, 0xFF), "0xFF"));
  EXPECT_TRUE(says(with_mxfp4(BitOrder::half, 56), "2^-71"));
  EXPECT_TRUE(says(with_mxfp4(BitOrder::half, 191), "2^64"));
  // The FP4 instruction takes every exponent.
  Packed<Mxfp4> wide(64, 64, {RowOrder::plain, BitOrder::fp4});
  wide.matrix.scales[0] = 0;
  wide.matrix.scales[1] = 254;
  EXPECT_NO_THROW(pack_records<Mxfp4>(wide.job));
}

}  // namespace
}  // namespace fourfold::record
