// How many experts tokens meet and in how many tiles: expectations, not one routing.
#pragma once

namespace fourfold::plan {

enum class Routing {
  uniform,  // every expert as likely as any other
  zipf,     // the r-th likes 1 / r as much as the first, drawn without replacement
  same,     // all tokens choose the same experts
};

struct ExpectedTiles {
  double experts = 0;  // that at least one token chose
  double tiles = 0;    // of up to tile_tokens tokens
};
ExpectedTiles expected_tiles(int tokens, int top_k, int experts, int tile_tokens,
                             Routing routing = Routing::uniform);

// Experts that the busiest of `ranks` GPUs reads when experts are given out whole: the mean over 1,000 random
// routings, every expert as likely as any other. experts / ranks of them live on each.
double busiest_rank_experts(int experts, int experts_per_token, int ranks, int rows);

}  // namespace fourfold::plan
