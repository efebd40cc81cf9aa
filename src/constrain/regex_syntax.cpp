// A recursive-descent parser: every character is looked at once, but for a { that turns out to be a literal.
#include "constrain/regex_syntax.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace fourfold::constrain {
namespace {

constexpr std::int64_t kRepeatMax = 10'000;
constexpr int kDepthMax = 200;

const CodeSet& digits() {
  static const CodeSet set({{'0', '9'}});
  return set;
}
const CodeSet& word() {
  static const CodeSet set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}
const CodeSet& spaces() {
  static const CodeSet set({{'\t', '\r'}, {' ', ' '}});
  return set;
}
// The complement of \s leaves out every kind of white space: ECMAScript's \s has them all.
const CodeSet& not_spaces() {
  static const CodeSet set =
      CodeSet::of_classes(text::kSpace).with(spaces()).with(CodeSet({{0xFEFF, 0xFEFF}})).complement();
  return set;
}
// Python's dot takes all but \n, ECMAScript's also leaves out the other ends of lines.
const CodeSet& dot() {
  static const CodeSet set = CodeSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
  return set;
}

CodeSet single(char32_t code) { return CodeSet({{code, code}}); }

std::optional<char32_t> only_character(const CodeSet& set) {
  if (set.ranges().size() != 1 || set.ranges()[0].low != set.ranges()[0].high) return std::nullopt;
  return set.ranges()[0].low;
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, std::string_view what, Budget& budget)
      : pattern_(pattern), what_(what), budget_(budget) {}

  RegexSyntax parse() {
    syntax_.top = alternatives();
    if (!at_end()) refuse("a ) without its (");
    return std::move(syntax_);
  }

 private:
  using Kind = RegexNode::Kind;

  bool at_end() const { return at_ >= pattern_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (pattern_.substr(at_).substr(0, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_character() {
    const CodePoint point = read_code_point(pattern_.data() + at_);
    at_ += static_cast<std::size_t>(point.bytes);
    return point.code;
  }
  template <class... Values>
  [[noreturn]] void refuse(std::string_view why, const Values&... values) const {
    std::string reason;
    append_format(reason, why, values...);
    fail(Code::invalid_request, "{}: {}, at byte {} of the regular expression", what_, reason, at_);
  }

  std::uint32_t add(RegexNode node) {
    budget_.spend(25 + static_cast<std::int64_t>(node.parts.size() + node.set.ranges().size()));
    budget_.hold(static_cast<std::int64_t>(sizeof node + node.parts.size() * sizeof(std::uint32_t) +
                                           node.set.ranges().size() * sizeof(CodeRange) + node.text.size()));
    node.looks |= node.kind == Kind::ahead || node.kind == Kind::not_ahead;
    node.starts |= node.kind == Kind::start;
    for (const std::uint32_t part : node.parts) {
      node.looks |= syntax_.nodes[part].looks;
      node.starts |= syntax_.nodes[part].starts;
    }
    syntax_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(syntax_.nodes.size() - 1);
  }

  std::uint32_t alternatives() {
    if (++depth_ > kDepthMax) refuse("groups nested deeper than {} levels", kDepthMax);
    std::vector<std::uint32_t> ways;
    do ways.push_back(sequence());
    while (take("|"));
    --depth_;
    return ways.size() == 1 ? ways[0] : add({.kind = Kind::either, .parts = std::move(ways)});
  }

  std::uint32_t sequence() {
    std::vector<std::uint32_t> parts;
    std::string literal;
    const auto flush = [&] {
      if (!literal.empty()) parts.push_back(add({.kind = Kind::text, .text = std::exchange(literal, {})}));
    };
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (std::string_view("^$.[(\\*+?").find(peek()) == std::string_view::npos) {
        const std::size_t from = at_;
        take_character();
        budget_.spend(4);
        if (!at_quantifier()) {
          literal += pattern_.substr(from, at_ - from);
          continue;
        }
        at_ = from;
      }
      flush();
      parts.push_back(repeated());
    }
    flush();
    return parts.size() == 1 ? parts[0] : add({.kind = Kind::sequence, .parts = std::move(parts)});
  }

  bool at_quantifier() {
    if (peek() == '*' || peek() == '+' || peek() == '?') return true;
    if (peek() != '{') return false;
    const std::size_t from = at_;
    std::int64_t min = 0;
    std::optional<std::int64_t> max;
    const bool is_one = counted(min, max);
    at_ = from;
    return is_one;
  }

  std::uint32_t repeated() {
    std::uint32_t part = atom();
    bool is_repeated = false;
    while (true) {
      std::int64_t min = 0;
      std::optional<std::int64_t> max;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (peek() != '{' || !counted(min, max)) {
        return part;
      }
      if (is_repeated) refuse("two quantifiers in a row");
      if (peek() == '+') refuse("possessive quantifiers are not supported");
      take("?");  // takes as little as possible: the same texts
      part = add({.kind = Kind::repeat, .parts = {part}, .min = min, .max = max});
      is_repeated = true;
    }
  }

  std::optional<std::int64_t> number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    std::int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (peek() - '0');
      if (value > kRepeatMax) refuse("a repeat of more than {}", kRepeatMax);
      ++at_;
    }
    return value;
  }

  // {3}, {3,} or {3,5}; anything else is a { of its own, as everywhere.
  bool counted(std::int64_t& min, std::optional<std::int64_t>& max) {
    const std::size_t start = at_++;
    const auto low = number();
    if (low && take("}")) {
      min = *low;
      max = low;
      return true;
    }
    if (low && take(",")) {
      const auto high = number();
      if (take("}")) {
        if (high && *high < *low) refuse("the repeat {{},{}} is the wrong way round", *low, *high);
        min = *low;
        max = high;
        return true;
      }
    }
    at_ = start;
    return false;
  }

  std::uint32_t atom() {
    if (peek() == '(') return group();
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("nothing before the {} to repeat", peek());
    if (take("^") || take("\\A")) return add({.kind = Kind::start});
    if (take("$") || take("\\z") || take("\\Z")) return add({.kind = Kind::end});
    if (peek() == '[') return add({.kind = Kind::set, .set = character_class()});
    if (take(".")) return add({.kind = Kind::set, .set = dot()});
    if (peek() == '\\') return add({.kind = Kind::set, .set = escape(false)});
    return add({.kind = Kind::set, .set = single(take_character())});
  }

  std::uint32_t group() {
    ++at_;
    std::optional<Kind> look;
    if (peek() == '?') {
      if (peek(1) == '<' && (peek(2) == '=' || peek(2) == '!')) refuse("look-behind is not supported");
      if (peek(1) == '>') refuse("atomic groups are not supported");
      if (take("?=")) {
        look = Kind::ahead;
      } else if (take("?!")) {
        look = Kind::not_ahead;
      } else if (take("?P<") || take("?<")) {
        while (!at_end() && peek() != '>') ++at_;
        if (!take(">")) refuse("a group name without its >");
      } else if (take("?P=") || take("?P>")) {
        refuse("references to groups are not supported");
      } else if (!take("?:")) {
        refuse("flags and conditions in groups are not supported");
      }
    }
    const std::uint32_t inner = alternatives();
    if (!take(")")) refuse("a ( without its )");
    return look ? add({.kind = *look, .parts = {inner}}) : inner;
  }

  char32_t hexadecimal(int count) {
    char32_t value = 0;
    const bool braced = count == 4 && take("{");  // \u{1F600}
    if (braced) count = 6;
    for (int i = 0; i < count; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0 && braced && i > 0) break;
      if (digit < 0) refuse("{} hexadecimal digits must follow", count);
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (braced && !take("}")) refuse("a \\u{ without its }");
    if (value >= 0xD800 && value <= 0xDFFF) refuse("a surrogate is no character");
    if (value > 0x10FFFF) refuse("there is no such character");
    return value;
  }

  CodeSet property(bool negated) {
    struct Name {
      std::string_view text;
      CodeSet set;
    };
    // Made once: each is a walk over all characters.
    static const Name names[] = {
        {"L", CodeSet::of_classes(text::kLetter)},      {"Ll", CodeSet::of_classes(text::kLower)},
        {"M", CodeSet::of_classes(text::kMark)},        {"N", CodeSet::of_classes(text::kNumber)},
        {"P", CodeSet::of_classes(text::kPunctuation)}, {"S", CodeSet::of_classes(text::kSymbol)}};
    constexpr std::size_t name_bytes_max = 64;  // so that not every \p reads to the end of the pattern
    const std::size_t close = pattern_.substr(at_, name_bytes_max).find('}');
    if (!take("{") || close == std::string_view::npos) refuse("\\p needs a name, as in \\p{L}");
    const std::string_view name = pattern_.substr(at_, close - 1);
    for (const Name& known : names)
      if (known.text == name) {
        at_ += close;
        budget_.spend(static_cast<std::int64_t>(known.set.ranges().size()));
        return negated ? known.set.complement() : known.set;
      }
    refuse("\\p{{}} is not supported; L, Ll, M, N, P and S are", name);
  }

  CodeSet escape(bool in_class) {
    ++at_;
    if (at_end()) refuse("a \\ at the end");
    const char32_t code = take_character();
    switch (code) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return word();
      case 'W': return word().complement();
      case 's': return spaces();
      case 'S': return not_spaces();
      case 'p': return property(false);
      case 'P': return property(true);
      case 'n': return single('\n');
      case 'r': return single('\r');
      case 't': return single('\t');
      case 'f': return single('\f');
      case 'v': return single('\v');
      case 'x': return single(hexadecimal(2));
      case 'u': return single(hexadecimal(4));
      case '0': return single(0);
      case 'b':
        if (in_class) return single('\b');
        [[fallthrough]];
      case 'B': refuse("the assertion \\{} is not supported", static_cast<char>(code));
      default: break;
    }
    if (code >= '1' && code <= '9') refuse("back references are not supported");
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z'))
      refuse("the escape \\{} is not supported", static_cast<char>(code));
    return single(code);
  }

  CodeSet character_class() {
    ++at_;
    const bool negated = take("^");
    std::vector<CodeRange> ranges;
    bool first = true;
    while (at_end() || peek() != ']' || first) {
      if (at_end()) refuse("a [ without its ]");
      if (peek() == ']' && first) break;  // ECMAScript: [] is empty, [^] is everything
      first = false;
      if (take("[:")) refuse("POSIX classes are not supported");
      const CodeSet low = peek() == '\\' ? escape(true) : single(take_character());
      budget_.spend(10 + 2 * static_cast<std::int64_t>(low.ranges().size()));
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        const CodeSet high = peek() == '\\' ? escape(true) : single(take_character());
        const auto from = only_character(low), to = only_character(high);
        if (!from || !to) refuse("a range needs a character on both sides of its -");
        if (*to < *from) refuse("a range of characters the wrong way round");
        ranges.push_back({*from, *to});
      } else {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
      }
    }
    ++at_;
    budget_.spend(10 * static_cast<std::int64_t>(ranges.size()));  // they are sorted
    const CodeSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  std::string_view pattern_;
  std::string_view what_;
  Budget& budget_;
  RegexSyntax syntax_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

RegexSyntax read_regex(std::string_view pattern, std::string_view what, Budget& budget) {
  if (!is_valid_utf8(pattern))
    fail(Code::invalid_request, "{}: the regular expression is not valid UTF-8", what);
  if (pattern.find('\0') != std::string_view::npos)
    fail(Code::invalid_request, "{}: the regular expression holds a NUL character; write \\x00", what);
  return RegexParser(pattern, what, budget).parse();
}

}  // namespace fourfold::constrain
