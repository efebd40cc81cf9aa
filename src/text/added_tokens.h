// Tokens that are found in the text as they are written, before any merging: <|im_start|>, <think> and their
// like. Leftmost first, longest of those that start there. Called by Tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/nfc.h"
#include "text/traced_text.h"

namespace fourfold::text {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool strip_left = false;   // swallows the white space before it
  bool strip_right = false;  // and after it
  bool normalized = false;   // looked for in normalised text, not in the text as given
  bool special = false;
};

// Where special tokens may be found in a text; all others may be anywhere.
class SpecialPlaces {
 public:
  static SpecialPlaces everywhere() { return {}; }
  static SpecialPlaces nowhere() { return within({}); }
  // Ascending runs, apart from each other.
  static SpecialPlaces within(std::vector<Run> runs) {
    SpecialPlaces out;
    out.everywhere_ = false;
    out.runs_ = std::move(runs);
    return out;
  }

  // Whether one may stand there.
  bool contain(std::size_t begin, std::size_t end) const;
  // Those of a part of the text, and of the text after parts of it were rewritten: what is not as it was
  // written holds a token only if all of it could have.
  SpecialPlaces part(std::size_t begin, std::size_t end) const;
  SpecialPlaces rewritten(const std::vector<Rewrite>& rewrites) const;

 private:
  bool everywhere_ = true;
  std::vector<Run> runs_;
};

class AddedTokenFinder {
 public:
  // `token_index` comes back in Match; `content` must not be empty.
  void add(std::string_view content, int token_index);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    std::size_t begin, end;
    int token_index;  // -1: none
  };
  // The first match that begins at or behind `from`; `allowed` is asked about special ones.
  Match find(std::string_view text, std::size_t from, const std::vector<AddedToken>& tokens,
             const SpecialPlaces& allowed) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::int32_t>> next;
    int token_index = -1;
  };
  std::int32_t child(std::int32_t node, char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool starts_[256] = {};
};

// A stretch of text, or the added token (token_index >= 0) it was.
struct TextSpan {
  std::size_t begin, end;
  int token_index = -1;
};

// Cuts the text at the added tokens the finder knows. Special tokens outside of their places stay text.
std::vector<TextSpan> split_at_added_tokens(std::string_view text, const AddedTokenFinder& finder,
                                            const std::vector<AddedToken>& tokens,
                                            const SpecialPlaces& special);

}  // namespace fourfold::text
