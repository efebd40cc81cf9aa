#include "doctor/word_search.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace fourfold::doctor {

WordSearch::WordSearch(const std::vector<std::string_view>& words) {
  next_.emplace_back().fill(0);
  ends_.emplace_back();
  for (std::size_t word = 0; word < words.size(); ++word) {
    check(!words[word].empty(), "a word to search for has letters");
    std::uint16_t state = 0;
    for (const char letter : words[word]) {
      const auto byte = static_cast<unsigned char>(letter);
      if (next_[state][byte] == 0) {
        check(next_.size() < std::numeric_limits<std::uint16_t>::max(), "the words fit a table of 16 bits");
        next_[state][byte] = static_cast<std::uint16_t>(next_.size());
        next_.emplace_back().fill(0);
        ends_.emplace_back();
      }
      state = next_[state][byte];
    }
    ends_[state].push_back(static_cast<int>(word));
  }
  // Breadth first: where a word breaks off, go on with its longest end that begins another word.
  std::vector<std::uint16_t> fall(next_.size(), 0), queue;
  for (const std::uint16_t child : next_[0])
    if (child != 0) queue.push_back(child);
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const std::uint16_t state = queue[at];
    const auto& inherited = ends_[fall[state]];
    ends_[state].insert(ends_[state].end(), inherited.begin(), inherited.end());
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint16_t child = next_[state][byte];
      const std::uint16_t instead = next_[fall[state]][byte];
      if (child == 0) {
        next_[state][byte] = instead;
      } else {
        fall[child] = instead;
        queue.push_back(child);
      }
    }
  }
}

}  // namespace fourfold::doctor
