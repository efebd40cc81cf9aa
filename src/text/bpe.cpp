#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>

#include "base/check.h"

namespace fourfold::text {

namespace {

// Above this many bytes the scan's n*n work loses to the queue.
constexpr std::size_t kScanBytesMax = 48;

}  // namespace

void MergeTable::reserve(std::size_t count) {
  check(size_ == 0, "room is made before the first merge");
  slots_.assign(std::bit_ceil(std::max<std::size_t>(2 * count, 2)), {});
  mask_ = slots_.size() - 1;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  check(2 * (size_ + 1) <= slots_.size(), "the merge table is at most half full", size_, slots_.size());
  const std::uint64_t wanted = key(left, right);
  std::size_t slot = first_slot(wanted);
  while (slots_[slot].key != kEmpty && slots_[slot].key != wanted) slot = (slot + 1) & mask_;
  size_ += slots_[slot].key == kEmpty;
  slots_[slot] = {wanted, merge};
}

PieceCache::Slot& PieceCache::slot_of(std::string_view piece) {
  std::uint64_t hash = 0xCBF29CE484222325u + piece.size();
  std::size_t at = 0;
  for (; at + 8 <= piece.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, piece.data() + at, 8);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  std::uint64_t rest = 0;
  if (at < piece.size()) std::memcpy(&rest, piece.data() + at, piece.size() - at);
  hash = (hash ^ rest) * 0x9E3779B97F4A7C15u;
  return slots_[(hash >> 40) & (kSlotCount - 1)];
}

void merge_by_scan(const BpeModel& model, std::string_view piece, std::vector<TokenId>& out) {
  TokenId ids[kScanBytesMax];
  MergeTable::Merge merges[kScanBytesMax];  // merges[i]: of the pair (i, i + 1)
  std::size_t count = 0;
  check(piece.size() <= kScanBytesMax, "a piece for the scan is short", piece.size());
  for (const char byte : piece) ids[count++] = model.byte_ids[static_cast<unsigned char>(byte)];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = model.merges.find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    ids[best] = merges[best].merged;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(merges + best + 1, merges + count - 1, merges + best);
    --count;
    if (best > 0) merges[best - 1] = model.merges.find(ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = model.merges.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

void merge_by_queue(const BpeModel& model, std::string_view piece, std::vector<TokenId>& out) {
  struct Symbol {
    TokenId id;
    std::int32_t before, after;  // -1: none
    bool gone = false;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;
    TokenId left_id, right_id;  // what stood there when it was queued
    TokenId merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  const auto count = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const TokenId id = model.byte_ids[static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])];
    symbols.push_back({id, i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto symbol = [&symbols](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto propose = [&](std::int32_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    const TokenId left_id = symbol(left).id, right_id = symbol(symbol(left).after).id;
    const auto merge = model.merges.find(left_id, right_id);
    if (merge.rank != MergeTable::kNoRank) queue.push({merge.rank, left, left_id, right_id, merge.merged});
  };
  for (std::int32_t i = 0; i < count; ++i) propose(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.left);
    if (left.gone || left.after < 0 || left.id != best.left_id) continue;
    Symbol& right = symbol(left.after);
    if (right.id != best.right_id) continue;
    left.id = best.merged;
    left.after = right.after;
    right.gone = true;
    if (left.after >= 0) symbol(left.after).before = best.left;
    propose(left.before);
    propose(best.left);
  }
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbol(i).after) out.push_back(symbol(i).id);
}

void encode_piece(const BpeModel& model, std::string_view piece, PieceCache& cache,
                  std::vector<TokenId>& out) {
  if (piece.size() > PieceCache::kPieceBytesMax) {
    if (model.whole_pieces_first) {
      if (const auto whole = model.whole_pieces.find(piece); whole != model.whole_pieces.end()) {
        out.push_back(whole->second);
        return;
      }
    }
    return piece.size() <= kScanBytesMax ? merge_by_scan(model, piece, out)
                                         : merge_by_queue(model, piece, out);
  }
  PieceCache::Slot& slot = cache.slot_of(piece);
  if (slot.piece_bytes == piece.size() && std::memcmp(slot.piece, piece.data(), piece.size()) == 0) {
    out.insert(out.end(), slot.ids, slot.ids + slot.id_count);
    return;
  }
  const std::size_t start = out.size();
  const auto whole = model.whole_pieces_first ? model.whole_pieces.find(piece) : model.whole_pieces.end();
  if (whole != model.whole_pieces.end()) {
    out.push_back(whole->second);
  } else {
    merge_by_scan(model, piece, out);
  }
  const std::size_t id_count = out.size() - start;
  if (id_count > PieceCache::kIdCountMax) return;
  slot.piece_bytes = static_cast<std::uint8_t>(piece.size());
  slot.id_count = static_cast<std::uint8_t>(id_count);
  std::memcpy(slot.piece, piece.data(), piece.size());
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(), slot.ids);
}

}  // namespace fourfold::text
