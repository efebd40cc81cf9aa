// The plain grouped GEMM on the simulator against the scalar reference, bit for bit: every path, both
// formats, groups of every kind. The tile list comes from the device's offsets, so these are also the tests
// of moe_group.h.
#include "kernels/moe_group/grouped_gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/device/sim/cta.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/record/pack.h"
#include "kernels/verify/inputs.h"
#include "tests/support/long_test.h"

namespace fourfold::test {
namespace {

using kernels::Arena;
using moe_group::GemmRequest;
using moe_layer::Activations;
using moe_layer::Role;
using Host = device::SimCta;  // its numeric members are the exact host arithmetic

constexpr std::uint8_t kUntouched = 0x5A;

struct Case {
  GemmRequest request;
  std::vector<std::int32_t> offsets;
  const plan::ArchFacts* arch = &plan::kSm120;
};

std::string name_of(const Case& test) {
  const GemmRequest& r = test.request;
  std::string text = r.activations == Activations::w4a4 ? "w4a4" : "w4a16";
  text += r.format == WeightFormat::mxfp4 ? " mxfp4" : " nvfp4";
  text += r.role == Role::decode ? " decode" : " prefill";
  text += r.f32_out ? " f32 " : " bf16 ";
  text += test.arch->name;
  for (const int offset : test.offsets) text += " " + std::to_string(offset);
  return text;
}

template <class RecordFormat>
std::vector<std::uint8_t> pack(const std::vector<verify::CheckpointMatrix>& matrices,
                               record::BitOrder order) {
  std::vector<std::uint8_t> packed;
  for (const auto& matrix : matrices) {
    std::vector<std::uint8_t> records(record::packed_bytes<RecordFormat>(
        static_cast<std::size_t>(matrix.rows), static_cast<std::size_t>(matrix.columns)));
    record::pack_records<RecordFormat>({{matrix.codes.data(), matrix.scales.data()},
                                        {},
                                        records.data(),
                                        matrix.rows,
                                        matrix.columns,
                                        record::RowOrder::plain,
                                        order});
    packed.insert(packed.end(), records.begin(), records.end());
  }
  return packed;
}

// A case with everything it needs on a simulated device.
class Bench {
 public:
  explicit Bench(const Case& test, std::uint64_t seed)
      : test_(test),
        machine_(kernels::make_sim_machine(device_, {.arch = test.arch})),
        arena_(machine_->memory()) {
    device_.set_seed(seed);
    Random random(seed);
    const GemmRequest& request = test.request;
    for (int e = 0; e < request.experts; ++e) {
      matrices_.push_back(verify::random_matrix(random, request.out_columns, request.columns,
                                                request.format == WeightFormat::mxfp4));
      scale_.push_back(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3));
      const auto input =
          nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0) * 2e-3)});
      input_scale_.push_back(input.scale);
      input_inverse_.push_back(input.inverse);
    }
    tokens_ = verify::random_tokens(random, request.rows, request.columns);
  }

  // [rows, out columns] as bytes; places nobody computed keep kUntouched.
  std::vector<std::uint8_t> run(std::size_t workspace_shortage = 0) {
    const GemmRequest& request = test_.request;
    const auto gemm = moe_group::prepare_gemm(*machine_, request);
    const auto order =
        request.activations == Activations::w4a4 ? record::BitOrder::fp4 : record::BitOrder::half;
    moe_group::GemmCall call;
    call.weights =
        arena_.upload(request.format == WeightFormat::mxfp4 ? pack<record::Mxfp4>(matrices_, order)
                                                            : pack<record::Nvfp4>(matrices_, order),
                      "weights");
    call.scale = arena_.upload(scale_, "scales");
    call.input_scale = arena_.upload(input_scale_, "input scales");
    call.input_inverse = arena_.upload(input_inverse_, "inverse input scales");
    call.tokens = reinterpret_cast<const std::uint16_t*>(arena_.upload(tokens_, "tokens"));
    call.offsets = arena_.upload(test_.offsets, "offsets");
    const std::size_t bytes = static_cast<std::size_t>(request.rows) * row_bytes();
    std::vector<std::uint8_t> out(bytes, kUntouched);
    call.out = arena_.upload(out, "result");
    call.workspace = arena_.take<unsigned char>(gemm.layout.total, "workspace");
    call.workspace_bytes = gemm.layout.total - workspace_shortage;
    call.rows = request.rows;
    moe_group::run_gemm(*machine_, gemm, call);
    machine_->memory().read(out.data(), call.out, bytes);
    return out;
  }

  std::size_t row_bytes() const {
    return static_cast<std::size_t>(test_.request.out_columns) * (test_.request.f32_out ? 4 : 2);
  }
  const Case& test() const { return test_; }

  // The product as the kernels must give it.
  float expected(int expert, int row, int column) const {
    const auto e = static_cast<std::size_t>(expert);
    const GemmRequest& request = test_.request;
    const auto order = request.role == Role::decode ? reference::Order::decode : reference::Order::prefill;
    const bool half = request.activations == Activations::w4a16;
    const reference::Weights weights = reference_of(matrices_[e]);
    const Bf16* token = tokens_.data() + static_cast<std::int64_t>(row) * request.columns;
    float dot;
    if (half) {
      dot = reference::dot_w4a16(weights, column, token, order).bits;
    } else {
      verify::Assignment one;
      one.slot_token = {row};
      one.slot_expert = {expert};
      dot = reference::dot_w4a4(
                weights, column,
                reference_of(verify::quantize_slots(tokens_, request.columns, one, input_inverse_)), 0, order)
                .bits;
    }
    const float decode = !half                                   ? 1.0f
                         : request.format == WeightFormat::mxfp4 ? record::Mxfp4::half_decode_factor
                                                                 : record::Nvfp4::half_decode_factor;
    return Host::mul(dot, Host::mul(Host::mul(scale_[e], half ? 1.0f : input_scale_[e]), decode));
  }

 private:
  Case test_;
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_;
  Arena arena_;
  std::vector<verify::CheckpointMatrix> matrices_;
  std::vector<float> scale_, input_scale_, input_inverse_;
  std::vector<Bf16> tokens_;
};

// Every value of the rows that belong to somebody, a sample of the columns for the rest of the time.
void expect_exact(const Bench& bench, const std::vector<std::uint8_t>& out) {
  const Case& test = bench.test();
  for (int e = 0; e < test.request.experts; ++e)
    for (int row = test.offsets[static_cast<std::size_t>(e)];
         row < test.offsets[static_cast<std::size_t>(e) + 1]; ++row)
      for (int column = row % 5; column < test.request.out_columns; column += 5) {
        const std::uint8_t* at = out.data() + static_cast<std::size_t>(row) * bench.row_bytes() +
                                 static_cast<std::size_t>(column) * (test.request.f32_out ? 4 : 2);
        const float expected = bench.expected(e, row, column);
        std::uint32_t bits = 0;
        std::memcpy(&bits, at, test.request.f32_out ? 4 : 2);
        const std::uint32_t want = test.request.f32_out ? std::bit_cast<std::uint32_t>(expected)
                                                        : Host::pack_bf16(expected, 0.0f) & 0xFFFFu;
        ASSERT_EQ(bits, want) << name_of(test) << ", expert " << e << " row " << row << " column " << column;
      }
}

void expect_untouched(const Bench& bench, const std::vector<std::uint8_t>& out, int first, int last) {
  for (std::size_t at = static_cast<std::size_t>(first) * bench.row_bytes();
       at < static_cast<std::size_t>(last) * bench.row_bytes(); ++at)
    ASSERT_EQ(out[at], kUntouched) << name_of(bench.test()) << ", byte " << at;
}

GemmRequest small(Activations activations, WeightFormat format, Role role, int rows, int experts) {
  return {128, 64, experts, activations, format, role, rows, false};
}

std::vector<Case> every_path() {
  std::vector<Case> cases;
  const std::vector<std::int32_t> offsets{0, 3, 3, 12, 29};  // ragged, empty, more than a tile of eight
  for (const auto role : {Role::decode, Role::prefill}) {
    for (const auto format : {WeightFormat::nvfp4, WeightFormat::mxfp4}) {
      cases.push_back({small(Activations::w4a16, format, role, 29, 4), offsets});
      cases.push_back({small(Activations::w4a16, format, role, 29, 4), offsets, &plan::kSm90});
    }
    cases.push_back({small(Activations::w4a4, WeightFormat::nvfp4, role, 29, 4), offsets});
  }
  cases.push_back({small(Activations::w4a16, WeightFormat::nvfp4, Role::decode, 29, 4), offsets});
  cases.back().request.f32_out = true;
  return cases;
}

TEST(GroupedGemm, EveryPathGivesTheBitsOfTheReference) {
  for (const Case& test : every_path())
    for (const std::uint64_t seed : {1, 2}) {
      Bench bench(test, seed);
      expect_exact(bench, bench.run());
    }
}

// Lone matrices of published models, and the widest that is taken: one segment more than warps share a strip
// of; in ./dev test --long also GLM's dense MLP (no multiple of 128), its output projection, DeepSeek's dense
// MLP.
TEST(GroupedGemm, WideMatricesGiveTheBitsOfTheReference) {
  std::vector<int> widths = {8256, moe_layer::kMaxMatrixColumns};
  if (wants_all()) widths.insert(widths.end(), {10944, 12288, 18432});
  for (const int columns : widths)
    for (const plan::ArchFacts* arch : {&plan::kSm90, &plan::kSm120})
      for (const auto activations : {Activations::w4a16, Activations::w4a4})
        for (const auto role : {Role::decode, Role::prefill}) {
          if (activations == Activations::w4a4 && arch == &plan::kSm90) continue;  // emulated there
          Case test{small(activations, WeightFormat::nvfp4, role, 3, 1), {0, 3}, arch};
          test.request.columns = columns;
          Bench bench(test, 9);
          expect_exact(bench, bench.run());
        }
}

TEST(GroupedGemm, RowsOutsideTheOffsetsStayUntouched) {
  for (const auto activations : {Activations::w4a16, Activations::w4a4}) {
    Bench bench({small(activations, WeightFormat::nvfp4, Role::decode, 20, 3), {2, 4, 4, 17}}, 3);
    const auto out = bench.run();
    expect_exact(bench, out);
    expect_untouched(bench, out, 0, 2);
    expect_untouched(bench, out, 17, 20);
  }
}

TEST(GroupedGemm, OneRowAndNoRows) {
  for (const auto activations : {Activations::w4a16, Activations::w4a4}) {
    Bench one({small(activations, WeightFormat::nvfp4, Role::decode, 1, 1), {0, 1}}, 4);
    expect_exact(one, one.run());
    Bench none({small(activations, WeightFormat::nvfp4, Role::prefill, 9, 2), {0, 0, 0}}, 5);
    expect_untouched(none, none.run(), 0, 9);
  }
}

// Offsets come from the device and cannot be refused by the host: wrong ones must not lead a kernel past a
// buffer.
TEST(GroupedGemm, WrongOffsetsComputeNothing) {
  const std::vector<std::vector<std::int32_t>> wrong{
      {0, 6, 5, 9}, {-1, 2, 5, 9}, {0, 2, 5, 10}, {0, 1 << 30, 1 << 30, 1 << 30}};
  for (const auto& offsets : wrong)
    for (const auto activations : {Activations::w4a16, Activations::w4a4}) {
      Bench bench({small(activations, WeightFormat::nvfp4, Role::decode, 9, 3), offsets}, 6);
      expect_untouched(bench, bench.run(), 0, 9);
    }
}

// The list of tiles for as many experts as there may be, against a plain loop.
TEST(GroupedGemm, TilesOfAThousandExperts) {
  constexpr int experts = moe::kMaxExperts, tile_tokens = 16;
  Random random(7);
  std::vector<std::int32_t> offsets{0};
  for (int e = 0; e < experts; ++e)
    offsets.push_back(offsets.back() + static_cast<int>(random.below(e % 64 == 0 ? 60 : 3)));
  const int rows = offsets.back();
  for (const bool slots : {false, true}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device);
    Arena arena(machine->memory());
    const auto limit = static_cast<std::size_t>(moe::tile_limit(rows, 1, experts, tile_tokens));
    moe_group::TileParams params{arena.upload(offsets, "offsets"),
                                 arena.take<moe::TokenTile>(limit, "tiles"),
                                 arena.take<std::int32_t>(1, "tile count"),
                                 nullptr,
                                 experts,
                                 rows,
                                 tile_tokens};
    const auto slot_count = static_cast<std::size_t>(moe::slot_limit(rows, 1, experts));
    if (slots) params.slot_token = arena.upload(std::vector<std::int32_t>(slot_count, -1), "slot tokens");
    moe_group::launch_tiles(*machine, moe_group::find_group_rows(*machine), params);
    std::int32_t count = 0;
    machine->memory().read(&count, params.tile_count, sizeof count);
    std::vector<moe::TokenTile> tiles(static_cast<std::size_t>(count));
    ASSERT_LE(tiles.size(), limit);
    machine->memory().read(tiles.data(), params.tiles, tiles.size() * sizeof tiles[0]);
    std::vector<std::int32_t> slot_token(slot_count, -1);
    if (slots)
      machine->memory().read(slot_token.data(), params.slot_token, slot_count * sizeof slot_token[0]);

    // Each expert's rows in order, none twice, no tile too wide, slots in groups of eight where they are
    // asked for.
    std::size_t at = 0;
    int next_slot = 0;
    for (int e = 0; e < experts; ++e) {
      int row = offsets[static_cast<std::size_t>(e)];
      const int end = offsets[static_cast<std::size_t>(e) + 1], first = slots ? next_slot : row, begin = row;
      while (row < end) {
        ASSERT_LT(at, tiles.size());
        const moe::TokenTile& tile = tiles[at++];
        ASSERT_EQ(tile.expert, e);
        ASSERT_EQ(tile.first_slot, first + row - begin);
        ASSERT_TRUE(tile.count >= 1 && tile.count <= tile_tokens && row + tile.count <= end);
        for (int i = 0; slots && i < tile.count; ++i)
          ASSERT_EQ(slot_token[static_cast<std::size_t>(tile.first_slot + i)], row + i);
        row += tile.count;
      }
      next_slot += moe::round_up(end - begin, moe::kSlotGroup);
    }
    EXPECT_EQ(at, tiles.size());
    EXPECT_LE(static_cast<std::size_t>(next_slot), slot_count);
  }
}

Code code_of(const GemmRequest& request, std::string& text) {
  sim::Device device;
  try {
    moe_group::prepare_gemm(*kernels::make_sim_machine(device), request);
  } catch (const Error& error) {
    text = error.what();
    return error.code();
  }
  text = "accepted";
  return Code::internal;
}

TEST(GroupedGemm, RefusesWithNumbers) {
  std::string text;
  GemmRequest request = small(Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 8, 2);
  request.columns = 100;
  EXPECT_EQ(code_of(request, text), Code::invalid_request);
  EXPECT_NE(text.find("100"), std::string::npos) << text;
  request = small(Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 8, 1025);
  EXPECT_EQ(code_of(request, text), Code::invalid_request);
  EXPECT_NE(text.find("1025"), std::string::npos) << text;
  request = small(Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 8, 2);
  request.f32_out = true;
  EXPECT_EQ(code_of(request, text), Code::unsupported_op);
  request = small(Activations::w4a4, WeightFormat::mxfp4, Role::decode, 8, 2);
  EXPECT_EQ(code_of(request, text), Code::unsupported_op);
  request = small(Activations::w4a16, WeightFormat::nvfp4, Role::decode, 1 << 24, 1024);
  request.out_columns = 1 << 20;  // more work items than a kernel can count
  EXPECT_EQ(code_of(request, text), Code::invalid_request);
  EXPECT_NE(text.find("2,147,483,647"), std::string::npos) << text;
  Bench bench({small(Activations::w4a16, WeightFormat::nvfp4, Role::decode, 8, 2), {0, 4, 8}}, 8);
  EXPECT_THROW(bench.run(1), Error);
}

}  // namespace
}  // namespace fourfold::test
