#include "backend/window_pages.h"

#include <map>

#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

constexpr std::int64_t kWindow = 100;

Program windowed(std::int64_t window = kWindow) {
  Program program;
  program.position_limit = 100'000;
  program.kv_caches = {{.name = "all", .kv_head_count = 1, .head_dim = 4},
                       {.name = "some", .kv_head_count = 2, .head_dim = 8, .window = window},
                       {.name = "fewer", .kv_head_count = 2, .head_dim = 8, .window = window / 2}};
  return program;
}

// What a batch says of one sequence whose pages in the batch's table are 0, 1, ...
struct Pass {
  std::vector<SequenceRows> sequences;
  std::vector<std::int32_t> pages;
  void add(std::int32_t slot, std::int64_t position, std::int64_t rows, std::int64_t page_tokens) {
    const auto begin = static_cast<std::int32_t>(pages.size());
    const auto count = static_cast<std::int32_t>((position + rows + page_tokens - 1) / page_tokens);
    pages.resize(pages.size() + static_cast<std::size_t>(count));
    sequences.push_back({.row_count = static_cast<std::int32_t>(rows),
                         .position = position,
                         .state_slot = slot,
                         .page_begin = begin,
                         .page_count = count});
  }
  Batch batch() const { return {{}, sequences, pages, {}, {}}; }
};

void run(WindowPages& pages, std::vector<SlotPast>& slots, const Pass& pass) {
  pages.begin(pass.batch(), slots);
  for (const SequenceRows& rows : pass.sequences)
    slots[static_cast<std::size_t>(rows.state_slot)].begin(rows);
  for (const SequenceRows& rows : pass.sequences)
    slots[static_cast<std::size_t>(rows.state_slot)].finish(rows);
}

TEST(WindowPages, AreNoneWithoutAWindow) {
  Program program = windowed(0);
  const Capacity capacity{.page_count = 10, .state_slot_count = 2, .row_count = 64};
  EXPECT_EQ(WindowPages::count_of(program, capacity), 0);
  WindowPages pages(program, capacity);
  std::vector<SlotPast> slots(2);
  Pass pass;
  pass.add(0, 0, 10, 64);
  run(pages, slots, pass);
  EXPECT_TRUE(pages.table().empty());
  EXPECT_TRUE(pages.seen(0, 64).empty());
}

// A long sequence holds as many as a short one, and what it gave back is the table's last number and one.
TEST(WindowPages, BehindTheWindowAreGivenBack) {
  const Capacity capacity{.page_count = 2'000, .state_slot_count = 1, .row_count = 64};
  WindowPages pages(windowed(), capacity);
  // 99 positions before a row are in two pages, those of the rows that may be taken back in two; one is new,
  // and so are those of the 64 rows.
  ASSERT_EQ(pages.page_count(), 2 + 2 + 1 + 1);
  std::vector<SlotPast> slots(1);
  for (std::int64_t position = 0; position < 64'000; position += 64) {
    Pass pass;
    pass.add(0, position, 64, 64);
    run(pages, slots, pass);
    ASSERT_EQ(pages.problem(), "");
    const auto table = pages.table();
    ASSERT_EQ(std::ssize(table), position / 64 + 1);
    for (std::int64_t page = 0; page < std::ssize(table); ++page) {
      const bool seen = (page + 1) * 64 > position - kWindow + 1;
      const std::int32_t number = table[static_cast<std::size_t>(page)];
      ASSERT_TRUE(!seen || number < pages.behind()) << page << " at " << position;
      ASSERT_TRUE(page >= position / 64 - 4 || number == pages.behind()) << page << " at " << position;
    }
  }
}

// Sequences that begin, go on in steps of any size up to the capacity's rows, take drafts back, begin anew
// and go on from kept states: every position that a row sees is on a page of its own slot, the same one as
// when it was written, and there are always enough.
void expect_pages_hold(std::uint64_t seed, const Capacity& capacity) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", pages of " << capacity.page_tokens);
  Random random(seed);
  const Program program = windowed();
  WindowPages pages(program, capacity);
  std::vector<SlotPast> slots(static_cast<std::size_t>(capacity.state_slot_count));
  std::vector<std::map<std::int64_t, std::int32_t>> written(slots.size());  // page of a sequence: its number
  for (int step = 0; step < 400; ++step) {
    Pass pass;
    std::int64_t rows_left = capacity.row_count;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (random.below(4) == 0 || rows_left == 0) continue;
      SlotPast& past = slots[slot];
      const auto number = static_cast<std::int32_t>(slot);
      std::int64_t position = past.end();
      if (random.below(20) == 0) position = 0;
      if (position > 0 && random.below(4) == 0)
        position -= static_cast<std::int64_t>(
            random.below(static_cast<std::uint64_t>(position - past.resumable_from() + 1)));
      if (position == 0) {
        written[slot].clear();
      } else if (random.below(30) == 0) {  // to where a state was kept, of this sequence or another one
        position = 64 * (1 + static_cast<std::int64_t>(random.below(20)));
        pages.hold(number, position, position);
        past.restore(position);
        written[slot].clear();
        const auto seen = pages.seen(number, position);
        EXPECT_LE(std::ssize(seen), WindowPages::seen_count(program, capacity.page_tokens));
        const std::int64_t first = std::max<std::int64_t>(position - kWindow + 1, 0) / capacity.page_tokens;
        for (std::size_t i = 0; i < seen.size(); ++i)
          written[slot][first + static_cast<std::int64_t>(i)] = seen[i];
      }
      const std::uint64_t most = random.below(3) == 0 ? static_cast<std::uint64_t>(rows_left) : 4;
      const std::int64_t rows =
          1 + static_cast<std::int64_t>(random.below(std::min(most, static_cast<std::uint64_t>(rows_left))));
      rows_left -= rows;
      pass.add(number, position, rows, capacity.page_tokens);
    }
    if (pass.sequences.empty()) continue;
    run(pages, slots, pass);
    ASSERT_EQ(pages.problem(), "");
    for (const SequenceRows& rows : pass.sequences) {
      const auto table = pages.table().subspan(static_cast<std::size_t>(rows.page_begin),
                                               static_cast<std::size_t>(rows.page_count));
      auto& known = written[static_cast<std::size_t>(rows.state_slot)];
      const std::int64_t first =
          std::max<std::int64_t>(rows.position - kWindow + 1, 0) / capacity.page_tokens;
      for (std::int64_t page = first; page < rows.page_count; ++page) {
        const std::int32_t number = table[static_cast<std::size_t>(page)];
        ASSERT_LT(number, pages.page_count());
        ASSERT_TRUE(page * capacity.page_tokens >= rows.position || known.at(page) == number) << page;
        known[page] = number;
      }
    }
  }
}

TEST(WindowPages, HoldWhatRowsSeeInRandomBatches) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed)
    for (const std::int64_t page_tokens : {64, 16, 7, 1})
      expect_pages_hold(seed, {.page_count = 5'000,
                               .page_tokens = page_tokens,
                               .state_slot_count = 1 + static_cast<std::int64_t>(seed % 5),
                               .row_count = seed % 2 == 0 ? 300 : 9});
}

TEST(WindowPages, OfKeptStatesAreCounted) {
  const Program program = windowed();
  EXPECT_EQ(WindowPages::seen_count(program, 64), 2);
  // Two caches, keys and values of 2 x 8 numbers in two bytes.
  EXPECT_EQ(anchor_bytes(program, 64), 2 * 64 * (2 * 2 * 16 * 2));
}

}  // namespace
}  // namespace fourfold::backend
