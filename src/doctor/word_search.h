// Finds many words in one pass over a text, byte by byte, whatever their number (Aho and Corasick's
// automaton).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fourfold::doctor {

class WordSearch {
 public:
  // Up to 65,000 letters together; no word may be empty.
  explicit WordSearch(const std::vector<std::string_view>& words);

  // Calls found(word, end) for every place where a word ends.
  template <class Found>
  void run(std::string_view text, const Found& found) const {
    std::uint16_t state = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      state = next_[state][static_cast<unsigned char>(text[at])];
      if (ends_[state].empty()) [[likely]]
        continue;
      for (const int word : ends_[state]) found(word, at + 1);
    }
  }

 private:
  std::vector<std::array<std::uint16_t, 256>> next_;
  std::vector<std::vector<int>> ends_;
};

}  // namespace fourfold::doctor
