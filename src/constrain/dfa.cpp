// Trimming and products of automata.
#include "constrain/dfa.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace fourfold::constrain {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFF;

std::uint32_t target(const Dfa::State& state, std::uint8_t byte) {
  const auto edge = std::lower_bound(state.edges.begin(), state.edges.end(), byte,
                                     [](const Dfa::Edge& e, std::uint8_t b) { return e.high < b; });
  return edge != state.edges.end() && edge->low <= byte ? edge->to : kNone;
}

std::vector<char> finishing(const Dfa& dfa) {
  std::vector<std::vector<std::uint32_t>> sources(dfa.states.size());
  std::vector<char> finishes(dfa.states.size(), 0);
  std::vector<std::uint32_t> todo;
  for (std::uint32_t i = 0; i < dfa.states.size(); ++i) {
    for (const Dfa::Edge& edge : dfa.states[i].edges) sources[edge.to].push_back(i);
    for (const Dfa::Call& call : dfa.states[i].calls) sources[call.to].push_back(i);
    if (dfa.states[i].final) {
      finishes[i] = 1;
      todo.push_back(i);
    }
  }
  while (!todo.empty()) {
    const std::uint32_t at = todo.back();
    todo.pop_back();
    for (const std::uint32_t source : sources[at])
      if (!finishes[source]) {
        finishes[source] = 1;
        todo.push_back(source);
      }
  }
  return finishes;
}

// The pairs (state of a, state of b) that can be reached; b may have no state any more where `b_may_stop`.
class Product {
 public:
  Product(const Dfa& a, const Dfa& b, bool b_may_stop, Budget& budget)
      : a_(a), b_(b), b_may_stop_(b_may_stop), budget_(budget) {}

  Dfa run() {
    if (a_.states.empty() || (b_.states.empty() && !b_may_stop_)) return {};
    number(0, b_.states.empty() ? kNone : 0);
    for (std::uint32_t i = 0; i < pairs_.size(); ++i) expand(i);
    trim(result_);
    return std::move(result_);
  }

 private:
  std::uint32_t number(std::uint32_t in_a, std::uint32_t in_b) {
    const std::uint64_t key = (std::uint64_t{in_a} << 32) | in_b;
    const auto [place, is_new] = numbers_.try_emplace(key, static_cast<std::uint32_t>(pairs_.size()));
    if (is_new) {
      budget_.spend(60);
      budget_.hold(96);
      pairs_.push_back({in_a, in_b});
      result_.states.emplace_back();
    }
    return place->second;
  }

  void expand(std::uint32_t index) {
    const auto [in_a, in_b] = pairs_[index];
    const Dfa::State& a = a_.states[in_a];
    const Dfa::State none;
    const Dfa::State& b = in_b == kNone ? none : b_.states[in_b];
    result_.states[index].final = a.final && (b_may_stop_ ? !b.final : b.final);
    std::vector<Dfa::Edge> edges;
    auto other = b.edges.begin();  // the first that does not end before `low`: both lists ascend
    for (const Dfa::Edge& edge : a.edges) {
      int low = edge.low;
      while (low <= edge.high) {
        int high = edge.high;
        std::uint32_t to_b = kNone;
        for (; other != b.edges.end() && other->high < low; ++other) budget_.spend(1);
        if (other != b.edges.end() && other->low <= low) {
          to_b = other->to;
          high = std::min<int>(high, other->high);
        } else if (other != b.edges.end()) {
          high = std::min<int>(high, other->low - 1);
        }
        budget_.spend(12);
        if (to_b != kNone || b_may_stop_)
          edges.push_back(
              {static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high), number(edge.to, to_b)});
        low = high + 1;
      }
    }
    budget_.hold(static_cast<std::int64_t>(edges.size() * sizeof(Dfa::Edge)));
    result_.states[index].edges = std::move(edges);
  }

  const Dfa& a_;
  const Dfa& b_;
  bool b_may_stop_;
  Budget& budget_;
  Dfa result_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
};

}  // namespace

bool Dfa::calls_nothing() const {
  return std::all_of(states.begin(), states.end(), [](const State& state) { return state.calls.empty(); });
}

bool Dfa::accepts(std::string_view text) const {
  check(calls_nothing(), "only call-free automata can be run alone");
  std::uint32_t at = states.empty() ? kNone : 0;
  for (const char c : text) {
    if (at == kNone) return false;
    at = target(states[at], static_cast<std::uint8_t>(c));
  }
  return at != kNone && states[at].final;
}

void trim(Dfa& dfa) {
  const std::vector<char> finishes = finishing(dfa);
  if (dfa.states.empty() || !finishes[0]) {
    dfa.states.clear();
    return;
  }
  std::vector<std::uint32_t> renumbered(dfa.states.size(), kNone);
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < dfa.states.size(); ++i)
    if (finishes[i]) renumbered[i] = count++;
  std::vector<Dfa::State> kept;
  kept.reserve(count);
  for (std::uint32_t i = 0; i < dfa.states.size(); ++i) {
    if (!finishes[i]) continue;
    Dfa::State state = std::move(dfa.states[i]);
    std::erase_if(state.edges, [&](const Dfa::Edge& edge) { return !finishes[edge.to]; });
    std::erase_if(state.calls, [&](const Dfa::Call& call) { return !finishes[call.to]; });
    for (Dfa::Edge& edge : state.edges) edge.to = renumbered[edge.to];
    for (Dfa::Call& call : state.calls) call.to = renumbered[call.to];
    kept.push_back(std::move(state));
  }
  dfa.states = std::move(kept);
}

// States in an order in which every edge leads onward; where a circle is left over, texts have no end.
std::optional<std::int64_t> longest_text(const Dfa& dfa, Budget& budget) {
  std::vector<std::uint32_t> edges_into(dfa.states.size(), 0), order;
  std::vector<std::int64_t> longest(dfa.states.size(), 0);
  for (const Dfa::State& state : dfa.states) {
    budget.spend(4 + std::ssize(state.edges));
    for (const Dfa::Edge& edge : state.edges) ++edges_into[edge.to];
  }
  for (std::uint32_t i = 0; i < dfa.states.size(); ++i)
    if (edges_into[i] == 0) order.push_back(i);
  std::int64_t out = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    out = std::max(out, longest[order[i]]);
    budget.spend(4 + std::ssize(dfa.states[order[i]].edges));
    for (const Dfa::Edge& edge : dfa.states[order[i]].edges) {
      longest[edge.to] = std::max(longest[edge.to], longest[order[i]] + 1);
      if (--edges_into[edge.to] == 0) order.push_back(edge.to);
    }
  }
  if (order.size() < dfa.states.size()) return std::nullopt;
  return out;
}

Dfa enclosed(const Dfa& dfa, char mark, Budget& budget) {
  Dfa out;
  if (dfa.states.empty()) return out;
  const auto byte = static_cast<std::uint8_t>(mark);
  const auto end = static_cast<std::uint32_t>(dfa.states.size() + 1);
  out.states.resize(dfa.states.size() + 2);
  out.states[0].edges = {{byte, byte, 1}};
  out.states[end].final = true;
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    std::vector<Dfa::Edge>& edges = out.states[i + 1].edges;
    for (Dfa::Edge edge : dfa.states[i].edges) {
      check(!dfa.states[i].final || byte < edge.low || byte > edge.high,
            "a text does not go on with its mark");
      if (dfa.states[i].final && byte < edge.low && (edges.empty() || edges.back().high < byte))
        edges.push_back({byte, byte, end});
      ++edge.to;
      edges.push_back(edge);
    }
    if (dfa.states[i].final && (edges.empty() || edges.back().high < byte))
      edges.push_back({byte, byte, end});
    budget.spend(10 + 4 * std::ssize(edges));
    budget.hold(static_cast<std::int64_t>(sizeof(Dfa::State) + edges.size() * sizeof(Dfa::Edge)));
  }
  return out;
}

Dfa intersect(const Dfa& a, const Dfa& b, Budget& budget) {
  check(a.calls_nothing() && b.calls_nothing(), "only call-free automata can be intersected");
  return Product(a, b, false, budget).run();
}

Dfa subtract(const Dfa& a, const Dfa& b, Budget& budget) {
  check(a.calls_nothing() && b.calls_nothing(), "only call-free automata can be subtracted");
  return Product(a, b, true, budget).run();
}

}  // namespace fourfold::constrain
