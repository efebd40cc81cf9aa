// Expressions to automata: first one with choices (a node is a byte range, a call, a fork or the end), then
// the subset construction.
#include "constrain/expression.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/check.h"

namespace fourfold::constrain {

ExprId ExpressionPool::add(const Node& node) {
  budget_.spend(2);
  budget_.hold(sizeof(Node));
  nodes_.push_back(node);
  return static_cast<ExprId>(nodes_.size() - 1);
}

ExprId ExpressionPool::nothing() { return add({.kind = Kind::nothing}); }
ExprId ExpressionPool::empty() { return add({.kind = Kind::empty}); }

ExprId ExpressionPool::bytes(std::uint8_t low, std::uint8_t high) {
  return add({.kind = Kind::bytes, .low = low, .high = high});
}

ExprId ExpressionPool::text(std::string_view text) {
  budget_.hold(static_cast<std::int64_t>(text.size()));
  const auto first = static_cast<std::uint32_t>(characters_.size());
  characters_.insert(characters_.end(), text.begin(), text.end());
  return add({.kind = Kind::text, .first = first, .count = static_cast<std::uint32_t>(text.size())});
}

ExprId ExpressionPool::add_list(Kind kind, std::span<const ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  budget_.hold(static_cast<std::int64_t>(parts.size_bytes()));
  const auto first = static_cast<std::uint32_t>(children_.size());
  children_.insert(children_.end(), parts.begin(), parts.end());
  return add({.kind = kind, .first = first, .count = static_cast<std::uint32_t>(parts.size())});
}

ExprId ExpressionPool::sequence(std::span<const ExprId> parts) { return add_list(Kind::sequence, parts); }

ExprId ExpressionPool::either(std::span<const ExprId> parts) {
  return parts.empty() ? nothing() : add_list(Kind::either, parts);
}

ExprId ExpressionPool::repeat(ExprId part, std::int64_t min, std::optional<std::int64_t> max) {
  if (max && *max < min) return nothing();
  if (max == 0 || nodes_[part].kind == Kind::empty) return empty();
  if (min == 1 && max == 1) return part;
  return add({.kind = Kind::repeat, .first = part, .min = min, .max = max.value_or(-1)});
}

ExprId ExpressionPool::call(RuleId rule) { return add({.kind = Kind::call, .first = rule}); }

ExprId ExpressionPool::automaton(Dfa dfa) {
  automata_.push_back(std::move(dfa));
  return add({.kind = Kind::automaton, .first = static_cast<std::uint32_t>(automata_.size() - 1)});
}

ExprId ExpressionPool::at_start() { return add({.kind = Kind::at_start}); }
ExprId ExpressionPool::at_end() { return add({.kind = Kind::at_end}); }

// Written from the end to the front: build(e, next) gives the node where e starts, followed by next.
class NfaBuilder {
 public:
  enum class Kind : std::uint8_t { bytes, fork, call, end, dead, at_start, at_end };
  struct Node {
    Kind kind;
    std::uint8_t low = 0, high = 0;
    std::uint32_t next = 0, other = 0;  // other: the second way of a fork, the rule of a call
  };

  NfaBuilder(const ExpressionPool& pool, Budget& budget) : pool_(pool), budget_(budget) {}

  // An expression met twice before the same next node is built once: schemas share their tails.
  std::uint32_t build(ExprId id, std::uint32_t next) {
    const ExpressionPool::Node& node = pool_.nodes_[id];
    using PoolKind = ExpressionPool::Kind;
    budget_.spend(2);  // also where nothing is added: an empty part may be repeated very often
    if (node.kind != PoolKind::sequence && node.kind != PoolKind::either && node.kind != PoolKind::automaton)
      return build_new(node, next);
    const std::uint64_t key = (std::uint64_t{id} << 32) | next;
    if (const auto place = built_.find(key); place != built_.end()) return place->second;
    budget_.spend(30);
    budget_.hold(48);
    const std::uint32_t start = build_new(node, next);
    built_.emplace(key, start);
    return start;
  }

  std::uint32_t add(const Node& node) {
    budget_.spend(2);
    budget_.hold(sizeof(Node));
    has_anchors_ |= node.kind == Kind::at_start || node.kind == Kind::at_end;
    nodes_.push_back(node);
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  bool has_anchors() const { return has_anchors_; }

 private:
  std::uint32_t build_new(const ExpressionPool::Node& node, std::uint32_t next) {
    using PoolKind = ExpressionPool::Kind;
    switch (node.kind) {
      case PoolKind::nothing: return add({.kind = Kind::dead});
      case PoolKind::empty: return next;
      case PoolKind::bytes:
        return add({.kind = Kind::bytes, .low = node.low, .high = node.high, .next = next});
      case PoolKind::call: return add({.kind = Kind::call, .next = next, .other = node.first});
      case PoolKind::text:
        for (std::uint32_t i = node.count; i-- > 0;) {
          const auto byte = static_cast<std::uint8_t>(pool_.characters_[node.first + i]);
          next = add({.kind = Kind::bytes, .low = byte, .high = byte, .next = next});
        }
        return next;
      case PoolKind::sequence:
        for (std::uint32_t i = node.count; i-- > 0;) next = build(pool_.children_[node.first + i], next);
        return next;
      case PoolKind::either: {
        std::uint32_t start = build(pool_.children_[node.first + node.count - 1], next);
        for (std::uint32_t i = node.count - 1; i-- > 0;)
          start =
              add({.kind = Kind::fork, .next = build(pool_.children_[node.first + i], next), .other = start});
        return start;
      }
      case PoolKind::repeat: return build_repeat(node, next);
      case PoolKind::automaton: return build_automaton(pool_.automata_[node.first], next);
      case PoolKind::at_start: return add({.kind = Kind::at_start, .next = next});
      case PoolKind::at_end: return add({.kind = Kind::at_end, .next = next});
    }
    return next;
  }

  std::uint32_t build_repeat(const ExpressionPool::Node& node, std::uint32_t next) {
    std::uint32_t start = next;
    if (node.max < 0) {
      const std::uint32_t loop = add({.kind = Kind::fork, .other = next});
      const std::uint32_t body = build(node.first, loop);
      nodes_[loop].next = body;
      start = loop;
    } else {
      for (std::int64_t i = node.min; i < node.max; ++i)
        start = add({.kind = Kind::fork, .next = build(node.first, start), .other = next});
    }
    for (std::int64_t i = 0; i < node.min; ++i) start = build(node.first, start);
    return start;
  }

  std::uint32_t build_automaton(const Dfa& dfa, std::uint32_t next) {
    if (dfa.states.empty()) return add({.kind = Kind::dead});
    // Two forks for each state first, so that edges can point to states that come later.
    std::vector<std::uint32_t> start(dfa.states.size());
    for (std::uint32_t& node : start) node = add({.kind = Kind::fork});
    for (std::size_t i = 0; i < dfa.states.size(); ++i) {
      const Dfa::State& state = dfa.states[i];
      std::uint32_t rest = state.final ? next : add({.kind = Kind::dead});
      for (const Dfa::Edge& edge : state.edges) {
        const std::uint32_t taken =
            add({.kind = Kind::bytes, .low = edge.low, .high = edge.high, .next = start[edge.to]});
        rest = add({.kind = Kind::fork, .next = taken, .other = rest});
      }
      for (const Dfa::Call& call : state.calls) {
        const std::uint32_t taken = add({.kind = Kind::call, .next = start[call.to], .other = call.rule});
        rest = add({.kind = Kind::fork, .next = taken, .other = rest});
      }
      nodes_[start[i]].next = nodes_[start[i]].other = rest;
    }
    return start[0];
  }

  const ExpressionPool& pool_;
  Budget& budget_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> built_;
  bool has_anchors_ = false;
};

namespace {

using Nodes = std::vector<std::uint32_t>;

struct NodesHash {
  std::size_t operator()(const Nodes& nodes) const {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::uint32_t node : nodes) hash = (hash ^ node) * 0x100000001b3;
    return static_cast<std::size_t>(hash ^ (hash >> 29));
  }
};

// A state of the result is the set of nodes it may stand on: those that take something or end.
class SubsetConstruction {
 public:
  SubsetConstruction(const NfaBuilder& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), marked_(nfa.nodes().size(), 0) {}

  Dfa run(std::uint32_t start) {
    number({start}, true);
    for (std::uint32_t i = 0; i < sets_.size(); ++i) expand(i);
    trim(result_);
    return std::move(result_);
  }

 private:
  using Kind = NfaBuilder::Kind;
  // Stands in the set of the start, where it matters: no other set may be taken for it.
  static constexpr std::uint32_t kAtStart = 0xFFFFFFFF;

  // What is reached without taking anything. At the end of the text: also behind its $, and then only its
  // end.
  // The result is valid until the next call.
  Nodes& closure(const Nodes& from, bool at_start, bool at_end = false) {
    ++mark_;
    todo_.assign(from.begin(), from.end());
    closed_.clear();
    while (!todo_.empty()) {
      const std::uint32_t at = todo_.back();
      todo_.pop_back();
      if (marked_[at] == mark_) continue;
      marked_[at] = mark_;
      budget_.spend(1);
      const NfaBuilder::Node& node = nfa_.nodes()[at];
      if (node.kind == Kind::fork) {
        todo_.push_back(node.other);
        todo_.push_back(node.next);
      } else if ((node.kind == Kind::at_start && at_start) || (node.kind == Kind::at_end && at_end)) {
        todo_.push_back(node.next);
      } else if (node.kind != Kind::dead && node.kind != Kind::at_start) {
        closed_.push_back(at);
      }
    }
    std::sort(closed_.begin(), closed_.end());
    return closed_;
  }

  std::uint32_t number(const Nodes& targets, bool at_start = false) {
    Nodes& closed = closure(targets, at_start);
    if (at_start && nfa_.has_anchors()) closed.push_back(kAtStart);
    const auto next = static_cast<std::uint32_t>(sets_.size());
    budget_.spend(5 + 2 * static_cast<std::int64_t>(closed.size()));  // sorted, hashed, compared
    if (const auto known = numbers_.find(closed); known != numbers_.end()) return known->second;
    budget_.spend(150);
    budget_.hold(static_cast<std::int64_t>(closed.size() * sizeof(std::uint32_t) + 160));
    sets_.push_back(&numbers_.emplace(closed, next).first->first);
    result_.states.emplace_back();
    return next;
  }

  bool ends_behind(const Nodes& anchors, bool at_start) {
    for (const std::uint32_t at : closure(anchors, at_start, true))
      if (nfa_.nodes()[at].kind == Kind::end) return true;
    return false;
  }

  void expand(std::uint32_t index) {
    const Nodes& set = *sets_[index];
    const bool at_start = !set.empty() && set.back() == kAtStart;
    std::array<bool, 257> cut{};
    std::map<RuleId, Nodes> calls;
    Nodes anchors;
    bool final = false;
    for (const std::uint32_t at : set) {
      if (at == kAtStart) continue;
      const NfaBuilder::Node& node = nfa_.nodes()[at];
      if (node.kind == Kind::end) final = true;
      if (node.kind == Kind::at_end) anchors.push_back(at);
      if (node.kind == Kind::bytes) cut[node.low] = cut[node.high + 1] = true;
      if (node.kind == Kind::call) {
        budget_.spend(5);
        calls[node.other].push_back(node.next);
      }
    }
    if (!final && !anchors.empty()) final = ends_behind(anchors, at_start);
    std::array<std::uint16_t, 257> piece_of{};
    std::vector<int> piece_start;
    for (int byte = 0; byte <= 256; ++byte) {
      if (cut[byte] || byte == 0) piece_start.push_back(byte);
      piece_of[byte] = static_cast<std::uint16_t>(piece_start.size() - 1);
    }
    budget_.spend(60 + 5 * std::ssize(piece_start));
    if (targets_.size() < piece_start.size()) targets_.resize(piece_start.size());
    for (std::size_t piece = 0; piece < piece_start.size(); ++piece) targets_[piece].clear();
    for (const std::uint32_t at : set) {
      if (at == kAtStart || nfa_.nodes()[at].kind != Kind::bytes) continue;
      const NfaBuilder::Node& node = nfa_.nodes()[at];
      for (std::uint16_t piece = piece_of[node.low]; piece <= piece_of[node.high]; ++piece)
        targets_[piece].push_back(node.next);
      budget_.spend(1 + piece_of[node.high] - piece_of[node.low]);
    }
    finish_state(index, final, piece_start, calls);
  }

  void finish_state(std::uint32_t index, bool final, const std::vector<int>& piece_start,
                    const std::map<RuleId, Nodes>& calls) {
    std::vector<Dfa::Edge> edges;
    for (std::size_t piece = 0; piece < piece_start.size(); ++piece) {
      if (targets_[piece].empty()) continue;
      const int low = piece_start[piece];
      const int high = piece + 1 < piece_start.size() ? piece_start[piece + 1] - 1 : 255;
      const std::uint32_t to = number(targets_[piece]);
      if (!edges.empty() && edges.back().to == to && edges.back().high + 1 == low)
        edges.back().high = static_cast<std::uint8_t>(high);
      else
        edges.push_back({static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high), to});
    }
    std::vector<Dfa::Call> made;
    for (const auto& [rule, nexts] : calls) made.push_back({rule, number(nexts)});
    budget_.hold(
        static_cast<std::int64_t>(edges.size() * sizeof(Dfa::Edge) + made.size() * sizeof(Dfa::Call)));
    result_.states[index] = {std::move(edges), std::move(made), final};
  }

  const NfaBuilder& nfa_;
  Budget& budget_;
  std::vector<std::uint32_t> marked_;
  std::uint32_t mark_ = 0;
  Nodes todo_, closed_;         // of closure
  std::vector<Nodes> targets_;  // of expand, by piece
  std::unordered_map<Nodes, std::uint32_t, NodesHash> numbers_;
  std::vector<const Nodes*> sets_;  // keys of numbers_, which stay where they are
  Dfa result_;
};

}  // namespace

Dfa ExpressionPool::compile(ExprId expression) const {
  const std::int64_t before = budget_.bytes();
  NfaBuilder nfa(*this, budget_);
  const std::uint32_t end = nfa.add({.kind = NfaBuilder::Kind::end});
  const std::uint32_t start = nfa.build(expression, end);
  Dfa dfa = SubsetConstruction(nfa, budget_).run(start);
  // What stays is the automaton; the nodes and sets it was made from are gone.
  std::int64_t kept = 0;
  for (const Dfa::State& state : dfa.states)
    kept += static_cast<std::int64_t>(sizeof(state) + state.edges.size() * sizeof(Dfa::Edge) +
                                      state.calls.size() * sizeof(Dfa::Call));
  budget_.release(budget_.bytes() - before - kept);
  return dfa;
}

}  // namespace fourfold::constrain
