// Patterns for names: * stands for any run of characters, ? for one. A pattern without either matches
// anywhere in the name, and "all" matches everything: row names hold spaces, and are not typed whole.
#pragma once

#include <string_view>

namespace fourfold {

// Linear in practice: a failed match goes back to the last star only.
constexpr bool glob_match_whole(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, in = 0, star = std::string_view::npos, resume = 0;
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++resume;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

constexpr bool glob_match(std::string_view pattern, std::string_view name) {
  if (pattern == "all") return true;
  if (pattern.find_first_of("*?") == std::string_view::npos)
    return name.find(pattern) != std::string_view::npos;
  return glob_match_whole(pattern, name);
}

}  // namespace fourfold
