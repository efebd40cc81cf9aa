// Models of make-model, written to a folder, and where their references are.
#pragma once

#include <string>

#include "checkpoint/write/random_model.h"
#include "tests/model/support.h"

namespace fourfold::model {

inline std::filesystem::path family_reference(const std::string& shape) {
  return std::filesystem::path(FOURFOLD_SOURCE_DIR) / "tests/golden/families" / (shape + ".safetensors");
}

inline void make_model(const std::filesystem::path& out, const checkpoint::ModelShape& shape,
                       const std::string& format_name, std::uint64_t seed = 1) {
  checkpoint::OutputFolder folder(out);
  checkpoint::RandomModelOptions options;
  options.shape = shape;
  options.scheme = checkpoint::scheme_named(format_name);
  options.seed = seed;
  checkpoint::write_random_model(folder, options, {0, 1});
  folder.publish();
}
inline void make_model(const std::filesystem::path& out, const std::string& shape,
                       const std::string& format_name, std::uint64_t seed = 1) {
  make_model(out, checkpoint::find_shape(shape), format_name, seed);
}

// One of such a shape, for as long as it is held.
struct MadeModel {
  checkpoint::TempFolder temp;
  Loaded loaded;
  MadeModel(const checkpoint::ModelShape& shape, const std::string& format_name)
      : loaded(write(temp, shape, format_name)) {}

 private:
  static std::filesystem::path write(const checkpoint::TempFolder& temp, const checkpoint::ModelShape& shape,
                                     const std::string& format_name) {
    make_model(temp.path() / "model", shape, format_name);
    return temp.path() / "model";
  }
};

}  // namespace fourfold::model
