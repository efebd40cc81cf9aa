// What a sum between GPUs takes over a bus: ranges, by evidence. Nothing of it was measured on such cards by
// us.
#pragma once

#include <string_view>

#include "plan/range.h"

namespace fourfold::plan {

enum class Link { pcie4, pcie5 };
std::string_view link_name(Link link);

enum class SumWay {
  one_shot,  // each GPU writes its rows into every other one's memory, then adds
  two_shot,  // each adds its share of the columns and writes the sums to all: fewer bytes, two rounds
  host,      // the same through page-locked memory of the host: works everywhere
};
std::string_view sum_way_name(SumWay way);

// A round trip that carries nothing, and the bytes a second that one GPU sends while all do.
struct LinkFacts {
  Range latency_us;       // of one round, GPU to GPU
  Range host_latency_us;  // of one round through the host
  double gb_per_s;        // GPU to GPU
  double host_gb_per_s;
  Evidence evidence;
  std::string_view because;
};
const LinkFacts& link_facts(Link link);

// The link's, for one round over it; other ways are made from it.
Evidence sum_evidence(SumWay way, Link link);

// One sum of `bytes` on each of `ranks` GPUs; 0 for one rank.
Range all_reduce_us(SumWay way, Link link, int ranks, double bytes);
// The same of a prompt's many rows, of which nobody published more than 1 MB: the bus's rate as above, and at
// the high end what the kernel took by itself on an H200, as if no bus hid any of it.
Range prompt_sum_us(SumWay way, Link link, int ranks, double bytes);
// Each GPU has `bytes` that all others need.
Range all_gather_us(Link link, int ranks, double bytes);

}  // namespace fourfold::plan
