// % and str.format of Python, for the conversions templates use.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "base/utf8.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"

namespace fourfold::text::jinja {

namespace {

constexpr std::int64_t kWidthMax = 10'000;
constexpr int kPrecisionMax = 100;

std::string grouped(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

bool is_float(const Value& value) { return value.is_real() && value.wide() == nullptr; }

// As they stand behind its sign.
std::string magnitude_digits(const Value& value, int base) {
  if (const WideInteger* wide = value.wide()) {
    if (base != 10)
      throw TemplateFault(format("an integer beyond 64 bits cannot be written in base {}", base));
    return wide->digits.substr(wide->digits.starts_with('-') ? 1 : 0);
  }
  const auto bits = static_cast<std::uint64_t>(value.integer());
  const std::uint64_t magnitude = value.integer() < 0 ? 0 - bits : bits;
  char digits[72];
  const auto end = std::to_chars(digits, digits + sizeof digits, magnitude, base).ptr;
  return std::string(digits, end);
}

// Without its sign.
std::string integer_digits(const Value& value, const FormatSpec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  std::string out = magnitude_digits(value, base);
  // A precision, which only % lets through, is the least number of digits.
  if (const auto least = static_cast<std::size_t>(std::max(spec.precision, 0)); out.size() < least)
    out.insert(0, least - out.size(), '0');
  if (spec.thousands && base == 10) out = grouped(out);
  if (spec.alternate && base != 10) out = (base == 16 ? "0x" : base == 8 ? "0o" : "0b") + out;
  if (spec.type == 'X') {
    for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  }
  return out;
}

std::string real_digits(double magnitude, const FormatSpec& spec) {
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  if (spec.type == 0 && spec.precision < 0) return real_text(magnitude);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const char type = spec.type == 0 ? 'g' : spec.type == '%' ? 'f' : static_cast<char>(spec.type | 32);
  const auto style = type == 'e'   ? std::chars_format::scientific
                     : type == 'f' ? std::chars_format::fixed
                                   : std::chars_format::general;
  char digits[512];
  const double shown = spec.type == '%' ? magnitude * 100 : magnitude;
  const auto result = std::to_chars(digits, digits + sizeof digits, shown, style,
                                    type == 'g' && precision == 0 ? 1 : precision);
  if (result.ec != std::errc()) throw TemplateFault("a number has too many digits to format");
  std::string out(digits, result.ptr);
  // Without a type Python keeps one digit behind the point.
  if (spec.type == 0 && out.find_first_of(".e") == std::string::npos) out += ".0";
  if (spec.thousands) {
    const std::size_t whole = out.find_first_of(".e");
    out = grouped(out.substr(0, whole)) + (whole == std::string::npos ? "" : out.substr(whole));
  }
  return spec.type == '%' ? out + "%" : out;
}

TracedText padded(const std::string& sign, const TracedText& body, const FormatSpec& spec,
                  char default_align) {
  const char align = spec.align != 0 ? spec.align : spec.zero ? '=' : default_align;
  const std::string fill = spec.zero && spec.align == 0 ? "0" : spec.fill;
  const auto used = static_cast<std::int64_t>(count_code_points(sign) + count_code_points(body.bytes()));
  const std::int64_t missing = spec.width > used ? spec.width - used : 0;
  TracedText out;
  const auto repeat = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) out.append(fill);
  };
  const std::int64_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  repeat(before);
  out.append(sign);
  if (align == '=') repeat(missing);
  out.append(body);
  if (align != '=') repeat(missing - before);
  return out;
}

std::int64_t read_number(std::string_view text, std::size_t& at, std::int64_t most, std::string_view what) {
  std::int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > most) throw TemplateFault(format("a {} above {} is not allowed", what, most));
  }
  return number;
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const auto first = static_cast<std::size_t>(read_code_point(text.data()).bytes);
    if (text.size() > first && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
  if (take('+'))
    spec.sign = '+';
  else if (take(' '))
    spec.sign = ' ';
  else
    take('-');
  spec.alternate = take('#');
  spec.zero = take('0');
  spec.width = read_number(text, at, kWidthMax, "width");
  spec.thousands = take(',');
  if (take('.')) spec.precision = static_cast<int>(read_number(text, at, kPrecisionMax, "precision"));
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size() ||
      std::string_view("\0bcdeEfFgGnosxX%", 16).find(spec.type) == std::string_view::npos) {
    throw TemplateFault(format("format specification '{}' is not supported", text));
  }
  return spec;
}

// Whether a number is written as an integer: as is asked for, or as it is.
bool writes_integer(const Value& value, const FormatSpec& spec) {
  if (spec.type == 0 || spec.type == 'n') return !is_float(value);
  return std::string_view("dxXob").find(spec.type) != std::string_view::npos;
}

TracedText formatted(Evaluator& evaluator, const Value& value, const FormatSpec& spec) {
  const bool wants_text = spec.type == 's' || (spec.type == 0 && !value.is_integer() && !value.is_real());
  if (wants_text) {
    TracedText text = evaluator.text_of(value);
    if (spec.precision >= 0) text.cut(offset_of(text.bytes(), spec.precision));
    return padded("", text, spec, '<');
  }
  if (!value.is_number()) {
    throw TemplateFault(
        format("a value of type {} cannot be formatted as '{}'", type_name(value), spec.type));
  }
  const bool as_integer = writes_integer(value, spec);
  if (as_integer && is_float(value)) {
    throw TemplateFault(format("a float cannot be formatted as '{}'", spec.type));
  }
  const bool negative = std::signbit(value.number());
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (!as_integer) return padded(sign, TracedText(real_digits(std::fabs(value.number()), spec)), spec, '>');
  return padded(sign, TracedText(integer_digits(value, spec)), spec, '>');
}

Value repr_of(Evaluator& evaluator, const Value& value) {
  evaluator.charge_look(value.weight());
  return Value(to_repr(value));
}

// One % conversion; `at` stands behind the percent sign.
class PercentReader {
 public:
  PercentReader(Evaluator& evaluator, std::string_view pattern, const Value& arguments)
      : evaluator_(evaluator), pattern_(pattern), arguments_(arguments) {
    const Sequence* items = arguments.sequence();
    tuple_ = items != nullptr && items->kind == Sequence::Kind::tuple ? items : nullptr;
  }

  TracedText conversion(std::size_t& at) {
    FormatSpec spec;
    std::optional<Value> named;
    if (at < pattern_.size() && pattern_[at] == '(') {
      const std::size_t close = pattern_.find(')', at);
      if (close == std::string_view::npos || !arguments_.is_dict())
        throw TemplateFault("a %(name) needs a dict");
      const Value* found = arguments_.dict()->find(pattern_.substr(at + 1, close - at - 1));
      if (found == nullptr)
        throw TemplateFault(format("no value for %({})", pattern_.substr(at + 1, close - at - 1)));
      named = *found;
      at = close + 1;
    }
    for (; at < pattern_.size(); ++at) {
      const char c = pattern_[at];
      if (c == '-')
        spec.align = '<';
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '0')
        spec.zero = true;
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    spec.width = read_number(pattern_, at, kWidthMax, "width");
    if (at < pattern_.size() && pattern_[at] == '.') {
      ++at;
      spec.precision = static_cast<int>(read_number(pattern_, at, kPrecisionMax, "precision"));
    }
    if (at == pattern_.size()) throw TemplateFault("a % conversion is incomplete");
    const char type = pattern_[at++];
    if (type == '%') return TracedText("%");
    return converted(named ? *named : next_argument(), type, spec);
  }

  void check_all_used() const {
    // Lists, dicts and undefined pass for mappings in Python, of which nothing need be used.
    const bool mapping = arguments_.is_dict() || arguments_.is_sequence() || arguments_.is_undefined();
    const bool left = tuple_ != nullptr ? used_ < tuple_->items.size() : used_ == 0 && !mapping;
    if (left) throw TemplateFault("not all arguments were used by the % pattern");
  }

 private:
  Value next_argument() {
    const std::size_t count = tuple_ != nullptr ? tuple_->items.size() : 1;
    if (used_ == count) throw TemplateFault("not enough arguments for the % pattern");
    return tuple_ != nullptr ? tuple_->items[used_++] : (++used_, arguments_);
  }

  TracedText converted(const Value& value, char type, FormatSpec spec) {
    if (type == 's' || type == 'r') {
      spec.type = 's';
      spec.zero = false;
      if (spec.align == 0) spec.align = '>';
      return formatted(evaluator_, type == 'r' ? repr_of(evaluator_, value) : value, spec);
    }
    if (spec.align == '<') spec.zero = false;
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (spec.type == 'd' && is_float(value) && !(std::fabs(value.real()) < 0x1p63))
      throw TemplateFault("%d is given a number beyond 64 bits");
    if (spec.type == 'd' && is_float(value))
      return formatted(evaluator_, Value(static_cast<std::int64_t>(value.real())), spec);
    if (std::string_view("dxXofFeEgG").find(spec.type) == std::string_view::npos) {
      throw TemplateFault(format("the conversion %{} is not supported", type));
    }
    return formatted(evaluator_, value, spec);
  }

  Evaluator& evaluator_;
  std::string_view pattern_;
  const Value& arguments_;
  const Sequence* tuple_;
  std::size_t used_ = 0;
};

}  // namespace

TracedText percent_formatted(Evaluator& evaluator, const TracedText& pattern, const Value& arguments) {
  const std::string& text = pattern.bytes();
  PercentReader reader(evaluator, text, arguments);
  TracedText out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('%', at), text.size());
    out.append_slice(pattern, at, end);
    at = end;
    if (at == text.size()) break;
    const TracedText part = reader.conversion(++at);
    evaluator.charge_bytes(part.memory());
    out.append(part);
  }
  reader.check_all_used();
  return out;
}

namespace {

const Value& brace_argument(std::string_view name, const Arguments& arguments, std::size_t& next) {
  std::size_t index = 0;
  const bool numbered = name.empty() || std::from_chars(name.data(), name.data() + name.size(), index).ptr ==
                                            name.data() + name.size();
  if (numbered) {
    if (name.empty()) index = next++;
    if (index >= arguments.positional.size()) throw TemplateFault(format("format has no argument {}", index));
    return arguments.positional[index];
  }
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return value;
  }
  throw TemplateFault(format("format has no argument '{}'", name));
}

TracedText brace_field(Evaluator& evaluator, std::string_view field, const Arguments& arguments,
                       std::size_t& next) {
  const std::size_t name_end = std::min(field.find_first_of("!:"), field.size());
  Value value = brace_argument(field.substr(0, name_end), arguments, next);
  std::string_view rest = field.substr(name_end);
  if (rest.size() >= 2 && rest[0] == '!') {
    if (rest[1] != 'r' && rest[1] != 's')
      throw TemplateFault(format("the conversion !{} is not supported", rest[1]));
    value = rest[1] == 'r' ? repr_of(evaluator, value) : Value(evaluator.text_of(value));
    rest.remove_prefix(2);
  }
  if (!rest.empty() && rest[0] == ':') rest.remove_prefix(1);
  const FormatSpec spec = parse_spec(rest);
  if (spec.precision >= 0 && value.is_number() && writes_integer(value, spec))
    throw TemplateFault("format: a precision is not allowed for an integer");
  return formatted(evaluator, value, spec);
}

}  // namespace

TracedText brace_formatted(Evaluator& evaluator, const TracedText& pattern, const Arguments& arguments) {
  const std::string& text = pattern.bytes();
  TracedText out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append_slice(pattern, at, brace);
    at = brace;
    if (at == text.size()) break;
    const char c = text[at];
    if (at + 1 < text.size() && text[at + 1] == c) {
      out.append_slice(pattern, at, at + 1);
      at += 2;
      continue;
    }
    const std::size_t close = text.find('}', at);
    if (c == '}' || close == std::string::npos) throw TemplateFault("format has a single brace");
    evaluator.charge(1 + static_cast<std::int64_t>(arguments.named.size()));
    const TracedText part =
        brace_field(evaluator, std::string_view(text).substr(at + 1, close - at - 1), arguments, next);
    evaluator.charge_bytes(part.memory());
    out.append(part);
    at = close + 1;
  }
  return out;
}

}  // namespace fourfold::text::jinja
