#include "constrain/schema_keywords.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/closest.h"

namespace fourfold::constrain {
namespace {

constexpr std::string_view kSupported[] = {"type",
                                           "enum",
                                           "const",
                                           "nullable",
                                           "properties",
                                           "required",
                                           "propertyNames",
                                           "minProperties",
                                           "maxProperties",
                                           "additionalProperties",
                                           "items",
                                           "prefixItems",
                                           "additionalItems",
                                           "patternProperties",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "not",
                                           "$ref",
                                           "$defs",
                                           "definitions",
                                           "discriminator"};
constexpr std::string_view kIgnored[] = {"title",
                                         "description",
                                         "default",
                                         "examples",
                                         "example",
                                         "$schema",
                                         "$id",
                                         "id",
                                         "$comment",
                                         "deprecated",
                                         "readOnly",
                                         "writeOnly",
                                         "xml",
                                         "externalDocs",
                                         "contentEncoding",
                                         "contentSchema",
                                         "$vocabulary",
                                         "contentMediaType",
                                         "enumNames",
                                         "enumDescriptions",
                                         "propertyOrdering"};
constexpr std::string_view kRefused[] = {"if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "unevaluatedProperties",
                                         "$anchor",
                                         "$dynamicRef",
                                         "$dynamicAnchor",
                                         "$recursiveRef",
                                         "$recursiveAnchor",
                                         "unevaluatedItems"};

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string small(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::span<const std::string_view> supported_keywords() { return kSupported; }
std::span<const std::string_view> ignored_keywords() { return kIgnored; }
std::span<const std::string_view> refused_keywords() { return kRefused; }

Keyword kind_of_keyword(std::string_view name) {
  if (is_among(kSupported, name)) return Keyword::supported;
  if (is_among(kIgnored, name) || name.starts_with("x-")) return Keyword::ignored;
  return is_among(kRefused, name) ? Keyword::refused : Keyword::unknown;
}

std::string_view meant_keyword(std::string_view name) {
  for (const std::span<const std::string_view> known : {supported_keywords(), refused_keywords()})
    for (const std::string_view keyword : known) {
      // One letter of a short word makes another word: "note" is not "not".
      const std::size_t most = keyword.size() < 4 ? 0 : keyword.size() < 8 ? 1 : 2;
      const bool near = name.size() + most >= keyword.size() && name.size() <= keyword.size() + most;
      if (near && edits(small(name), small(keyword)) <= most) return keyword;
    }
  return {};
}

}  // namespace fourfold::constrain
