#include "sim/site.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/format.h"

namespace fourfold::sim {

std::string_view base_name(std::string_view path) {
  const auto slash = path.find_last_of("/\\");
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view name_of(SyncOp op) {
  switch (op) {
    case SyncOp::sync_block: return "sync_block";
    case SyncOp::sync_warp: return "sync_warp";
    case SyncOp::barrier_sync: return "barrier_sync";
    case SyncOp::barrier_arrive: return "barrier_arrive";
    case SyncOp::init: return "init";
    case SyncOp::fence_barrier_init: return "fence_barrier_init";
    case SyncOp::arrive: return "arrive";
    case SyncOp::arrive_expect: return "arrive_expect";
    case SyncOp::wait: return "wait";
    case SyncOp::fence_async_proxy: return "fence_async_proxy";
    case SyncOp::wait_predecessors: return "wait_predecessors";
    case SyncOp::release_successors: return "release_successors";
    case SyncOp::copy_commit: return "copy_commit";
    case SyncOp::copy_wait: return "copy_wait";
    case SyncOp::copy_arrive: return "copy_arrive";
    case SyncOp::wgmma_fence: return "wgmma_fence";
    case SyncOp::wgmma_commit: return "wgmma_commit";
    case SyncOp::wgmma_wait: return "wgmma_wait";
    case SyncOp::store_release: return "store_release";
    case SyncOp::load_acquire: return "load_acquire";
  }
  return "unknown";
}

std::string describe(const Mutation& mutation) {
  return format("{}:{} {} {}", mutation.site.file, mutation.site.line, name_of(mutation.site.op),
                mutation.kind == MutationKind::skip ? "skipped" : "without expecting bytes");
}

std::vector<Mutation> mutations_of(const SyncSite& site) {
  std::vector<Mutation> all{{site, MutationKind::skip}};
  if (site.op == SyncOp::arrive_expect) all.push_back({site, MutationKind::no_expect});
  return all;
}

SiteTable::SiteTable() { entries_.push_back({"the host", 0, 0}); }

std::string SiteTable::text(Id id) const {
  return id == 0 ? entries_[0].file : format("{}:{}", entries_[id].file, entries_[id].line);
}

SiteTable::Id SiteTable::find_or_add(std::string_view file_name, int line) {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].line == line && entries_[i].file == file_name) return static_cast<Id>(i);
  if (entries_.size() > std::numeric_limits<Id>::max())
    fail(Code::over_capacity, "the simulator numbers at most {} call sites", std::numeric_limits<Id>::max());
  entries_.push_back({std::string(file_name), line, 0});
  return static_cast<Id>(entries_.size() - 1);
}

SiteTable::Id SiteTable::intern_slow(Site site, Slot& slot) {
  slot = {site.file, site.line, find_or_add(base_name(site.file), site.line)};
  return slot.id;
}

std::vector<SyncSite> SiteTable::executed() const {
  std::vector<SyncSite> sites;
  for (const Entry& entry : entries_)
    for (unsigned op = 0; op <= static_cast<unsigned>(SyncOp::load_acquire); ++op)
      if (entry.executed >> op & 1u) sites.push_back({entry.file, entry.line, static_cast<SyncOp>(op)});
  std::sort(sites.begin(), sites.end(), [](const SyncSite& a, const SyncSite& b) {
    return std::tie(a.file, a.line, a.op) < std::tie(b.file, b.line, b.op);
  });
  return sites;
}

}  // namespace fourfold::sim
