// Methods of Python's str on UTF-8, as far as templates use them. Positions and counts are code points, as in
// Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::text::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);

enum class Side { left, right, both };
std::string_view stripped(std::string_view text, Side side);
std::string_view stripped(std::string_view text, std::string_view characters, Side side);

// `most` < 0: no limit. split_spaces drops empty parts, split_at keeps them.
std::vector<std::string> split_spaces(std::string_view text, std::int64_t most, bool from_right);
std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                  bool from_right);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);
std::int64_t count_of(std::string_view text, std::string_view part);

// The number of code points before a byte offset.
std::int64_t position_of(std::string_view text, std::size_t offset);

// Every character is in one of the classes, and there is one.
bool all_in_classes(std::string_view text, int classes);
bool all_spaces(std::string_view text);

}  // namespace fourfold::text::jinja
