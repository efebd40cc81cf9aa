// Filters on strings and numbers, and tojson with Hugging Face's meaning (json.dumps, non-ASCII kept, no
// escaping).
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"
#include "text/unicode_tables.h"

namespace fourfold::text::jinja {

namespace {

template <TracedText (*kChange)(const TracedText&)>
Value changed(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("the filter", arguments, {});
  const Value text = soft_text(evaluator, input);
  return evaluator.new_text(kChange(text.traced()), text.is_markup());
}

Value trim(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = soft_text(evaluator, input);
  const bool spaces = bound.or_else(0, None{}).is_none();
  const std::string_view out =
      spaces ? stripped(text.text(), Side::both) : stripped(text.text(), bound.text(0), Side::both);
  return evaluator.new_text(text.traced().slice(out), text.is_markup());
}

Value string(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return soft_text(evaluator, input);
}

Value safe(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return evaluator.new_text(evaluator.text_of(input), true);
}

Value escape(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  return input.is_markup() ? input : evaluator.new_text(escaped(evaluator.text_of(input)), true);
}

}  // namespace

Value replaced_text(Evaluator& evaluator, const TracedText& text, const TracedText& from,
                    const TracedText& to, std::int64_t most, bool markup) {
  const auto hits = static_cast<std::size_t>(count_of(text.bytes(), from.bytes()));
  if (to.memory() > from.size()) evaluator.charge_bytes(text.memory() + hits * (to.memory() - from.size()));
  return evaluator.new_text(replaced(text, from.bytes(), to, most), markup);
}

namespace {

Value replace(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const bool all = bound.or_else(2, None{}).is_none();
  return replaced_text(evaluator, evaluator.text_of(input), evaluator.text_of(bound.required(0)),
                       evaluator.text_of(bound.required(1)), all ? -1 : bound.integer(2), false);
}

Value indent(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (!input.is_text()) {
    if (input.is_undefined()) fail_undefined(input);
    throw TemplateFault(format("indent needs a string, not {}", type_name(input)));
  }
  const Value width = bound.or_else(0, 4);
  if (!width.is_text() && bound.integer_or(0, 4) > 10'000) throw TemplateFault("indent: a width above 10000");
  const TracedText margin =
      width.is_text()
          ? width.traced()
          : TracedText(std::string(
                static_cast<std::size_t>(std::max<std::int64_t>(bound.integer_or(0, 4), 0)), ' '));
  TracedText ended = input.traced();
  ended.append("\n");
  const std::vector<std::string_view> lines = split_lines(ended.bytes(), false);
  evaluator.charge_bytes(ended.memory() + lines.size() * margin.memory());
  TracedText out;
  if (bound.flag_or(1, false)) out.append(margin);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i > 0 && (bound.flag_or(2, false) || !lines[i].empty())) out.append(margin);
    out.append(ended.slice(lines[i]));
  }
  return evaluator.new_text(std::move(out), input.is_markup());
}

Value truncate(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Value& text = input;
  const std::int64_t length = bound.integer_or(0, 255), leeway = bound.integer_or(3, 5);
  const Value end = bound.or_else(2, "...");
  if (!end.is_text()) bound.text(2);  // says so
  const auto end_length = static_cast<std::int64_t>(count_code_points(end.text()));
  if (length < end_length || leeway < 0) throw TemplateFault("truncate: the length is too short");
  const std::int64_t size = input.is_undefined() ? 0 : evaluator.apply_filter("length", input, {}).integer();
  if (size <= length + leeway) return text;
  if (!text.is_text()) throw TemplateFault(format("truncate needs a string, not {}", type_name(input)));
  const Value kept = sliced(evaluator, text, None{}, length - end_length, None{});
  TracedText cut =
      bound.flag_or(1, false) ? kept.traced() : kept.traced().slice(split_at(kept.text(), " ", 1, true)[0]);
  cut.append(end.traced());
  return evaluator.new_text(std::move(cut));
}

Value format_filter(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    throw TemplateFault("format takes plain or named arguments, not both");
  }
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(name, value);
  const Value values = arguments.named.empty() ? Value::tuple(arguments.positional) : Value(std::move(named));
  return evaluator.new_text(percent_formatted(evaluator, evaluator.text_of(input), values));
}

Value wordcount(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  const std::string text = evaluator.text_of(input).bytes();
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = read_code_point(text.data() + at);
    const bool word = point.code == '_' || (char_classes(point.code) & (kLetter | kNumber)) != 0;
    words += word && !inside;
    inside = word;
    at += static_cast<std::size_t>(point.bytes);
  }
  return words;
}

Value center(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  return evaluator.call(
      text_method(soft_text(evaluator, input), "center"),
      {arguments.positional.empty() ? std::vector<Value>{80} : arguments.positional, arguments.named});
}

std::optional<double> parsed_real(std::string_view text) {
  text = stripped(text, Side::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  double out = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
    return std::nullopt;
  return out;
}

std::optional<std::int64_t> parsed_integer(std::string_view text, int base) {
  text = stripped(text, Side::both);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char* prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : nullptr;
  if (prefix != nullptr && text.starts_with(prefix)) text.remove_prefix(2);
  std::uint64_t out = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out, base);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size() || out >> 63)
    return std::nullopt;
  return negative ? -static_cast<std::int64_t>(out) : static_cast<std::int64_t>(out);
}

Value to_integer(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const std::int64_t base = bound.integer_or(1, 10);
  if (base < 2 || base > 36) throw TemplateFault("int: the base is not between 2 and 36");
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.wide() != nullptr) return input;
  std::optional<double> real;
  if (input.is_text()) {
    if (const auto whole = parsed_integer(input.text(), static_cast<int>(base))) return *whole;
    real = parsed_real(input.text());
  } else if (input.is_real()) {
    real = input.real();
  }
  if (!real || !std::isfinite(*real)) return bound.or_else(0, 0);
  if (std::fabs(*real) >= 0x1p63) throw TemplateFault("an integer grows beyond 64 bits");
  return static_cast<std::int64_t>(*real);
}

Value to_real(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (input.is_undefined()) fail_undefined(input);
  if (input.is_number()) return input.number();
  const auto real = input.is_text() ? parsed_real(input.text()) : std::nullopt;
  return real ? Value(*real) : bound.or_else(0, 0.0);
}

Value absolute(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (input.is_real()) return std::fabs(input.real());
  const Value minus = negated(input);
  return minus.integer() > 0 ? minus : Value(input.integer());
}

Value round(Evaluator&, const Value& input, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::int64_t precision = bound.integer_or(0, 0);
  const std::string method = bound.text_or(1, "common");
  if (precision < 0 || precision > 20) throw TemplateFault("round: the precision is not between 0 and 20");
  if (!input.is_number()) {
    if (input.is_undefined()) fail_undefined(input);
    throw TemplateFault(format("round needs a number, not {}", type_name(input)));
  }
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = input.number() * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  if (method != "common") throw TemplateFault(format("round: the method '{}' is unknown", method));
  if (!input.is_real()) return input.integer();
  if (!std::isfinite(input.real())) return input;
  // The decimal digits are rounded from the exact value, halves to even, as Python does.
  char digits[400];
  const auto end = std::to_chars(digits, digits + sizeof digits, input.real(), std::chars_format::fixed,
                                 static_cast<int>(precision))
                       .ptr;
  double out = 0;
  std::from_chars(digits, end, out);
  return out;
}

Value tojson(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag_or(0, false);
  style.sort_keys = bound.flag_or(3, false);
  const Value indent = bound.or_else(1, None{});
  if (indent.is_text()) {
    style.indent = indent.text();
  } else if (!indent.is_none()) {
    if (bound.integer(1) > 1000) throw TemplateFault("tojson: an indent above 1000");
    style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(bound.integer(1), 0)), ' ');
  }
  if (style.indent) style.item_separator = ',';
  if (const Value separators = bound.or_else(2, None{}); !separators.is_none()) {
    const std::vector<Value> pair = evaluator.items_of(separators);
    if (pair.size() != 2) throw TemplateFault("tojson: separators are two strings");
    style.item_separator = to_text(pair[0]);
    style.key_separator = to_text(pair[1]);
  }
  if (input.is_undefined()) fail_undefined(input);
  evaluator.charge_look(input.weight());
  return evaluator.new_text(to_traced_json(input, style, evaluator.output_bytes_max()));
}

Value urlencode(Evaluator& evaluator, const Value& input, Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (input.is_dict() || input.is_sequence())
    throw TemplateFault("urlencode of lists and dicts is not supported");
  const TracedText text = evaluator.text_of(input);
  TracedText out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    static constexpr std::string_view digits = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    out.append_for(plain ? std::string(1, c) : std::string{'%', digits[byte >> 4], digits[byte & 15]}, text,
                   at, at + 1);
  }
  return evaluator.new_text(std::move(out));
}

constexpr NativeEntry kFilters[] = {
    {"abs", absolute},
    {"capitalize", changed<capitalized>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"float", to_real},
    {"format", format_filter},
    {"indent", indent},
    {"int", to_integer},
    {"lower", changed<lower>},
    {"replace", replace},
    {"round", round},
    {"safe", safe},
    {"string", string},
    {"title", changed<headline>},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", changed<upper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
};

}  // namespace

std::span<const NativeEntry> text_filters() { return kFilters; }

}  // namespace fourfold::text::jinja
