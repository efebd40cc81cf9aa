// Models of the other families as their makers' packages write them quantised, put into a folder
// (tests/golden/families/quantised.py).
#pragma once

#include <cstdlib>
#include <ostream>
#include <stdexcept>
#include <string>

#include "base/format.h"
#include "tests/model/made_models.h"

namespace fourfold::model {

struct QuantisedModel {
  std::string shape, recipe;
  // Also of its reference (made_models.h).
  std::string name() const { return shape + "-" + recipe; }
};
inline void PrintTo(const QuantisedModel& model, std::ostream* out) { *out << model.name(); }

inline void make_quantised(const std::filesystem::path& out, const QuantisedModel& model) {
  const checkpoint::TempFolder temp;
  make_model(temp.path() / "bf16", model.shape, "bf16");
  const std::string line =
      fourfold::format("python3 -B '{}/tests/golden/families/quantised.py' '{}' '{}' {}", FOURFOLD_SOURCE_DIR,
                       (temp.path() / "bf16").string(), out.string(), model.name());
  if (std::system(line.c_str()) != 0) throw std::runtime_error(line);
}

}  // namespace fourfold::model
