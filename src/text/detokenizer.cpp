#include "text/detokenizer.h"

#include "base/utf8.h"

namespace fourfold::text {

std::string Detokenizer::push(TokenId id) {
  if (options_.skip_special && tokenizer_->is_special(id)) return {};
  held_ += tokenizer_->token_bytes(id);
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = check_utf8_step(rest);
    if (step.state == Utf8State::incomplete) break;
    out += step.state == Utf8State::valid ? rest.substr(0, step.bytes) : kReplacement;
    rest.remove_prefix(step.bytes);
  }
  held_ = std::string(rest);
  return out;
}

std::string Detokenizer::finish() {
  std::string out = repaired(held_);
  held_.clear();
  return out;
}

}  // namespace fourfold::text
