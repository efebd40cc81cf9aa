// The tree of a regular expression to the pool. A look-ahead is an intersection (or a difference): of what
// follows it, down to the end of the text, with what it asks for. So what follows must be known, and is
// handed down; only in a loop it is not.
#include "constrain/regex.h"

#include "base/error.h"
#include "constrain/regex_syntax.h"

namespace fourfold::constrain {
namespace {

constexpr std::int64_t kUnrolledMax = 16;  // repeats with a look-ahead inside

class RegexCompiler {
 public:
  RegexCompiler(ExpressionPool& pool, const RegexSyntax& syntax, RegexUse use, Writing writing,
                std::string_view what)
      : pool_(pool), syntax_(syntax), use_(use), writing_(writing), what_(what) {}

  ExprId run() {
    const RegexNode& top = syntax_.nodes[syntax_.top];
    if (top.kind != Kind::either) return alternative(syntax_.top);
    std::vector<ExprId> ways;
    for (const std::uint32_t part : top.parts) ways.push_back(alternative(part));
    return pool_.either(ways);
  }

 private:
  using Kind = RegexNode::Kind;
  struct Rest {  // of the text
    ExprId expression;
    bool starts;  // a ^ stands in it
  };

  // In a search anything may stand before it and behind it, unless an anchor says that nothing does.
  ExprId alternative(std::uint32_t id) {
    if (use_ == RegexUse::whole) return followed(id, {pool_.empty(), false}, true).expression;
    const ExprId behind = bound(id, Kind::end) ? pool_.empty() : anything();
    const bool from_start = bound(id, Kind::start);
    const Rest rest = followed(id, {behind, false}, from_start);
    return from_start ? rest.expression : pool_.sequence({anything(), rest.expression});
  }

  // Whether it begins with ^ (ends with $) in each of its ways.
  bool bound(std::uint32_t id, Kind anchor) const {
    const RegexNode& node = syntax_.nodes[id];
    pool_.budget().spend(1);
    if (node.kind == anchor) return true;
    if (node.parts.empty()) return false;
    if (node.kind == Kind::sequence)
      return bound(anchor == Kind::start ? node.parts.front() : node.parts.back(), anchor);
    if (node.kind != Kind::either) return false;
    for (const std::uint32_t part : node.parts)
      if (!bound(part, anchor)) return false;
    return true;
  }

  ExprId anything() {
    if (!anything_) anything_ = pool_.repeat(one_of(pool_, CodeSet::all(), writing_), 0, std::nullopt);
    return *anything_;
  }

  // Without look-aheads.
  ExprId plain(std::uint32_t id) {
    const RegexNode& node = syntax_.nodes[id];
    pool_.budget().spend(2);
    switch (node.kind) {
      case Kind::text: return pool_.text(written(node.text, writing_));
      case Kind::set: return one_of(pool_, node.set, writing_);
      case Kind::start: return pool_.at_start();
      case Kind::end: return pool_.at_end();
      case Kind::repeat: return pool_.repeat(plain(node.parts[0]), node.min, node.max);
      default: break;
    }
    std::vector<ExprId> parts;
    for (const std::uint32_t part : node.parts) parts.push_back(plain(part));
    if (node.kind == Kind::either) return pool_.either(parts);
    return parts.empty() ? pool_.empty() : pool_.sequence(parts);
  }

  // The node and then the rest of the text. at_start: nothing stands before, for certain.
  Rest followed(std::uint32_t id, Rest rest, bool at_start) {
    const RegexNode& node = syntax_.nodes[id];
    const bool starts = rest.starts || node.starts;
    if (!node.looks) return {pool_.sequence({plain(id), rest.expression}), starts};
    switch (node.kind) {
      case Kind::sequence: return sequence(node, rest, at_start);
      case Kind::repeat: return repeat(node, rest, at_start);
      case Kind::ahead:
      case Kind::not_ahead: return look(node, rest, at_start);
      default: break;
    }
    std::vector<ExprId> ways;
    for (const std::uint32_t part : node.parts) ways.push_back(followed(part, rest, at_start).expression);
    return {pool_.either(ways), starts};
  }

  Rest sequence(const RegexNode& node, Rest rest, bool at_start) {
    std::vector<char> is_start(node.parts.size());
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
      is_start[i] = at_start;
      const Kind kind = syntax_.nodes[node.parts[i]].kind;
      if (kind == Kind::start) at_start = true;
      if (kind != Kind::start && kind != Kind::ahead && kind != Kind::not_ahead) at_start = false;
    }
    for (std::size_t i = node.parts.size(); i-- > 0;) rest = followed(node.parts[i], rest, is_start[i]);
    return rest;
  }

  Rest repeat(const RegexNode& node, Rest rest, bool at_start) {
    if (!node.max || *node.max > kUnrolledMax)
      refuse("a look-ahead inside a repeat is supported up to {} times", kUnrolledMax);
    Rest from_here = rest;
    for (std::int64_t i = *node.max; i-- > 0;) {
      from_here = followed(node.parts[0], from_here, at_start && i == 0);
      if (i >= node.min) from_here.expression = pool_.either({from_here.expression, rest.expression});
    }
    return from_here;
  }

  Rest look(const RegexNode& node, Rest rest, bool at_start) {
    const Rest wanted = followed(node.parts[0], {anything(), false}, at_start);
    // What follows is compiled on its own, so its start must be the text's.
    if (!at_start && (rest.starts || wanted.starts))
      refuse("^ inside or behind a look-ahead needs the look-ahead to stand at the start");
    const Dfa is = pool_.compile(rest.expression), asked = pool_.compile(wanted.expression);
    Dfa both =
        node.kind == Kind::ahead ? intersect(is, asked, pool_.budget()) : subtract(is, asked, pool_.budget());
    return {pool_.automaton(std::move(both)), false};
  }

  template <class... Values>
  [[noreturn]] void refuse(std::string_view why, const Values&... values) const {
    std::string reason;
    append_format(reason, why, values...);
    fail(Code::invalid_request, "{}: {}", what_, reason);
  }

  ExpressionPool& pool_;
  const RegexSyntax& syntax_;
  RegexUse use_;
  Writing writing_;
  std::string_view what_;
  std::optional<ExprId> anything_;
};

}  // namespace

ExprId parse_regex(ExpressionPool& pool, std::string_view pattern, RegexUse use, Writing writing,
                   std::string_view what) {
  const RegexSyntax syntax = read_regex(pattern, what, pool.budget());
  return RegexCompiler(pool, syntax, use, writing, what).run();
}

}  // namespace fourfold::constrain
