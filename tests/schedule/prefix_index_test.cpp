#include "schedule/prefix_index.h"

#include <gtest/gtest.h>

#include <numeric>

namespace fourfold::schedule {
namespace {

constexpr std::int64_t kPage = 4;

std::vector<std::int32_t> tokens(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// An index with the first pages of `text` in it, held by the index alone.
struct Shelf {
  explicit Shelf(std::int64_t page_count, std::int64_t overlap = 0, std::int64_t anchor_count = 2)
      : pool(page_count), index(pool, kPage, overlap, anchor_count), overlap_tokens(overlap) {}
  std::vector<PrefixIndex::Node> put(const std::vector<std::int32_t>& text, const std::string& salt = "") {
    std::vector<PrefixIndex::Node> nodes;
    PrefixIndex::Node node = PrefixIndex::kNone;
    for (std::int64_t at = 0; at + kPage + overlap_tokens <= std::ssize(text); at += kPage) {
      const auto page = pool.acquire();
      node = index.insert(salt, node,
                          std::span(text).subspan(static_cast<std::size_t>(at),
                                                  static_cast<std::size_t>(kPage + overlap_tokens)),
                          *page);
      pool.release(*page);
      nodes.push_back(node);
    }
    return nodes;
  }
  PagePool pool;
  PrefixIndex index;
  std::int64_t overlap_tokens;
};

TEST(PrefixIndex, AHitNeedsPagesAndAnAnchor) {
  Shelf shelf(8);
  const auto text = tokens(0, 12);
  const auto nodes = shelf.put(text);
  EXPECT_EQ(shelf.index.find("", text, 11).position, 0) << "pages without a state";
  EXPECT_EQ(shelf.index.find("", text, 11).matched, 8);
  const auto anchor = shelf.index.give_anchor(nodes[0]);
  const auto hit = shelf.index.find("", text, 11);
  EXPECT_EQ(hit.position, 4);
  EXPECT_EQ(hit.anchor, anchor);
  EXPECT_EQ(hit.pages, std::vector<std::int32_t>{shelf.index.page(nodes[0])});
  EXPECT_EQ(shelf.index.find("", text, 3).position, 0) << "a token must be left to run";
  auto other = text;
  other[2] = 99;
  EXPECT_EQ(shelf.index.find("", other, 11).matched, 0);
}

TEST(PrefixIndex, SaltsDoNotSeeEachOther) {
  Shelf shelf(8);
  const auto text = tokens(0, 8);
  shelf.index.give_anchor(shelf.put(text, "mine")[0]);
  EXPECT_EQ(shelf.index.find("mine", text, 7).position, 4);
  EXPECT_EQ(shelf.index.find("yours", text, 7).matched, 0);
  EXPECT_EQ(shelf.index.find("", text, 7).matched, 0);
}

TEST(PrefixIndex, TheTokenBehindAPageIsComparedWhereItMatters) {
  Shelf shelf(8, /*overlap=*/1);
  const auto text = tokens(0, 9);
  const auto nodes = shelf.put(text);
  ASSERT_EQ(nodes.size(), 2u);
  shelf.index.give_anchor(nodes[0]);
  shelf.index.give_anchor(nodes[1]);
  auto other = text;
  other[8] = 99;
  EXPECT_EQ(shelf.index.find("", text, 8).position, 8);
  EXPECT_EQ(shelf.index.find("", other, 8).position, 4);
}

TEST(PrefixIndex, TheLeastRecentlyUsedLeafGoesFirstAndNeverOneInUse) {
  Shelf shelf(8);
  const auto a = shelf.put(tokens(0, 8));
  const auto b = shelf.put(tokens(100, 8));
  shelf.index.give_anchor(a[1]);
  const auto hit = shelf.index.find("", tokens(0, 9), 8);
  ASSERT_EQ(hit.position, 8);
  shelf.index.take(hit);
  EXPECT_EQ(shelf.index.idle_pages(), 2);
  EXPECT_TRUE(shelf.index.evict());
  EXPECT_TRUE(shelf.index.evict());
  EXPECT_EQ(shelf.index.find("", tokens(100, 8), 8).matched, 0) << "both pages of b, though a is older";
  EXPECT_FALSE(shelf.index.evict()) << "a is in use";
  for (const std::int32_t page : hit.pages) shelf.pool.release(page);
  EXPECT_TRUE(shelf.index.evict());
  EXPECT_EQ(shelf.index.find("", tokens(0, 9), 8).matched, 4) << "the leaf before what it stands on";
  EXPECT_EQ(shelf.index.anchors_used(), 0);
  EXPECT_TRUE(shelf.index.evict());
  EXPECT_EQ(shelf.pool.free_count(), 8);
}

// A beginning counts as used when what stood on it was.
TEST(PrefixIndex, ABeginningIsAsYoungAsWhatStoodOnIt) {
  Shelf shelf(8);
  const auto a = shelf.put(tokens(0, 4));
  const std::int32_t b_page = shelf.index.page(shelf.put(tokens(100, 4))[0]);
  const auto page = shelf.pool.acquire();
  shelf.index.insert("", a[0], tokens(4, 4), *page);
  shelf.pool.release(*page);
  shelf.pool.share(b_page);  // in use, so that the end of a goes first
  ASSERT_TRUE(shelf.index.evict());
  ASSERT_EQ(shelf.index.find("", tokens(0, 8), 8).matched, 4);
  shelf.pool.release(b_page);
  ASSERT_TRUE(shelf.index.evict());
  EXPECT_EQ(shelf.index.find("", tokens(0, 8), 8).matched, 4) << "what stood on it was used after b";
  EXPECT_EQ(shelf.index.find("", tokens(100, 4), 4).matched, 0);
}

TEST(PrefixIndex, AnAnchorIsTakenFromTheLeastRecentlyUsed) {
  Shelf shelf(8, 0, /*anchor_count=*/1);
  const auto a = shelf.put(tokens(0, 4));
  const auto b = shelf.put(tokens(100, 4));
  const auto first = shelf.index.give_anchor(a[0]);
  EXPECT_EQ(shelf.index.give_anchor(b[0]), first);
  EXPECT_FALSE(shelf.index.has_anchor(a[0]));
  EXPECT_TRUE(shelf.index.has_anchor(b[0]));
}

}  // namespace
}  // namespace fourfold::schedule
