#include "text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "base/json_escape.h"
#include "base/utf8.h"
#include "text/merge_sort.h"
#include "text/unicode_tables.h"

namespace fourfold::text::jinja {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

void append_hex(std::string& out, char32_t code, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHexDigits[(code >> shift) & 15];
}

bool is_printable(char32_t code) {
  return code == ' ' || (char_classes(code) & (kLetter | kMark | kNumber | kPunctuation | kSymbol)) != 0;
}

std::string quoted(const std::string& text) {
  const bool doubled = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    const char32_t code = point.code;
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (is_printable(code)) {
      out.append(text, at, static_cast<std::size_t>(point.bytes));
    } else if (code < 0x100) {
      out += "\\x";
      append_hex(out, code, 2);
    } else if (code < 0x10000) {
      out += "\\u";
      append_hex(out, code, 4);
    } else {
      out += "\\U";
      append_hex(out, code, 8);
    }
    at += static_cast<std::size_t>(point.bytes);
  }
  return out += quote;
}

std::string sequence_repr(const Sequence& sequence) {
  if (sequence.kind == Sequence::Kind::generator) return "<generator object>";
  if (sequence.kind == Sequence::Kind::range) {
    const std::string bounds = format("range({}, {}", sequence.start, sequence.stop);
    return sequence.step == 1 ? bounds + ")" : format("{}, {})", bounds, sequence.step);
  }
  std::string out = sequence.kind == Sequence::Kind::tuple ? "(" : "[";
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_repr(sequence.items[i]);
  }
  if (sequence.kind == Sequence::Kind::tuple) return out += sequence.items.size() == 1 ? ",)" : ")";
  out += "]";
  return sequence.kind == Sequence::Kind::view ? format("{}({})", sequence.view_name, out) : out;
}

std::string dict_repr(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.items()) {
    if (out.size() > 1) out += ", ";
    out += to_repr(key) + ": " + to_repr(value);
  }
  return out += "}";
}

void append_json_text(TracedText& out, const TracedText& text, bool ensure_ascii, std::size_t bytes_max) {
  out.append("\"");
  const std::string& bytes = text.bytes();
  std::size_t plain_from = 0;  // what needs no escape is copied in one piece
  std::string escape;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = read_code_point(bytes.data() + at);
    const char32_t code = point.code;
    const std::size_t end = at + static_cast<std::size_t>(point.bytes);
    escape.clear();
    if (needs_json_escape(code)) {
      escape = json_escape(code);
    } else if (ensure_ascii && code > 0x7E && code < 0x10000) {
      escape = "\\u";
      append_hex(escape, code, 4);
    } else if (ensure_ascii && code >= 0x10000) {
      escape = "\\u";
      append_hex(escape, 0xD800 + ((code - 0x10000) >> 10), 4);
      escape += "\\u";
      append_hex(escape, 0xDC00 + ((code - 0x10000) & 0x3FF), 4);
    }
    if (!escape.empty()) {
      out.append_slice(text, plain_from, at);
      out.append_for(escape, text, at, end);
      plain_from = end;
      if (out.size() > bytes_max) throw TemplateFault(format("JSON of more than {} bytes", bytes_max));
    }
    at = end;
  }
  out.append_slice(text, plain_from, bytes.size());
  out.append("\"");
  if (out.size() > bytes_max) throw TemplateFault(format("JSON of more than {} bytes", bytes_max));
}

std::string json_real(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return real_text(number);
}

class JsonText {
 public:
  JsonText(const JsonStyle& style, std::size_t bytes_max) : style_(style), bytes_max_(bytes_max) {}

  void write(const Value& value) {
    if (value.is_none()) {
      out.append("null");
    } else if (value.is_bool()) {
      out.append(value.boolean() ? "true" : "false");
    } else if (value.is_integer()) {
      out.append(std::to_string(value.integer()));
    } else if (value.wide() != nullptr) {
      out.append(value.wide()->digits);
    } else if (value.is_real()) {
      out.append(json_real(value.real()));
    } else if (value.is_text()) {
      append_json_text(out, value.traced(), style_.ensure_ascii, bytes_max_);
    } else if (value.is_dict()) {
      write_dict(*value.dict());
    } else if (value.is_sequence() && (value.sequence()->kind == Sequence::Kind::list ||
                                       value.sequence()->kind == Sequence::Kind::tuple)) {
      write_list(value.sequence()->items);
    } else {
      throw TemplateFault(format("a value of type {} cannot be written as JSON", type_name(value)));
    }
  }

  TracedText out;

 private:
  void write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out.append("[]");
      return;
    }
    out.append("[");
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      write(items[i]);
    }
    close(']');
  }
  void write_dict(const Dict& dict) {
    if (dict.size() == 0) {
      out.append("{}");
      return;
    }
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.items()) members.push_back(&member);
    if (style_.sort_keys) {
      merge_sort(members, [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    }
    out.append("{");
    ++level_;
    bool first = true;
    for (const auto* member : members) {
      separate(first);
      first = false;
      append_json_text(out, key_text(member->first), style_.ensure_ascii, bytes_max_);
      out.append(style_.key_separator);
      write(member->second);
    }
    close('}');
  }
  static TracedText key_text(const Value& key) {
    if (key.is_text()) return key.traced();
    return TracedText(other_key_text(key));
  }
  static std::string other_key_text(const Value& key) {
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.boolean() ? "true" : "false";
    if (key.is_integer() || key.wide() != nullptr) return to_text(key);
    if (key.is_real()) return json_real(key.real());
    throw TemplateFault(format("a key of type {} cannot be written as JSON", type_name(key)));
  }
  void separate(bool first) {
    if (!first) out.append(style_.item_separator);
    break_line();
  }
  void close(char bracket) {
    --level_;
    break_line();
    out.append(std::string_view(&bracket, 1));
  }
  void break_line() {
    if (!style_.indent) return;
    if (out.size() > bytes_max_) throw TemplateFault(format("JSON of more than {} bytes", bytes_max_));
    out.append("\n");
    for (int i = 0; i < level_; ++i) out.append(*style_.indent);
  }

  const JsonStyle& style_;
  std::size_t bytes_max_;
  int level_ = 0;
};

}  // namespace

std::string real_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific).ptr;
  const std::string_view written(digits, static_cast<std::size_t>(end - digits));
  const std::size_t mark = written.find('e');
  int exponent = 0;
  std::from_chars(written.data() + mark + (written[mark + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) {
    // to_chars and Python agree here: a sign and at least two digits.
    return std::string(written);
  }
  char fixed[48];
  const auto fixed_end = std::to_chars(fixed, fixed + sizeof fixed, number, std::chars_format::fixed).ptr;
  std::string out(fixed, fixed_end);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return "";
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.wide() != nullptr) return value.wide()->digits;
  if (value.is_real()) return real_text(value.real());
  if (value.is_text())
    return value.is_markup() ? format("Markup({})", quoted(value.text())) : quoted(value.text());
  if (value.is_sequence()) return sequence_repr(*value.sequence());
  if (value.is_dict()) return dict_repr(*value.dict());
  return format("<{}>", value.callable() ? value.callable()->name() : type_name(value));
}

TracedText to_traced_json(const Value& value, const JsonStyle& style, std::size_t bytes_max) {
  JsonText json(style, bytes_max);
  json.write(value);
  return std::move(json.out);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  return to_traced_json(value, style, static_cast<std::size_t>(-1)).bytes();
}

TracedText escaped(const TracedText& text) {
  TracedText out;
  const auto change = [&](std::string_view to, std::size_t at) { out.append_for(to, text, at, at + 1); };
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text.bytes()[at]) {
      case '&': change("&amp;", at); break;
      case '<': change("&lt;", at); break;
      case '>': change("&gt;", at); break;
      case '\'': change("&#39;", at); break;
      case '"': change("&#34;", at); break;
      default: out.append_slice(text, at, at + 1);
    }
  }
  return out;
}

bool is_python_space(char32_t code) {
  return (code >= 0x1C && code <= 0x1F) || (char_classes(code) & kSpace) != 0;
}

}  // namespace fourfold::text::jinja
