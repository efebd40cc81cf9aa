// Which pages hold which beginnings of prompts, and at which of them the recurrent state was kept (an
// anchor). A tree: a node is one whole page of tokens behind the pages above it. Tokens are compared
// themselves, never by a hash: two prompts cannot be taken for each other.
//
// The index holds the page of each node. Pages that no request holds are given back when others need them,
// the least recently used first, leaves before what they stand on. Whoever holds a node's page holds those
// above it as well, so a node behind which a request works is never given back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/block_event.h"
#include "schedule/page_pool.h"

namespace fourfold::schedule {

class PrefixIndex {
 public:
  using Node = std::int32_t;
  static constexpr Node kNone = -1;

  // overlap: tokens behind a page that its contents depend on too, compared with the page's own. recurrent: a
  // prefix can be taken up only where its state was kept; else behind any page that ends a block of 64.
  PrefixIndex(PagePool& pool, std::int64_t page_tokens, std::int64_t overlap, bool recurrent,
              std::int64_t anchor_count);

  struct Hit {
    Node node = kNone;                // the deepest one that can be taken up
    std::int64_t position = 0;        // tokens up to it
    std::int32_t anchor = -1;         // where its state was kept; none: there are no states
    std::int64_t matched = 0;         // tokens of whole pages that were found, with or without an anchor
    std::vector<std::int32_t> pages;  // up to the node
  };
  // The longest prefix that can be taken up, of at most `limit` tokens.
  Hit find(const std::string& salt, std::span<const std::int32_t> tokens, std::int64_t limit) const;
  // A hit is used: the caller becomes a holder of its pages, and it is the most recently used.
  void take(const Hit& hit);

  // The node behind `parent` (kNone: the first page of a salt) for a whole page and its overlap. A new one
  // becomes a holder of the page; an old one keeps its own, whose contents are the same.
  Node insert(const std::string& salt, Node parent, std::span<const std::int32_t> tokens, std::int32_t page);
  std::int32_t page(Node node) const { return at(node).page; }
  Node parent(Node node) const { return at(node).parent; }

  bool has_anchor(Node node) const { return at(node).anchor >= 0; }
  // Room for the state at the end of this node's prefix, maybe that of the least recently used one.
  std::optional<std::int32_t> give_anchor(Node node);

  // Lets go of one page that no request holds; false when there is none.
  bool evict();
  // How many could be let go, one after another.
  std::int64_t idle_pages() const { return pool_.idle_count(); }

  // From now on what is stored and removed is noted, beginning with `cleared`; before the first insert.
  void note_events();
  // What was noted since the last time, in order.
  std::vector<BlockEvent> take_events() { return std::exchange(events_, {}); }
  // `cleared`, and everything that is here: for whoever missed something.
  std::vector<BlockEvent> all_events() const;

  std::int64_t node_count() const { return node_count_; }
  std::int64_t anchors_used() const { return static_cast<std::int64_t>(anchored_.size()); }

 private:
  struct Entry {
    Node parent = kNone;
    std::vector<std::int32_t> tokens;  // of the page, and the overlap
    std::int32_t page = -1;            // none: the root of a salt
    std::int32_t anchor = -1;
    std::int32_t children = 0;
    std::uint64_t used = 0;
    std::string salt;    // of a root
    BlockHash hash = 0;  // where events are noted
  };
  using Key = std::pair<Node, std::vector<std::int32_t>>;
  Entry& at(Node node) { return entries_[static_cast<std::size_t>(node)]; }
  const Entry& at(Node node) const { return entries_[static_cast<std::size_t>(node)]; }
  Node make_node(Entry entry);
  void set_used(Node node, std::uint64_t used);
  void remove(Node node);
  BlockHash hash_of(Node parent, std::span<const std::int32_t> tokens) const;
  void note_stored(Node node, std::vector<BlockEvent>& events) const;

  PagePool& pool_;
  std::int64_t page_tokens_, overlap_;
  bool recurrent_;
  std::vector<Entry> entries_;
  std::vector<Node> free_nodes_;
  std::int64_t node_count_ = 0;  // with a page
  std::map<Key, Node> children_;
  std::map<std::string, Node> roots_;                  // by salt
  std::set<std::pair<std::uint64_t, Node>> leaves_;    // by last use
  std::set<std::pair<std::uint64_t, Node>> anchored_;  // by last use
  std::vector<std::int32_t> free_anchors_;
  std::uint64_t clock_ = 0;
  bool notes_events_ = false;
  std::vector<BlockEvent> events_;
};

}  // namespace fourfold::schedule
