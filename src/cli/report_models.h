// The parts of a report that need a whole model on the GPU: tuning, and the models that fit the card.
#pragma once

#include <vector>

#include "cli/report_parts.h"

namespace fourfold::cli {

// The file in a part's folder that a bench writes its table to.
inline constexpr const char* kReportTable = "table.csv";
inline constexpr const char* kNoSimulatedTime = "the simulator has no time of its own; this needs a GPU";

void add_model_parts(const ReportOptions& options, const ReportDevice& device,
                     std::vector<ReportPart>& parts);
// Bits are compared, nothing is timed.
void add_simulated_tuning(const ReportOptions& options, const ReportDevice& device,
                          std::vector<ReportPart>& parts);

}  // namespace fourfold::cli
