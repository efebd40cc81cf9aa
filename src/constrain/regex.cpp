// A recursive-descent parser from the text of a regular expression to the pool.
#include "constrain/regex.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

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

class RegexParser {
 public:
  RegexParser(ExpressionPool& pool, std::string_view pattern, RegexUse use, Writing writing,
              std::string_view what)
      : pool_(pool), pattern_(pattern), use_(use), writing_(writing), what_(what) {}

  ExprId parse() {
    const ExprId result = alternatives(true);
    if (!at_end()) refuse("a ) without its (");
    return result;
  }

 private:
  struct Item {
    std::optional<CodeSet> set;  // a single character
    ExprId expression = 0;       // otherwise
  };

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
    const text::CodePoint point = text::read_code_point(pattern_.data() + at_);
    at_ += static_cast<std::size_t>(point.bytes);
    return point.code;
  }
  template <class... Values>
  [[noreturn]] void refuse(std::string_view why, const Values&... values) const {
    std::string reason;
    append_format(reason, why, values...);
    fail(Code::invalid_request, "{}: {}, at byte {} of the regular expression", what_, reason, at_);
  }

  ExprId anything() { return pool_.repeat(one_of(pool_, CodeSet::all(), writing_), 0, std::nullopt); }

  // `outer`: nothing stands before or after, so ^ and $ may.
  ExprId alternatives(bool outer) {
    if (++depth_ > kDepthMax) refuse("groups nested deeper than {} levels", kDepthMax);
    std::vector<ExprId> ways;
    do ways.push_back(sequence(outer));
    while (take("|"));
    --depth_;
    return pool_.either(ways);
  }

  ExprId sequence(bool outer) {
    std::vector<ExprId> parts;
    bool from_start = false, to_end = false;
    while (outer && take("^")) from_start = true;
    // A group that is all of its alternative may hold the anchors itself: ^(?:a|b)$ as well as (^a$|^b$).
    const bool whole_group = outer && !from_start && peek() == '(' && group_is_all();
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '$') {
        ++at_;
        if (!outer || !(at_end() || peek() == '|' || peek() == ')' || peek() == '$'))
          refuse("$ stands for the end and must be there");
        to_end = true;
        continue;
      }
      if (peek() == '^') refuse("^ stands for the start and must be there");
      parts.push_back(repeated(whole_group));
    }
    if (use_ == RegexUse::search && outer && !whole_group) {
      if (!from_start) parts.insert(parts.begin(), anything());
      if (!to_end) parts.push_back(anything());
    }
    return parts.empty() ? pool_.empty() : pool_.sequence(parts);
  }

  // Whether the group that starts here ends its alternative; a quantifier after it makes it one part of many.
  bool group_is_all() const {
    int open = 0;
    bool in_class = false;
    for (std::size_t i = at_; i < pattern_.size(); ++i) {
      if (pattern_[i] == '\\') {
        ++i;
      } else if (in_class) {
        in_class = pattern_[i] != ']';
      } else if (pattern_[i] == '[') {
        in_class = true;
        if (i + 1 < pattern_.size() && pattern_[i + 1] == '^') ++i;
      } else if (pattern_[i] == '(') {
        ++open;
      } else if (pattern_[i] == ')' && --open == 0) {
        return i + 1 == pattern_.size() || pattern_[i + 1] == '|' || pattern_[i + 1] == ')';
      }
    }
    return false;
  }

  ExprId repeated(bool outer) {
    ExprId part = atom(outer);
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
      part = pool_.repeat(part, min, max);
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

  ExprId atom(bool outer) {
    if (peek() == '(') return group(outer);
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("nothing before the {} to repeat", peek());
    if (peek() == '[') return one_of(pool_, character_class(), writing_);
    if (take(".")) return one_of(pool_, dot(), writing_);
    if (peek() == '\\') return one_of(pool_, escape(false), writing_);
    const char32_t code = take_character();
    return one_of(pool_, CodeSet({{code, code}}), writing_);
  }

  ExprId group(bool outer) {
    ++at_;
    if (peek() == '?') {
      if (peek(1) == '=' || peek(1) == '!') refuse("look-ahead is not supported");
      if (peek(1) == '<' && (peek(2) == '=' || peek(2) == '!')) refuse("look-behind is not supported");
      if (peek(1) == '>') refuse("atomic groups are not supported");
      if (take("?P<") || take("?<")) {
        while (!at_end() && peek() != '>') ++at_;
        if (!take(">")) refuse("a group name without its >");
      } else if (take("?P=") || take("?P>")) {
        refuse("references to groups are not supported");
      } else if (!take("?:")) {
        refuse("flags and conditions in groups are not supported");
      }
    }
    const ExprId inner = alternatives(outer);
    if (!take(")")) refuse("a ( without its )");
    return inner;
  }

  char32_t hexadecimal(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) refuse("{} hexadecimal digits must follow", count);
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (value >= 0xD800 && value <= 0xDFFF) refuse("a surrogate is no character");
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
    const std::size_t close = pattern_.find('}', at_);
    if (!take("{") || close == std::string_view::npos) refuse("\\p needs a name, as in \\p{L}");
    const std::string_view name = pattern_.substr(at_, close - at_);
    for (const Name& known : names)
      if (known.text == name) {
        at_ = close + 1;
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
      case 'B':
      case 'A':
      case 'z':
      case 'Z': refuse("the assertion \\{} is not supported", static_cast<char>(code));
      default: break;
    }
    if (code >= '1' && code <= '9') refuse("back references are not supported");
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z'))
      refuse("the escape \\{} is not supported", static_cast<char>(code));
    return single(code);
  }

  static CodeSet single(char32_t code) { return CodeSet({{code, code}}); }

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
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        const CodeSet high = peek() == '\\' ? escape(true) : single(take_character());
        const bool singles = low.ranges().size() == 1 && low.ranges()[0].low == low.ranges()[0].high &&
                             high.ranges().size() == 1 && high.ranges()[0].low == high.ranges()[0].high;
        if (!singles) refuse("a range needs a character on both sides of its -");
        if (high.ranges()[0].low < low.ranges()[0].low) refuse("a range of characters the wrong way round");
        ranges.push_back({low.ranges()[0].low, high.ranges()[0].low});
      } else {
        pool_.budget().spend(static_cast<std::int64_t>(low.ranges().size()));
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
      }
    }
    ++at_;
    const CodeSet set(std::move(ranges));
    return negated ? set.complement() : set;
  }

  ExpressionPool& pool_;
  std::string_view pattern_;
  RegexUse use_;
  Writing writing_;
  std::string_view what_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExprId parse_regex(ExpressionPool& pool, std::string_view pattern, RegexUse use, Writing writing,
                   std::string_view what) {
  if (!text::is_valid_utf8(pattern))
    fail(Code::invalid_request, "{}: the regular expression is not valid UTF-8", what);
  if (pattern.find('\0') != std::string_view::npos)
    fail(Code::invalid_request, "{}: the regular expression holds a NUL character; write \\x00", what);
  return RegexParser(pool, pattern, use, writing, what).parse();
}

}  // namespace fourfold::constrain
