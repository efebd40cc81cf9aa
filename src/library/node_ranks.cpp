#include "library/node_ranks.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/identity.h"
#include "checkpoint/stream.h"
#include "checkpoint/tensor_sums.h"
#include "kernels/cpu/isa.h"
#include "library/activations.h"
#include "library/machine_rank.h"

namespace fourfold::library {
namespace {

constexpr int kRankPort = 4450;

// Which of the hosts a rank from 1 on is on: neighbours together.
const std::string& host_of(const NodeOptions& nodes, int rank, int rank_count) {
  return nodes.hosts[static_cast<std::size_t>(rank - 1) * nodes.hosts.size() /
                     static_cast<std::size_t>(rank_count - 1)];
}

bool is_here(const std::string& host) { return host == nodes::kHere; }

// Of its host's. Here they are counted, and ranks that are more share them; elsewhere each has one.
int gpu_of(const BackendOptions& options, int rank) {
  const std::string& host = host_of(*options.nodes, rank, options.tp);
  int before = is_here(host) ? 1 : 0;  // rank 0 is here
  for (int other = 1; other < rank; ++other)
    before += host_of(*options.nodes, other, options.tp) == host ? 1 : 0;
  if (!is_here(host)) return before;
  return devices_of_ranks(options.backend, ranks_here(options))[static_cast<std::size_t>(before)];
}

bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Only as far as it must be reached.
nodes::Address listen_address(const NodeOptions& options) {
  if (!options.listen.empty()) return nodes::parse_address(options.listen, "--rank-listen");
  const bool all_here = !options.hosts.empty() && std::ranges::all_of(options.hosts, is_here);
  return all_here ? nodes::Address{"127.0.0.1", 0} : nodes::Address{"0.0.0.0", kRankPort};
}

std::vector<nodes::Launch> launches(const BackendOptions& options, const nodes::Address& listen, int port,
                                    const nodes::Token& token, const Listener& listener) {
  std::vector<nodes::Launch> out;
  const NodeOptions& nodes = *options.nodes;
  if (nodes.hosts.empty()) return out;
  const int threads = cpu_share(options, ranks_here(options)).threads;
  int here = 1;  // of the ranks on this machine
  for (int rank = 1; rank < options.tp; ++rank) {
    nodes::LaunchPlan plan{.host = host_of(nodes, rank, options.tp),
                           .rank = rank,
                           .program = nodes.program,
                           .leader_host = is_any(listen.host) ? "" : listen.host,
                           .port = port,
                           .more = {}};
    if (is_here(plan.host)) {
      plan.program = std::filesystem::read_symlink("/proc/self/exe").string();
      if (options.backend == "cpu")
        plan.more = {"--threads", std::to_string(threads), "--first-cpu", std::to_string(threads * here)};
      ++here;
    }
    if (options.backend == "cuda") plan.more = {"--gpu", std::to_string(gpu_of(options, rank))};
    out.push_back({.rank = rank, .command = nodes::launch_command(plan), .input = token.secret()});
    listener.fact(fourfold::format("rank {}: {}", rank, nodes::shell_line(out.back().command)));
  }
  return out;
}

// What a prepared part stands on.
struct LoadedPart {
  std::shared_ptr<RankMachines> machines;  // none: the CPU
  std::shared_ptr<OpenModel> model;
  RankProgram made;
  std::unique_ptr<checkpoint::LoadProgress> progress;
  std::shared_ptr<backend::Backend> backend;
  std::unique_ptr<backend::Prepared> prepared;
};

BackendOptions options_of(const nodes::Settings& settings, int threads) {
  return {.backend = settings.backend,
          .activations = settings.activations,
          .kv = settings.kv,
          .threads = threads,
          .memory_fraction =
              settings.memory_fraction != 0 ? std::optional(settings.memory_fraction) : std::nullopt,
          .tuned = settings.tuned,
          .dense = settings.dense,
          .tp = settings.rank_count,
          .experts = settings.experts};
}

std::string own_isa() { return std::string(cpu::isa_name(cpu::choose_isa(""))); }

// AMX sums in an order of its own, all other instruction sets in one. What every rank computes for itself,
// the router above all, must have the same bits on all of them: else they would choose different experts.
void require_same_sums(const nodes::Settings& settings) {
  const auto is_amx = [](const std::string& isa) { return isa == cpu::isa_name(cpu::Isa::amx); };
  if (settings.backend != "cpu" || is_amx(settings.isa) == is_amx(own_isa())) return;
  fail_with_hint(Code::unsupported_device, "Set FOURFOLD_CPU_ISA=avx512 on all machines.",
                 "the leader's CPU kernels are {}, this machine's {}: their sums differ in the last bits",
                 settings.isa, own_isa());
}

// Which kernel a rank takes goes by its chip; the parts of a sum fit together where all take the same.
std::shared_ptr<RankMachines> open_like_the_leader(const nodes::Settings& settings, int gpu) {
  if (!on_machine(settings.backend)) return nullptr;
  auto machines = open_node_machine(settings.backend, {settings.rank, settings.rank_count}, gpu);
  if (const std::string own = machine_words(*machines->machines.front()); own != settings.machine)
    fail_with_hint(Code::unsupported_device, "fourfold rank --gpu K or CUDA_VISIBLE_DEVICES chooses another.",
                   "the ranks' GPUs must be alike: the leader's is {}, GPU {} of this machine {}",
                   settings.machine, gpu, own);
  return machines;
}

// What `fourfold rank` has opened for a leader.
struct Opened {
  std::shared_ptr<OpenModel> model;
  std::shared_ptr<RankMachines> machines;
  std::shared_ptr<const checkpoint::TensorSummer> summer;
};

std::shared_ptr<backend::Backend> make_rank_on_machine(
    LoadedPart& part, const BackendOptions& options, const RankSetup& setup, const nodes::Settings& settings,
    const std::shared_ptr<backend::Collective>& collective) {
  join_processes(*part.machines, settings.collective, {settings.rank, settings.rank_count}, collective);
  backend::GpuOptions gpu =
      gpu_options(options, *part.model, *part.progress, setup.listener, *part.machines->machines.front());
  gpu.graphs = records_steps(settings.collective);
  return make_machine_rank(part.machines, 0, std::move(gpu));
}

std::shared_ptr<backend::Prepared> load_part(const Opened& opened, const RankSetup& setup,
                                             const nodes::Settings& settings,
                                             const std::shared_ptr<backend::Collective>& collective) {
  const BackendOptions options = options_of(settings, setup.threads);
  require_known(options);
  const auto part = std::make_shared<LoadedPart>();
  part->machines = opened.machines;
  part->model = opened.model;
  const OpenModel& model = *part->model;
  part->made = rank_program(model, options, settings.rank, choose_activations(model, options).activations);
  part->progress = std::make_unique<checkpoint::LoadProgress>(
      checkpoint::stored_bytes(part->made.part->weights), setup.listener.on_progress);
  const CpuShare share{cpu_share(options, 1).threads, setup.first_cpu};
  part->backend = part->machines ? make_rank_on_machine(*part, options, setup, settings, collective)
                                 : make_rank_backend(options, *part->progress, share, collective);
  part->prepared = part->backend->prepare(std::move(part->made.program), settings.capacity);
  return {part, part->prepared.get()};
}

std::shared_ptr<const checkpoint::TensorSummer> summer_of(const OpenModel& model) {
  return std::make_shared<const checkpoint::TensorSummer>(
      model.checkpoint, checkpoint::SumOptions{.kept = checkpoint::kept_sums_folder()});
}

// Says what it cost: a minute that a start takes longer is asked about.
nodes::TensorSums sum_tensors(const checkpoint::TensorSummer& summer, const std::function<bool()>& stops,
                              const std::function<void(const std::string& text)>& say) {
  checkpoint::TensorSummer::Sums sums = summer.sum(stops);
  if (say)
    say(sums.bytes_read == 0
            ? fourfold::format("checksums of all weights: kept in {}",
                               checkpoint::kept_sums_folder().string())
            : fourfold::format("checksums of all weights: {} MB read in {} ms", sums.bytes_read / 1'000'000,
                               static_cast<std::int64_t>(sums.seconds * 1000)));
  if (say && !sums.not_kept.empty())
    say(fourfold::format("checksums are made again with the next start: {}", sums.not_kept));
  return {std::move(sums.tensors)};
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class FirstRank final : public backend::Backend {
 public:
  FirstRank(std::shared_ptr<backend::Backend> inner, std::shared_ptr<NodeRanks> nodes)
      : inner_(std::move(inner)), nodes_(std::move(nodes)) {}
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<backend::Prepared> prepare(backend::Program program,
                                             const backend::Capacity& capacity) override {
    try {
      return inner_->prepare(std::move(program), capacity);
    } catch (const std::exception& error) {
      nodes_->leader->give_up(0, error.what());
      throw;
    }
  }

 private:
  std::shared_ptr<backend::Backend> inner_;
  std::shared_ptr<NodeRanks> nodes_;
};

}  // namespace

std::shared_ptr<backend::Backend> first_rank(std::shared_ptr<backend::Backend> backend,
                                             std::shared_ptr<NodeRanks> nodes) {
  return std::make_shared<FirstRank>(std::move(backend), std::move(nodes));
}

int ranks_here(const BackendOptions& options) {
  if (!options.nodes) return options.tp;
  int count = 1;
  for (int rank = 1; rank < options.tp && !options.nodes->hosts.empty(); ++rank)
    count += is_here(host_of(*options.nodes, rank, options.tp)) ? 1 : 0;
  return count;
}

void require_known_nodes(const BackendOptions& options) {
  const NodeOptions& nodes = *options.nodes;
  if (options.tp < 2)
    fail_with_hint(Code::invalid_request, "--tp 2 is one rank here and one elsewhere.",
                   "--nodes with --tp {}: there is no rank to be elsewhere", options.tp);
  if (std::ssize(nodes.hosts) > options.tp - 1)
    fail(Code::invalid_request, "--nodes names {} hosts for {} ranks: rank 0 is here, and --tp {}",
         nodes.hosts.size(), options.tp - 1, options.tp);
  if (std::ranges::any_of(nodes.hosts, [](const std::string& h) { return h.empty() || h.front() == '-'; }))
    fail(Code::invalid_request, "--nodes: a host's name is empty, or begins with '-'");
  if (nodes.collective != "auto" && nodes.collective != "tcp" && nodes.collective != "nccl")
    fail(Code::invalid_request, "--collective {}: auto, tcp and nccl are possible", nodes.collective);
  if (nodes.collective == "nccl" && !on_machine(options.backend))
    fail(Code::invalid_request, "--collective nccl: the cuda backend alone has it, not the {} backend",
         options.backend);
  if (nodes.hosts.empty() && nodes.token_file.empty())
    fail_with_hint(Code::invalid_request,
                   "openssl rand -hex 32 > FILE; chmod 600 FILE; the same file on every machine.",
                   "--nodes by-hand needs --token-file FILE");
}

nodes::ModelSums model_sums(const OpenModel& model) {
  const checkpoint::Identity identity = checkpoint::identity_of(model.checkpoint);
  std::uint64_t config = 0;
  for (const char* name : {"config.json", "hf_quant_config.json"}) {
    const std::string text = text_of(model.folder / name);
    config = checksum(std::as_bytes(std::span(text)), config);
  }
  return {identity.headers, identity.samples, config};
}

std::shared_ptr<NodeRanks> open_node_ranks(const OpenModel& model, const BackendOptions& options,
                                           const NodeRoom& room,
                                           const std::shared_ptr<backend::Collective>& collective,
                                           const Listener& listener) {
  const NodeOptions& given = *options.nodes;
  const nodes::Address listen = listen_address(given);
  const nodes::Token token =
      given.token_file.empty() ? nodes::Token::draw() : nodes::Token::from_file(given.token_file);
  const auto out = std::make_shared<NodeRanks>();
  const auto summer = summer_of(model);
  const auto sum = [summer, log = given.log](const std::function<bool()>& stops) {
    return sum_tensors(*summer, stops, log);
  };
  out->leader = std::make_unique<nodes::Leader>(
      nodes::LeaderOptions{.listen = listen,
                           .token = token,
                           .version = given.version,
                           .settings = {.rank = 0,
                                        .rank_count = options.tp,
                                        .model = given.model,
                                        .backend = options.backend,
                                        .activations = options.activations,
                                        .kv = options.kv,
                                        .experts = options.experts,
                                        .dense = options.dense,
                                        .tuned = options.tuned,
                                        .collective = room.collective,
                                        .memory_fraction = options.memory_fraction.value_or(0),
                                        .isa = own_isa(),
                                        .machine = room.machine,
                                        .capacity = room.capacity},
                           .model = model_sums(model),
                           .sum_tensors = sum,
                           .tensor_name = [summer](std::size_t tensor) { return summer->name_of(tensor); },
                           .collective = collective,
                           .meets_elsewhere = room.collective.starts_with("nccl"),
                           .is_stopped = given.is_stopped,
                           .log = given.log});
  const int port = out->leader->port();
  if (given.hosts.empty())
    listener.fact(fourfold::format(
        "ranks 1 to {} are waited for, on each machine: fourfold rank --join {}:{} --token-file FILE",
        options.tp - 1, is_any(listen.host) ? "THIS-HOST" : listen.host, port));
  out->launcher = std::make_unique<nodes::Launcher>(
      nodes::LauncherOptions{.launches = launches(options, listen, port, token, listener),
                             .is_there = out->leader->presence(),
                             .log = given.log});
  return out;
}

nodes::RankModel rank_model(const RankSetup& setup) {
  const auto opened = std::make_shared<Opened>();
  return {.open =
              [&setup, opened](const nodes::Settings& settings) {
                require_same_sums(settings);
                *opened = {};  // of the leader before
                opened->machines = open_like_the_leader(settings, setup.gpu);
                opened->model = setup.open(settings.model);
                opened->summer = summer_of(*opened->model);
                return model_sums(*opened->model);
              },
          .sum =
              [&setup, opened] {
                return sum_tensors(
                    *opened->summer, [] { return false; }, setup.listener.on_fact);
              },
          .load =
              [&setup, opened](const nodes::Settings& settings,
                               const std::shared_ptr<backend::Collective>& collective) {
                return load_part(*opened, setup, settings, collective);
              }};
}

}  // namespace fourfold::library
