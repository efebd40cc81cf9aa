#include "plan/link_time.h"

namespace fourfold::plan {
namespace {

// PCIe 5: fitted to a published table of one-shot sums on four RTX PRO 6000 behind one CPU (1 KB 6.1 us, 16
// KB 7.7, 256 KB 28.7, 1 MB 95.6; rtx6kpro, pcie-oneshot-allreduce): a round of 6.1 us, and 34 GB/s out of
// each GPU that writes to three others. Another owner of such cards publishes a median of 8.4 us. The host's
// 50 GB/s are what loading reached here (load-h200.txt: 55 of one GPU). Rounds through the host were measured
// by no one we know of.
constexpr LinkFacts kPcie5{
    .latency_us = {6.1, 8.4},
    .host_latency_us = {10, 20},
    .gb_per_s = 34,
    .host_gb_per_s = 50,
    .evidence = Evidence::published,
    .because = "two owners of four such cards: 6.1 and 8.4 us a round, 34 GB/s out of each GPU"};
// PCIe 4 has half the rate a lane by its standard; that its rounds take as long is assumed.
constexpr LinkFacts kPcie4{.latency_us = {6.1, 10},
                           .host_latency_us = {10, 24},
                           .gb_per_s = 17,
                           .host_gb_per_s = 25,
                           .evidence = Evidence::assumed,
                           .because = "half the rate of PCIe 5, rounds about as long"};

// Two-shot of two ranks on one H200, 64 rows of 4,096 less 32: 26.1 - 15.2 us for 0.52 MB; of four ranks 20
// (bench/results/all-reduce-h200-{2,4}.json).
constexpr double kSumUsPerMb = 21;

Range transfer_us(double bytes, double gb_per_s, double rounds, const Range& latency) {
  const double carried = bytes / gb_per_s / 1e3;
  return {rounds * latency.low + carried, rounds * latency.high + carried};
}

}  // namespace

std::string_view link_name(Link link) { return link == Link::pcie4 ? "PCIe 4" : "PCIe 5"; }

std::string_view sum_way_name(SumWay way) {
  switch (way) {
    case SumWay::one_shot: return "one-shot";
    case SumWay::two_shot: return "two-shot";
    case SumWay::host: break;
  }
  return "host memory";
}

const LinkFacts& link_facts(Link link) { return link == Link::pcie4 ? kPcie4 : kPcie5; }

Evidence sum_evidence(SumWay way, Link link) {
  return way == SumWay::one_shot ? link_facts(link).evidence : Evidence::assumed;
}

Range all_reduce_us(SumWay way, Link link, int ranks, double bytes) {
  if (ranks == 1) return {};
  const LinkFacts& facts = link_facts(link);
  const double others = ranks - 1;
  switch (way) {
    case SumWay::one_shot: return transfer_us(others * bytes, facts.gb_per_s, 1, facts.latency_us);
    case SumWay::two_shot:
      return transfer_us(2 * others / ranks * bytes, facts.gb_per_s, 2, facts.latency_us);
    case SumWay::host: break;
  }
  // One part is written, those of the others are read.
  return transfer_us((1 + others) * bytes, facts.host_gb_per_s, 1, facts.host_latency_us);
}

Range prompt_sum_us(SumWay way, Link link, int ranks, double bytes) {
  Range us = all_reduce_us(way, link, ranks, bytes);
  if (ranks > 1) us.high += kSumUsPerMb * bytes / 1e6;
  return us;
}

Range all_gather_us(Link link, int ranks, double bytes) {
  return all_reduce_us(SumWay::one_shot, link, ranks, bytes);
}

}  // namespace fourfold::plan
