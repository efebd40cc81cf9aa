// Which known name was meant by a mistyped one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fourfold {

// Letters more, less or other, and exchanged neighbours, that make one of the other (optimal string
// alignment).
std::size_t edits(std::string_view a, std::string_view b);

// The first of the nearest names, at most two edits away and fewer than half of the word's letters; names
// that go on from the word are the next best. Empty: none is near. Names longer than 64 bytes are left out.
std::string closest(std::string_view word, std::span<const std::string> names);

}  // namespace fourfold
