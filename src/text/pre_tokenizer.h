// Cuts text into the pieces that BPE works on, exactly as the regular expressions in tokenizer.json would.
// The known expressions are hand-written scanners, one pass and no backtracking over the text; an unknown one
// is refused by name, because a piece cut elsewhere is a different prompt. Called by Tokenizer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::text {

// A family of expressions that share their alternatives.
struct SplitRule {
  enum class Kind {
    words,           // Qwen2/3, Qwen3.5, Llama 3
    cased_words,     // o200k (GPT-4o), Tekken
    gpt2,            // the ByteLevel default
    deepseek_words,  // DeepSeek-V3, third Split
    cjk_runs,        // DeepSeek-V3, second Split
    number_groups,   // \p{N}{1,3} alone, and the Digits pre-tokenizer
  };
  Kind kind = Kind::words;
  int digits_max = 1;        // \p{N} or \p{N}{1,3}
  bool marks_join = false;   // Qwen3.5: [\p{L}\p{M}]+ where Qwen2/3 have \p{L}+
  bool contractions = true;  // cased_words: 's, 't ... may end a word
};

// The rule an expression of tokenizer.json means, or nothing when it is not one we know.
std::optional<SplitRule> known_split_rule(std::string_view expression);

// Appends the end of each piece of `text` (valid UTF-8); the pieces cover it without gaps.
void split_pieces(const SplitRule& rule, std::string_view text, std::vector<std::size_t>& ends);

class PreTokenizer {
 public:
  void add(const SplitRule& rule) { rules_.push_back(rule); }
  const std::vector<SplitRule>& rules() const { return rules_; }

  // Applies each rule to the pieces of the one before.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  std::vector<SplitRule> rules_;
};

}  // namespace fourfold::text
