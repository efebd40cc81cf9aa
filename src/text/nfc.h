// Normalisation form C as the `tokenizers` package does it (Unicode 9 data, see unicode_tables.h). Text that
// is already normal, nearly all of it, costs one scan; only the spans around characters that might change are
// rebuilt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::text {

// True when nothing in the text could change: no character that decomposes, combines or has a combining
// class.
bool is_surely_nfc(std::string_view valid_text);

// A part that did not stay as it was.
struct Rewrite {
  std::size_t from_begin, from_end, to_begin, to_end;
};

// rewrites: filled, ascending, where it is given.
std::string to_nfc(std::string_view valid_text, std::vector<Rewrite>* rewrites = nullptr);

}  // namespace fourfold::text
