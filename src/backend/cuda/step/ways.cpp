#include "backend/cuda/step/ways.h"

#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

constexpr struct {
  std::string_view name;
  bool StepWays::*way;
} kWays[] = {{"grids_by_context", &StepWays::grids_by_context},
             {"sums_norm", &StepWays::sums_norm},
             {"pairs_many", &StepWays::pairs_many},
             {"combines_norm", &StepWays::combines_norm},
             {"many_tables", &StepWays::many_tables},
             {"joins_latent", &StepWays::joins_latent}};

}  // namespace

std::string to_text(const StepWays& ways) {
  std::string text;
  for (const auto& [name, way] : kWays)
    if (ways.*way) text += (text.empty() ? "" : ",") + std::string(name);
  return text.empty() ? "none" : text;
}

StepWays parse_ways(std::string_view text) {
  StepWays out;
  std::string names;
  for (const auto& [name, way] : kWays) {
    out.*way = false;
    names += ", " + std::string(name);
  }
  if (text == "none") return out;
  for (std::string_view rest = text;;) {
    const std::string_view word = rest.substr(0, rest.find(','));
    bool found = false;
    for (const auto& [name, way] : kWays)
      if (name == word) out.*way = found = true;
    if (!found) fail(Code::invalid_request, "'{}' is no way through a step; there are none{}", word, names);
    if (word.size() == rest.size()) return out;
    rest.remove_prefix(word.size() + 1);
  }
}

}  // namespace fourfold::backend::cuda
