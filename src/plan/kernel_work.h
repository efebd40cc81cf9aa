// One launch of a step as plain numbers: what the performance model (kernel_time.h) needs to know of it. Made
// by launching a step on a machine that only counts, so it cannot differ from what a GPU is asked to do.
#pragma once

#include <string>

namespace fourfold::plan {

// A weight record is 32 rows x 64 columns; a visit is one record met by one tile of tokens.
struct KernelWork {
  std::string kernel;  // "moe_stream"
  std::string row;     // its row, or the kernel's own name
  std::string format;  // of the weights; empty: it has none
  std::string part;    // of an MLP, where one row is both: gate_up or down
  int blocks = 0;      // 0: as many as the chip holds
  int shared_bytes = 0;
  double tokens = 0;        // rows of the step that it works on
  double weight_bytes = 0;  // each byte once
  int tile_tokens = 0;      // of a tile of tokens
  double visits = 0;        // records times the tiles of tokens they meet
  double visit_tokens = 0;  // the tokens of all these visits
  double other_bytes = 0;   // recurrent state, keys and values, rows and sums that pass through memory
  double row_bytes = 0;     // rows beside these, each once: of floors (kernel_floor.h), and delta_finish
  double flops = 0;         // of attention and of DeltaNet's chunks
  int experts = 0;          // that are ranked
  int latent = 0;           // columns of a latent cache
  // What follows one after another. Few-token experts: records of the busiest warp. Attention: splits of the
  // busiest SM. The delta rule: rows of a sequence, or chunks of a prompt.
  double chain = 0;
  double link_bytes = 0;  // of one split

  bool operator==(const KernelWork&) const = default;
};

}  // namespace fourfold::plan
