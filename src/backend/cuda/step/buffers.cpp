#include "backend/cuda/step/buffers.h"

#include <algorithm>

#include "backend/window_pages.h"
#include "base/check.h"
#include "kernels/moe_layer/choose.h"

namespace fourfold::backend::cuda {

BatchTables::BatchTables(kernels::Memory& memory, kernels::Arena& arena, const Program& program,
                         const Capacity& capacity)
    : memory_(memory) {
  const auto rows = static_cast<std::size_t>(capacity.row_count);
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += (bytes + 15) / 16 * 16;
    return at;
  };
  rows_at_ = take(rows * sizeof(step::RowPlace));
  sequences_at_ = take(static_cast<std::size_t>(capacity.state_slot_count) * sizeof(step::SequencePlace));
  tokens_at_ = take(rows * 4);
  batch_rows_at_ = take(rows * 4);
  hidden_rows_at_ = take(rows * 4);
  logits_rows_at_ = take(rows * 4);
  const auto slots = static_cast<std::size_t>(capacity.state_slot_count);
  chunks_at_ = take((rows / step::kPageTokens + 2 * slots) * sizeof(delta::ChunkPlace));
  prompts_at_ = take(slots * sizeof(delta::PromptPlace));
  for (int i = 0; i < kTileWidths; ++i)
    tiles_at_[i] = take((rows / (std::size_t{8} << i) + 1) * sizeof(moe::TokenTile));
  tile_counts_at_ = take(kTileWidths * 4);
  // Last: what a batch does not use of it is not sent.
  page_room_ = page_entries(program, capacity);
  pages_at_ = take(page_room_ * 4);
  window_pages_at_ = take(WindowPages::count_of(program, capacity) > 0 ? page_room_ * 4 : 0);
  host_ = static_cast<unsigned char*>(memory.allocate_host(bytes_));
  device_ = arena.take<unsigned char>(bytes_, "batch tables");
}

BatchTables::~BatchTables() { memory_.release_host(host_); }

void BatchTables::send(const RowGroup& group, int begin, int count) {
  const auto first = static_cast<std::size_t>(begin), last = first + static_cast<std::size_t>(count);
  row_count_ = count;
  sequence_count_ = 0;
  logits_places_.clear();
  auto* sequences = host<step::SequencePlace>(sequences_at_);
  auto* rows = host<step::RowPlace>(rows_at_);
  const std::int32_t skipped = group.rows[first].sequence;
  for (std::size_t i = first; i < last; ++i) {
    step::RowPlace place = group.rows[i];
    if (place.sequence - skipped == sequence_count_) {
      step::SequencePlace sequence = group.sequences[static_cast<std::size_t>(place.sequence)];
      sequence.first_row = static_cast<std::int32_t>(i - first);
      sequence.position = place.position;
      sequence.row_count = 0;
      sequences[sequence_count_++] = sequence;
    }
    ++sequences[sequence_count_ - 1].row_count;
    place.sequence -= skipped;
    rows[i - first] = place;
    host<std::int32_t>(tokens_at_)[i - first] = group.tokens[i];
    host<std::int32_t>(batch_rows_at_)[i - first] = group.batch_row[i];
    if (!group.hidden_row.empty()) host<std::int32_t>(hidden_rows_at_)[i - first] = group.hidden_row[i];
  }
  sequence_rows_ = last_position_ = 0;
  for (int i = 0; i < sequence_count_; ++i) {
    sequence_rows_ = std::max(sequence_rows_, sequences[i].row_count);
    last_position_ = std::max(last_position_, sequences[i].position + sequences[i].row_count - 1);
  }
  for (std::size_t i = 0; i < group.logits_row.size(); ++i) {
    const std::int32_t row = group.logits_row[i] - begin;
    if (row < 0 || row >= count) continue;
    host<std::int32_t>(logits_rows_at_)[logits_places_.size()] = row;
    logits_places_.push_back(group.logits_place[i]);
  }
  if (group.role == Role::prefill) fill_prompts(sequences);
  check(group.pages.size() <= page_room_, "there is room for the sequences' pages", group.pages.size(),
        page_room_);
  std::copy(group.pages.begin(), group.pages.end(), host<std::int32_t>(pages_at_));
  memory_.send(device_, host_, pages_at_ + group.pages.size() * 4);
  if (group.window_pages.empty()) return;
  std::copy(group.window_pages.begin(), group.window_pages.end(), host<std::int32_t>(window_pages_at_));
  memory_.send(device_ + window_pages_at_, host_ + window_pages_at_, group.window_pages.size() * 4);
}

void BatchTables::fill_prompts(const step::SequencePlace* sequences) {
  chunk_count_ = 0;
  for (int i = 0; i < sequence_count_; ++i) {
    const int count = delta::prompt_chunks(sequences[i].position, sequences[i].row_count);
    host<delta::PromptPlace>(prompts_at_)[i] = {chunk_count_, count, {}};
    for (int chunk = 0; chunk < count; ++chunk)
      host<delta::ChunkPlace>(chunks_at_)[chunk_count_++] = delta::chunk_of(sequences[i], chunk);
  }
  for (int i = 0; i < kTileWidths; ++i) {
    const int width = 8 << i;
    int count = 0;
    for (int row = 0; row < row_count_; row += width)
      host<moe::TokenTile>(tiles_at_[i])[count++] = {0, row, std::min(width, row_count_ - row), 0};
    host<std::int32_t>(tile_counts_at_)[i] = count;
  }
}

BatchTables::Tiles BatchTables::tiles(int width) const {
  int index = 0;
  while ((8 << index) < width) ++index;
  check(index < kTileWidths && 8 << index == width, "tiles have a width of the tables", width);
  return {device<moe::TokenTile>(tiles_at_[index]), device<std::int32_t>(tile_counts_at_) + index};
}

RowTiles make_row_tiles(kernels::Arena& arena, const Capacity& capacity) {
  std::vector<moe::TokenTile> tiles;
  std::vector<std::int32_t> counts, numbers;
  for (int count = 1; count <= dense::kManyTokens; ++count) {
    const auto cut = [&](int width, std::size_t room) {
      const std::size_t begin = tiles.size();
      for (int row = 0; row < count; row += width) tiles.push_back({0, row, std::min(width, count - row), 0});
      counts.push_back(static_cast<std::int32_t>(tiles.size() - begin));
      check(tiles.size() - begin <= room, "a table has room for the tiles of its rows", count, width);
      tiles.resize(begin + room);
    };
    cut(8, RowTiles::kEights);
    cut(moe_layer::one_expert_tokens(count), RowTiles::kWides);
  }
  const std::int64_t most = std::max<std::int64_t>(capacity.row_count, dense::kManyTokens);
  for (std::int32_t row = 0; row < most; ++row) numbers.push_back(row);
  return {arena.upload(tiles, "tiles of rows"), arena.upload(counts, "tiles of rows"),
          arena.upload(numbers, "row numbers")};
}

BatchTables::Tiles RowTiles::eights(int count) const {
  return {tiles + (count - 1) * (kEights + kWides), counts + 2 * (count - 1)};
}
BatchTables::Tiles RowTiles::wides(int count) const {
  return {tiles + (count - 1) * (kEights + kWides) + kEights, counts + 2 * (count - 1) + 1};
}

step::Tables BatchTables::tables() const {
  return {device<step::RowPlace>(rows_at_), device<step::SequencePlace>(sequences_at_),
          device<std::int32_t>(pages_at_), row_count_, sequence_count_};
}

}  // namespace fourfold::backend::cuda
