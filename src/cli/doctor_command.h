// `fourfold doctor`: why a machine is slow and what to do. `fourfold env`: the environment to use on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"

namespace fourfold::cli {

struct DoctorOptions {
  std::string root;    // a recording instead of this machine
  std::string record;  // where to write one
  std::vector<std::string> scans;
  std::string log;
  std::string model;
  std::optional<double> measured;  // tok/s, one user
  std::vector<std::string> urls;
  bool json = false;
  bool markdown = false;
  bool quick = false;  // no GPU measurements
  bool rules = false;  // print docs/doctor.md
};

// 0 fine, 1 slow, 2 broken, 64 for a wrong command line or a file it names that cannot be read.
int run_doctor(const DoctorOptions& options, const Console& console);

struct EnvOptions {
  std::string root;
  std::optional<int> gpus;  // all
  std::string purpose = "vllm";
};

int run_env(const EnvOptions& options, const Console& console);

}  // namespace fourfold::cli
