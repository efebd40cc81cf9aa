#include "backend/cuda/tune/tuning.h"

#include <algorithm>

#include "base/format.h"

namespace fourfold::backend::cuda {

std::string to_text(const TunedForm& form) {
  std::string text = form.row;
  if (!form.second.empty()) text += " + " + form.second;
  if (form.blocks > 0) text += format(", {} blocks", form.blocks);
  return text;
}

const TunedChoice* Tuning::find(std::string_view op, std::string_view shape, int tokens) const {
  const auto found = std::find_if(choices_.rbegin(), choices_.rend(), [&](const TunedChoice& choice) {
    return choice.tokens_from <= tokens && tokens <= choice.tokens_to && choice.op == op &&
           choice.shape == shape;
  });
  return found == choices_.rend() ? nullptr : &*found;
}

}  // namespace fourfold::backend::cuda
