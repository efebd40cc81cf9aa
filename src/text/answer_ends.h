// Tokens that end an answer by their family's format, whether or not a checkpoint's files list them:
// published ones leave some out, and an answer that runs past its call makes up the result.
#pragma once

#include <vector>

#include "text/tokenizer.h"

namespace fourfold::text {

std::vector<TokenId> answer_ends(const Tokenizer& tokenizer);

}  // namespace fourfold::text
