#include "plan/step_time.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/random.h"
#include "plan/budget.h"

namespace fourfold::plan {
namespace {

constexpr int kRoutings = 1000;

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

Range transfer_us(double bytes, double gb_per_s, double rounds, const Range& latency) {
  const double carried = bytes / gb_per_s / 1e3;
  return {rounds * latency.low + carried, rounds * latency.high + carried};
}

// From nothing to all that was lost there: an SM of the H200 has to keep four times the bytes in flight that
// one of a workstation card has to (36 GB/s of memory an SM against 10), so one block may be enough here.
Estimate small_sm_time(const StepWork& work, double step_us) {
  const double share = small_sm_share(work.rows, work.context);
  return {
      "SMs of one block",
      {0, share * step_us},
      Evidence::emulated,
      format("{} of {} boundaries without overlap; measured on an H200 with SMs made small: up to {} % of a "
             "step{}",
             work.apart, work.kernels, static_cast<int>(1000 * share + 0.5) / 10.0,
             work.context > kSmallSmContextMost
                 ? format(" at {} tokens of context, more was not", with_commas(kSmallSmContextMost))
                 : "")};
}

}  // namespace

std::string_view evidence_name(Evidence evidence) {
  switch (evidence) {
    case Evidence::measured: return "measured here";
    case Evidence::emulated: return "emulated";
    case Evidence::published: return "published";
    case Evidence::assumed: break;
  }
  return "assumed";
}

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

Range all_gather_us(Link link, int ranks, double bytes) {
  return all_reduce_us(SumWay::one_shot, link, ranks, bytes);
}

int boundaries_apart(const ArchFacts& arch, std::span<const int> shared_memory_bytes) {
  const auto taken = [](const ArchFacts& chip, int bytes) {
    return round_up(bytes + chip.smem_reserved_bytes_per_block, chip.smem_allocation_unit_bytes);
  };
  const auto fit_together = [&](const ArchFacts& chip, int first, int second) {
    return taken(chip, first) + taken(chip, second) <= chip.smem_bytes_per_sm;
  };
  int apart = 0;
  for (std::size_t i = 1; i < shared_memory_bytes.size(); ++i) {
    const int first = shared_memory_bytes[i - 1], second = shared_memory_bytes[i];
    apart += fit_together(kSm90, first, second) && !fit_together(arch, first, second);
  }
  return apart;
}

double small_sm_share(int rows, double context) {
  // The next more that was measured; losses grow with both, but for noise.
  int next_rows = kSmallSmLoss.back().rows, next_context = kSmallSmContextMost;
  for (const SmallSmLoss& point : kSmallSmLoss) {
    if (point.rows >= rows) next_rows = std::min(next_rows, point.rows);
    if (point.context >= context) next_context = std::min(next_context, point.context);
  }
  double share = 0;
  for (const SmallSmLoss& point : kSmallSmLoss)
    if (point.rows <= next_rows && point.context <= next_context) share = std::max(share, point.share);
  return share;
}

Range read_gb_per_s(const Product& product) {
  if (product.measured_read_gb_per_s)
    return {static_cast<double>(*product.measured_read_gb_per_s),
            static_cast<double>(*product.measured_read_gb_per_s)};
  const auto published = static_cast<double>(product.bandwidth_gb_per_s);
  return {kReadShareLeast * published, kReadShareMost * published};
}

std::vector<Estimate> step_time(const StepWork& work, const Product& product, int ranks, Link link,
                                SumWay way) {
  const Range speed = read_gb_per_s(product);
  std::vector<Estimate> out;
  const bool is_measured = product.measured_read_gb_per_s.has_value();
  out.push_back({"bytes",
                 {work.bytes / speed.high / 1e3, work.bytes / speed.low / 1e3},
                 is_measured ? Evidence::measured : Evidence::published,
                 is_measured ? format("{} GB/s read", *product.measured_read_gb_per_s)
                             : format("{} GB/s published, {} to {} of it reached (assumed)",
                                      product.bandwidth_gb_per_s, kReadShareLeast, kReadShareMost)});
  const bool is_here = product.arch == &kSm90;
  out.push_back({"boundaries", work.kernels * kBoundaryUs, is_here ? Evidence::measured : Evidence::assumed,
                 format("{} kernels, {} to {} us each on an H200{}", work.kernels, kBoundaryUs.low,
                        kBoundaryUs.high, is_here ? "" : "; here taken to be the same")});
  if (work.apart > 0) out.push_back(small_sm_time(work, total_us(out).high));
  if (ranks == 1) return out;
  const LinkFacts& facts = link_facts(link);
  out.push_back(
      {"sums between GPUs", work.sums * all_reduce_us(way, link, ranks, work.sum_bytes),
       sum_evidence(way, link),
       format("{} of {} KB, {}, {}: {}", work.sums, work.sum_bytes / 1024, sum_way_name(way), link_name(link),
              way == SumWay::host ? "rounds through the host were not measured" : facts.because)});
  out.push_back({"logits of all GPUs", all_gather_us(link, ranks, work.gather_bytes), facts.evidence,
                 format("{} KB of each", work.gather_bytes / 1024)});
  return out;
}

Range total_us(const std::vector<Estimate>& estimates) {
  Range total;
  for (const Estimate& estimate : estimates) total += estimate.us;
  return total;
}

double tokens_of_step(double acceptance, int drafts) {
  double tokens = 1, chance = 1;
  for (int i = 0; i < drafts; ++i) tokens += chance *= acceptance;
  return tokens;
}

double busiest_rank_experts(int experts, int experts_per_token, int ranks, int rows) {
  check(experts % ranks == 0 && experts_per_token <= experts, "experts are given out evenly", experts, ranks);
  Random random(1);
  std::vector<int> seen(static_cast<std::size_t>(experts), 0);  // by expert: the last row that chose it
  std::vector<int> count(static_cast<std::size_t>(ranks));
  std::vector<int> routing(static_cast<std::size_t>(experts), -1);  // by expert: the last routing with it
  double sum = 0;
  int stamp = 0;
  for (int trial = 0; trial < kRoutings; ++trial) {
    std::fill(count.begin(), count.end(), 0);
    for (int row = 0; row < rows; ++row) {
      ++stamp;
      for (int chosen = 0; chosen < experts_per_token;) {
        const auto expert = static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(experts)));
        if (seen[expert] == stamp) continue;
        seen[expert] = stamp;
        ++chosen;
        if (routing[expert] == trial) continue;
        routing[expert] = trial;
        ++count[expert / static_cast<std::size_t>(experts / ranks)];
      }
    }
    sum += *std::max_element(count.begin(), count.end());
  }
  return sum / kRoutings;
}

}  // namespace fourfold::plan
