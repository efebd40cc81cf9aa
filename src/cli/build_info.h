// What this program is and when it runs, for reports: version, commit, date.
#pragma once

#include <string>

namespace fourfold::cli {

std::string version();  // "1.2.3", of CMakeLists.txt
// What `fourfold --version` says: version and commit in the first line, then compiler, chips and parts.
std::string version_text();
// `git describe` at build time, or FOURFOLD_COMMIT of the environment where the build had no git; else empty.
std::string commit();
// "# commit: ...\n# date: ...\n", and that SMs were made smaller, for the head of a result file.
std::string csv_origin();
// What makes the SMs of this run smaller than they are (kernels/launch/cuda_launch.h); empty: nothing.
std::string emulated_sm_bytes();
std::string utc_date();  // "2026-11-15T08:44:29Z"

// Writes beside the file and renames, so that a reader never sees half of it. Throws io.
void write_file(const std::string& path, const std::string& text);

}  // namespace fourfold::cli
