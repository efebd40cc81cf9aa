// In place of config_file.cpp in a build without toml++.
#include "base/error.h"
#include "cli/config.h"

namespace fourfold::cli {

std::vector<Setting> read_config(const std::string& path) {
  fail_with_hint(Code::unsupported_op,
                 "Build with toml++ (Debian: libtomlplusplus-dev), or use FOURFOLD_SERVE_... variables.",
                 "--config {}: this program was built without toml++, which reads it", path);
}

}  // namespace fourfold::cli
