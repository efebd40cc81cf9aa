#include "text/jinja/python_string.h"

#include <algorithm>
#include <span>

#include "text/jinja/python_text.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

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

std::size_t last_start(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

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

std::string upper(std::string_view text) {
  std::string out;
  each_code_point(text, [&out](char32_t code, std::size_t) { append_upper(out, code); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  // A capital sigma at the end of a word becomes the final form.
  bool letter_before = false;
  each_code_point(text, [&](char32_t code, std::size_t at) {
    if (code == 0x3A3) {
      const std::string_view rest = text.substr(at + 2);
      const bool letter_after =
          !rest.empty() && (char_classes(read_code_point(rest.data()).code) & kLetter) != 0;
      out += letter_before && !letter_after ? "\u03C2" : "\u03C3";
    } else {
      append_lower(out, code);
    }
    letter_before = (char_classes(code) & kLetter) != 0;
  });
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<std::size_t>(read_code_point(text.data()).bytes);
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  each_code_point(text, [&](char32_t code, std::size_t) {
    if (inside) {
      append_lower(out, code);
    } else {
      append_upper(out, code);
    }
    inside = (char_classes(code) & kLetter) != 0;
  });
  return out;
}

std::string_view stripped(std::string_view text, Side side) {
  return stripped_if(text, side, is_python_space);
}

std::string_view stripped(std::string_view text, std::string_view characters, Side side) {
  std::u32string set;
  each_code_point(characters, [&set](char32_t code, std::size_t) { set += code; });
  return stripped_if(text, side, [&set](char32_t code) { return set.find(code) != std::u32string::npos; });
}

std::vector<std::string> split_spaces(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::string> out;
  const Side near = from_right ? Side::right : Side::left;
  text = stripped(text, near);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(out.size()) == most) {
      out.emplace_back(text);  // the spaces of its far end stay
      break;
    }
    std::size_t cut = from_right ? 0 : text.size();
    bool found = false;
    each_code_point(text, [&](char32_t code, std::size_t at) {
      if (!is_python_space(code) || (!from_right && found)) return;
      found = true;
      cut = from_right ? at + static_cast<std::size_t>(read_code_point(text.data() + at).bytes) : at;
    });
    out.emplace_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = stripped(from_right ? text.substr(0, cut) : text.substr(cut), near);
  }
  if (from_right) std::ranges::reverse(out);
  return out;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                  bool from_right) {
  std::vector<std::string> out;
  while (most < 0 || static_cast<std::int64_t>(out.size()) < most) {
    const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    const std::string_view before = text.substr(0, found), behind = text.substr(found + separator.size());
    out.emplace_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  out.emplace_back(text);
  if (from_right) std::ranges::reverse(out);
  return out;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
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

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most) {
  std::string out;
  if (from.empty()) {
    // Python puts the new text before every character and at the end.
    each_code_point(text, [&](char32_t code, std::size_t) {
      if (most != 0) {
        out += to;
        --most;
      }
      append_code_point(out, code);
    });
    return most != 0 ? out + std::string(to) : out;
  }
  while (most != 0) {
    const std::size_t found = text.find(from);
    if (found == std::string_view::npos) break;
    out.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
    --most;
  }
  return out.append(text);
}

std::int64_t count_of(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<std::int64_t>(count_code_points(text)) + 1;
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::int64_t position_of(std::string_view text, std::size_t offset) {
  return static_cast<std::int64_t>(count_code_points(text.substr(0, offset)));
}

bool all_in_classes(std::string_view text, int classes) {
  bool all = !text.empty();
  each_code_point(text,
                  [&](char32_t code, std::size_t) { all = all && (char_classes(code) & classes) != 0; });
  return all;
}

bool all_spaces(std::string_view text) { return !text.empty() && stripped(text, Side::both).empty(); }

}  // namespace fourfold::text::jinja
