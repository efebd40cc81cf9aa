// Ways through a step that give the same bits as the others and are faster on an H200 (docs/decisions/0032).
// `bench model --ways` and a test switch them off to compare.
#pragma once

#include <string>
#include <string_view>

namespace fourfold::backend::cuda {

struct StepWays {
  // Steps whose sequences all stand before kShortContext have a graph of their own, where attention has no
  // more blocks than there are splits to take (short_grid.h).
  bool grids_by_context = true;
  // From nine rows on the kernel that adds up the output projection norms the rows for the router as well.
  bool sums_norm = true;
  // From nine rows on a bf16 matrix and one of another format that read the same rows are one launch, and
  // their sums another (docs/decisions/0042).
  bool pairs_many = true;
  // The kernel that adds up the experts' rows norms the result for the next layer where that has a norm of
  // its own in front: from nine rows on, and with fewer where its first matrix has FP4 inputs. Not behind the
  // two-kernel path of few tokens, which adds up itself (docs/decisions/0048).
  bool combines_norm = true;
  // For nine to sixteen rows the shared expert's second matrix and the tables of routing are one launch, as
  // they are for fewer (docs/decisions/0048).
  bool many_tables = true;
  // Few rows of latent attention have three launches beside its softmax instead of six (docs/decisions/0047).
  bool joins_latent = true;

  bool operator==(const StepWays&) const = default;
};

// "grids_by_context,sums_norm,pairs_many,combines_norm,many_tables,joins_latent": those that are on, or
// "none".
StepWays parse_ways(std::string_view text);
std::string to_text(const StepWays& ways);

}  // namespace fourfold::backend::cuda
