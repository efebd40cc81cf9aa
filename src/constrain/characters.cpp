// Sets of characters and their bytes.
#include "constrain/characters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/json_escape.h"
#include "base/utf8.h"
#include "text/unicode_tables.h"

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

// Characters as sequences of byte ranges. Sequences that end alike share their ends (as one expression, which
// becomes one state): a dot has some ten states, not three times as many.
class Utf8Writer {
 public:
  explicit Utf8Writer(ExpressionPool& pool) : pool_(pool) {}

  void append(const CodeRange& range) {
    constexpr CodeRange lengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLast}};
    for (const CodeRange& length : lengths) {
      const char32_t low = std::max(range.low, length.low), high = std::min(range.high, length.high);
      if (low <= high) append_same_length(low, high);
    }
  }
  std::vector<ExprId> ways;

 private:
  // Both ends have encodings of the same length; split until every byte but the varying ones is fixed or runs
  // over all continuation bytes.
  void append_same_length(char32_t low, char32_t high) {
    std::string first, last;
    append_code_point(first, low);
    append_code_point(last, high);
    const int count = static_cast<int>(first.size());
    for (int tail = count - 1; tail >= 1; --tail) {
      const char32_t span = (char32_t{1} << (6 * tail)) - 1;  // what the last `tail` bytes can express
      if ((low & ~span) == (high & ~span)) continue;
      if ((low & span) != 0) {
        append_same_length(low, low | span);
        append_same_length((low | span) + 1, high);
        return;
      }
      if ((high & span) != span) {
        append_same_length(low, (high & ~span) - 1);
        append_same_length(high & ~span, high);
        return;
      }
    }
    std::optional<ExprId> rest;
    for (int i = count; i-- > 0;)
      rest = followed(static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i]), rest);
    ways.push_back(*rest);
  }

  ExprId followed(std::uint8_t low, std::uint8_t high, std::optional<ExprId> rest) {
    const auto [place, is_new] = known_.try_emplace({low, high, rest});
    if (is_new) place->second = pool_.sequence({pool_.bytes(low, high), rest ? *rest : pool_.empty()});
    return place->second;
  }

  ExpressionPool& pool_;
  std::map<std::tuple<std::uint8_t, std::uint8_t, std::optional<ExprId>>, ExprId> known_;
};

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

const CodeSet& must_be_escaped() {
  static const CodeSet set = [] {
    std::vector<CodeRange> ranges;
    for (char32_t code = 0; code < 0x80; ++code)
      if (needs_json_escape(code)) ranges.push_back({code, code});
    return CodeSet(std::move(ranges));
  }();
  return set;
}

ExprId one_of(ExpressionPool& pool, const CodeSet& set, Writing writing) {
  const CodeSet themselves = writing == Writing::plain ? set : set.without(must_be_escaped());
  if (const auto& ranges = set.ranges();
      ranges.size() == 1 && ranges[0].high < 0x80 && themselves.ranges() == ranges)
    return pool.bytes(static_cast<std::uint8_t>(ranges[0].low), static_cast<std::uint8_t>(ranges[0].high));
  pool.budget().spend(20 * std::ssize(themselves.ranges()));
  Utf8Writer writer(pool);
  std::vector<ExprId>& ways = writer.ways;
  for (const CodeRange& range : themselves.ranges()) writer.append(range);
  if (writing == Writing::json_string)
    for (const CodeRange& range : must_be_escaped().ranges())
      for (char32_t code = range.low; code <= range.high; ++code)
        if (set.contains(code)) ways.push_back(pool.text(json_escape(code)));
  return pool.either(ways);
}

std::string written(std::string_view text, Writing writing) {
  if (writing == Writing::plain) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    const auto bytes = static_cast<std::size_t>(point.bytes);
    if (needs_json_escape(point.code))
      out += json_escape(point.code);
    else
      out += text.substr(at, bytes);
    at += bytes;
  }
  return out;
}

}  // namespace fourfold::constrain
