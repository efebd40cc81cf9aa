// The keywords of JSON Schema, by what becomes of them; docs/structured.md is checked against these.
#pragma once

#include <span>
#include <string_view>

namespace fourfold::constrain {

std::span<const std::string_view> supported_keywords();
std::span<const std::string_view> ignored_keywords();  // annotations, without effect on what is valid
std::span<const std::string_view> refused_keywords();  // known, and refused by name

enum class Keyword { supported, ignored, refused, unknown };
// Names that begin with x- are annotations too.
Keyword kind_of_keyword(std::string_view name);
// The keyword an unknown name was probably meant to be ("propertis"); empty: none.
std::string_view meant_keyword(std::string_view name);

}  // namespace fourfold::constrain
