#include "constrain/json_values.h"

#include <boost/json/object.hpp>
#include <map>

namespace fourfold::constrain {
namespace {

namespace bj = boost::json;

// With its length, so that no text can look like something else.
void append_text(std::string& out, std::string_view text) {
  out += 's';
  out += std::to_string(text.size());
  out += ':';
  out += text;
}

void append(std::string& out, const bj::value& value, Budget& budget) {
  budget.spend(20);
  switch (value.kind()) {
    case bj::kind::null: out += 'z'; return;
    case bj::kind::bool_: out += value.get_bool() ? 't' : 'f'; return;
    case bj::kind::string:
      budget.spend(static_cast<std::int64_t>(value.get_string().size()) / 4);
      return append_text(out, {value.get_string().data(), value.get_string().size()});
    case bj::kind::array:
      out += '[';
      for (const bj::value& item : value.get_array()) append(out, item, budget);
      out += ']';
      return;
    case bj::kind::object: {
      std::map<std::string_view, const bj::value*> members;
      for (const auto& member : value.get_object())
        members.emplace(std::string_view(member.key().data(), member.key().size()), &member.value());
      out += '{';
      for (const auto& [name, member] : members) {
        budget.spend(20 + static_cast<std::int64_t>(name.size()) / 4);
        append_text(out, name);
        append(out, *member, budget);
      }
      out += '}';
      return;
    }
    default: break;
  }
  const Decimal number = decimal_of(value);
  out += number.negative ? "n-" : "n";
  out += number.digits + "." + number.decimals + ";";
}

}  // namespace

std::string meaning_of(const bj::value& value, Budget& budget) {
  std::string out;
  append(out, value, budget);
  return out;
}

Decimal decimal_of(const bj::value& number) {
  if (number.is_int64()) return Decimal::of(number.get_int64());
  if (number.is_uint64()) return Decimal::of(number.get_uint64());
  return Decimal::of(number.get_double());
}

}  // namespace fourfold::constrain
