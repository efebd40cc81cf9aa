#include "schedule/prefix_index.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/token_grain.h"

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
  explicit Shelf(std::int64_t page_count, std::int64_t overlap = 0, std::int64_t anchor_count = 2,
                 bool recurrent = true)
      : pool(page_count), index(pool, kPage, overlap, recurrent, anchor_count), overlap_tokens(overlap) {}
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

TEST(PrefixIndex, WithoutStatesPagesAreEnough) {
  Shelf shelf(64, 0, 2, /*recurrent=*/false);
  const auto text = tokens(0, 3 * kTokenGrain);
  const auto nodes = shelf.put(text);
  const auto hit = shelf.index.find("", text, 3 * kTokenGrain - 1);
  EXPECT_EQ(hit.position, 2 * kTokenGrain) << "where a block of 64 ends";
  EXPECT_EQ(hit.matched, 3 * kTokenGrain - kPage);
  EXPECT_EQ(hit.anchor, -1);
  EXPECT_EQ(hit.node, nodes[2 * kTokenGrain / kPage - 1]);
  EXPECT_EQ(std::ssize(hit.pages), 2 * kTokenGrain / kPage);
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

using Kind = BlockEvent::Kind;

TEST(PrefixIndex, EventsSayWhatIsStoredAndRemoved) {
  Shelf shelf(4);
  shelf.index.note_events();
  auto events = shelf.index.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::cleared);
  const auto text = tokens(0, 12);
  shelf.put(text);
  events = shelf.index.take_events();
  ASSERT_EQ(events.size(), 1u) << "pages of one text in a row are one event";
  EXPECT_EQ(events[0].kind, Kind::stored);
  EXPECT_EQ(events[0].tokens, text);
  EXPECT_FALSE(events[0].parent);
  const std::vector<BlockHash> hashes = events[0].blocks;
  ASSERT_EQ(hashes.size(), 3u);
  shelf.put(text);
  EXPECT_TRUE(shelf.index.take_events().empty()) << "it was there";

  auto other = text;
  other[8] = 99;  // another third page
  shelf.put(other);
  events = shelf.index.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].parent, hashes[1]);
  EXPECT_NE(events[0].blocks[0], hashes[2]);

  while (shelf.index.evict()) {
  }
  events = shelf.index.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::removed);
  EXPECT_EQ(events[0].blocks.size(), 4u);
  EXPECT_EQ(events[0].blocks.back(), hashes[0]) << "what others stand on goes last";
}

TEST(PrefixIndex, HashesAreOfTheWholeTextAndItsSalt) {
  const auto hashes = [](const std::vector<std::int32_t>& text, const std::string& salt,
                         std::int64_t overlap) {
    Shelf shelf(8, overlap);
    shelf.index.note_events();
    shelf.put(text, salt);
    const auto events = shelf.index.take_events();
    EXPECT_EQ(events.back().salt, salt);
    return events.back().blocks;
  };
  const auto text = tokens(0, 9);
  const auto plain = hashes(text, "", 0);
  EXPECT_EQ(plain, hashes(text, "", 0)) << "another index, the same hashes";
  EXPECT_NE(plain[0], hashes(text, "s", 0)[0]);
  EXPECT_NE(plain[1], hashes(text, "s", 0)[1]);
  auto other = text;
  other[0] = 7;
  EXPECT_NE(plain[1], hashes(other, "", 0)[1]) << "the second page stands on another first one";
  auto behind = text;
  behind[8] = 77;
  EXPECT_EQ(plain[1], hashes(behind, "", 0)[1]);
  EXPECT_NE(hashes(text, "", 1)[1], hashes(behind, "", 1)[1]) << "a page that depends on the token behind it";
}

TEST(PrefixIndex, AllEventsRebuildWhatIsThere) {
  Shelf shelf(8, /*overlap=*/1);
  shelf.index.note_events();
  shelf.put(tokens(0, 13));
  auto other = tokens(0, 13);
  other[5] = 99;
  shelf.put(other);
  shelf.put(tokens(50, 9), "s");
  std::map<BlockHash, std::optional<BlockHash>> parents;
  std::size_t token_count = 0;
  for (const BlockEvent& event : shelf.index.all_events()) {
    if (event.kind == Kind::cleared) {
      EXPECT_TRUE(parents.empty()) << "it comes first";
      continue;
    }
    std::optional<BlockHash> parent = event.parent;
    EXPECT_TRUE(!parent || parents.contains(*parent)) << "a block comes after what it stands on";
    for (const BlockHash block : event.blocks) {
      EXPECT_TRUE(parents.emplace(block, parent).second);
      parent = block;
    }
    EXPECT_EQ(event.tokens.size(), event.blocks.size() * kPage);
    EXPECT_EQ(event.lookahead.size(), event.blocks.size());
    token_count += event.tokens.size();
  }
  EXPECT_EQ(static_cast<std::int64_t>(parents.size()), shelf.index.node_count());
  EXPECT_EQ(static_cast<std::int64_t>(token_count), shelf.index.node_count() * kPage);
}

}  // namespace
}  // namespace fourfold::schedule
