// Sets of characters and their bytes.
#include "constrain/characters.h"

#include <algorithm>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace fourfold::constrain {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodeRange kSurrogates{0xD800, 0xDFFF};

std::vector<CodeRange> normalised(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.low < b.low; });
  std::vector<CodeRange> result;
  for (const CodeRange& range : ranges) {
    if (range.low > range.high) continue;
    if (!result.empty() && range.low <= result.back().high + 1)
      result.back().high = std::max(result.back().high, range.high);
    else
      result.push_back(range);
  }
  return result;
}

std::vector<CodeRange> difference(const std::vector<CodeRange>& a, const std::vector<CodeRange>& b) {
  std::vector<CodeRange> result;
  std::size_t at = 0;
  for (CodeRange range : a) {
    while (at < b.size() && b[at].high < range.low) ++at;
    for (std::size_t i = at; i < b.size() && b[i].low <= range.high && range.low <= range.high; ++i) {
      if (b[i].low > range.low) result.push_back({range.low, b[i].low - 1});
      range.low = b[i].high + 1;
    }
    if (range.low <= range.high) result.push_back(range);
  }
  return result;
}

// A range whose ends have encodings of the same length, as byte ranges; split until every byte but the
// varying ones is fixed or runs over all continuation bytes.
void append_same_length(ExpressionPool& pool, char32_t low, char32_t high, std::vector<ExprId>& out) {
  std::string first, last;
  text::append_code_point(first, low);
  text::append_code_point(last, high);
  const int count = static_cast<int>(first.size());
  for (int tail = count - 1; tail >= 1; --tail) {
    const char32_t span = (char32_t{1} << (6 * tail)) - 1;  // what the last `tail` bytes can express
    if ((low & ~span) == (high & ~span)) continue;
    if ((low & span) != 0) {
      append_same_length(pool, low, low | span, out);
      append_same_length(pool, (low | span) + 1, high, out);
      return;
    }
    if ((high & span) != span) {
      append_same_length(pool, low, (high & ~span) - 1, out);
      append_same_length(pool, high & ~span, high, out);
      return;
    }
  }
  std::vector<ExprId> bytes;
  for (int i = 0; i < count; ++i)
    bytes.push_back(pool.bytes(static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])));
  out.push_back(pool.sequence(bytes));
}

void append_utf8(ExpressionPool& pool, const CodeRange& range, std::vector<ExprId>& out) {
  constexpr CodeRange lengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLast}};
  for (const CodeRange& length : lengths) {
    const char32_t low = std::max(range.low, length.low), high = std::min(range.high, length.high);
    if (low <= high) append_same_length(pool, low, high, out);
  }
}

// What JSON does not let stand for itself in a string.
const CodeSet& must_be_escaped() {
  static const CodeSet set({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return set;
}

void append_json(std::string& out, char32_t code) {
  constexpr std::string_view digits = "0123456789abcdef";
  switch (code) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (code >= 0x20) return text::append_code_point(out, code);
  out += "\\u00";
  out += digits[code >> 4];
  out += digits[code & 15];
}

}  // namespace

CodeSet::CodeSet(std::vector<CodeRange> ranges)
    : ranges_(difference(normalised(std::move(ranges)), {kSurrogates})) {}

CodeSet CodeSet::all() { return CodeSet({{0, kLast}}); }

CodeSet CodeSet::of_classes(int classes) {
  std::vector<CodeRange> ranges;
  for (char32_t code = 0; code <= kLast; ++code) {
    if (!(text::char_classes(code) & classes)) continue;
    if (!ranges.empty() && ranges.back().high + 1 == code)
      ranges.back().high = code;
    else
      ranges.push_back({code, code});
  }
  return CodeSet(std::move(ranges));
}

bool CodeSet::contains(char32_t code) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [code](const CodeRange& range) { return range.low <= code && code <= range.high; });
}

CodeSet CodeSet::with(const CodeSet& other) const {
  std::vector<CodeRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(ranges));
}

CodeSet CodeSet::without(const CodeSet& other) const {
  CodeSet result;
  result.ranges_ = difference(ranges_, other.ranges_);
  return result;
}

ExprId one_of(ExpressionPool& pool, const CodeSet& set, Writing writing) {
  std::vector<ExprId> ways;
  const CodeSet themselves = writing == Writing::plain ? set : set.without(must_be_escaped());
  for (const CodeRange& range : themselves.ranges()) append_utf8(pool, range, ways);
  if (writing == Writing::json_string)
    for (const CodeRange& range : must_be_escaped().ranges())
      for (char32_t code = range.low; code <= range.high; ++code)
        if (set.contains(code)) {
          std::string escape;
          append_json(escape, code);
          ways.push_back(pool.text(escape));
        }
  return pool.either(ways);
}

std::string written(std::string_view text, Writing writing) {
  if (writing == Writing::plain) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::read_code_point(text.data() + at);
    append_json(out, point.code);
    at += static_cast<std::size_t>(point.bytes);
  }
  return out;
}

}  // namespace fourfold::constrain
