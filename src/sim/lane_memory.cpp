// Loads, stores and copies of one thread.
#include <bit>
#include <cstring>

#include "base/format.h"
#include "sim/block.h"
#include "sim/lane.h"

namespace fourfold::sim {
namespace {

// An accumulator in flight may not be stored either: its bits travel unchanged through moves.
void refuse_poison(Block& block, const Thread& thread, const void* value, int bytes, SiteTable::Id site) {
  for (int at = 0; at + 4 <= bytes; at += 4) {
    std::uint32_t word;
    std::memcpy(&word, static_cast<const std::byte*>(value) + at, 4);
    if (word == Warpgroups::kPoison)
      block.fault(FaultKind::early_accumulator, &thread, site,
                  "stores an accumulator of a wgmma that no wgmma_wait has covered");
  }
}

// Messages to other ranks name lines: their site tables are not ours.
GlobalAccessor peer_accessor(Block& block, GlobalAccessor who) {
  who.site = static_cast<SiteTable::Id>(block.sites().line(who.site));
  return who;
}

void answered(Block& block, const Thread& thread, SiteTable::Id site, const char* action,
              const PeerMemory::Answer& answer) {
  if (answer.ok) [[likely]]
    return;
  block.fault(answer.kind, &thread, site, format("{} of {}", action, answer.text));
}

}  // namespace

bool is_poison(float value) {
  // Arithmetic sets the quiet bit and may set the sign; the payload stays.
  return (std::bit_cast<std::uint32_t>(value) | 0x80400000u) == (Warpgroups::kPoison | 0x80400000u);
}

void used_poison(Site at) {
  FaultPlace place;
  place.file = base_name(at.file);
  place.line = at.line;
  throw Fault(FaultKind::early_accumulator, place,
              "computes with an accumulator of a wgmma that no wgmma_wait has covered");
}

void* Lane::shared(std::size_t bytes, std::size_t alignment, Site at) const {
  SharedMemory& memory = block_.shared();
  if (bytes > memory.bytes() || alignment > SharedMemory::kAlignment)
    block_.fault(FaultKind::shared_limit, &thread_, block_.sites().intern(at),
                 format("the kernel's storage has {} bytes (aligned to {}), the launch gave {}",
                        with_commas(static_cast<long long>(bytes)), alignment, with_commas(memory.bytes())));
  return memory.data();
}

void Lane::load_shared(const void* from, void* value, int bytes, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  const auto size = static_cast<std::uint32_t>(bytes);
  block_.count_step(&thread_, site);
  ++block_.stats().accesses;
  const std::uint32_t offset = block_.shared_offset(thread_, from, size, size, site, "load_shared");
  SharedConflict conflict;
  if (!block_.shared().read(block_.view(thread_), offset, size, thread_.epoch(), site, conflict)) [[unlikely]]
    block_.fault(conflict, &thread_, site, "load_shared");
  thread_.warp->banks.record(thread_.lane, thread_.access_index, site, offset, size);
  std::memcpy(value, from, size);
}

void Lane::store_shared(void* to, const void* value, int bytes, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  const auto size = static_cast<std::uint32_t>(bytes);
  block_.count_step(&thread_, site);
  ++block_.stats().accesses;
  const std::uint32_t offset = block_.shared_offset(thread_, to, size, size, site, "store_shared");
  if (!thread_.warp->accumulators.empty()) refuse_poison(block_, thread_, value, bytes, site);
  SharedConflict conflict;
  if (!block_.shared().write(block_.view(thread_), offset, size, thread_.epoch(), site, conflict))
      [[unlikely]]
    block_.fault(conflict, &thread_, site, "store_shared");
  thread_.warp->banks.record(thread_.lane, thread_.access_index, site, offset, size);
  std::memcpy(to, value, size);
}

namespace {

struct MatrixArgs {
  const void* row;
  std::uint32_t* registers;
};

// Lane i reads row i % 8 of matrix i / 8; lane l then holds columns 2(l % 4) and 2(l % 4) + 1 of row l / 4 of
// each.
bool act_load_matrix(Block& block, Warp& warp) {
  std::uint32_t offset[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    Thread& thread = warp.threads[lane];
    const void* const row = static_cast<const MatrixArgs*>(warp.args[lane])->row;
    offset[lane] = block.shared_offset(thread, row, 16, 16, warp.site, "load_matrix_x4");
    SharedConflict conflict;
    if (!block.shared().read(block.view(thread), offset[lane], 16, thread.epoch(), warp.site, conflict))
        [[unlikely]]
      block.fault(conflict, &thread, warp.site, "load_matrix_x4");
    thread.warp->banks.record(lane, thread.access_index, warp.site, offset[lane], 16);
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned matrix = 0; matrix < 4; ++matrix)
      std::memcpy(&static_cast<const MatrixArgs*>(warp.args[lane])->registers[matrix],
                  block.shared().data() + offset[8 * matrix + lane / 4] + 4 * (lane % 4), 4);
  return true;
}

}  // namespace

void Lane::load_matrix_x4(const void* row, std::uint32_t (&registers)[4], Site at) const {
  MatrixArgs args{row, registers};
  block_.meet(thread_, Collective::load_matrix_x4, block_.sites().intern(at), &args, &act_load_matrix);
}

void Lane::load_from(const void* from, void* value, int bytes, Site at, bool constant) const {
  const char* const action = constant ? "load_stream" : "load";
  const SiteTable::Id site = block_.sites().intern(at);
  const auto size = static_cast<std::uint32_t>(bytes);
  block_.count_step(&thread_, site);
  ++block_.stats().accesses;
  GlobalAccessor reader = block_.accessor(thread_, site);
  if (!block_.memory().owns(from) && block_.peers().contains(from, size)) {
    answered(block_, thread_, site, action,
             block_.peers().read(block_.rank(), peer_accessor(block_, reader), from, value, size));
    return;
  }
  block_.check_global(thread_, from, size, size, site, action);
  reader.cached = true;
  reader.constant = constant;
  GlobalConflict conflict;
  if (!block_.memory().read(reader, from, size, conflict)) [[unlikely]]
    block_.fault(conflict, &thread_, site, action);
  std::memcpy(value, from, size);
}

void Lane::load_global(const void* from, void* value, int bytes, Site at) const {
  load_from(from, value, bytes, at, false);
}

void Lane::load_stream(const void* from, void* value, int bytes, Site at) const {
  load_from(from, value, bytes, at, true);
}

void Lane::store_global(void* to, const void* value, int bytes, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  const auto size = static_cast<std::uint32_t>(bytes);
  block_.count_step(&thread_, site);
  ++block_.stats().accesses;
  if (!thread_.warp->accumulators.empty()) refuse_poison(block_, thread_, value, bytes, site);
  if (!block_.memory().owns(to) && block_.peers().contains(to, size)) {
    answered(block_, thread_, site, "store",
             block_.peers().write(block_.rank(), peer_accessor(block_, block_.accessor(thread_, site)), to,
                                  value, size));
    return;
  }
  block_.check_global(thread_, to, size, size, site, "store");
  GlobalConflict conflict;
  if (!block_.memory().write(block_.accessor(thread_, site), to, size, conflict)) [[unlikely]]
    block_.fault(conflict, &thread_, site, "store");
  std::memcpy(to, value, size);
}

// A hint: it moves nothing a kernel can see, so only its form is checked.
void Lane::prefetch_l2(const void* from, int bytes, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (bytes <= 0 || bytes % 16 != 0)
    block_.fault(FaultKind::misaligned, &thread_, site,
                 format("prefetch_l2 of {} bytes; it takes multiples of 16", bytes));
  block_.check_global(thread_, from, static_cast<std::uint32_t>(bytes), 16, site, "prefetch_l2");
}

void Lane::store_release(void* to, std::uint32_t value, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  block_.count_step(&thread_, site);
  const bool speaks = !block_.skips(site, SyncOp::store_release);
  const GlobalAccessor who = peer_accessor(block_, block_.accessor(thread_, site));
  answered(block_, thread_, site, "store_release",
           block_.peers().store_release(block_.rank(), who, to, value, speaks));
  block_.tick(thread_);  // what it does from here on is not part of the message
}

std::uint32_t Lane::load_acquire(const void* from, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  block_.count_step(&thread_, site);
  const bool hears = !block_.skips(site, SyncOp::load_acquire);
  thread_.looked_at = from;
  thread_.looked_site = site;
  const GlobalAccessor who = peer_accessor(block_, block_.accessor(thread_, site));
  std::uint32_t value = 0;
  answered(block_, thread_, site, "load_acquire",
           block_.peers().load_acquire(block_.rank(), who, from, value, hears));
  return value;
}

void Lane::give_way() const { block_.give_way(thread_); }

std::uint64_t Lane::nanoseconds() const {
  block_.note_clock();
  return block_.peers().nanoseconds();
}

void Lane::bulk_load(void* to, const void* from, int bytes, void* barrier, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  block_.count_step(&thread_, site);
  block_.copies().bulk_load(thread_, to, from, bytes, barrier, site);
}

void Lane::copy_16_async(void* to, const void* from, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  block_.count_step(&thread_, site);
  block_.copies().copy(thread_, to, from, 16, site, "copy_16_async");
}

void Lane::copy_4_async(void* to, const void* from, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  block_.count_step(&thread_, site);
  block_.copies().copy(thread_, to, from, 4, site, "copy_4_async");
}

void Lane::copy_commit(Site at) const {
  if (!block_.skips(block_.sites().intern(at), SyncOp::copy_commit)) block_.copies().commit(thread_);
}

void Lane::copy_arrive(void* barrier, Site at) const {
  const SiteTable::Id site = block_.sites().intern(at);
  if (!block_.skips(site, SyncOp::copy_arrive)) block_.copies().arrive(thread_, barrier, site);
}

void Lane::copy_wait(int pending, Site at) const {
  if (!block_.skips(block_.sites().intern(at), SyncOp::copy_wait)) block_.copies().wait(thread_, pending);
}

std::uint32_t Lane::shared_address(const void* pointer, Site at) const {
  return block_.shared_offset(thread_, pointer, 16, 16, block_.sites().intern(at), "wgmma_descriptor");
}

}  // namespace fourfold::sim
