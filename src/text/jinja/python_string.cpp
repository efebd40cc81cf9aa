#include "text/jinja/python_string.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/utf8.h"
#include "text/jinja/python_text.h"
#include "text/unicode_tables.h"

namespace fourfold::text::jinja {

namespace {

void append_mapped(std::string& out, char32_t code, std::span<const CaseMapping> table) {
  const auto found = std::ranges::lower_bound(table, code, {}, &CaseMapping::from);
  if (found == table.end() || found->from != code) return append_code_point(out, code);
  for (const char32_t to : found->to) {
    if (to != 0) append_code_point(out, to);
  }
}

void append_upper(std::string& out, char32_t code) {
  if (code >= 0x80) return append_mapped(out, code, kUpperCase);
  out += static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code);
}

void append_lower(std::string& out, char32_t code) {
  if (code >= 0x80) return append_mapped(out, code, kLowerCase);
  out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
}

template <class Visit>
void each_code_point(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    visit(point.code, at);
    at += static_cast<std::size_t>(point.bytes);
  }
}

std::size_t last_start(std::string_view text) { return code_point_start(text, text.size() - 1); }

template <class Drop>
std::string_view stripped_if(std::string_view text, Side side, Drop drop) {
  while (side != Side::right && !text.empty()) {
    const CodePoint point = read_code_point(text.data());
    if (!drop(point.code)) break;
    text.remove_prefix(static_cast<std::size_t>(point.bytes));
  }
  while (side != Side::left && !text.empty()) {
    const std::size_t last = last_start(text);
    if (!drop(read_code_point(text.data() + last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

namespace {

// Calls back with what becomes of each character, and where it stood.
template <class Emit>
void each_upper(std::string_view text, Emit emit) {
  std::string out;
  each_code_point(text, [&](char32_t code, std::size_t at) {
    out.clear();
    append_upper(out, code);
    emit(out, at);
  });
}

template <class Emit>
void each_lower(std::string_view text, Emit emit) {
  std::string out;
  // A capital sigma at the end of a word becomes the final form.
  bool letter_before = false;
  each_code_point(text, [&](char32_t code, std::size_t at) {
    out.clear();
    if (code == 0x3A3) {
      const std::string_view rest = text.substr(at + 2);
      const bool letter_after =
          !rest.empty() && (char_classes(read_code_point(rest.data()).code) & kLetter) != 0;
      out += letter_before && !letter_after ? "\u03C2" : "\u03C3";
    } else {
      append_lower(out, code);
    }
    letter_before = (char_classes(code) & kLetter) != 0;
    emit(out, at);
  });
}

// Appends what stands for the character at `at`.
void append_character(TracedText& out, std::string_view bytes, const TracedText& text, std::size_t at) {
  const auto size = static_cast<std::size_t>(read_code_point(text.bytes().data() + at).bytes);
  out.append_for(bytes, text, at, at + size);
}

// Words begin with a capital; `goes_on` says whether a character is inside of a word.
template <class GoesOn>
TracedText capital_words(const TracedText& text, GoesOn goes_on) {
  TracedText out;
  bool inside = false;
  each_code_point(text.bytes(), [&](char32_t code, std::size_t at) {
    std::string character;
    if (inside) {
      append_lower(character, code);
    } else {
      append_upper(character, code);
    }
    append_character(out, character, text, at);
    inside = goes_on(code);
  });
  return out;
}

}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  each_upper(text, [&](const std::string& bytes, std::size_t) { out += bytes; });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  each_lower(text, [&](const std::string& bytes, std::size_t) { out += bytes; });
  return out;
}

TracedText upper(const TracedText& text) {
  TracedText out;
  each_upper(text.bytes(),
             [&](const std::string& bytes, std::size_t at) { append_character(out, bytes, text, at); });
  return out;
}

TracedText lower(const TracedText& text) {
  TracedText out;
  each_lower(text.bytes(),
             [&](const std::string& bytes, std::size_t at) { append_character(out, bytes, text, at); });
  return out;
}

TracedText capitalized(const TracedText& text) {
  if (text.size() == 0) return {};
  const auto first = static_cast<std::size_t>(read_code_point(text.bytes().data()).bytes);
  TracedText out = upper(text.slice(0, first));
  out.append(lower(text.slice(first, text.size())));
  return out;
}

TracedText titled(const TracedText& text) {
  return capital_words(text, [](char32_t code) { return (char_classes(code) & kLetter) != 0; });
}

TracedText headline(const TracedText& text) {
  return capital_words(text, [](char32_t code) {
    return !is_python_space(code) && code != '-' && code != '(' && code != '{' && code != '[' && code != '<';
  });
}

std::string_view stripped(std::string_view text, Side side) {
  return stripped_if(text, side, is_python_space);
}

std::string_view stripped(std::string_view text, std::string_view characters, Side side) {
  std::u32string set;
  each_code_point(characters, [&set](char32_t code, std::size_t) { set += code; });
  std::ranges::sort(set);
  return stripped_if(text, side, [&set](char32_t code) { return std::ranges::binary_search(set, code); });
}

namespace {

// For each beginning of a part, read from the right, how much of it is also its end: what a search may skip.
std::vector<std::size_t> borders_from_right(std::string_view part) {
  std::vector<std::size_t> borders(part.size() + 1, 0);
  const auto at = [part](std::size_t i) { return part[part.size() - 1 - i]; };
  std::size_t length = 0;
  for (std::size_t i = 1; i < part.size(); ++i) {
    while (length > 0 && at(i) != at(length)) length = borders[length];
    if (at(i) == at(length)) ++length;
    borders[i + 1] = length;
  }
  return borders;
}

}  // namespace

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // std::string's own search takes the product of both sizes for "aaa...ab" in "aaaa...".
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_text_last(std::string_view text, std::string_view part) {
  if (part.empty()) return text.size();
  if (part.size() > text.size()) return std::string_view::npos;
  const std::vector<std::size_t> borders = borders_from_right(part);
  std::size_t matched = 0;
  for (std::size_t at = text.size(); at-- > 0;) {
    while (matched > 0 && text[at] != part[part.size() - 1 - matched]) matched = borders[matched];
    if (text[at] == part[part.size() - 1 - matched]) ++matched;
    if (matched == part.size()) return at;
  }
  return std::string_view::npos;
}

std::vector<std::string_view> split_spaces(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::string_view> out;
  const Side near = from_right ? Side::right : Side::left;
  for (text = stripped(text, near); !text.empty(); text = stripped(text, near)) {
    if (most >= 0 && static_cast<std::int64_t>(out.size()) == most) {
      out.emplace_back(text);  // the spaces of its far end stay
      break;
    }
    // The word ends where taking away what is no space ends.
    const std::string_view rest =
        stripped_if(text, near, [](char32_t code) { return !is_python_space(code); });
    out.emplace_back(from_right ? text.substr(rest.size()) : text.substr(0, text.size() - rest.size()));
    text = rest;
  }
  if (from_right) std::ranges::reverse(out);
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> out;
  while (most < 0 || static_cast<std::int64_t>(out.size()) < most) {
    const std::size_t found = from_right ? find_text_last(text, separator) : find_text(text, separator);
    if (found == std::string_view::npos) break;
    const std::string_view before = text.substr(0, found), behind = text.substr(found + separator.size());
    out.emplace_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  out.emplace_back(text);
  if (from_right) std::ranges::reverse(out);
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    const std::size_t end = at;
    at += static_cast<std::size_t>(point.bytes);
    const char32_t c = point.code;
    const bool breaks =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.emplace_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) out.emplace_back(text.substr(start));
  return out;
}

TracedText replaced(const TracedText& text, std::string_view from, const TracedText& to, std::int64_t most) {
  TracedText out;
  std::size_t done = 0;
  if (from.empty()) {
    // Python puts the new text before every character and at the end.
    each_code_point(text.bytes(), [&](char32_t, std::size_t at) {
      if (most == 0) return;
      out.append_slice(text, done, at);
      out.append(to);
      done = at;
      --most;
    });
    out.append_slice(text, done, text.size());
    if (most != 0) out.append(to);
    return out;
  }
  for (; most != 0; --most) {
    const std::size_t found = find_text(text.bytes(), from, done);
    if (found == std::string_view::npos) break;
    out.append_slice(text, done, found);
    out.append(to);
    done = found + from.size();
  }
  out.append_slice(text, done, text.size());
  return out;
}

std::int64_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<std::int64_t>(count_code_points(text)) + 1;
  std::int64_t count = 0;
  for (std::size_t at = find_text(text, part); at != std::string_view::npos;
       at = find_text(text, part, at + part.size()))
    ++count;
  return count;
}

std::int64_t position_of(std::string_view text, std::size_t offset) {
  return static_cast<std::int64_t>(count_code_points(text.substr(0, offset)));
}

std::size_t offset_of(std::string_view text, std::int64_t position) {
  std::size_t at = 0;
  for (; position > 0 && at < text.size(); --position)
    at += static_cast<std::size_t>(read_code_point(text.data() + at).bytes);
  return at;
}

bool all_in_classes(std::string_view text, int classes) {
  bool all = !text.empty();
  each_code_point(text,
                  [&](char32_t code, std::size_t) { all = all && (char_classes(code) & classes) != 0; });
  return all;
}

bool all_spaces(std::string_view text) { return !text.empty() && stripped(text, Side::both).empty(); }

}  // namespace fourfold::text::jinja
