// The batches' bytes are read by vLLM's own structs in tests/clients/kv_events.py; here is what of them could
// be wrong without a reader's noticing.
#include "events/kv_batch.h"

#include <gtest/gtest.h>

namespace fourfold::events {
namespace {

using schedule::BlockEvent;

BlockEvent stored() {
  return {.kind = BlockEvent::Kind::stored,
          .blocks = {300, 301},
          .parent = 299,
          .tokens = {1, 2, 3, 4},
          .lookahead = {3, 5},
          .salt = ""};
}

TEST(KvBatch, AMapNamesItsFieldsAndAnArrayHasTheirOrder) {
  const BlockEvent event = stored();
  const std::string map = kv_batch(std::span(&event, 1), {.seconds = 1, .block_tokens = 2});
  EXPECT_EQ(static_cast<unsigned char>(map[0]), 0x93) << "time, events, rank";
  for (const char* name :
       {"type", "BlockStored", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
        "medium", "GPU", "lora_name", "extra_keys", "lookahead_token_ids"})
    EXPECT_NE(map.find(name), std::string::npos) << name;
  const std::string array =
      kv_batch(std::span(&event, 1), {.seconds = 1, .block_tokens = 2, .form = EventForm::array});
  EXPECT_EQ(array.find("block_hashes"), std::string::npos);
  EXPECT_EQ(static_cast<unsigned char>(array[11]), 0x99) << "the tag and eight fields";
  EXPECT_EQ(array.substr(12, 12),
            "\xab"
            "BlockStored");
}

TEST(KvBatch, ASaltIsTheFirstBlocks) {
  BlockEvent event = stored();
  const auto count = [&](const std::string& text) {
    const std::string batch = kv_batch(std::span(&event, 1), {.block_tokens = 2});
    std::size_t found = 0;
    for (std::size_t at = batch.find(text); at != std::string::npos; at = batch.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("2:secret"), 0u);
  event.salt = "2:secret";
  EXPECT_EQ(count("2:secret"), 1u);
}

TEST(KvBatch, NothingIsLostOfSeveralEvents) {
  const std::vector<BlockEvent> events{
      {.kind = BlockEvent::Kind::cleared}, stored(), {.kind = BlockEvent::Kind::removed, .blocks = {300}}};
  const std::string batch = kv_batch(events, {.block_tokens = 2});
  const auto cleared = batch.find("AllBlocksCleared"), first = batch.find("BlockStored"),
             removed = batch.find("BlockRemoved");
  ASSERT_NE(cleared, std::string::npos);
  EXPECT_LT(cleared, first);
  EXPECT_LT(first, removed);
  EXPECT_NE(removed, std::string::npos);
  EXPECT_EQ(batch.back(), '\0') << "rank 0";
}

}  // namespace
}  // namespace fourfold::events
