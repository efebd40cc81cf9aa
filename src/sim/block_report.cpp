// Every message of a block: faults with the place, the data and the other party, and the list of who waits
// for what.
#include <bit>

#include "base/format.h"
#include "sim/block.h"

namespace fourfold::sim {
namespace {

// "0-7, 9" for a mask of lanes.
std::string lanes_text(std::uint32_t mask) {
  std::string text;
  for (int lane = 0; lane < 32;) {
    if (!(mask >> lane & 1u)) {
      ++lane;
      continue;
    }
    int last = lane;
    while (last + 1 < 32 && (mask >> (last + 1) & 1u)) ++last;
    if (!text.empty()) text += ", ";
    text += last > lane ? format("{}-{}", lane, last) : format("{}", lane);
    lane = last + 1;
  }
  return text;
}

}  // namespace

std::string_view name_of(Collective op) {
  switch (op) {
    case Collective::none: return "nothing";
    case Collective::sync_warp: return "sync_warp";
    case Collective::sync_block: return "sync_block";
    case Collective::barrier_sync: return "barrier_sync";
    case Collective::barrier_arrive: return "barrier_arrive";
    case Collective::load_matrix_x4: return "load_matrix_x4";
    case Collective::mma_bf16: return "mma_bf16";
    case Collective::mma_e4m3: return "mma_e4m3";
    case Collective::mma_nvfp4: return "mma_nvfp4";
    case Collective::mma_mxfp4: return "mma_mxfp4";
    case Collective::shuffle: return "shuffle";
    case Collective::shuffle_xor: return "shuffle_xor";
    case Collective::ballot: return "ballot";
    case Collective::max_all: return "max_all";
    case Collective::match: return "match";
    case Collective::wgmma_fence: return "wgmma_fence";
    case Collective::wgmma_bf16: return "wgmma_bf16";
    case Collective::wgmma_bf16_columns: return "wgmma_bf16_columns";
    case Collective::wgmma_e4m3: return "wgmma_e4m3";
    case Collective::wgmma_commit: return "wgmma_commit";
    case Collective::wgmma_wait: return "wgmma_wait";
    case Collective::raise_registers: return "raise_registers";
    case Collective::drop_registers: return "drop_registers";
  }
  return "unknown";
}

void Block::fault(FaultKind kind, const Thread* thread, SiteTable::Id site, std::string detail) {
  FaultPlace place;
  place.kernel = config().name;
  place.block = index_;
  if (thread) {
    place.warp = thread->warp->index;
    place.lane = static_cast<int>(thread->lane);
  }
  if (site != 0) {
    place.file = launch_.sites.file(site);
    place.line = launch_.sites.line(site);
  }
  throw Fault(kind, std::move(place), std::move(detail));
}

std::string Block::thread_text(std::uint32_t thread) const {
  return format("warp {} lane {}", thread / 32, thread % 32);
}

std::string Block::party_text(Epoch epoch, SiteTable::Id site) const {
  const std::uint32_t party = party_of(epoch);
  if (party < thread_count_) return format("{} at {}", thread_text(party), site_text(site));
  return format(party < barrier_party(0) ? "a wgmma issued at {}" : "a bulk copy issued at {}",
                site_text(site));
}

void Block::fault(const SharedConflict& conflict, const Thread* thread, SiteTable::Id site,
                  const std::string& action) {
  const std::string where = format("{} at shared byte {}: ", action, with_commas(conflict.offset));
  std::string detail;
  switch (conflict.kind) {
    case FaultKind::unwritten_read: detail = "nobody ever wrote these bytes"; break;
    case FaultKind::barrier_misuse: detail = "these bytes are a barrier, not data"; break;
    case FaultKind::proxy_race:
      detail = format("written by {}, with no fence_async_proxy between that write and the async proxy",
                      party_text(conflict.other, conflict.site));
      break;
    case FaultKind::late_read:
      detail = format(
          "read by {}, which may not have the value yet: neither a fence_async_proxy of that thread "
          "nor an arrive on an mbarrier stands between the read and the copy",
          party_text(conflict.other, conflict.site));
      break;
    default:
      detail = format("{} by {}, and nothing orders the two", conflict.other_wrote ? "written" : "read",
                      party_text(conflict.other, conflict.site));
  }
  fault(conflict.kind, thread, site, where + detail);
}

void Block::fault(const GlobalConflict& conflict, const Thread* thread, SiteTable::Id site,
                  const std::string& action) {
  const std::string where = format("{} of {}: ", action, memory().describe(conflict.address));
  const char* const did = conflict.other_wrote ? "written" : "read";
  std::string detail;
  switch (conflict.kind) {
    case FaultKind::unwritten_read: detail = "nobody ever wrote these bytes"; break;
    case FaultKind::predecessor_race:
      detail = format(
          "{} by grid {} at {}, which need not be complete yet; this is grid {} and knows of grids up to {}",
          did, conflict.other_grid, site_text(conflict.site), grid().id,
          thread ? thread->visible : grid().visible_at_start);
      break;
    case FaultKind::stale_read:
      detail = format("written by grid {} at {}, which need not be complete when this one, grid {}, starts, ",
                      conflict.other_grid, site_text(conflict.site), grid().id);
      detail +=
          conflict.constant
              ? "and the read-only path is not held back by the wait"
              : format("and this grid fetched the line before its wait, last at {}: L1 may still have it",
                       site_text(conflict.early_site));
      break;
    case FaultKind::proxy_race:
      detail = format("written by {}, with no fence_async_proxy between that write and the copy engine",
                      party_text(conflict.other, conflict.site));
      break;
    default:
      detail =
          conflict.other ? format("{} by {}, and {}", did, party_text(conflict.other, conflict.site),
                                  conflict.constant ? "the read-only path does not see writes of its own grid"
                                                    : "nothing orders the two")
          : conflict.other_block >= GlobalMemory::kBlocksMax
              ? format("{} by other blocks of the same grid, the last at {}", did, site_text(conflict.site))
              : format("{} by block {} of the same grid at {}", did, conflict.other_block,
                       site_text(conflict.site));
  }
  fault(conflict.kind, thread, site, where + detail);
}

std::uint32_t Block::shared_offset(const Thread& thread, const void* pointer, std::uint32_t bytes,
                                   std::uint32_t alignment, SiteTable::Id site, const char* action) {
  const std::ptrdiff_t offset = static_cast<const std::byte*>(pointer) - shared_.data();
  if (!shared_.contains(offset, bytes)) [[unlikely]]
    fault(FaultKind::out_of_bounds, &thread, site,
          format("{} of {} bytes at shared byte {}; the block has {} bytes", action, bytes,
                 with_commas(offset), with_commas(shared_.bytes())));
  if ((static_cast<std::uint32_t>(offset) & (alignment - 1)) != 0) [[unlikely]]
    fault(FaultKind::misaligned, &thread, site,
          format("{} of {} bytes at shared byte {}, which is not a multiple of {}", action, bytes,
                 with_commas(offset), alignment));
  return static_cast<std::uint32_t>(offset);
}

void Block::check_global(const Thread& thread, const void* pointer, std::uint32_t bytes,
                         std::uint32_t alignment, SiteTable::Id site, const char* action) {
  if (!launch_.memory.contains(pointer, bytes)) [[unlikely]]
    fault(FaultKind::out_of_bounds, &thread, site,
          format("{} of {} bytes at {}", action, bytes, launch_.memory.describe(pointer)));
  if ((reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0) [[unlikely]]
    fault(FaultKind::misaligned, &thread, site,
          format("{} of {} bytes at {}, whose address is not a multiple of {}", action, bytes,
                 launch_.memory.describe(pointer), alignment));
}

// What one warp waits for, one line per kind of waiting.
std::string Block::waiting_text(const Warp& warp) const {
  std::string text;
  const auto line = [&](std::uint32_t lanes, const std::string& what) {
    text += format("\n  warp {} lanes {}: {}", warp.index, lanes_text(lanes), what);
  };
  if (warp.arrived) {
    std::string what = format("{} at {}", name_of(warp.op), site_text(warp.site));
    if (warp.arrived != ~0u)
      what += ", for the other lanes";
    else if (warp.op == Collective::sync_block || warp.op == Collective::barrier_sync)
      what += barriers_.describe_named(warp);
    else
      what += warpgroups_.describe_wait(warp);
    line(warp.arrived, what);
  }
  std::uint32_t left = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if (warp.threads[lane].waiting_barrier >= 0) left |= 1u << lane;
  while (left) {
    const Thread& first = warp.threads[std::countr_zero(left)];
    std::uint32_t same = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const Thread& other = warp.threads[lane];
      if ((left >> lane & 1u) && other.waiting_barrier == first.waiting_barrier &&
          other.waiting_parity == first.waiting_parity && other.waiting_site == first.waiting_site)
        same |= 1u << lane;
    }
    left &= ~same;
    line(same, format("wait(parity {}) at {} for {}", first.waiting_parity, site_text(first.waiting_site),
                      barriers_.describe(first.waiting_barrier)));
  }
  if (warp.finished) line(warp.finished, "returned from the kernel");
  return text + looking_text(warp);
}

// The flags that lanes look at again and again, one line per flag.
std::string Block::looking_text(const Warp& warp) const {
  std::string text;
  std::uint32_t left = 0;
  for (unsigned lane = 0; lane < 32; ++lane) left |= (warp.threads[lane].gave_way ? 1u : 0u) << lane;
  while (left) {
    const Thread& first = warp.threads[std::countr_zero(left)];
    std::uint32_t same = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
      if ((left >> lane & 1u) && warp.threads[lane].looked_site == first.looked_site &&
          warp.threads[lane].looked_at == first.looked_at)
        same |= 1u << lane;
    left &= ~same;
    text += format("\n  warp {} lanes {}: looks at {}, at {}", warp.index, lanes_text(same),
                   first.looked_at != nullptr ? launch_.peers.describe(first.looked_at)
                                              : "its predecessors, which have not ended",
                   site_text(first.looked_site));
  }
  return text;
}

std::string Block::waits_text() const {
  std::string text;
  for (const Warp& warp : warps_) text += waiting_text(warp);
  return text;
}

void Block::deadlock() {
  fault(FaultKind::deadlock, nullptr, 0, "nobody can run and no copy is in flight" + waits_text());
}

void Block::too_many_steps(const Thread* thread, SiteTable::Id site) {
  fault(FaultKind::deadlock, thread, site,
        format("more than {} steps: a livelock, or step_limit is too small for this shape",
               with_commas(static_cast<long long>(config().step_limit))));
}

}  // namespace fourfold::sim
