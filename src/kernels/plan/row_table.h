// Every row of every kernel for a chip, as facts, straight from the row types; and the shapes people ask for
// that have none, with the bytes they would need. Links no machine: `fourfold plan` is ready long before the
// kernels are compiled.
#pragma once

#include <vector>

#include "plan/arch.h"
#include "plan/row_facts.h"

namespace fourfold::kernels {

// Empty for chips without kernels. On sm90 the rows it shares with SM120 are planned within SM120's shared
// memory, all but DeltaNet's.
std::vector<plan::RowFacts> rows_of(const plan::ArchFacts& arch);

std::vector<plan::RefusedShape> refused_shapes(const plan::ArchFacts& arch);

}  // namespace fourfold::kernels
