// The whole row table as a page for people and as JSON for programs: `fourfold plan` and `fourfold plan
// --json`.
#pragma once

#include <string>
#include <vector>

#include "plan/row_facts.h"

namespace fourfold::plan {

// Rows grouped by kernel and architecture in the order given, each with its bytes part by part ("aliased":
// the epilogue reuses the stages); then the refused shapes with the bytes they would need.
std::string table_text(const std::vector<RowFacts>& rows, const std::vector<RefusedShape>& refused);

// {"limit_bytes": ..., "rows": [{"kernel", "row", "tile", "total_bytes", ...}], "refused": [{"tile",
// "needs_bytes", ...}]}. limit_bytes is the limit of the architecture asked for; each row also carries its
// own.
std::string table_json(const std::vector<RowFacts>& rows, const std::vector<RefusedShape>& refused,
                       int limit_bytes);

}  // namespace fourfold::plan
