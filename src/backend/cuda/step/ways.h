// Ways through a step that give the same bits as the others and are faster on an H200 (docs/decisions/0032).
// A test switches them off to compare.
#pragma once

namespace fourfold::backend::cuda {

struct StepWays {
  // Steps whose sequences all stand before kShortContext have a graph of their own, where attention has no
  // more blocks than there are splits to take (short_grid.h).
  bool grids_by_context = true;
  // From nine rows on the kernel that adds up the output projection norms the rows for the router as well.
  bool sums_norm = true;
  // Where every sequence has one row, attention norms and turns the heads itself. Not measured yet: off.
  bool joins_heads = false;
};

}  // namespace fourfold::backend::cuda
