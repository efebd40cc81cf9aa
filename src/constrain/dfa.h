// A deterministic automaton over bytes whose edges may also be calls: "here a whole text of rule r".
// Call-free automata can be intersected and subtracted; a rule of a grammar is one automaton.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "constrain/budget.h"

namespace fourfold::constrain {

using RuleId = std::uint32_t;

struct Dfa {
  struct Edge {
    std::uint8_t low, high;  // both included; the edges of a state ascend and do not overlap
    std::uint32_t to;
    bool operator==(const Edge&) const = default;
  };
  struct Call {
    RuleId rule;
    std::uint32_t to;
    bool operator==(const Call&) const = default;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<Call> calls;
    bool final = false;
    bool operator==(const State&) const = default;
  };
  std::vector<State> states;  // the first is the start; none: no text is in the language

  bool calls_nothing() const;
  // Of call-free automata only.
  bool accepts(std::string_view text) const;
};

// Removes states from which no text can be finished. Every call counts as one that can.
void trim(Dfa& dfa);

// Of a trimmed call-free automaton: how many bytes its longest text has; none when there is no longest.
std::optional<std::int64_t> longest_text(const Dfa& dfa, Budget& budget);

// The texts of a call-free automaton between two marks. None goes on with the mark where another ends.
Dfa enclosed(const Dfa& dfa, char mark, Budget& budget);

// Of call-free automata. Both are trimmed.
Dfa intersect(const Dfa& a, const Dfa& b, Budget& budget);
Dfa subtract(const Dfa& a, const Dfa& b, Budget& budget);

}  // namespace fourfold::constrain
