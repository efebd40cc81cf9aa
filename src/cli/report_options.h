// What `fourfold report` is asked for, without what it is made of: the command line is read where that was
// not built, too.
#pragma once

#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct ReportOptions {
  std::string out = {};         // empty: fourfold-report-CARD.json here
  std::string device = "cuda";  // or sim
  bool quick = false;
  bool tune = true;
  std::string tune_out = {};  // the tuning file, or its folder; empty: beside the report
  std::string results = {};   // a folder that also gets the parts' own files
  std::string rows = {};      // of verify: only these
  int gpu = 0;
  double part_minutes = 0;  // a part that takes longer is stopped; 0: by its estimate
  bool force = false;
};

int run_report(const ReportOptions& options, const Console& console);

}  // namespace fourfold::cli
