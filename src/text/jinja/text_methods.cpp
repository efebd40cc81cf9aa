// Methods of strings: "abc".split(...), .strip() and their like.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/native.h"
#include "text/jinja/python_string.h"
#include "text/jinja/python_text.h"
#include "text/unicode_tables.h"

namespace fourfold::text::jinja {

namespace {

// Parts of a string as strings of their own.
Value text_list(Evaluator& evaluator, const Value& self, const std::vector<std::string_view>& parts,
                Sequence::Kind kind = Sequence::Kind::list) {
  evaluator.charge_texts(parts.size());
  std::vector<Value> items;
  for (const std::string_view part : parts)
    items.push_back(evaluator.new_text(self.traced().slice(part), self.is_markup()));
  return evaluator.new_list(std::move(items), kind);
}

template <Side kSide>
Value strip(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const bool spaces = bound.or_else(0, None{}).is_none();
  const std::string_view out =
      spaces ? stripped(self.text(), kSide) : stripped(self.text(), bound.text(0), kSide);
  return evaluator.new_text(self.traced().slice(out), self.is_markup());
}

template <TracedText (*kChange)(const TracedText&)>
Value changed(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("the method", arguments, {});
  return evaluator.new_text(kChange(self.traced()), self.is_markup());
}

template <bool kFromRight>
Value split(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::int64_t most = bound.integer_or(1, -1);
  if (bound.or_else(0, None{}).is_none()) {
    return text_list(evaluator, self, split_spaces(self.text(), most, kFromRight));
  }
  if (bound.text(0).empty()) throw TemplateFault("split: the separator is empty");
  return text_list(evaluator, self, split_at(self.text(), bound.text(0), most, kFromRight));
}

Value splitlines(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return text_list(evaluator, self, split_lines(self.text(), bound.flag_or(0, false)));
}

template <bool kFromRight>
Value partition(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"});
  const std::string& separator = bound.text(0);
  if (separator.empty()) throw TemplateFault("partition: the separator is empty");
  const std::string_view text = self.text();
  const std::size_t found = kFromRight ? find_text_last(text, separator) : find_text(text, separator);
  std::vector<std::string_view> parts = {text, "", ""};
  if (found != std::string_view::npos) {
    parts = {text.substr(0, found), text.substr(found, separator.size()),
             text.substr(found + separator.size())};
  } else if (kFromRight) {
    parts = {"", "", text};
  }
  return text_list(evaluator, self, parts, Sequence::Kind::tuple);
}

// The part of the string that find, count, startswith ... look at.
std::string_view window(const Value& self, const Bound& bound, std::size_t start_index) {
  const std::string_view text = self.text();
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  const auto place = [&](std::size_t index, std::int64_t otherwise) {
    if (bound.or_else(index, None{}).is_none()) return otherwise;
    const std::int64_t at = bound.integer(index);
    return std::clamp<std::int64_t>(at < 0 && at >= -size ? at + size : at, 0, size);
  };
  const std::size_t start = offset_of(text, place(start_index, 0)),
                    stop = offset_of(text, place(start_index + 1, size));
  return start <= stop ? text.substr(start, stop - start) : std::string_view();
}

template <bool kAtEnd>
Value affix(Evaluator&, const Value& self, Arguments& arguments) {
  const Bound bound(kAtEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const std::string_view text = window(self, bound, 1);
  const auto matches = [text](const Value& part) {
    if (!part.is_text())
      throw TemplateFault(format("startswith and endswith need a string, not {}", type_name(part)));
    return kAtEnd ? text.ends_with(part.text()) : text.starts_with(part.text());
  };
  const Value& wanted = bound.required(0);
  const bool several = wanted.is_sequence() && wanted.sequence()->kind == Sequence::Kind::tuple;
  return several ? std::ranges::any_of(wanted.sequence()->items, matches) : matches(wanted);
}

template <bool kFromRight, bool kMust>
Value find(Evaluator&, const Value& self, Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"});
  const std::string_view text = window(self, bound, 1);
  const std::size_t found = kFromRight ? find_text_last(text, bound.text(0)) : find_text(text, bound.text(0));
  if (found == std::string_view::npos) {
    if (kMust) throw TemplateFault("index: the substring is not there");
    return -1;
  }
  return position_of(self.text(), static_cast<std::size_t>(text.data() - self.text().data()) + found);
}

Value count(Evaluator&, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"});
  return count_of(window(self, bound, 1), bound.text(0));
}

Value replace(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const auto part = [&](std::size_t i) {
    bound.text(i);  // it must be text
    const TracedText& given = bound.required(i).traced();
    return self.is_markup() ? escaped(given) : given;
  };
  return replaced_text(evaluator, self.traced(), part(0), part(1), bound.integer_or(2, -1), self.is_markup());
}

Value join(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"});
  TracedText out;
  bool first = true;
  for (const Value& item : evaluator.items_of(bound.required(0))) {
    if (!item.is_text())
      throw TemplateFault(format("join: every item must be a string, not {}", type_name(item)));
    evaluator.charge_bytes(self.traced().memory() + item.traced().memory());
    if (!std::exchange(first, false)) out.append(self.traced());
    out.append(self.is_markup() && !item.is_markup() ? escaped(item.traced()) : item.traced());
  }
  return evaluator.new_text(std::move(out), self.is_markup());
}

Value format_method(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  return evaluator.new_text(brace_formatted(evaluator, self.traced(), arguments), self.is_markup());
}

template <bool kSuffix>
Value remove_affix(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"prefix"});
  std::string_view text = self.text();
  const std::string& part = bound.text(0);
  if (kSuffix && text.ends_with(part)) text.remove_suffix(part.size());
  if (!kSuffix && text.starts_with(part)) text.remove_prefix(part.size());
  return evaluator.new_text(self.traced().slice(text), self.is_markup());
}

template <char kAlign>
Value justify(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("ljust, rjust and center", arguments, {"width", "fillchar"});
  const auto used = static_cast<std::int64_t>(count_code_points(self.text()));
  const std::int64_t missing = std::max<std::int64_t>(bound.integer(0) - used, 0);
  const std::string fill = bound.text_or(1, kAlign == 'z' ? "0" : " ");
  if (count_code_points(fill) != 1) throw TemplateFault("the fill character must be one character");
  evaluator.charge_bytes(fill.size() *
                         static_cast<std::size_t>(std::min<std::int64_t>(missing, std::int64_t{1} << 40)));
  // Python's center puts the odd space to the left when the width is odd.
  const std::int64_t left = kAlign == '<'   ? 0
                            : kAlign == '^' ? missing / 2 + (missing & (used + missing) & 1)
                                            : missing;
  const bool signed_number =
      kAlign == 'z' && !self.text().empty() && (self.text()[0] == '-' || self.text()[0] == '+');
  TracedText out = self.traced().slice(0, signed_number ? 1 : 0);
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append_slice(self.traced(), signed_number ? 1 : 0, self.text().size());
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return evaluator.new_text(std::move(out), self.is_markup());
}

template <int kClasses>
Value is_all(Evaluator&, const Value& self, Arguments&) {
  return all_in_classes(self.text(), kClasses);
}
Value is_space(Evaluator&, const Value& self, Arguments&) { return all_spaces(self.text()); }
// Limit: digits outside ASCII count for isnumeric only; no template was seen to ask.
Value is_digit(Evaluator&, const Value& self, Arguments&) {
  return !self.text().empty() &&
         std::ranges::all_of(self.text(), [](char c) { return c >= '0' && c <= '9'; });
}
Value is_ascii(Evaluator&, const Value& self, Arguments&) {
  return std::ranges::all_of(self.text(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
Value is_lower(Evaluator&, const Value& self, Arguments&) {
  return lower(self.text()) == self.text() && upper(self.text()) != self.text();
}
Value is_upper(Evaluator&, const Value& self, Arguments&) {
  return upper(self.text()) == self.text() && lower(self.text()) != self.text();
}

constexpr NativeEntry kMethods[] = {
    {"strip", strip<Side::both>},
    {"lstrip", strip<Side::left>},
    {"rstrip", strip<Side::right>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", affix<false>},
    {"endswith", affix<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"format", format_method},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"ljust", justify<'<'>},
    {"rjust", justify<'>'>},
    {"center", justify<'^'>},
    {"zfill", justify<'z'>},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"title", changed<titled>},
    {"capitalize", changed<capitalized>},
    {"isalpha", is_all<kLetter>},
    {"isalnum", is_all<kLetter | kNumber>},
    {"isnumeric", is_all<kNumber>},
    {"isdigit", is_digit},
    {"isdecimal", is_digit},
    {"isspace", is_space},
    {"isascii", is_ascii},
    {"islower", is_lower},
    {"isupper", is_upper},
};
// Python has them, we do not: a fault, because "undefined" would be a silent difference.
constexpr std::string_view kMissing[] = {"casefold",    "encode",  "expandtabs", "format_map", "isidentifier",
                                         "isprintable", "istitle", "maketrans",  "swapcase",   "translate"};

}  // namespace

Value text_method(const Value& object, std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &NativeEntry::name);
  if (found != std::end(kMethods))
    return std::make_shared<Native>(std::string(name), found->function, object);
  if (std::ranges::find(kMissing, name) != std::end(kMissing)) {
    throw TemplateFault(format("the string method '{}' is not supported", name));
  }
  return {};
}

}  // namespace fourfold::text::jinja
