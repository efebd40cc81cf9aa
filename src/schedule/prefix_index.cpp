#include "schedule/prefix_index.h"

#include <algorithm>

#include "base/check.h"
#include "base/checksum.h"
#include "base/token_grain.h"

namespace fourfold::schedule {

PrefixIndex::PrefixIndex(PagePool& pool, std::int64_t page_tokens, std::int64_t overlap, bool recurrent,
                         std::int64_t anchor_count)
    : pool_(pool), page_tokens_(page_tokens), overlap_(overlap), recurrent_(recurrent) {
  for (std::int64_t anchor = anchor_count; anchor > 0; --anchor)
    free_anchors_.push_back(static_cast<std::int32_t>(anchor - 1));
}

PrefixIndex::Hit PrefixIndex::find(const std::string& salt, std::span<const std::int32_t> tokens,
                                   std::int64_t limit) const {
  Hit hit;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return hit;
  Key key{root->second, {}};
  std::vector<std::int32_t> pages;
  while (hit.matched + page_tokens_ <= limit && hit.matched + page_tokens_ + overlap_ <= std::ssize(tokens)) {
    const auto piece = tokens.subspan(static_cast<std::size_t>(hit.matched),
                                      static_cast<std::size_t>(page_tokens_ + overlap_));
    key.second.assign(piece.begin(), piece.end());
    const auto found = children_.find(key);
    if (found == children_.end()) break;
    key.first = found->second;
    hit.matched += page_tokens_;
    pages.push_back(at(key.first).page);
    if (recurrent_ ? !has_anchor(key.first) : hit.matched % kTokenGrain != 0) continue;
    hit.node = key.first;
    hit.position = hit.matched;
    hit.anchor = at(key.first).anchor;
  }
  pages.resize(static_cast<std::size_t>(hit.position / page_tokens_));
  hit.pages = std::move(pages);
  return hit;
}

void PrefixIndex::take(const Hit& hit) {
  for (const std::int32_t page : hit.pages) pool_.share(page);
  ++clock_;
  for (Node node = hit.node; at(node).page >= 0; node = at(node).parent) set_used(node, clock_);
}

PrefixIndex::Node PrefixIndex::make_node(Entry entry) {
  if (free_nodes_.empty()) {
    entries_.push_back(std::move(entry));
    return static_cast<Node>(entries_.size() - 1);
  }
  const Node node = free_nodes_.back();
  free_nodes_.pop_back();
  at(node) = std::move(entry);
  return node;
}

PrefixIndex::Node PrefixIndex::insert(const std::string& salt, Node parent,
                                      std::span<const std::int32_t> tokens, std::int32_t page) {
  check(std::ssize(tokens) == page_tokens_ + overlap_, "a node is a whole page and its overlap",
        tokens.size());
  if (parent == kNone) {
    const auto [root, is_new] = roots_.try_emplace(salt, kNone);
    if (is_new) root->second = make_node({.tokens = {}, .salt = salt});
    parent = root->second;
  }
  Key key{parent, {tokens.begin(), tokens.end()}};
  if (const auto found = children_.find(key); found != children_.end()) {
    set_used(found->second, ++clock_);
    return found->second;
  }
  pool_.share(page);
  pool_.set_indexed(page, true);
  const BlockHash hash = notes_events_ ? hash_of(parent, key.second) : 0;
  const Node node =
      make_node({.parent = parent, .tokens = key.second, .page = page, .salt = {}, .hash = hash});
  children_.emplace(std::move(key), node);
  ++node_count_;
  if (at(parent).children++ == 0) leaves_.erase({at(parent).used, parent});
  leaves_.insert({0, node});
  set_used(node, ++clock_);
  if (notes_events_) note_stored(node, events_);
  return node;
}

void PrefixIndex::set_used(Node node, std::uint64_t used) {
  Entry& entry = at(node);
  if (leaves_.erase({entry.used, node}) > 0) leaves_.insert({used, node});
  if (anchored_.erase({entry.used, node}) > 0) anchored_.insert({used, node});
  entry.used = used;
}

std::optional<std::int32_t> PrefixIndex::give_anchor(Node node) {
  check(!has_anchor(node), "a node has one anchor", node);
  if (free_anchors_.empty()) {
    if (anchored_.empty()) return std::nullopt;
    const Node oldest = anchored_.begin()->second;
    anchored_.erase(anchored_.begin());
    free_anchors_.push_back(at(oldest).anchor);
    at(oldest).anchor = -1;
  }
  at(node).anchor = free_anchors_.back();
  free_anchors_.pop_back();
  anchored_.insert({at(node).used, node});
  return at(node).anchor;
}

bool PrefixIndex::evict() {
  const auto idle = std::ranges::find_if(
      leaves_, [&](const auto& leaf) { return pool_.holders(at(leaf.second).page) == 1; });
  if (idle == leaves_.end()) return false;
  remove(idle->second);
  return true;
}

void PrefixIndex::remove(Node node) {
  Entry& entry = at(node);
  const Node parent = entry.parent;
  const std::uint64_t used = entry.used;
  leaves_.erase({entry.used, node});
  if (entry.anchor >= 0) {
    anchored_.erase({entry.used, node});
    free_anchors_.push_back(entry.anchor);
  }
  pool_.set_indexed(entry.page, false);
  pool_.release(entry.page);
  if (notes_events_) {
    if (events_.empty() || events_.back().kind != BlockEvent::Kind::removed)
      events_.push_back({.kind = BlockEvent::Kind::removed});
    events_.back().blocks.push_back(entry.hash);
  }
  children_.erase({parent, entry.tokens});
  entry = {};
  free_nodes_.push_back(node);
  --node_count_;
  Entry& above = at(parent);
  if (--above.children > 0) return;
  if (above.page >= 0) {
    leaves_.insert({above.used, parent});
    set_used(parent, std::max(above.used, used));  // what stood on it was used with it
    return;
  }
  roots_.erase(above.salt);
  above = {};
  free_nodes_.push_back(parent);
}

void PrefixIndex::note_events() {
  check(node_count_ == 0, "events are noted from the first block on", node_count_);
  notes_events_ = true;
  events_ = all_events();
}

std::vector<BlockEvent> PrefixIndex::all_events() const {
  std::vector<BlockEvent> events{{.kind = BlockEvent::Kind::cleared}};
  // What stands on a node comes after it: by depth, down from the roots of all salts.
  std::vector<Node> next;
  for (const auto& [salt, root] : roots_) next.push_back(root);
  while (!next.empty()) {
    const Node node = next.back();
    next.pop_back();
    if (at(node).page >= 0) note_stored(node, events);
    for (auto child = children_.lower_bound({node, {}});
         child != children_.end() && child->first.first == node; ++child)
      next.push_back(child->second);
  }
  return events;
}

BlockHash PrefixIndex::hash_of(Node parent, std::span<const std::int32_t> tokens) const {
  const Entry& above = at(parent);
  const BlockHash seed = above.page >= 0 ? above.hash : checksum(std::as_bytes(std::span(above.salt)));
  return checksum(std::as_bytes(tokens), seed);
}

// Blocks of one text in a row are one event.
void PrefixIndex::note_stored(Node node, std::vector<BlockEvent>& events) const {
  const Entry& entry = at(node);
  const Entry& above = at(entry.parent);
  const bool goes_on = above.page >= 0 && !events.empty() && events.back().kind == BlockEvent::Kind::stored &&
                       events.back().blocks.back() == above.hash;
  if (!goes_on) {
    events.push_back({.kind = BlockEvent::Kind::stored, .salt = above.salt});
    if (above.page >= 0) events.back().parent = above.hash;
  }
  BlockEvent& event = events.back();
  event.blocks.push_back(entry.hash);
  const auto page_end = entry.tokens.begin() + page_tokens_;
  event.tokens.insert(event.tokens.end(), entry.tokens.begin(), page_end);
  event.lookahead.insert(event.lookahead.end(), page_end, entry.tokens.end());
}

}  // namespace fourfold::schedule
