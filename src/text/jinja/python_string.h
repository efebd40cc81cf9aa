// Methods of Python's str on UTF-8, as far as templates use them. Positions and counts are code points, as in
// Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/traced_text.h"

namespace fourfold::text::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
TracedText upper(const TracedText& text);
TracedText lower(const TracedText& text);
TracedText capitalized(const TracedText& text);
TracedText titled(const TracedText& text);    // the method: a word is letters
TracedText headline(const TracedText& text);  // the filter |title: a word ends at spaces, dashes and brackets

enum class Side { left, right, both };
std::string_view stripped(std::string_view text, Side side);
std::string_view stripped(std::string_view text, std::string_view characters, Side side);

// In a time that grows with text and part, never with their product, whatever they are; npos: not there.
std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t find_text_last(std::string_view text, std::string_view part);

// Parts of the text. `most` < 0: no limit. split_spaces drops empty parts, split_at keeps them.
std::vector<std::string_view> split_spaces(std::string_view text, std::int64_t most, bool from_right);
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                       bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

TracedText replaced(const TracedText& text, std::string_view from, const TracedText& to, std::int64_t most);
std::int64_t count_of(std::string_view text, std::string_view part);

// The number of code points before a byte offset, and the offset behind so many code points.
std::int64_t position_of(std::string_view text, std::size_t offset);
std::size_t offset_of(std::string_view text, std::int64_t position);

// Every character is in one of the classes, and there is one.
bool all_in_classes(std::string_view text, int classes);
bool all_spaces(std::string_view text);

}  // namespace fourfold::text::jinja
