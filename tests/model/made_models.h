// Models of make-model, written to a folder, and where their references are.
#pragma once

#include <string>

#include "checkpoint/write/random_model.h"
#include "tests/model/support.h"

namespace fourfold::model {

inline std::filesystem::path family_reference(const std::string& shape) {
  return std::filesystem::path(FOURFOLD_SOURCE_DIR) / "tests/golden/families" / (shape + ".safetensors");
}

inline void make_model(const std::filesystem::path& out, const std::string& shape,
                       const std::string& format_name, std::uint64_t seed = 1) {
  checkpoint::OutputFolder folder(out);
  checkpoint::RandomModelOptions options;
  options.shape = checkpoint::find_shape(shape);
  options.scheme = checkpoint::scheme_named(format_name);
  options.seed = seed;
  checkpoint::write_random_model(folder, options, {0, 1});
  folder.publish();
}

}  // namespace fourfold::model
