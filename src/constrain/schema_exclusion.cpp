// Whether two alternatives can both hold: what oneOf needs to know.
#include <algorithm>

#include "constrain/json_values.h"
#include "constrain/schema_document.h"

namespace fourfold::constrain {
namespace {

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

bool nothing_in_common(const std::set<std::string>* a, const std::set<std::string>* b, Budget& budget) {
  if (!a || !b) return false;
  budget.spend(20 + 8 * static_cast<std::int64_t>(a->size() + b->size()));
  auto left = a->begin();
  auto right = b->begin();
  while (left != a->end() && right != b->end()) {
    if (*left == *right) return false;
    ++(*left < *right ? left : right);
  }
  return true;
}

}  // namespace

const SchemaDocument::Texts* SchemaDocument::constants(const bj::object& schema) {
  const auto [place, is_new] = constants_.try_emplace(&schema);
  if (!is_new) return place->second.get();
  const bj::value* only = member(schema, "const");
  const bj::value* list = member(schema, "enum");
  if (only || (list && list->is_array())) place->second = std::make_unique<Texts>();
  if (only)
    place->second->insert(meaning_of(*only, budget_));
  else if (place->second)
    for (const bj::value& value : list->get_array()) {
      budget_.spend(100);
      place->second->insert(meaning_of(value, budget_));
    }
  return place->second.get();
}

const SchemaDocument::Texts* SchemaDocument::constants(const Conjunction& parts) {
  for (const bj::object* part : parts)
    if (const Texts* found = constants(*part)) return found;
  return nullptr;
}

const SchemaDocument::Texts* SchemaDocument::constants_of_member(const Conjunction& parts,
                                                                 std::string_view name) {
  for (const bj::object* part : parts) {
    budget_.spend(20);
    const bj::value* properties = member(*part, "properties");
    const bj::value* property =
        properties && properties->is_object() ? member(properties->get_object(), name) : nullptr;
    if (!property) continue;
    property = resolved(property);
    if (!property->is_object()) continue;
    if (const Texts* found = constants(property->get_object())) return found;
  }
  return nullptr;
}

const SchemaDocument::Texts& SchemaDocument::required(const bj::object& schema) {
  auto& names = required_[&schema];
  if (names) return *names;
  names = std::make_unique<Texts>();
  if (const bj::value* list = member(schema, "required"); list && list->is_array())
    for (const bj::value& name : list->get_array()) {
      budget_.spend(60);
      if (name.is_string()) names->insert(std::string(view(name.get_string())));
    }
  return *names;
}

// As in what is written: without "type", keywords of objects mean an object.
SchemaDocument::Way SchemaDocument::way_of(Conjunction parts) {
  unsigned bits = kAllTypes;
  bool is_said = false, speaks_of_members = false;
  for (const bj::object* part : parts) {
    budget_.spend(60);
    bits &= types_of(*this, *part);
    is_said |= member(*part, "type") || member(*part, "enum") || member(*part, "const");
    speaks_of_members |= member(*part, "properties") || member(*part, "required");
  }
  const bool means_object = !is_said && speaks_of_members;
  return {std::move(parts), means_object ? kObjectType : bits, means_object};
}

bool SchemaDocument::exclude_each_other(Way& a, Way& b) {
  budget_.spend(50);
  const unsigned common = a.types & b.types;
  if (common == 0 || nothing_in_common(constants(a.parts), constants(b.parts), budget_)) return true;
  if (common != kObjectType) return false;
  if (differ_by_a_member(a.parts, b.parts)) return true;
  const std::string not_in_a = missing_member(a.parts, b.parts);
  const std::string not_in_b = missing_member(b.parts, a.parts);
  if (not_in_a.empty() || not_in_b.empty()) return false;
  a.absent.insert(not_in_a);
  b.absent.insert(not_in_b);
  return true;
}

// A member that both require and that has other constants in each.
bool SchemaDocument::differ_by_a_member(const Conjunction& a, const Conjunction& b) {
  for (const bj::object* part : a)
    for (const std::string& name : required(*part)) {
      budget_.spend(40 + 10 * std::ssize(b));
      const bool both_require = std::any_of(
          b.begin(), b.end(), [&](const bj::object* other) { return required(*other).contains(name); });
      if (both_require &&
          nothing_in_common(constants_of_member(a, name), constants_of_member(b, name), budget_))
        return true;
    }
  return false;
}

// Where a schema names members and says nothing of others, none are written.
std::string SchemaDocument::missing_member(const Conjunction& a, const Conjunction& b) {
  bool names_members = false;
  for (const bj::object* part : a) {
    budget_.spend(40);
    const bj::value* additional = member(*part, "additionalProperties");
    if (additional && !(additional->is_bool() && !additional->get_bool())) return {};
    if (member(*part, "patternProperties")) return {};
    const bj::value* properties = member(*part, "properties");
    names_members |= properties && properties->is_object() && !properties->get_object().empty();
  }
  if (!names_members) return {};
  const auto is_named = [&](const std::string& name) {
    return std::any_of(a.begin(), a.end(), [&](const bj::object* part) {
      budget_.spend(20);
      const bj::value* properties = member(*part, "properties");
      return required(*part).contains(name) ||
             (properties && properties->is_object() && member(properties->get_object(), name));
    });
  };
  for (const bj::object* part : b)
    for (const std::string& name : required(*part))
      if (!is_named(name)) return name;
  return {};
}

}  // namespace fourfold::constrain
