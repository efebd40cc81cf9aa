// What a step would take on GPUs that are not here: bytes, boundaries between kernels, sums between GPUs.
// Every number is a range and says where it comes from. Nothing here is measured on the GPU it speaks of,
// unless it says so.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/products.h"

namespace fourfold::plan {

// measured: by this project, files in bench/results; emulated: the same on a GPU that was made like the one
// asked for
enum class Evidence { measured, emulated, published, assumed };
std::string_view evidence_name(Evidence evidence);

struct Range {
  double low = 0;
  double high = 0;
  Range& operator+=(const Range& other) {
    low += other.low, high += other.high;
    return *this;
  }
  friend Range operator*(double factor, const Range& range) {
    return {factor * range.low, factor * range.high};
  }
};

// ---- boundaries ----

// What a step of generated rows takes beyond its bytes, divided by its kernels: from the last store of one to
// the first product of the next. The least and the most of every whole model that was measured on an H200
// (bench/results/model-h200-*.csv: 35B in three formats, 122B, a rank of four of the 397B; 1 to 64 users). A
// test holds the range against those files. At 128 rows it is 7.8 us, so more than 64 are not predicted.
inline constexpr Range kBoundaryUs{2.8, 5.8};
inline constexpr int kPredictedRowsMost = 64;

// ---- SMs that hold the blocks of one kernel ----

// The H200's boundaries were measured where a block of the next kernel fits an SM beside one that still runs.
// How many of these boundaries are left without that on `arch`: neighbours in a step whose shared memory fits
// an SM of the H200 together, and not one of this.
int boundaries_apart(const ArchFacts& arch, std::span<const int> shared_memory_bytes);

// How much longer a step took on an H200 with SMs made as small as SM120's, as a share of it: the most of all
// runs with so many rows and so many tokens of context, or the next more that were measured
// (bench/results/small-sm-h200.txt, 35B; a test holds these against it). More than 32,768 tokens were not.
struct SmallSmLoss {
  int rows;
  int context;
  double share;
};
inline constexpr std::array<SmallSmLoss, 9> kSmallSmLoss{{{1, 0, 0.019},
                                                          {1, 4'096, 0},
                                                          {1, 32'768, 0},
                                                          {8, 0, 0.006},
                                                          {8, 4'096, 0.035},
                                                          {8, 32'768, 0.242},
                                                          {64, 0, 0.100},
                                                          {64, 4'096, 0.168},
                                                          {64, 32'768, 0.389}}};
inline constexpr int kSmallSmContextMost = 32'768;
double small_sm_share(int rows, double context);

// ---- sums between GPUs ----

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
// Each GPU has `bytes` that all others need.
Range all_gather_us(Link link, int ranks, double bytes);

// ---- a step ----

struct StepWork {
  double bytes = 0;  // that one GPU reads and writes
  int kernels = 0;
  int rows = 1;
  double context = 0;       // tokens of each sequence before the step
  int apart = 0;            // of its boundaries: boundaries_apart
  int sums = 0;             // between GPUs
  double sum_bytes = 0;     // of one of them
  double gather_bytes = 0;  // logits of one GPU
};

struct Estimate {
  std::string what;
  Range us;
  Evidence evidence;
  std::string because;
};

// Bytes a second that a product's memory is read at. Measured where it was; otherwise a share of what is
// published: what the H200 reaches of its own, or what `fourfold doctor` still lets pass.
inline constexpr double kReadShareMost = 0.95, kReadShareLeast = 0.85;
Range read_gb_per_s(const Product& product);

std::vector<Estimate> step_time(const StepWork& work, const Product& product, int ranks, Link link,
                                SumWay way);
Range total_us(const std::vector<Estimate>& estimates);

// A step's tokens when each draft stands with this chance: 1 + a + ... + a^k.
double tokens_of_step(double acceptance, int drafts);

// Experts that the busiest of `ranks` GPUs reads when experts are given out whole: the mean over 1,000 random
// routings, every expert as likely as any other. experts / ranks of them live on each.
double busiest_rank_experts(int experts, int experts_per_token, int ranks, int rows);

}  // namespace fourfold::plan
