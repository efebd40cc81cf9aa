#include "engine/cache_room.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fourfold::engine {
namespace {

// A page of 1,280 bytes, a state of 35,840.
backend::Program small_program() {
  backend::Program program;
  program.delta_states.push_back({.name = "",
                                  .key_head_count = 1,
                                  .value_head_count = 2,
                                  .key_head_dim = 64,
                                  .value_head_dim = 64,
                                  .conv_taps = 4});
  program.kv_caches.push_back({.name = "", .kv_head_count = 1, .head_dim = 5});
  return program;
}

class CacheRoom : public testing::Test {
 protected:
  CacheRoom() {
    page_ = page_bytes(program_, kTokenGrain);
    state_ = backend::anchor_bytes(program_, kTokenGrain);
  }
  backend::Capacity divide(std::int64_t pages, std::int64_t least, std::int64_t state_bytes,
                           std::int64_t memory) {
    return divide_cache(program_,
                        {.capacity = {.page_count = pages, .state_slot_count = 3},
                         .least_pages = least,
                         .state_bytes = state_bytes},
                        [&](const backend::Capacity& capacity) {
                          return capacity.page_count * page_ + capacity.anchor_count * state_ <= memory;
                        });
  }
  backend::Program program_ = small_program();
  std::int64_t page_ = 0, state_ = 0;
};

TEST_F(CacheRoom, BytesAreThoseOfTheProgram) {
  EXPECT_EQ(state_, 4 * (8'192 + 768)) << "2 heads of 64 x 64, and 3 rows of 256 inputs";
  EXPECT_EQ(page_, kTokenGrain * program_.kv_caches[0].stored_columns() *
                       element_bytes(program_.kv_caches[0].format));
}

// gpt-oss's: every second layer sees 128 positions, whose pages do not grow with the context.
TEST_F(CacheRoom, LayersWithAWindowHavePagesOfTheirOwn) {
  program_.position_limit = 131'072;
  program_.kv_caches.push_back({.name = "", .kv_head_count = 1, .head_dim = 10, .window = 128});
  EXPECT_EQ(page_bytes(program_, kTokenGrain), page_);
  for (const std::int64_t pages : {1'000, 100'000})
    EXPECT_EQ(window_bytes(program_, {.page_count = pages, .state_slot_count = 3, .row_count = 2'048}),
              (3 * 5 + 32) * 2 * page_);
  EXPECT_EQ(backend::anchor_bytes(program_, kTokenGrain), state_ + 2 * 2 * page_);
}

TEST_F(CacheRoom, AllThatIsWantedWhereThereIsMemory) {
  const backend::Capacity few = divide(100, 10, -1, 1'000'000'000);
  EXPECT_EQ(few.page_count, 100);
  EXPECT_EQ(few.anchor_count,
            std::max<std::int64_t>(12, std::min<std::int64_t>(100, 100 * page_ / 3 / state_)));
  EXPECT_EQ(divide(30, 1, -1, 1'000'000'000).anchor_count, 12) << "four for each of three sequences";
  EXPECT_EQ(divide(9, 1, -1, 1'000'000'000).anchor_count, 9) << "no more than pages";
}

TEST_F(CacheRoom, AQuarterIsForStatesWhereMemoryIsShort) {
  const std::int64_t memory = 4'000 * page_;
  const backend::Capacity got = divide(1'000'000, 10, -1, memory);
  // To within one state.
  EXPECT_LE(std::abs(got.page_count * page_ - memory * 3 / 4), state_);
  EXPECT_LE(std::abs(got.anchor_count * state_ - memory / 4), state_);
  EXPECT_LE(got.page_count * page_ + got.anchor_count * state_, memory);
}

TEST_F(CacheRoom, SmallStatesAreOneForSoManyTokens) {
  program_.kv_caches[0].kv_head_count = 1'000;
  EXPECT_EQ(anchor_share(program_, {.page_count = 1'600}), 100);
}

TEST_F(CacheRoom, StatesMakeRoomForOneWholeRequest) {
  const backend::Capacity got = divide(1'000'000, 3'900, -1, 4'000 * page_);
  EXPECT_EQ(got.page_count, 3'900);
  EXPECT_EQ(got.anchor_count, 100 * page_ / state_) << "what is left";
  EXPECT_LT(divide(1'000'000, 4'100, -1, 4'000 * page_).page_count, 4'100) << "the caller refuses it";
}

TEST_F(CacheRoom, PagesAndStatesThatSomebodyAskedForStay) {
  const backend::Capacity pages = divide(50, 50, -1, 106 * page_);
  EXPECT_EQ(pages.page_count, 50);
  EXPECT_EQ(pages.anchor_count, 56 * page_ / state_);
  EXPECT_EQ(divide(50, 50, -1, 10 * page_).page_count, 50) << "whoever loads it says what is missing";
  EXPECT_EQ(divide(50, 50, -1, 10 * page_).anchor_count, 0);
  EXPECT_EQ(divide(100, 1, 0, 1'000'000'000).anchor_count, 0);
  EXPECT_EQ(divide(100, 1, 7 * state_ + 1, 1'000'000'000).anchor_count, 7);
  EXPECT_EQ(divide(100, 1, 7 * state_, 50 * page_ + 7 * state_).page_count, 50);
  EXPECT_EQ(divide(100, 1, 1'000'000 * state_, 1'000'000'000).anchor_count, 100) << "no more than pages";
}

TEST_F(CacheRoom, SequencesAreAsManyAsHaveRoomForThemselves) {
  const std::int64_t slot = 1'000'000;
  const auto with = [&](std::int64_t context, std::int64_t memory, std::int64_t least_pages = 0) {
    return sequences_with_room(
        {.row_count = 64}, context, least_pages, 64, [&](const backend::Capacity& capacity) {
          EXPECT_EQ(capacity.row_count, std::max<std::int64_t>(64, 6 * capacity.state_slot_count))
              << "drafts";
          EXPECT_EQ(capacity.anchor_count, 0);
          return capacity.state_slot_count * slot + capacity.page_count * page_ <= memory;
        });
  };
  const std::int64_t each = slot + kTokensEach / kTokenGrain * page_;
  EXPECT_EQ(with(1'000'000, 64 * each), 64);
  EXPECT_EQ(with(1'000'000, 64 * each - 1), 32);
  EXPECT_EQ(with(1'000'000, 8 * each), 8);
  EXPECT_EQ(with(100, 64 * (slot + 2 * page_)), 64) << "a context is shorter";
  EXPECT_EQ(with(1'000'000, 8 * each, 10 * kTokensEach / kTokenGrain), 4) << "one whole request comes first";
  EXPECT_EQ(with(1'000'000, 0), 1) << "whoever loads it says what is missing";
}

TEST_F(CacheRoom, WithoutRecurrentLayersPagesAreAll) {
  program_.delta_states.clear();
  state_ = 0;
  const backend::Capacity got = divide(100, 10, -1, 60 * page_);
  EXPECT_EQ(got.page_count, 60);
  EXPECT_EQ(got.anchor_count, 60) << "the prefix cache is on";
  EXPECT_EQ(divide(100, 10, 0, 60 * page_).anchor_count, 0);
}

}  // namespace
}  // namespace fourfold::engine
