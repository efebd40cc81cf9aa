// The batches' bytes are read by vLLM's own structs in tests/clients/kv_events.py; here is what of them could
// be wrong without a reader's noticing.
#include "events/kv_batch.h"

#include <gtest/gtest.h>

#include "events/msgpack.h"

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

template <class Write>
std::string packed(const Write& write) {
  std::string out;
  MsgpackWriter pack(out);
  write(pack);
  return out;
}

// Of each block its own tokens, behind what the first alone has of the salt.
TEST(KvBatch, BlocksHaveTheirOwnLookahead) {
  BlockEvent event = stored();
  event.lookahead = {3, 4, 5, 6};
  event.salt = "2:secret";
  const std::string wanted = packed([&](MsgpackWriter& pack) {
    pack.text("extra_keys");
    pack.array(2);
    pack.array(1);
    pack.text(event.salt);
    pack.nil();
    pack.text("lookahead_token_ids");
    pack.array(2);
    for (const std::uint64_t first : {3u, 5u}) {
      pack.array(2);
      pack.natural(first);
      pack.natural(first + 1);
    }
  });
  EXPECT_NE(kv_batch(std::span(&event, 1), {.block_tokens = 2}).find(wanted), std::string::npos);
}

TEST(KvBatch, AFirstBlockHasNoParent) {
  BlockEvent event = stored();
  const auto parent = [&](const auto& write) {
    const std::string wanted = packed([&](MsgpackWriter& pack) {
      pack.text("parent_block_hash");
      write(pack);
      pack.text("token_ids");
    });
    return kv_batch(std::span(&event, 1), {.block_tokens = 2}).find(wanted) != std::string::npos;
  };
  EXPECT_TRUE(parent([](MsgpackWriter& pack) { pack.natural(299); }));
  event.parent.reset();
  EXPECT_TRUE(parent([](MsgpackWriter& pack) { pack.nil(); }));
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
