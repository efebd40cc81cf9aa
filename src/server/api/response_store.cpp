#include "server/api/response_store.h"

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

bool ResponseStore::put(std::uint64_t tenant, const std::string& id, Entry entry) {
  std::size_t bytes = kOverhead + entry.body.size();
  for (const Turn& turn : entry.turns) bytes += bytes_of(turn);
  if (bytes > bytes_max_) return false;
  auto kept = std::make_shared<const Entry>(std::move(entry));
  const std::lock_guard lock(mutex_);
  while (bytes_ + bytes > bytes_max_) drop(held_.begin());
  held_.push_back({{tenant, id}, std::move(kept), bytes});
  by_key_[held_.back().key] = std::prev(held_.end());
  bytes_ += bytes;
  return true;
}

void ResponseStore::drop(std::list<Held>::iterator held) {
  bytes_ -= held->bytes;
  by_key_.erase(held->key);
  held_.erase(held);
}

std::shared_ptr<const ResponseStore::Entry> ResponseStore::find(std::uint64_t tenant,
                                                                const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find({tenant, id});
  return found == by_key_.end() ? nullptr : found->second->entry;
}

bool ResponseStore::erase(std::uint64_t tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find({tenant, id});
  if (found == by_key_.end()) return false;
  drop(found->second);
  return true;
}

}  // namespace fourfold::server::api
