#include "sim/copies.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "sim/block.h"

namespace fourfold::sim {
namespace {

constexpr std::uint32_t kChunkBytes = 16;
constexpr std::uint32_t kPiecesMax = 4;

}  // namespace

void Copies::reset() {
  bulk_.clear();
  pieces_.clear();
  arrivals_.clear();
}

void Copies::bulk_load(Thread& thread, void* to, const void* from, int bytes, const void* barrier,
                       SiteTable::Id site) {
  if (bytes <= 0 || bytes % static_cast<int>(kChunkBytes) != 0)
    block_.fault(FaultKind::misaligned, &thread, site,
                 format("bulk_load of {} bytes; it moves multiples of 16", bytes));
  const auto size = static_cast<std::uint32_t>(bytes);
  const std::uint32_t offset = block_.shared_offset(thread, to, size, kChunkBytes, site, "bulk_load");
  block_.check_global(thread, from, size, kChunkBytes, site, "bulk_load");
  const int index = block_.barriers().for_copy(thread, barrier, site);
  Barrier& target = block_.barriers().at(index);

  const View view = block_.view(thread);
  GlobalConflict source;
  GlobalAccessor reader = block_.accessor(thread, site);
  reader.async = true;
  if (!block_.memory().read(reader, from, size, source)) block_.fault(source, &thread, site, "bulk_load");
  SharedConflict conflict;
  const Epoch writer = make_epoch(target.party, target.phase + 1);
  if (!block_.shared().write_async(view, offset, size, writer, site, conflict))
    block_.fault(conflict, &thread, site, "bulk_load");

  ++target.copies_in_flight;
  ++block_.stats().bulk_copies;
  block_.stats().copied_bytes += size;
  const std::size_t copy = bulk_.size();
  bulk_.push_back({offset, static_cast<const std::byte*>(from), size, size, index, site});
  std::uint32_t start = 0;
  if (Dice* const dice = block_.dice()) {
    const std::uint32_t chunks = size / kChunkBytes;
    for (std::uint32_t cuts = dice->below(std::min(kPiecesMax, chunks)); cuts; --cuts) {
      const std::uint32_t end = kChunkBytes * (1 + dice->below(chunks));
      if (end <= start || end == size) continue;
      pieces_.push_back({copy, start, end - start});
      start = end;
    }
  }
  pieces_.push_back({copy, start, size - start});
}

// The oldest, or any: then the newest takes its place, for hundreds of threads may have arrivals here.
void Copies::land_arrival(std::size_t chosen) {
  const Arrival arrival = std::move(arrivals_[chosen]);
  if (chosen == 0) {
    arrivals_.pop_front();
  } else {
    if (chosen + 1 < arrivals_.size()) arrivals_[chosen] = std::move(arrivals_.back());
    arrivals_.pop_back();
  }
  for (const PendingCopy& copy : arrival.copies) {
    if (!copy.landed) std::memcpy(block_.shared().data() + copy.to, copy.from, copy.bytes);
    block_.shared().settle_copy(copy.to, copy.bytes, make_epoch(arrival.thread, arrival.clock));
  }
  block_.barriers().arrive_later(arrival.barrier, *arrival.known, arrival.thread, arrival.clock,
                                 arrival.fenced, arrival.site);
}

void Copies::arrive(Thread& thread, const void* barrier, SiteTable::Id site) {
  Arrival arrival;
  arrival.barrier = block_.barriers().for_copy_arrival(thread, barrier, site);
  arrival.copies = std::move(thread.copies);
  thread.copies.clear();
  thread.copy_groups.clear();
  arrival.known = thread.known;
  arrival.thread = thread.id;
  arrival.clock = thread.clock;
  arrival.fenced = thread.fenced;
  arrival.site = site;
  block_.tick(thread);
  arrivals_.push_back(std::move(arrival));
}

void Copies::land_one(Dice* dice) {
  const std::size_t waiting = pieces_.size() + arrivals_.size();
  const std::size_t chosen = dice ? dice->below(static_cast<std::uint32_t>(waiting)) : 0;
  if (chosen >= pieces_.size()) return land_arrival(chosen - pieces_.size());
  const Piece piece = pieces_[chosen];
  if (dice) {
    pieces_[chosen] = pieces_.back();
    pieces_.pop_back();
  } else {
    pieces_.erase(pieces_.begin());
  }
  Bulk& bulk = bulk_[piece.copy];
  std::memcpy(block_.shared().data() + bulk.to + piece.offset, bulk.from + piece.offset, piece.bytes);
  bulk.left -= piece.bytes;
  if (bulk.left == 0) --block_.barriers().at(bulk.barrier).copies_in_flight;
  const int barrier = bulk.barrier;
  const SiteTable::Id site = bulk.site;
  if (pieces_.empty()) bulk_.clear();
  block_.barriers().land(barrier, piece.bytes, site);
}

void Copies::copy(Thread& thread, void* to, const void* from, std::uint32_t bytes, SiteTable::Id site,
                  const char* what) {
  const std::uint32_t offset = block_.shared_offset(thread, to, bytes, bytes, site, what);
  block_.check_global(thread, from, bytes, bytes, site, what);
  const View view = block_.view(thread);
  GlobalConflict source;
  if (!block_.memory().read(block_.accessor(thread, site), from, bytes, source))
    block_.fault(source, &thread, site, what);
  SharedConflict conflict;
  if (!block_.shared().begin_copy(view, offset, bytes, thread.epoch(), site, conflict))
    block_.fault(conflict, &thread, site, what);
  ++block_.stats().async_copies;
  block_.stats().copied_bytes += bytes;
  const bool now = block_.dice() && block_.dice()->chance(128);
  if (now) std::memcpy(block_.shared().data() + offset, from, bytes);
  thread.copies.push_back({offset, bytes, from, now});
}

void Copies::wait(Thread& thread, int pending) {
  const auto groups = static_cast<int>(thread.copy_groups.size());
  const int done = std::max(0, groups - pending);
  if (done == 0) return;
  const std::size_t count = thread.copy_groups[static_cast<std::size_t>(done) - 1];
  for (std::size_t i = 0; i < count; ++i) {
    const PendingCopy& copy = thread.copies[i];
    if (!copy.landed) std::memcpy(block_.shared().data() + copy.to, copy.from, copy.bytes);
    block_.shared().settle_copy(copy.to, copy.bytes, thread.epoch());
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(count));
  thread.copy_groups.erase(thread.copy_groups.begin(), thread.copy_groups.begin() + done);
  for (std::size_t& end : thread.copy_groups) end -= count;
}

void Copies::check_exit(Thread& thread, SiteTable::Id site) {
  if (!thread.copies.empty())
    block_.fault(FaultKind::leftover_copy, &thread, site,
                 format("returned from the kernel with {} asynchronous copies it never waited for, the first "
                        "to shared byte {}",
                        thread.copies.size(), with_commas(thread.copies.front().to)));
}

void Copies::check_end() {
  if (!arrivals_.empty())
    block_.fault(FaultKind::leftover_copy, nullptr, arrivals_.front().site,
                 "the block ended while copies that arrive on a barrier were in flight");
  if (!pieces_.empty()) {
    const Bulk& bulk = bulk_[pieces_.front().copy];
    block_.fault(FaultKind::leftover_copy, nullptr, bulk.site,
                 format("the block ended while a bulk copy of {} bytes to shared byte {} was in flight",
                        with_commas(bulk.bytes), with_commas(bulk.to)));
  }
}

}  // namespace fourfold::sim
