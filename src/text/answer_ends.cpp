#include "text/answer_ends.h"

#include <string_view>

namespace fourfold::text {

std::vector<TokenId> answer_ends(const Tokenizer& tokenizer) {
  static constexpr std::string_view families[][2] = {{"<|return|>", "<|call|>"},        // gpt-oss
                                                     {"<|user|>", "<|observation|>"}};  // GLM
  std::vector<TokenId> out;
  for (const auto& [first, second] : families) {
    const auto one = tokenizer.added_token(first), other = tokenizer.added_token(second);
    if (one && other && tokenizer.is_special(*one) && tokenizer.is_special(*other))
      out.insert(out.end(), {*one, *other});
  }
  return out;
}

}  // namespace fourfold::text
