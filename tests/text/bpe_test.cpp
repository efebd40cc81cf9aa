#include "text/bpe.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace fourfold::text {
namespace {

// Random merges over a four-letter alphabet: ranks in no useful order, so that every path is taken.
BpeModel random_model(std::uint64_t seed) {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.byte_ids[static_cast<std::size_t>(byte)] = byte;
  Random random(seed);
  model.merges.reserve(60);
  for (TokenId id = 256; id < 300; ++id) {
    const auto pick = [&] {
      const auto draw = static_cast<TokenId>(random.below(static_cast<std::uint64_t>(id - 256 + 4)));
      return draw < 4 ? 'a' + draw : 256 + draw - 4;
    };
    model.merges.insert(pick(), pick(), {static_cast<std::uint32_t>(random.below(1000)), id});
  }
  return model;
}

TEST(Bpe, ScanAndQueueMergeAlike) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const BpeModel model = random_model(seed);
    Random random(seed + 1000);
    for (int round = 0; round < 20; ++round) {
      std::string piece(random.below(49), 'a');
      for (char& c : piece) c = static_cast<char>('a' + random.below(4));
      std::vector<TokenId> scanned, queued;
      merge_by_scan(model, piece, scanned);
      merge_by_queue(model, piece, queued);
      ASSERT_EQ(scanned, queued) << "seed " << seed << " piece " << piece;
    }
  }
}

TEST(Bpe, CacheChangesNothing) {
  const BpeModel model = random_model(4);
  PieceCache cache;
  Random random(8);
  for (int round = 0; round < 50'000; ++round) {
    std::string piece(1 + random.below(6), 'a');
    for (char& c : piece) c = static_cast<char>('a' + random.below(4));
    std::vector<TokenId> cached, plain;
    encode_piece(model, piece, cache, cached);
    merge_by_scan(model, piece, plain);
    ASSERT_EQ(cached, plain);
  }
}

TEST(Bpe, ALaterMergeOfThePairReplacesTheFirst) {
  MergeTable table;
  table.reserve(4);
  table.insert(1, 2, {7, 300});
  table.insert(1, 2, {9, 301});
  EXPECT_EQ(table.find(1, 2).rank, 9u);
  EXPECT_EQ(table.find(1, 2).merged, 301);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace fourfold::text
