// `fourfold report`: verify, benches, tuning and the doctor's recording of one machine in one file that can
// be sent, each part in a process of its own. The command itself is in report_options.h.
#pragma once

#include <vector>

#include "cli/console.h"
#include "cli/report_parts.h"

namespace fourfold::cli {

// Runs the parts one after another and writes the file before and after each: kFine, kMiss when a part missed
// or failed, kFailed when it was stopped.
int write_report(const ReportOptions& options, const ReportDevice& device,
                 const std::vector<ReportPart>& parts, const Console& console);
}  // namespace fourfold::cli
