#include "cli/bench_all_reduce_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json_writer.h"
#include "cli/build_info.h"
#include "kernels/all_reduce/all_reduce_params.h"
#include "kernels/all_reduce/exchange.h"
#include "kernels/bench/all_reduce_bench.h"
#include "kernels/bench/nccl_bench.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::cli {
namespace {

using plan::Link;

// The machines of the ranks and what they stand on.
struct RankMachines {
  std::vector<std::unique_ptr<kernels::Gpu>> gpus;
  std::vector<std::unique_ptr<sim::Device>> devices;
  std::vector<std::unique_ptr<kernels::Machine>> simulated;
  std::vector<kernels::Machine*> machines;
  std::vector<int> numbers;  // of their devices
  std::vector<void*> streams;
  std::string where;
};

RankMachines open_ranks(const BenchAllReduceOptions& options) {
  RankMachines ranks;
  if (options.sim) {
    const auto peers = std::make_shared<sim::PeerMemory>(options.ranks);
    for (int rank = 0; rank < options.ranks; ++rank) {
      ranks.devices.push_back(
          std::make_unique<sim::Device>(sim::DeviceOptions{.peers = peers, .rank = rank}));
      ranks.simulated.push_back(kernels::make_sim_machine(*ranks.devices.back()));
      ranks.machines.push_back(ranks.simulated.back().get());
      ranks.numbers.push_back(rank);
      ranks.streams.push_back(nullptr);
    }
    ranks.where = fourfold::format("{} simulated devices; their times say nothing", options.ranks);
    return ranks;
  }
  if (options.each_gpu) {
    const kernels::PeerCheck check = kernels::check_peers();
    if (!check.wrong.empty()) fail(Code::device_lost, "copies {} arrive with other values", check.wrong);
    if (!check.all)
      fail(Code::unsupported_op, "the driver does not let every GPU reach every other: --each-gpu needs it");
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.numbers.push_back(options.gpu + (options.each_gpu ? rank : 0));
    ranks.gpus.push_back(kernels::open_gpu(ranks.numbers.back()));
    ranks.machines.push_back(&ranks.gpus.back()->machine());
    ranks.streams.push_back(ranks.gpus.back()->stream());
  }
  ranks.where = fourfold::format("{}: {} ranks, {}", ranks.machines.front()->description(), options.ranks,
                                 options.each_gpu ? "a GPU each" : "streams of one GPU");
  return ranks;
}

std::string row_name(const bench::AllReduceTime& time) {
  return fourfold::format("{}{}", all_reduce::way_name(time.way), time.norms ? " norm" : "");
}

std::string table(const std::vector<bench::AllReduceTime>& times, const BenchAllReduceOptions& options) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-14s %6s %10s %10s %10s   %12s %12s\n", "way", "rows", "median us",
                "best us", "worst us", "PCIe 4 model", "PCIe 5 model");
  std::string text = line;
  for (const bench::AllReduceTime& time : times) {
    std::snprintf(line, sizeof line, "  %-14s %6d %10.2f %10.2f %10.2f   %12.1f %12.1f\n",
                  row_name(time).c_str(), time.rows, time.median_us, time.best_us, time.worst_us,
                  all_reduce::modelled_us(time.way, Link::pcie4, options.ranks, time.rows, options.columns),
                  all_reduce::modelled_us(time.way, Link::pcie5, options.ranks, time.rows, options.columns));
    text += line;
  }
  return text;
}

std::string nccl_table(const std::vector<bench::NcclTime>& times, const std::string& version) {
  std::string text;
  double most = 0;
  char line[160];
  for (const bench::NcclTime& time : times) {
    std::snprintf(line, sizeof line, "  %-14s %6d %10.2f %10.2f %10.2f\n", "nccl", time.rows, time.median_us,
                  time.best_us, time.worst_us);
    text += line;
    most = std::max(most, time.difference);
  }
  std::snprintf(line, sizeof line,
                "  NCCL %s, launched call by call, not as a graph: its sums are ours but for the order of "
                "additions (%.2f of what that may change)\n",
                version.c_str(), most);
  return text + line;
}

void write_json(const std::vector<bench::AllReduceTime>& times, const std::vector<bench::NcclTime>& nccl,
                const BenchAllReduceOptions& options, const std::string& where) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("command", options.command).member("commit", commit()).member("machine", where);
  json.member("ranks", options.ranks).member("columns", options.columns).member("blocks", options.blocks);
  json.key("times").begin_array();
  for (const bench::AllReduceTime& time : times) {
    json.begin_object().member("way", row_name(time)).member("rows", time.rows);
    json.member("median_us", time.median_us)
        .member("best_us", time.best_us)
        .member("worst_us", time.worst_us);
    json.member("pcie4_model_us",
                all_reduce::modelled_us(time.way, Link::pcie4, options.ranks, time.rows, options.columns));
    json.member("pcie5_model_us",
                all_reduce::modelled_us(time.way, Link::pcie5, options.ranks, time.rows, options.columns));
    json.end_object();
  }
  json.end_array().key("nccl").begin_array();
  for (const bench::NcclTime& time : nccl) {
    json.begin_object().member("rows", time.rows).member("median_us", time.median_us);
    json.member("best_us", time.best_us).member("worst_us", time.worst_us);
    json.member("difference", time.difference).end_object();
  }
  json.end_array().end_object();
  write_file(options.json, json.finish() + "\n");
}

}  // namespace

int run_bench_all_reduce(const BenchAllReduceOptions& options, const Console& console) {
  if (options.ranks < 2 || options.ranks > all_reduce::kRanksMost)
    fail(Code::invalid_request, "--ranks is {}; 2 to {} are possible", options.ranks, all_reduce::kRanksMost);
  for (const int rows : options.rows)
    if (rows < 1 || rows > 128) fail(Code::invalid_request, "--rows has {}; 1 to 128 are possible", rows);
  const RankMachines ranks = open_ranks(options);
  const auto enter = [&](int rank) {
    if (!ranks.gpus.empty()) ranks.gpus[static_cast<std::size_t>(rank)]->use();
  };
  std::optional<all_reduce::Nccl> nccl;
  if (!options.nccl.empty()) nccl.emplace(options.nccl).connect(ranks.numbers);
  console.out << ranks.where << "; f32 rows of " << options.columns << "\n";
  using all_reduce::Way;
  for (const Way way : {Way::one_shot, Way::two_shot, Way::host}) {
    all_reduce::Exchange exchange({.ranks = options.ranks, .way = way, .blocks = options.blocks});
    for (int rank = 0; rank < options.ranks; ++rank) {
      enter(rank);
      exchange.join(rank, *ranks.machines[static_cast<std::size_t>(rank)], options.columns, 64);
    }
    const std::string wrong = all_reduce::check_values(
        exchange, ranks.machines,
        {.columns = options.columns, .rounds = options.sim ? 2 : 200, .enter = enter});
    if (!wrong.empty())
      fail(Code::device_lost, "the sums are wrong, {}: {}", all_reduce::way_name(way), wrong);
  }
  bench::AllReduceBenchOptions bench{
      .rows = options.rows, .columns = options.columns, .blocks = options.blocks, .rounds = options.rounds};
  if (options.sim) bench.calls = 2, bench.rounds = 1;
  const auto times = bench::bench_all_reduce(ranks.machines, bench, enter);
  console.out << table(times, options);
  console.out
      << "  model: the middle of what fourfold plan --tp takes a sum on such a bus to cost; not measured\n";
  std::vector<bench::NcclTime> nccl_times;
  if (nccl) {
    nccl_times = bench::bench_nccl(*nccl, ranks.machines, ranks.streams, bench, enter);
    console.out << nccl_table(nccl_times, nccl->version());
  }
  if (!options.json.empty()) write_json(times, nccl_times, options, ranks.where);
  return kFine;
}

}  // namespace fourfold::cli
