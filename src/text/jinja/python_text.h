// Python's ways of writing values as text: str(), repr(), json.dumps(), % and str.format. A template's output
// is only right when these are right to the last digit.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace fourfold::text::jinja {

std::string to_text(const Value& value);  // str()
std::string to_repr(const Value& value);  // repr()

// The shortest digits that read back as the same number, in Python's notation: 1.0, 1e-05, 1e+16, nan.
std::string real_text(double number);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // the text of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps; throws TemplateFault for values JSON cannot hold, and beyond so many bytes. Texts keep their
// origin; what is put around them is foreign.
TracedText to_traced_json(const Value& value, const JsonStyle& style, std::size_t bytes_max);
std::string to_json(const Value& value, const JsonStyle& style = {});

// &, <, >, ' and " as MarkupSafe writes them.
TracedText escaped(const TracedText& text);

// Python's isspace: White_Space and the four separators below U+0020.
bool is_python_space(char32_t code);

// Width, alignment and number format of a {} field or a % conversion.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0: by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  bool thousands = false;
  std::int64_t width = 0;
  int precision = -1;
  char type = 0;
};
// "%s: %.2f" % arguments; a dict serves %(name)s.
TracedText percent_formatted(Evaluator& evaluator, const TracedText& pattern, const Value& arguments);
// "{} {name!r:>8}".format(...)
TracedText brace_formatted(Evaluator& evaluator, const TracedText& pattern, const Arguments& arguments);

}  // namespace fourfold::text::jinja
