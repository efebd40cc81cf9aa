// Ways through a step that give the same bits as the others and have not been timed on a GPU. false is the
// way that was; a line leaves this file when it was measured, one way or the other (docs/decisions/0032).
#pragma once

namespace fourfold::backend::cuda {

struct StepWays {
  // Steps whose sequences all stand before kShortContext have a graph of their own, where attention has no
  // more blocks than there are splits to take (short_grid.h).
  bool grids_by_context = false;
  // From nine rows on the kernel that adds up the output projection norms the rows for the router as well.
  bool sums_norm = false;
};

}  // namespace fourfold::backend::cuda
