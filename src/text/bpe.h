// Byte-pair merges: turns the bytes of one piece into token ids, always merging the pair of lowest rank,
// leftmost first. Short pieces scan their few pairs; long ones (a megabyte of spaces) use a queue, so time
// grows as n log n. Called by Tokenizer, which cuts the text into pieces first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/seeded_hash.h"

namespace fourfold::text {

using TokenId = std::int32_t;

// (left id, right id) -> rank and merged id; open addressing, read only after loading.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = kNoRank;
    TokenId merged = -1;
  };
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

  void reserve(std::size_t count);
  // A pair given twice keeps the later rank, as the `tokenizers` package does.
  void insert(TokenId left, TokenId right, Merge merge);

  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t wanted = key(left, right);
    for (std::size_t slot = first_slot(wanted);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == wanted) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }
  std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t key(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t first_slot(std::uint64_t key) const { return (key * multiplier_ >> 20) & mask_; }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  std::uint64_t multiplier_ = SeededHash::random_odd();  // a file cannot know which of its pairs collide
  std::size_t mask_ = 1;
  std::size_t size_ = 0;
};

struct BpeModel {
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
  // ignore_merges: a piece that is a token is that token, whatever its merges would give.
  bool whole_pieces_first = false;
  // By bytes; filled only when whole_pieces_first.
  std::unordered_map<std::string, TokenId, SeededHash, std::equal_to<>> whole_pieces;
};

// Remembers what pieces became. Text repeats its words, so most pieces cost one lookup. One thread's; a slot
// is overwritten by the next piece that falls on it.
class PieceCache {
 public:
  static constexpr std::size_t kSlotCount = 1 << 14;
  static constexpr std::size_t kPieceBytesMax = 24;
  static constexpr std::size_t kIdCountMax = 8;

  struct Slot {
    std::uint8_t piece_bytes = 0;  // 0: empty
    std::uint8_t id_count = 0;
    char piece[kPieceBytesMax];
    TokenId ids[kIdCountMax];
  };

  PieceCache() : slots_(kSlotCount) {}
  Slot& slot_of(std::string_view piece);

 private:
  std::vector<Slot> slots_;
};

void encode_piece(const BpeModel& model, std::string_view piece, PieceCache& cache,
                  std::vector<TokenId>& out);

// Without the cache; the two ways of merging are visible so that a test can hold them against each other.
void merge_by_scan(const BpeModel& model, std::string_view piece, std::vector<TokenId>& out);
void merge_by_queue(const BpeModel& model, std::string_view piece, std::vector<TokenId>& out);

}  // namespace fourfold::text
