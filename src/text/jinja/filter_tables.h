// The filters by topic; filters.cpp looks a name up in both tables.
#pragma once

#include <span>

#include "text/jinja/native.h"

namespace fourfold::text::jinja {

std::span<const NativeEntry> text_filters();  // text_filters.cpp: strings, numbers, JSON
std::span<const NativeEntry> list_filters();  // list_filters.cpp: lists and dicts

// Filters take str(value), keeping markup; undefined is "".
Value soft_text(Evaluator& evaluator, const Value& value);

}  // namespace fourfold::text::jinja
