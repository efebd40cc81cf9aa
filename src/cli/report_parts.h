// The parts of a report: which commands run on which device, how long they take, and what of their output
// goes into the file. The one list of what is measured on a card: `./dev gpu` runs it, too.
#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/report_device.h"
#include "cli/report_options.h"
#include "cli/run_apart.h"

namespace fourfold::cli {

struct ReportPart {
  std::string name;           // "bench moe 35b"
  std::string command;        // what to type for it alone
  double seconds = 0;         // about so long
  std::string skipped = {};   // why it is not run; empty: it is
  std::string left_out = {};  // what it does not do of what it could, and why
  bool uses_gpu = false;
  std::function<int(const Console&, const std::filesystem::path& folder)> run = {};
  // Adds what is to be kept to the part; the folder holds what `run` wrote. Empty: what it printed, as lines.
  std::function<void(const Apart& ended, const std::filesystem::path& folder, boost::json::object& part)>
      keep = {};
  std::string result_file = {};    // what --results calls the part's own file
  std::string result_source = {};  // its text: a file of the folder; empty: what was kept as "result"
  std::string tuning_file = {};    // that it leaves when it is done
};

// Where the report goes, and the tuning file: beside it, unless the options say where.
std::filesystem::path report_path(const ReportOptions& options, const ReportDevice& device);
std::filesystem::path tuning_path(const ReportOptions& options, const ReportDevice& device);

std::vector<ReportPart> report_parts(const ReportOptions& options, const ReportDevice& device);

}  // namespace fourfold::cli
