#include "server/page/static_files.h"

namespace fourfold::server {

std::optional<StaticFile> static_file(std::string_view path) {
  for (const StaticFile& file : static_files()) {
    if (file.path == path) return file;
  }
  return std::nullopt;
}

}  // namespace fourfold::server
