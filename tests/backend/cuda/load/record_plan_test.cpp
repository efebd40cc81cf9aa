#include "backend/cuda/load/record_plan.h"

#include <gtest/gtest.h>

#include "kernels/record/record.h"

namespace fourfold::backend::cuda {
namespace {

checkpoint::Matrix matrix_of(std::string_view name, std::int64_t rows, std::int64_t columns) {
  return {name, rows, columns, checkpoint::Bf16Storage{}, {}};
}
HeldMatrix held(const checkpoint::Matrix& matrix, WeightFormat format) {
  return {&matrix, format, false, {}};
}

constexpr std::uint64_t kNvfp4Record = sizeof(record::WeightRecord<record::Nvfp4>);
constexpr std::uint64_t kBf16Record = sizeof(record::WeightRecord<record::Bf16Format>);

// Rows are padded to strips of 32; gate and up, which are columns of the next matrix, to 64.
TEST(RecordPlan, PartsArePaddedToWholeRecords) {
  const auto small = matrix_of("a", 33, 128), narrow = matrix_of("b", 40, 100);
  const HeldMatrix one = held(small, WeightFormat::nvfp4), two = held(narrow, WeightFormat::bf16);
  EXPECT_EQ(part_bytes({&one, nullptr}), 2 * 2 * kNvfp4Record);
  EXPECT_EQ(part_bytes({&one, &one}), 2 * 2 * 2 * kNvfp4Record);
  EXPECT_EQ(part_bytes({&two, nullptr}), 2 * 2 * kBf16Record) << "100 columns are two records wide";
  const RecordRun run{{{&one, nullptr}, {&one, nullptr}}, nullptr};
  EXPECT_EQ(run_bytes(run), 2 * part_bytes(run.parts.front()));
}

// The names of pieces are part of packed copies: they stay as they are.
TEST(RecordPlan, PiecesHaveNames) {
  const auto matrix = matrix_of("q.weight", 32, 64);
  const HeldMatrix one = held(matrix, WeightFormat::fp8);
  EXPECT_EQ(piece_name({{{&one, nullptr}, {&one, nullptr}, {&one, nullptr}}, nullptr}),
            "q.weight and 2 more, fp8");
  EXPECT_EQ(rows_name(one), "q.weight rows");
  EXPECT_EQ(scales_name(matrix), "q.weight scales");
}

struct Cut {
  std::vector<CutLot> lots;
  int new_slots = 0;
};

// Through slots of so many bytes, each filled as long as there is room.
Cut cut_all(const RecordRun& run, std::size_t slot_bytes) {
  Cut out;
  std::size_t used = 0;
  for (LotCutter cutter(run, 0, run.parts.size()); !cutter.is_done();) {
    const auto lot = cutter.next(slot_bytes - used, slot_bytes);
    if (!lot) {
      if (used == 0) {
        ADD_FAILURE() << "an empty slot has room";
        return out;
      }
      ++out.new_slots;
      used = 0;
      continue;
    }
    used += lot->lot.bytes();
    EXPECT_LE(used, slot_bytes);
    out.lots.push_back(*lot);
  }
  return out;
}

// Whatever the slot, the lots hold every row of every part once, in order, and their records are the run's.
TEST(RecordPlan, LotsHoldEveryRowOnce) {
  const auto first = matrix_of("a", 200, 128), second = matrix_of("b", 33, 128);
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
    for (const bool is_gate_up : {false, true})
      for (const std::size_t blocks : {1, 2, 3, 5, 100}) {
        const HeldMatrix one = held(first, format), other = held(second, format);
        const auto part = [&](const HeldMatrix& of) {
          return RecordRun::Part{&of, is_gate_up ? &of : nullptr};
        };
        const RecordRun run{{part(one), part(other), part(one)}, nullptr};
        const std::size_t block =
            32 * (is_gate_up ? 2 : 1) * (code_row_bytes(format, 128) + scale_row_bytes(format, 128));
        const Cut cut = cut_all(run, blocks * block);
        std::uint64_t bytes = 0;
        std::vector<std::int64_t> rows(run.parts.size());
        std::size_t at = 0;  // part
        for (const CutLot& lot : cut.lots) {
          bytes += lot.lot.record_bytes();
          std::int64_t lot_row = 0;
          for (const LotShare& share : lot.shares) {
            while (at < run.parts.size() && share.part != &run.parts[at]) ++at;
            ASSERT_LT(at, run.parts.size()) << "parts come in order";
            EXPECT_EQ(share.first_row, rows[at]);
            EXPECT_EQ(share.at, lot_row);
            rows[at] += share.rows;
            lot_row += share.rows;
          }
          EXPECT_EQ(lot_row, lot.lot.rows);
        }
        EXPECT_EQ(bytes, run_bytes(run));
        const std::int64_t grain = is_gate_up ? 64 : 32;
        for (std::size_t i = 0; i < rows.size(); ++i)
          EXPECT_EQ(rows[i], (run.parts[i].first->matrix->rows + grain - 1) / grain * grain);
        if (blocks == 100) {
          EXPECT_EQ(cut.lots.size(), 1u) << "what fits a slot is one launch";
        }
      }
}

// The end of a slot that is nearly full is left: a launch for a few rows costs as much as one for many.
TEST(RecordPlan, NoCrumbAtTheEndOfASlot) {
  const auto matrix = matrix_of("a", 32 * 10, 64);
  const HeldMatrix one = held(matrix, WeightFormat::bf16);
  const RecordRun run{{{&one, nullptr}}, nullptr};
  const std::size_t block = 32 * 2 * 64, slot = 8 * block;
  EXPECT_FALSE(LotCutter(run, 0, 1).next(block, slot)) << "an eighth of a slot";
  EXPECT_EQ(LotCutter(run, 0, 1).next(2 * block, slot)->lot.rows, 64) << "a quarter is worth it";
  const auto last = matrix_of("b", 32, 64);
  const HeldMatrix small = held(last, WeightFormat::bf16);
  const RecordRun end{{{&small, nullptr}}, nullptr};
  EXPECT_EQ(LotCutter(end, 0, 1).next(block, slot)->lot.rows, 32) << "all that is left is no crumb";
}

}  // namespace
}  // namespace fourfold::backend::cuda
