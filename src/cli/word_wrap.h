// Text that comes in pieces, broken between words at the edge of a terminal. A word is shown when it is known
// to be whole; what stands in a fenced block of code keeps its lines.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::cli {

class WordWrap {
 public:
  // What may be shown after this piece; `columns` wide, 0: nothing is broken. The text is whole characters of
  // UTF-8, as an answer's pieces are.
  std::string push(std::string_view text, int columns);
  // The last word.
  std::string finish(int columns);

 private:
  void take(std::string_view character, int columns);
  void end_word(int columns);
  void end_line();

  std::string out_;
  std::string space_, word_;  // held back
  int space_columns_ = 0, word_columns_ = 0;
  int column_ = 0;    // where what was shown ends
  std::string head_;  // of the line: up to three characters after its indentation
  bool in_code_ = false;
  bool inside_long_word_ = false;  // longer than a line: the terminal breaks it
};

// Columns a character of UTF-8 takes on a terminal: 2 for wide ones, 0 for marks that combine.
int columns_of(std::string_view character);

// How wide the terminal of this descriptor is; 0: it is none, or does not say.
int terminal_columns(int descriptor);

}  // namespace fourfold::cli
