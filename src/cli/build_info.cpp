#include "cli/build_info.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/utc_time.h"
#include "build_facts.h"
#include "commit.h"

namespace fourfold::cli {

std::string version() { return kVersion; }

std::string commit() {
  if (const std::string built = kCommit; !built.empty()) return built;
  const char* given = std::getenv("FOURFOLD_COMMIT");
  return given ? given : "";
}

std::string version_text() {
  const std::string id = commit(), gpu = kGpuChips, without = kWithout;
  std::string text = "fourfold " + version() + (id.empty() ? "" : " (" + id + ")") + "\n";
  text += std::string("  compiler  ") + kCompiled + "\n";
  text += std::string("  CPU       ") + kCpuIsas + "\n";
  text += "  GPU       " + (gpu.empty() ? "none: built without CUDA kernels" : gpu) + "\n";
  text += std::string("  with      ") + kWith;
  return text + (without.empty() ? "" : "\n  without   " + without);
}

std::string utc_date() { return utc_time(std::time(nullptr)); }

std::string emulated_sm_bytes() {
  const char* bytes = std::getenv("FOURFOLD_EMULATE_SM_BYTES");
  return bytes == nullptr ? "" : bytes;
}

std::string csv_origin() {
  const std::string id = commit();
  const std::string bytes = emulated_sm_bytes();
  return "# commit: " + (id.empty() ? "unknown" : id) + "\n# date: " + utc_date() + "\n" +
         (bytes.empty() ? "" : "# emulated SM bytes: " + bytes + "\n");
}

void write_file(const std::string& path, const std::string& text) {
  // A device, a pipe or a link is written through; only a plain file is replaced, whole or not at all.
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  const bool replaces = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  const std::string beside = replaces ? path + ".new" : path;
  {
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
      const std::string why = std::strerror(errno);
      if (replaces) std::remove(beside.c_str());
      fail_with_hint(Code::io, "Check that the folder exists and can be written.", "cannot write {}: {}",
                     path, why);
    }
  }
  if (!replaces) return;
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(beside.c_str());
    fail(Code::io, "cannot rename {} to {}: {}", beside, path, why);
  }
}

}  // namespace fourfold::cli
