#include "server/api/response_store.h"

#include <algorithm>

namespace fourfold::server::api {
namespace {

constexpr std::size_t kOverhead = 256;  // of an entry, a turn or a call, beside its texts

std::size_t bytes_of(const Turn& turn) {
  std::size_t bytes = kOverhead + turn.role.size() + turn.content.size() + turn.call_id.size() +
                      (turn.thinking ? turn.thinking->size() : 0);
  for (const Call& call : turn.calls)
    bytes += kOverhead + call.id.size() + call.name.size() + call.arguments.size();
  for (const std::string& id : turn.broken_calls) bytes += kOverhead + id.size();
  return bytes;
}

}  // namespace

// Whether it could stay if its tenant kept nothing else and no other tenant held more than it.
bool ResponseStore::has_room(std::uint64_t tenant, std::size_t bytes) const {
  std::size_t needed = bytes;
  for (const auto& [other, kept] : tenants_)
    if (other != tenant) needed += std::min(kept.bytes, bytes);
  return needed <= bytes_max_;
}

void ResponseStore::drop_oldest_for(std::uint64_t tenant, std::size_t bytes) {
  auto most = tenants_.begin();
  std::size_t most_bytes = 0;
  for (auto at = tenants_.begin(); at != tenants_.end(); ++at) {
    const std::size_t held = at->second.bytes + (at->first == tenant ? bytes : 0);
    if (held <= most_bytes) continue;
    most = at;
    most_bytes = held;
  }
  drop(most->first, most->second.held.begin());
}

bool ResponseStore::put(std::uint64_t tenant, const std::string& id, Entry entry) {
  std::size_t bytes = kOverhead + entry.body.size();
  for (const Turn& turn : entry.turns) bytes += bytes_of(turn);
  auto kept = std::make_shared<const Entry>(std::move(entry));
  const std::lock_guard lock(mutex_);
  if (!has_room(tenant, bytes)) return false;
  while (bytes_ + bytes > bytes_max_) drop_oldest_for(tenant, bytes);
  Tenant& own = tenants_[tenant];
  own.held.push_back({id, std::move(kept), bytes});
  own.by_id[id] = std::prev(own.held.end());
  own.bytes += bytes;
  bytes_ += bytes;
  return true;
}

void ResponseStore::drop(std::uint64_t tenant, std::list<Held>::iterator held) {
  Tenant& of = tenants_.at(tenant);
  bytes_ -= held->bytes;
  of.bytes -= held->bytes;
  of.by_id.erase(held->id);
  of.held.erase(held);
  if (of.held.empty()) tenants_.erase(tenant);
}

std::shared_ptr<const ResponseStore::Entry> ResponseStore::find(std::uint64_t tenant,
                                                                const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto of = tenants_.find(tenant);
  if (of == tenants_.end()) return nullptr;
  const auto found = of->second.by_id.find(id);
  return found == of->second.by_id.end() ? nullptr : found->second->entry;
}

bool ResponseStore::erase(std::uint64_t tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto of = tenants_.find(tenant);
  if (of == tenants_.end()) return false;
  const auto found = of->second.by_id.find(id);
  if (found == of->second.by_id.end()) return false;
  drop(tenant, found->second);
  return true;
}

}  // namespace fourfold::server::api
