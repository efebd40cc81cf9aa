#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace fourfold::text {

namespace {

constexpr std::array<std::uint8_t, 128> ascii_classes() {
  std::array<std::uint8_t, 128> table{};
  for (unsigned c = 33; c < 127; ++c) table[c] = kPunctuation;
  for (const char c : {'$', '+', '<', '=', '>', '^', '`', '|', '~'})
    table[static_cast<unsigned>(c)] = kSymbol;
  for (unsigned c = '0'; c <= '9'; ++c) table[c] = kNumber;
  for (unsigned c = 'A'; c <= 'Z'; ++c) table[c] = kUpper;
  for (unsigned c = 'a'; c <= 'z'; ++c) table[c] = kLower;
  for (unsigned c = 9; c <= 13; ++c) table[c] = kSpace;
  table[32] = kSpace;
  return table;
}
constexpr auto kAscii = ascii_classes();

// A position in the text and the class of the character there.
class Cursor {
 public:
  Cursor(const char* at, const char* end) : at_(at), end_(end) { look(); }

  const char* at() const { return at_; }
  bool done() const { return at_ == end_; }
  int classes() const { return classes_; }  // 0 at the end
  char byte() const { return done() ? '\0' : *at_; }
  char32_t code() const { return done() ? 0 : read_code_point(at_).code; }
  bool is(int classes) const { return (classes_ & classes) != 0; }
  bool is_line_break() const { return !done() && (*at_ == '\r' || *at_ == '\n'); }

  void step() {
    at_ += bytes_;
    look();
  }
  void skip(int classes) {
    while (is(classes)) step();
  }
  void skip_line_breaks(bool slashes = false) {
    while (is_line_break() || (slashes && byte() == '/')) step();
  }
  // Characters of none of the classes.
  void skip_others(int classes) {
    while (!done() && !is(classes)) step();
  }

 private:
  void look() {
    if (at_ == end_) {
      classes_ = 0;
      return;
    }
    const auto lead = static_cast<unsigned char>(*at_);
    if (lead < 0x80) {
      bytes_ = 1;
      classes_ = kAscii[lead];
    } else {
      const CodePoint point = read_code_point(at_);
      bytes_ = point.bytes;
      classes_ = char_classes(point.code);
    }
  }

  const char* at_;
  const char* end_;
  int bytes_ = 0;
  int classes_ = 0;
};

// Bytes of 's 't 'm 'd 're 've 'll at the cursor, 0 if none. Ignoring case, U+017F (long s) is an s too.
std::size_t contraction_bytes(Cursor cursor, bool ignore_case) {
  if (cursor.byte() != '\'') return 0;
  const char* start = cursor.at();
  cursor.step();
  if (cursor.done()) return 0;
  const auto letter = [ignore_case](const Cursor& c) {
    const char byte = c.byte();
    return ignore_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
  };
  if (ignore_case && cursor.code() == 0x17F) return 3;
  const char first = letter(cursor);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  cursor.step();
  if (cursor.done()) return 0;
  const char second = letter(cursor);
  const bool pair =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return pair ? static_cast<std::size_t>(cursor.at() + 1 - start) : 0;
}

// The three alternatives that end every expression: \s*[\r\n]+ (left out by GPT-2), \s+(?!\S) and \s+.
const char* match_spaces(Cursor cursor, bool line_breaks_first) {
  const char* after_break = nullptr;
  const char* last = cursor.at();
  while (cursor.is(kSpace)) {
    last = cursor.at();
    const bool line_break = cursor.is_line_break();
    cursor.step();
    if (line_break && line_breaks_first) after_break = cursor.at();
  }
  if (after_break != nullptr) return after_break;
  return cursor.done() ? cursor.at() : last;
}

// A run of spaces before other text leaves its last space to that text, unless it is the only one.
const char* match_spaces_or_one(const Cursor& start, bool line_breaks_first) {
  const char* end = match_spaces(start, line_breaks_first);
  if (end != start.at()) return end;
  Cursor one = start;
  one.step();
  return one.at();
}

const char* match_numbers(Cursor cursor, int digits_max) {
  for (int i = 0; i < digits_max && cursor.is(kNumber); ++i) cursor.step();
  return cursor.at();
}

const char* match_words(const SplitRule& rule, const Cursor& start) {
  if (const std::size_t bytes = contraction_bytes(start, true)) return start.at() + bytes;
  const int word = rule.marks_join ? kLetter | kMark : kLetter;
  Cursor cursor = start;
  if (!cursor.is(kLetter | kNumber) && !cursor.is_line_break()) cursor.step();
  if (cursor.is(word)) {
    cursor.skip(word);
    return cursor.at();
  }
  cursor = start;
  if (cursor.is(word)) {
    cursor.skip(word);
    return cursor.at();
  }
  if (cursor.is(kNumber)) return match_numbers(cursor, rule.digits_max);
  const int not_other = kSpace | kNumber | word;
  if (cursor.byte() == ' ') cursor.step();
  if (!cursor.done() && !cursor.is(not_other)) {
    cursor.skip_others(not_other);
    cursor.skip_line_breaks();
    return cursor.at();
  }
  return match_spaces_or_one(start, true);
}

constexpr int kUpperPart = kUpper | kOtherLetter | kMark;
constexpr int kLowerPart = kLower | kOtherLetter | kMark;

// [upper part]*[lower part]+ from the cursor; null if it does not match. When nothing lower follows the upper
// run, the expression gives back characters until one can serve as the lower part.
const char* match_upper_lower(Cursor cursor) {
  const char* after_shared = nullptr;
  while (cursor.is(kUpperPart)) {
    const bool shared = cursor.is(kLowerPart);
    cursor.step();
    if (shared) after_shared = cursor.at();
  }
  if (!cursor.is(kLowerPart)) return after_shared;
  cursor.skip(kLowerPart);
  return cursor.at();
}

// [upper part]+[lower part]*
const char* match_upper(Cursor cursor) {
  if (!cursor.is(kUpperPart)) return nullptr;
  cursor.skip(kUpperPart);
  cursor.skip(kLowerPart);
  return cursor.at();
}

const char* match_cased_words(const SplitRule& rule, const Cursor& start, const char* end) {
  Cursor after_prefix = start;
  const bool prefix = !start.is(kLetter | kNumber) && !start.is_line_break();
  if (prefix) after_prefix.step();
  const char* word = prefix ? match_upper_lower(after_prefix) : nullptr;
  if (word == nullptr) word = match_upper_lower(start);
  if (word == nullptr && prefix) word = match_upper(after_prefix);
  if (word == nullptr) word = match_upper(start);
  if (word != nullptr) return rule.contractions ? word + contraction_bytes(Cursor(word, end), true) : word;
  if (start.is(kNumber)) return match_numbers(start, rule.digits_max);
  Cursor cursor = start;
  if (cursor.byte() == ' ') cursor.step();
  if (!cursor.done() && !cursor.is(kSpace | kLetter | kNumber)) {
    cursor.skip_others(kSpace | kLetter | kNumber);
    cursor.skip_line_breaks(true);
    return cursor.at();
  }
  return match_spaces_or_one(start, true);
}

const char* match_gpt2(const Cursor& start) {
  if (const std::size_t bytes = contraction_bytes(start, false)) return start.at() + bytes;
  Cursor cursor = start;
  if (cursor.byte() == ' ') cursor.step();
  if (cursor.is(kLetter)) {
    cursor.skip(kLetter);
    return cursor.at();
  }
  if (cursor.is(kNumber)) {
    cursor.skip(kNumber);
    return cursor.at();
  }
  if (!cursor.done() && !cursor.is(kSpace)) {
    cursor.skip_others(kSpace | kLetter | kNumber);
    return cursor.at();
  }
  return match_spaces_or_one(start, false);
}

bool is_ascii_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

// Null where nothing matches: control and unassigned characters.
const char* match_deepseek_words(const Cursor& start) {
  Cursor cursor = start;
  const bool ascii_mark = start.is(kPunctuation | kSymbol) && static_cast<unsigned char>(start.byte()) < 0x80;
  if (ascii_mark) {
    cursor.step();
    if (is_ascii_letter(cursor.byte())) {
      while (is_ascii_letter(cursor.byte())) cursor.step();
      return cursor.at();
    }
  }
  cursor = start;
  if (!cursor.is(kLetter | kPunctuation | kSymbol) && !cursor.is_line_break()) cursor.step();
  if (!cursor.is(kLetter | kMark)) cursor = start;
  if (cursor.is(kLetter | kMark)) {
    cursor.skip(kLetter | kMark);
    return cursor.at();
  }
  cursor = start;
  if (cursor.byte() == ' ') cursor.step();
  if (cursor.is(kPunctuation | kSymbol)) {
    cursor.skip(kPunctuation | kSymbol);
    cursor.skip_line_breaks();
    return cursor.at();
  }
  return start.is(kSpace) ? match_spaces_or_one(start, true) : nullptr;
}

bool is_cjk(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF);
}

const char* match_cjk_run(Cursor cursor) {
  const char* start = cursor.at();
  while (!cursor.done() && static_cast<unsigned char>(cursor.byte()) >= 0xE3 && is_cjk(cursor.code()))
    cursor.step();
  return cursor.at() == start ? nullptr : cursor.at();
}

// The end of what the rule matches at the cursor, null where it matches nothing.
const char* match_at(const SplitRule& rule, const Cursor& cursor, const char* end) {
  switch (rule.kind) {
    case SplitRule::Kind::words: return match_words(rule, cursor);
    case SplitRule::Kind::cased_words: return match_cased_words(rule, cursor, end);
    case SplitRule::Kind::gpt2: return match_gpt2(cursor);
    case SplitRule::Kind::deepseek_words: return match_deepseek_words(cursor);
    case SplitRule::Kind::cjk_runs: return match_cjk_run(cursor);
    case SplitRule::Kind::number_groups:
      return cursor.is(kNumber) ? match_numbers(cursor, rule.digits_max) : nullptr;
  }
  return nullptr;
}

}  // namespace

std::optional<SplitRule> known_split_rule(std::string_view expression) {
  using Kind = SplitRule::Kind;
  struct Known {
    std::string_view expression;
    SplitRule rule;
  };
  static const Known known[] = {
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {.kind = Kind::words, .digits_max = 1}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+)"
       R"(|\s+(?!\S)|\s+)",
       {.kind = Kind::words, .digits_max = 1, .marks_join = true}},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {.kind = Kind::words, .digits_max = 3}},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {.kind = Kind::cased_words, .digits_max = 3}},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
       R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
       R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       {.kind = Kind::cased_words, .digits_max = 1, .contractions = false}},
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {.kind = Kind::gpt2}},
      {R"(\p{N}{1,3})", {.kind = Kind::number_groups, .digits_max = 3}},
      {"[一-龥\u3040-ゟ゠-ヿ]+", {.kind = Kind::cjk_runs}},
      // The line breaks stand in the file as characters, not as escapes.
      {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
       "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
       {.kind = Kind::deepseek_words}},
  };
  for (const Known& row : known) {
    if (row.expression == expression) return row.rule;
  }
  return std::nullopt;
}

void split_pieces(const SplitRule& rule, std::string_view text, std::vector<std::size_t>& ends) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto emit = [&](const char* piece_end) {
    const auto offset = static_cast<std::size_t>(piece_end - begin);
    if (offset > (ends.empty() ? 0 : ends.back())) ends.push_back(offset);
  };
  const char* at = begin;
  while (at != end) {
    Cursor cursor(at, end);
    const char* piece_end = match_at(rule, cursor, end);
    if (piece_end != nullptr) {
      emit(at);  // what stood unmatched before it is a piece of its own
      emit(piece_end);
      at = piece_end;
    } else {
      cursor.step();
      at = cursor.at();
    }
  }
  emit(end);
}

void PreTokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  ends.clear();
  if (text.empty()) return;
  if (rules_.empty()) {
    ends.push_back(text.size());
    return;
  }
  split_pieces(rules_[0], text, ends);
  std::vector<std::size_t> finer, inner;
  for (std::size_t i = 1; i < rules_.size(); ++i) {
    finer.clear();
    std::size_t start = 0;
    for (const std::size_t end : ends) {
      inner.clear();
      split_pieces(rules_[i], text.substr(start, end - start), inner);
      for (const std::size_t offset : inner) finer.push_back(start + offset);
      start = end;
    }
    ends.swap(finer);
  }
}

}  // namespace fourfold::text
