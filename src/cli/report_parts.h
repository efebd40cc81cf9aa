// The parts of a report: which commands run on which device, how long they take, and what of their output
// goes into the file.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/report_options.h"
#include "cli/run_apart.h"

namespace fourfold::cli {

// What can be known of the device before anything runs on it.
struct ReportDevice {
  std::string name = {};  // "NVIDIA H200", or "simulator"
  std::string chip = {};  // as tuning files name it: "NVIDIA H200, sm90"
  std::string arch = {};  // sm90
  int sm_count = 0;
  std::int64_t free_bytes = 0, total_bytes = 0;
  std::string driver = {};
  int sm_clock_mhz = 0, memory_clock_mhz = 0;
  std::string unusable = {};  // why kernels cannot run on it; the doctor can still look at it

  bool is_gpu() const { return name != "simulator"; }
  std::string card() const;  // for names of files: h200, geforce-rtx-5090
};
// In a child: opens CUDA. As JSON, or nothing but the reason when there is no GPU.
int tell_device(int gpu, const Console& console);
ReportDevice device_of(const std::string& json);

struct ReportPart {
  std::string name;          // "bench moe 35b"
  std::string command;       // what to type for it alone
  double seconds = 0;        // about so long
  std::string skipped = {};  // why it is not run; empty: it is
  std::function<int(const Console&, const std::filesystem::path& folder)> run;
  // Adds what is to be kept to the part; the folder holds what `run` wrote. Empty: what it printed, as lines.
  std::function<void(const Apart& ended, const std::filesystem::path& folder, boost::json::object& part)>
      keep = {};
  std::string result_file = {};    // what --results calls the text below
  std::string result_source = {};  // a file of the folder; stdout where it is empty
};

std::vector<ReportPart> report_parts(const ReportOptions& options, const ReportDevice& device);

}  // namespace fourfold::cli
