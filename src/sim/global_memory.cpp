#include "sim/global_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::sim {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kRedZoneBytes = 256;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void* reserve(std::size_t bytes) {
  void* const start =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    fail_with_hint(Code::out_of_memory,
                   "A limit of this process or system is in the way: ulimit -v, vm.overcommit_memory.",
                   "cannot reserve {} bytes of addresses for the simulated device",
                   with_commas(static_cast<long long>(bytes)));
  return start;
}

// Mask of the bytes of word `word` that lie in [from, to).
unsigned bytes_in_word(std::size_t word, std::size_t from, std::size_t to) {
  const std::size_t first = std::max(from, word * 4) - word * 4;
  const std::size_t last = std::min(to, word * 4 + 4) - word * 4;
  return (0xFu >> (4 - (last - first))) << first;
}

}  // namespace

GlobalMemory::GlobalMemory(std::size_t capacity_bytes) : capacity_(round_up(capacity_bytes, 1 << 16)) {
  data_ = static_cast<std::byte*>(reserve(capacity_));
  state_ = static_cast<std::uint8_t*>(reserve(capacity_ / 4));
  records_ = static_cast<Record*>(reserve(capacity_ / 4 * sizeof(Record)));
  early_ = static_cast<EarlyLine*>(reserve(capacity_ / kLineBytes * sizeof(EarlyLine)));
}

GlobalMemory::~GlobalMemory() {
  munmap(data_, capacity_);
  munmap(state_, capacity_ / 4);
  munmap(records_, capacity_ / 4 * sizeof(Record));
  munmap(early_, capacity_ / kLineBytes * sizeof(EarlyLine));
}

void* GlobalMemory::allocate(std::size_t bytes, std::string_view name) {
  const std::size_t pitch = round_up(std::max<std::size_t>(bytes, 1), kAlignment) + kRedZoneBytes;
  std::size_t offset = kRedZoneBytes;  // first fit between the living allocations
  for (const auto& [start, allocation] : allocations_) {
    if (offset + pitch <= start) break;
    offset = start + round_up(std::max<std::size_t>(allocation.bytes, 1), kAlignment) + kRedZoneBytes;
  }
  if (offset + pitch > capacity_)
    fail_with_hint(
        Code::out_of_memory,
        "Take a smaller model, or make room for fewer tokens: the simulated GPU is for small ones.",
        "the simulated device has {} bytes and no room for {} more ({})",
        with_commas(static_cast<long long>(capacity_)), with_commas(static_cast<long long>(bytes)), name);
  allocations_[offset] = {bytes, std::string(name)};
  for (std::size_t word = offset / 4; word * 4 < offset + bytes; ++word)
    state_[word] = static_cast<std::uint8_t>(bytes_in_word(word, offset, offset + bytes) << 4);
  return data_ + offset;
}

void GlobalMemory::release(const void* pointer) {
  const std::size_t offset = offset_of(pointer);
  const auto found = allocations_.find(offset);
  check(found != allocations_.end(), "only what allocate returned is released, once");
  const std::size_t words = (found->second.bytes + 3) / 4;
  std::memset(state_ + offset / 4, 0, words);
  clear_records(offset / 4, words);
  allocations_.erase(found);
}

// Whole pages are handed back to the system, which zeroes them; the rest is zeroed by hand.
void GlobalMemory::clear_records(std::size_t first, std::size_t count) {
  constexpr std::size_t kPageBytes = 1 << 16;  // a multiple of every page size in use
  const auto start = reinterpret_cast<std::uintptr_t>(records_ + first);
  const auto end = reinterpret_cast<std::uintptr_t>(records_ + first + count);
  const std::uintptr_t pages_start = round_up(start, kPageBytes), pages_end = end / kPageBytes * kPageBytes;
  if (pages_start < pages_end &&
      madvise(reinterpret_cast<void*>(pages_start), pages_end - pages_start, MADV_DONTNEED) == 0) {
    std::memset(reinterpret_cast<void*>(start), 0, pages_start - start);
    std::memset(reinterpret_cast<void*>(pages_end), 0, end - pages_end);
  } else {
    std::memset(reinterpret_cast<void*>(start), 0, end - start);
  }
}

void GlobalMemory::set_written(const void* start, std::size_t bytes, bool written) {
  if (bytes == 0) return;
  check(contains(start, bytes), "the host touches allocated device memory only");
  const std::size_t from = offset_of(start), to = from + bytes;
  for (std::size_t word = from / 4; word * 4 < to; ++word) {
    const unsigned mask = bytes_in_word(word, from, to);
    state_[word] = static_cast<std::uint8_t>(written ? state_[word] | mask : state_[word] & ~mask);
  }
  // The host has waited for the device: nothing that came before can collide with what follows.
  clear_records(from / 4, (to + 3) / 4 - from / 4);
}

const void* GlobalMemory::first_unwritten(const void* start, std::size_t bytes) const {
  const std::size_t from = offset_of(start), to = from + bytes;
  for (std::size_t word = from / 4; word * 4 < to; ++word) {
    const unsigned mask = bytes_in_word(word, from, to);
    const unsigned missing = mask & ~state_[word];
    if (missing) return data_ + word * 4 + std::countr_zero(missing);
  }
  return nullptr;
}

std::string GlobalMemory::describe(const void* address) const {
  const std::size_t offset = offset_of(address);
  if (offset >= capacity_) return "an address that is not device memory";
  auto after = allocations_.upper_bound(offset);
  if (after != allocations_.begin()) {
    const auto& [start, allocation] = *std::prev(after);
    const std::size_t at = offset - start;
    std::string text = format("{} + {}", allocation.name, with_commas(static_cast<long long>(at)));
    if (at >= allocation.bytes)
      text += format(" ({} bytes past its end)", with_commas(static_cast<long long>(at - allocation.bytes)));
    return text;
  }
  if (after != allocations_.end())
    return format("{} - {}", after->second.name, with_commas(static_cast<long long>(after->first - offset)));
  return "device memory nobody allocated";
}

bool GlobalMemory::contains(const void* start, std::size_t bytes) const {
  if (!inside(start, bytes)) return false;
  const std::size_t from = offset_of(start), to = from + bytes;
  // Red zones separate allocations, so a range whose every word is allocated lies in one of them.
  for (std::size_t word = from / 4; word * 4 < to; ++word) {
    const unsigned mask = bytes_in_word(word, from, to) << 4;
    if ((state_[word] & mask) != mask) return false;
  }
  return true;
}

// Of a word that a grid before this one wrote, and that was not complete when this one could start. Nothing
// says when a load through the read-only path is made: the wait does not hold it back, nor does it empty that
// path. A plain load comes behind the wait, but the line may have been in L1 since before it.
bool GlobalMemory::may_be_stale(const GlobalAccessor& who, std::size_t word, GlobalConflict& conflict) const {
  const EarlyLine& early = early_[word * 4 / kLineBytes];
  if (!who.constant && early.grid != who.grid) return false;
  const Record& record = records_[word];
  conflict = {FaultKind::stale_read, data_ + word * 4, record.write_grid, record.write_block, 0,
              record.write_site};
  conflict.constant = who.constant;
  conflict.early_site = early.site;
  return true;
}

bool GlobalMemory::read_word(const GlobalAccessor& who, std::size_t word, unsigned bytes_mask,
                             GlobalConflict& conflict) {
  const void* const address = data_ + word * 4;
  if ((state_[word] & bytes_mask) != bytes_mask) [[unlikely]] {
    conflict = {FaultKind::unwritten_read, address};
    return false;
  }
  Record& record = records_[word];
  if (record.write_grid == who.grid) {
    if (record.write_block != who.block) {
      if (record.write_bytes & bytes_mask) [[unlikely]] {
        conflict = {FaultKind::race, address, record.write_grid, record.write_block, 0, record.write_site};
        return false;
      }
    } else if ((who.constant || !who.view.ordered(record.write_epoch)) && (record.write_bytes & bytes_mask))
        [[unlikely]] {
      conflict = {FaultKind::race, address, who.grid, who.block, record.write_epoch, record.write_site};
      conflict.constant = who.view.ordered(record.write_epoch);
      return false;
    } else if (who.async && !who.view.reaches_async_proxy(record.write_epoch)) [[unlikely]] {
      conflict = {FaultKind::proxy_race, address, who.grid, who.block, record.write_epoch, record.write_site};
      return false;
    }
  } else if (record.write_grid > who.visible) [[unlikely]] {
    conflict = {FaultKind::predecessor_race, address, record.write_grid,
                record.write_block,          0,       record.write_site};
    return false;
  } else if (record.write_grid > who.start && who.cached && may_be_stale(who, word, conflict)) [[unlikely]] {
    return false;
  }
  if (record.read_grid != who.grid) {
    record.read_before = record.read_grid;
    record.read_grid = who.grid;
    record.read_block = static_cast<std::uint16_t>(who.block);
  } else if (record.read_block != who.block) {
    record.read_block = kManyBlocks;
  }
  record.read_epoch = who.epoch;
  record.read_site = who.site;
  return true;
}

bool GlobalMemory::write_word(const GlobalAccessor& who, std::size_t word, unsigned bytes_mask,
                              GlobalConflict& conflict) {
  const void* const address = data_ + word * 4;
  Record& record = records_[word];
  const auto collide = [&](FaultKind kind, bool wrote) {
    conflict = {kind,
                address,
                wrote ? record.write_grid : record.read_grid,
                wrote ? record.write_block : record.read_block,
                0,
                wrote ? record.write_site : record.read_site,
                wrote};
    return false;
  };
  const bool own_write = record.write_grid == who.grid && record.write_block == who.block;
  if (record.write_grid == who.grid) {
    if (record.write_bytes & bytes_mask) {
      if (!own_write) return collide(FaultKind::race, true);
      if (!who.view.ordered(record.write_epoch)) {
        collide(FaultKind::race, true);
        conflict.other = record.write_epoch;
        return false;
      }
    }
  } else if (record.write_grid > who.visible) {
    return collide(FaultKind::predecessor_race, true);
  }
  if (record.read_grid == who.grid) {
    if (record.read_block != who.block) return collide(FaultKind::race, false);
    if (!who.view.ordered(record.read_epoch)) {
      collide(FaultKind::race, false);
      conflict.other = record.read_epoch;
      return false;
    }
    if (record.read_before > who.visible) {
      collide(FaultKind::predecessor_race, false);
      conflict.other_grid = record.read_before;
      conflict.other_block = kManyBlocks;
      return false;
    }
  } else if (record.read_grid > who.visible) {
    return collide(FaultKind::predecessor_race, false);
  }
  record.write_bytes = static_cast<std::uint8_t>(
      own_write && record.write_epoch == who.epoch ? record.write_bytes | bytes_mask : bytes_mask);
  record.write_grid = who.grid;
  record.write_block = static_cast<std::uint16_t>(who.block);
  record.write_epoch = who.epoch;
  record.write_site = who.site;
  state_[word] = static_cast<std::uint8_t>(state_[word] | bytes_mask);
  return true;
}

bool GlobalMemory::read(const GlobalAccessor& who, const void* start, std::uint32_t bytes,
                        GlobalConflict& conflict) {
  const std::size_t from = offset_of(start), to = from + bytes;
  for (std::size_t word = from / 4; word * 4 < to; ++word)
    if (!read_word(who, word, bytes_in_word(word, from, to), conflict)) return false;
  if (who.cached && who.visible + 1 < who.grid) early_[from / kLineBytes] = {who.grid, who.site};
  return true;
}

bool GlobalMemory::write(const GlobalAccessor& who, const void* start, std::uint32_t bytes,
                         GlobalConflict& conflict) {
  const std::size_t from = offset_of(start), to = from + bytes;
  for (std::size_t word = from / 4; word * 4 < to; ++word)
    if (!write_word(who, word, bytes_in_word(word, from, to), conflict)) return false;
  return true;
}

}  // namespace fourfold::sim
