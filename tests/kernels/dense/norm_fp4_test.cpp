// The norm that quantises: its records are those of the two kernels it stands for, byte for byte, and the
// experts that gather them give the same bits as from records of their own.
#include "kernels/dense/norm_fp4.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe_tokens/launch_tokens.h"
#include "tests/kernels/small_layer.h"

namespace fourfold::dense {
namespace {

using test::Batch;
using test::SmallLayer;

std::size_t record_bytes(int rows, int columns) {
  return static_cast<std::size_t>(norm_fp4_blocks(rows) / record::kTokens * (columns / record::kColumns)) *
         record::kTokenRecordBytes;
}

// Rows of the residual stream and their norm on a machine.
class Rows {
 public:
  Rows(kernels::Machine& machine, int rows, int columns, std::uint64_t seed)
      : machine_(machine), arena_(machine.memory()), rows_(rows), columns_(columns) {
    Random random(seed);
    std::vector<float> x, weight;
    for (int i = 0; i < rows * columns; ++i)
      x.push_back(static_cast<float>(random.normal() * (i / columns % 3 == 1 ? 1e-3 : 30.0)));
    for (int i = 0; i < columns; ++i) weight.push_back(static_cast<float>(1.0 + 0.5 * random.normal()));
    norm_ = {arena_.upload(x, "x"), nullptr, arena_.upload(weight, "weight"), nullptr, 1e-6f,
             NormAdd::none,         columns};
  }

  // By norm_fp4, for two scales.
  std::vector<std::uint8_t> records(float inverse, float other_inverse, int set) {
    NormFp4Params params{norm_, {}, {}, rows_};
    const float inverses[kFp4Sets] = {inverse, other_inverse};
    for (int i = 0; i < kFp4Sets; ++i)
      params.fp4[i] = {arena_.take<unsigned char>(record_bytes(rows_, columns_), "records"), inverses[i]};
    launch(kNormFp4Row, norm_fp4_blocks(rows_), params);
    return read(params.fp4[set].records);
  }
  // By norm_prompt and quantize_tokens.
  std::vector<std::uint8_t> records_in_two(float inverse) {
    NormPromptParams params{norm_, {}};
    params.rows.plain = arena_.take<std::uint16_t>(
        static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_), "plain");
    launch(kNormPromptRow, rows_, params);
    std::vector<std::int32_t> numbers;
    for (int row = 0; row < rows_; ++row) numbers.push_back(row);
    auto* const to = arena_.take<unsigned char>(record_bytes(rows_, columns_), "records");
    const std::vector<moe::TokenTile> tiles{{0, 0, rows_, 0}};
    moe_tokens::launch_quantize(
        machine_, moe_tokens::find_token_rows(machine_),
        {params.rows.plain, arena_.upload(tiles, "tiles"),
         arena_.upload(std::vector<std::int32_t>{1}, "count"), arena_.upload(numbers, "rows"),
         arena_.upload(std::vector<float>{inverse}, "inverse"), to, columns_ / record::kColumns});
    return read(to);
  }

 private:
  template <class Params>
  void launch(const char* row, int blocks, const Params& params) {
    machine_.launch(machine_.required(kernels::RowKind::step, row), blocks, params);
  }
  std::vector<std::uint8_t> read(const unsigned char* records) {
    std::vector<std::uint8_t> bytes(record_bytes(rows_, columns_));
    machine_.memory().read(bytes.data(), records, bytes.size());  // a byte nobody wrote is a fault
    return bytes;
  }

  kernels::Machine& machine_;
  kernels::Arena arena_;
  int rows_, columns_;
  NormParams norm_{};
};

TEST(NormFp4, RecordsAreThoseOfANormAndAQuantiser) {
  for (const std::uint64_t seed : {0u, 7u})
    for (const auto& [rows, columns] : {std::pair{5, 320}, {16, 2048}, {1, 64}, {9, 8192}}) {
      sim::Device device;
      device.set_seed(seed);
      const auto machine = kernels::make_sim_machine(device);
      Rows norm(*machine, rows, columns, seed + 1);
      constexpr float first = 1.0f / 0.0023f, second = 1.0f / 0.3f;
      EXPECT_EQ(norm.records(first, second, 0), norm.records_in_two(first)) << rows << " x " << columns;
      EXPECT_EQ(norm.records(first, second, 1), norm.records_in_two(second)) << rows << " x " << columns;
      EXPECT_NE(norm.records(first, second, 1), norm.records_in_two(first));
    }
}

// A layer whose experts have one input scale: from records of the tokens' rows, by every kind of tile, what
// it gives when tokens are quantised after routing.
TEST(NormFp4, ExpertsGatherWhatTheyWouldQuantise) {
  for (const auto& [tile, n] : {std::pair{"128x8x256", 8}, {"128x32x128", 32}, {"128x128x64", 128}})
    for (const int tokens : {1, 21}) {
      sim::Device device;
      device.set_seed(3);
      const auto machine = kernels::make_sim_machine(device, {.persistent_blocks = 2});
      SmallLayer layer(*machine, {.shape = {320, 128, 5, 2},
                                  .activations = moe_layer::Activations::w4a4,
                                  .pool = 21,
                                  .one_input_scale = true});
      std::vector<int> rows;
      for (int i = 0; i < tokens; ++i) rows.push_back(i);
      const std::string row = format("moe_gemm {} w4a4 nvfp4", tile);
      moe_layer::Choice choice;
      choice.gate_up_row = choice.down_row = row;
      choice.tile_tokens = n;
      const auto prepared =
          moe_layer::prepare_with(*machine, layer.request(moe_layer::Role::prefill, tokens), choice);
      std::vector<std::string> launched;
      machine->listen([&](std::string_view kernel) { launched.emplace_back(kernel); });
      Batch batch(layer, prepared, rows);
      const auto after_routing = batch.run();
      EXPECT_EQ(std::ranges::count(launched, "quantize_tokens"), 1);
      launched.clear();

      verify::Assignment each;
      for (int i = 0; i < norm_fp4_blocks(tokens); ++i) {
        each.slot_token.push_back(i < tokens ? i : 0);
        each.slot_expert.push_back(i < tokens ? 0 : -1);
      }
      float inverse = 0;
      machine->memory().read(&inverse, layer.weights().gate_up_input_inverse, sizeof inverse);
      kernels::Arena arena(machine->memory());
      batch.call().records = arena.upload(
          verify::token_records(verify::quantize_slots(layer.tokens(rows), 320, each, {inverse})), "records");
      batch.call().tokens = nullptr;
      EXPECT_EQ(batch.run(), after_routing) << row << ", " << tokens << " tokens";
      EXPECT_EQ(std::ranges::count(launched, "quantize_tokens"), 0);
    }
}

TEST(NormFp4, RecordsAreForPromptsInW4a4) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  SmallLayer layer(*machine, {});
  const auto prepared = moe_layer::prepare(*machine, layer.request(moe_layer::Role::prefill, 2));
  Batch batch(layer, prepared, {0, 1});
  const unsigned char records[1] = {};
  batch.call().records = records;
  try {
    batch.run();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("w4a4"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fourfold::dense
