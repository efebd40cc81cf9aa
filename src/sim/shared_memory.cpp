#include "sim/shared_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fourfold::sim {
namespace {

constexpr std::size_t kRedZoneBytes = 1024;
constexpr std::byte kRedZone{0xFA};
constexpr std::byte kNeverWritten{0xCD};

// Whether the older read need not be kept beside the new one, because whoever is ordered behind the new one
// is ordered behind the older one, too. So it is between reads of one party, and where the viewing thread
// itself reads: others learn of its read together with what it knew then. Not so with a wgmma, whose end is
// learned of without what the thread that issued it knew; nor with an older read that may still be on its
// way, which a copy must not overtake even where the order is known (late_read).
bool covers(const View& view, Epoch reader, Epoch older) {
  return party_of(older) == party_of(reader) ||
         (party_of(reader) == view.self && view.ordered(older) && view.read_is_complete(older));
}

}  // namespace

void SharedMemory::reset(std::uint32_t bytes) {
  const std::size_t needed = bytes + 2 * kRedZoneBytes + kAlignment;
  if (needed > storage_bytes_) {
    storage_ = std::make_unique<std::byte[]>(needed);
    storage_bytes_ = needed;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(storage_.get()) + kRedZoneBytes;
  data_ = storage_.get() + kRedZoneBytes + (kAlignment - start % kAlignment) % kAlignment;
  bytes_ = bytes;
  std::memset(data_ - kRedZoneBytes, static_cast<int>(kRedZone), kRedZoneBytes);
  std::memset(data_, static_cast<int>(kNeverWritten), bytes);
  std::memset(data_ + bytes, static_cast<int>(kRedZone), kRedZoneBytes);
  granules_.assign((bytes + 15) / 16, Granule{});
  free_spill_.clear();
  for (std::size_t i = 0; i < spill_.size(); ++i) {
    spill_[i].clear();
    free_spill_.push_back(static_cast<std::uint32_t>(i + 1));
  }
}

bool SharedMemory::red_zones_intact() const {
  const auto intact = [](const std::byte* from) {
    return std::all_of(from, from + kRedZoneBytes, [](std::byte b) { return b == kRedZone; });
  };
  return intact(data_ - kRedZoneBytes) && intact(data_ + bytes_);
}

bool SharedMemory::writes_ordered(const View& view, const Granule& granule, unsigned words,
                                  bool must_be_written, std::uint32_t offset,
                                  SharedConflict& conflict) const {
  const std::uint32_t base = offset & ~15u;
  if ((granule.barrier & words) != 0) [[unlikely]] {
    conflict = {FaultKind::barrier_misuse, offset};
    return false;
  }
  if (must_be_written && (granule.written & words) != words) [[unlikely]] {
    const unsigned missing = words & ~granule.written;
    conflict = {FaultKind::unwritten_read, base + 4u * static_cast<unsigned>(std::countr_zero(missing))};
    return false;
  }
  Epoch checked = 0;
  for (unsigned left = words & granule.written; left; left &= left - 1) {
    const unsigned word = static_cast<unsigned>(std::countr_zero(left));
    const Epoch epoch = granule.write[word];
    if (epoch == checked) continue;  // usually one access wrote the whole granule
    checked = epoch;
    if (!view.ordered(epoch)) [[unlikely]] {
      conflict = {FaultKind::race, base + 4u * word, epoch, granule.write_site[word], true};
      return false;
    }
  }
  if (const unsigned flying = granule.in_flight & words; flying != 0) [[unlikely]] {
    const auto word = static_cast<unsigned>(std::countr_zero(flying));
    conflict = {FaultKind::race, base + 4u * word, granule.write[word], granule.write_site[word], true};
    return false;
  }
  return true;
}

template <class Judge>
bool SharedMemory::every_reader(const Granule& granule, const Judge& judge) const {
  for (unsigned i = 0; i < granule.readers; ++i)
    if (!judge(granule.reader[i])) return false;
  if (granule.spill)
    for (const Reader& reader : spill_[granule.spill - 1].list)
      if (!judge(reader)) return false;
  return true;
}

bool SharedMemory::reads_ordered(const View& view, const Granule& granule, unsigned words,
                                 std::uint32_t offset, SharedConflict& conflict) const {
  return every_reader(granule, [&](const Reader& reader) {
    if ((reader.words & words) == 0 || view.ordered(reader.epoch)) return true;
    const unsigned word = static_cast<unsigned>(std::countr_zero(reader.words & words));
    conflict = {FaultKind::race, (offset & ~15u) + 4u * word, reader.epoch, reader.site, false};
    return false;
  });
}

// One entry per party that read since the last write, except those whose reads this one already knows of: a
// write that is ordered after this read is ordered after them too.
void SharedMemory::note_read(const View& view, Granule& granule, unsigned words, Epoch reader,
                             SiteTable::Id site) {
  unsigned kept = 0;
  for (unsigned i = 0; i < granule.readers; ++i) {
    const Reader old = granule.reader[i];
    if (old.epoch == reader) {
      words |= old.words;  // same thread, same clock: one entry
      continue;
    }
    if ((old.words & ~words) == 0 && covers(view, reader, old.epoch)) continue;
    granule.reader[kept++] = old;
  }
  const Reader fresh{reader, site, static_cast<std::uint8_t>(words)};
  if (kept < kInlineReaders) {
    granule.reader[kept] = fresh;
    granule.readers = static_cast<std::uint8_t>(kept + 1);
    return;
  }
  granule.readers = kInlineReaders;
  spill_read(view, granule, fresh);
}

void SharedMemory::spill_read(const View& view, Granule& granule, Reader fresh) {
  if (!granule.spill) {
    if (free_spill_.empty()) {
      spill_.emplace_back();
      free_spill_.push_back(static_cast<std::uint32_t>(spill_.size()));
    }
    granule.spill = free_spill_.back();
    free_spill_.pop_back();
  }
  Spill& spill = spill_[granule.spill - 1];
  const auto replaces = [&](Reader& old) {
    const bool same = old.epoch == fresh.epoch;
    if (!same && ((old.words & ~fresh.words) != 0 || !covers(view, fresh.epoch, old.epoch))) return false;
    if (same) fresh.words |= old.words;
    old = fresh;
    return true;
  };
  const std::uint32_t party = party_of(fresh.epoch);
  const unsigned own = party < spill.newest.size() ? spill.newest[party] : 0;
  if (own != 0 && replaces(spill.list[own - 1])) return;
  // After a barrier its threads share one vector, which knows of none of their reads since. What is kept for
  // a vector that only looks the same (pools use them again) is an entry too many, never one too few.
  if (own != 0 || spill.searched != view.happened) {
    for (std::size_t i = 0; i < spill.list.size(); ++i) {
      const std::uint32_t replaced = party_of(spill.list[i].epoch);
      if (!replaces(spill.list[i])) continue;
      spill.newest[replaced] = 0;
      spill.index(i);
      return;
    }
    spill.searched = view.happened;
  }
  spill.list.push_back(fresh);
  spill.index(spill.list.size() - 1);
}

void SharedMemory::Spill::index(std::size_t place) {
  const std::uint32_t party = party_of(list[place].epoch);
  if (party >= newest.size()) newest.resize(party + 1);
  newest[party] = static_cast<std::uint32_t>(place + 1);
}

// Entries, not what they are kept in: a block writes what another has read, again and again.
void SharedMemory::Spill::clear() {
  for (const Reader& reader : list) newest[party_of(reader.epoch)] = 0;
  list.clear();
  searched = nullptr;
}

void SharedMemory::forget_reads(Granule& granule, unsigned words) {
  const auto cut = [words](Reader& reader) {
    reader.words = static_cast<std::uint8_t>(reader.words & ~words);
    return reader.words == 0;
  };
  unsigned kept = 0;
  for (unsigned i = 0; i < granule.readers; ++i)
    if (!cut(granule.reader[i])) granule.reader[kept++] = granule.reader[i];
  granule.readers = static_cast<std::uint8_t>(kept);
  if (!granule.spill) return;
  Spill& spill = spill_[granule.spill - 1];
  std::size_t left = 0;
  for (Reader& reader : spill.list) {
    spill.newest[party_of(reader.epoch)] = 0;
    if (!cut(reader)) spill.list[left++] = reader;
  }
  spill.list.resize(left);
  for (std::size_t i = 0; i < left; ++i) spill.index(i);
  spill.searched = nullptr;
  if (left == 0) {
    free_spill_.push_back(granule.spill);
    granule.spill = 0;
  }
}

void SharedMemory::note_write(Granule& granule, unsigned words, Epoch writer, SiteTable::Id site) {
  for (unsigned left = words; left; left &= left - 1) {
    const unsigned word = static_cast<unsigned>(std::countr_zero(left));
    granule.write[word] = writer;
    granule.write_site[word] = site;
  }
  granule.written = static_cast<std::uint8_t>(granule.written | words);
  if (granule.readers || granule.spill) forget_reads(granule, words);
}

bool SharedMemory::read(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch reader,
                        SiteTable::Id site, SharedConflict& conflict) {
  Granule& granule = granules_[offset >> 4];
  const unsigned words = words_of(offset, bytes);
  if (!writes_ordered(view, granule, words, true, offset, conflict)) return false;
  note_read(view, granule, words, reader, site);
  return true;
}

bool SharedMemory::write(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer,
                         SiteTable::Id site, SharedConflict& conflict) {
  Granule& granule = granules_[offset >> 4];
  const unsigned words = words_of(offset, bytes);
  if (!writes_ordered(view, granule, words, false, offset, conflict) ||
      !reads_ordered(view, granule, words, offset, conflict))
    return false;
  note_write(granule, words, writer, site);
  return true;
}

// Whether every word written through the generic proxy has a proxy fence on its path to this view.
bool SharedMemory::async_reaches(const View& view, const Granule& granule, std::uint32_t offset,
                                 SharedConflict& conflict) const {
  for (unsigned left = granule.written; left; left &= left - 1) {
    const unsigned word = static_cast<unsigned>(std::countr_zero(left));
    if (!view.reaches_async_proxy(granule.write[word])) [[unlikely]] {
      conflict = {FaultKind::proxy_race, (offset & ~15u) + 4u * word, granule.write[word],
                  granule.write_site[word], true};
      return false;
    }
  }
  return true;
}

// Whether every read that this view is ordered behind has its value.
bool SharedMemory::reads_complete(const View& view, const Granule& granule, std::uint32_t offset,
                                  SharedConflict& conflict) const {
  return every_reader(granule, [&](const Reader& reader) {
    if (view.read_is_complete(reader.epoch)) return true;
    const auto word = static_cast<unsigned>(std::countr_zero(unsigned{reader.words}));
    conflict = {FaultKind::late_read, (offset & ~15u) + 4u * word, reader.epoch, reader.site, false};
    return false;
  });
}

bool SharedMemory::read_async(const View& view, std::uint32_t offset, Epoch reader, SiteTable::Id site,
                              SharedConflict& conflict) {
  Granule& granule = granules_[offset >> 4];
  if (!writes_ordered(view, granule, 15u, true, offset, conflict) ||
      !async_reaches(view, granule, offset, conflict))
    return false;
  note_read(view, granule, 15u, reader, site);
  return true;
}

bool SharedMemory::write_async(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer,
                               SiteTable::Id site, SharedConflict& conflict) {
  for (std::uint32_t at = offset; at < offset + bytes; at += 16) {
    Granule& granule = granules_[at >> 4];
    if (!writes_ordered(view, granule, 15u, false, at, conflict) ||
        !reads_ordered(view, granule, 15u, at, conflict) || !reads_complete(view, granule, at, conflict) ||
        !async_reaches(view, granule, at, conflict))
      return false;
    note_write(granule, 15u, writer, site);
  }
  return true;
}

bool SharedMemory::begin_copy(const View& view, std::uint32_t offset, std::uint32_t bytes, Epoch writer,
                              SiteTable::Id site, SharedConflict& conflict) {
  if (!write(view, offset, bytes, writer, site, conflict)) return false;
  Granule& granule = granules_[offset >> 4];
  granule.in_flight = static_cast<std::uint8_t>(granule.in_flight | words_of(offset, bytes));
  return true;
}

void SharedMemory::settle_copy(std::uint32_t offset, std::uint32_t bytes, Epoch writer) {
  Granule& granule = granules_[offset >> 4];
  const unsigned words = words_of(offset, bytes);
  granule.in_flight = static_cast<std::uint8_t>(granule.in_flight & ~words);
  for (unsigned word = 0; word < 4; ++word)
    if ((words >> word & 1u) != 0) granule.write[word] = writer;
}

bool SharedMemory::claim_barrier(const View& view, std::uint32_t offset, Epoch writer, SiteTable::Id site,
                                 SharedConflict& conflict) {
  if (!write(view, offset, 8, writer, site, conflict)) return false;
  Granule& granule = granules_[offset >> 4];
  granule.barrier = static_cast<std::uint8_t>(granule.barrier | words_of(offset, 8));
  return true;
}

}  // namespace fourfold::sim
