// Runs a command's code in a process of its own, so that a kernel that faults, hangs or takes the GPU's
// context with it costs that one run. The caller must not have touched CUDA: a child cannot use what its
// parent opened.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

// The file in the folder that has what was written to stdout.
inline constexpr const char* kApartOut = "stdout";

struct Apart {
  enum class End { returned, killed, out_of_time, stopped };
  End end = End::returned;
  int status = 0;         // what it returned, or the signal that ended it
  bool is_stuck = false;  // it was killed and is still there: a driver holds it
  double seconds = 0;
  std::string out, err;  // all that was written, whatever became of it
};

struct ApartLimits {
  double seconds = 0;                                    // after which it is killed; 0: never
  double stuck_seconds = 20;                             // after which nobody waits for a killed one
  std::function<void(double)> tick = [](double) {};      // now and then, with the seconds so far
  std::function<bool()> is_over = [] { return false; };  // the user wants it to end
};

// `run` writes to the console it is given, which goes to files in `folder`. Errors that it throws become
// their sentence on stderr and kFailed, and so does output that could not be kept. Throws io when no process
// can be started.
Apart run_apart(const std::function<int(const Console&)>& run, const std::filesystem::path& folder,
                const ApartLimits& limits);

// Of a file that such a run wrote; empty where it wrote none.
std::string read_text(const std::filesystem::path& path);

}  // namespace fourfold::cli
