#include "library/prepare_model.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "backend/cuda/cuda.h"
#include "backend/ranks/host_collective.h"
#include "backend/ranks/ranks.h"
#include "backend/reference/reference.h"
#include "base/bf16.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/stream.h"
#include "kernels/gpu/gpu.h"
#include "library/activations.h"
#include "library/expert_choice.h"
#include "library/machine_rank.h"
#include "library/node_ranks.h"
#include "library/rank_machines.h"
#include "model/forward.h"

namespace fourfold::library {
namespace {

std::unique_ptr<backend::Backend> make_backend(const BackendOptions& options, const OpenModel& model,
                                               checkpoint::LoadProgress& progress, const Listener& listener,
                                               PreparedModel& out) {
  if (options.backend == "reference") return std::make_unique<backend::ReferenceBackend>();
  if (!on_machine(options.backend))
    return backend::make_cpu_backend(
        {.threads = options.threads, .keep_values = options.keep_values, .progress = &progress});
  if (options.rebuild_cache && options.cache.empty())
    fail(Code::invalid_request, "--rebuild-cache: there is no --cache DIR to rebuild");
  out.machine = open_machine(options.backend, 0);
  backend::GpuOptions gpu = gpu_options(options, model, progress, listener, *out.machine);
  gpu.load.report = &out.load;
  return backend::make_gpu_backend(*out.machine, std::move(gpu));
}

// More threads than cores wait for each other; a few more are nobody's business.
void mention_threads(const BackendOptions& options, const Listener& listener) {
  const auto cores = static_cast<int>(backend::cpu::allowed_cpus().size());
  if (options.threads > 2 * cores)
    listener.notice(
        fourfold::format("--threads {} on {} cores: they will wait for each other", options.threads, cores));
}

// Where a checkpoint asks for FP4 activations and gets others, that is said.
backend::Program program_of(const OpenModel& model, const BackendOptions& options, const Listener& listener,
                            ChosenActivations& out) {
  const auto build = [&](model::Activations activations) {
    backend::Program program = model::build_program(model.config, model.bound.weights, activations);
    take_fp8_rows(program, options, activations);
    store_kv(program, options.kv);
    return program;
  };
  const ChosenActivations chosen = choose_activations(model, options);
  backend::Program program = build(chosen.activations);
  require_fp4(program, options);
  mention_activations(chosen, model, options, program, listener);
  out = chosen;
  return program;
}

std::string percent(double share) {
  char out[32];
  std::snprintf(out, sizeof out, "%.3f %%", 100 * share);
  return out;
}

// What a GPU's rounding of NVFP4_AWQ's products costs; --dense has them in its own report. Of each tensor
// once, however many matrices of the model are parts of it.
void mention_folded(const OpenModel& model, const BackendOptions& options, const Listener& listener) {
  const auto& folded = model.bound.folded;
  if (folded.empty() || !on_machine(options.backend) || options.dense != "keep") return;
  constexpr std::int64_t kAtOnce = 1 << 16;
  struct Sums {
    double squares = 0, off_squares = 0;
  };
  Sums all;
  for (const checkpoint::TensorPool::Folded& tensor : folded) {
    const auto count = static_cast<std::int64_t>(tensor.values.size());
    std::vector<Sums> pieces(static_cast<std::size_t>((count + kAtOnce - 1) / kAtOnce));
    parallel_for(count, kAtOnce, [&](std::int64_t begin, std::int64_t end) {
      Sums& sums = pieces[static_cast<std::size_t>(begin / kAtOnce)];
      for (const float value : tensor.values.subspan(begin, end - begin)) {
        const double wanted = value, off = static_cast<double>(to_float(to_bf16(value))) - wanted;
        sums.squares += wanted * wanted;
        sums.off_squares += off * off;
      }
    });
    for (const Sums& sums : pieces) all.squares += sums.squares, all.off_squares += sums.off_squares;
  }
  listener.fact(
      fourfold::format("NVFP4_AWQ, multiplied out and held as bf16: relative RMS error of the "
                       "weights: {} ({} {})",
                       percent(all.squares == 0 ? 0 : std::sqrt(all.off_squares / all.squares)),
                       folded.size(), folded.size() == 1 ? "matrix" : "matrices"));
}

// What quantising at load cost: asked for, so not a notice.
void mention_dense(const backend::LoadReport& load, const BackendOptions& options, const Listener& listener) {
  if (options.dense == "keep") return;
  std::string line;
  for (const backend::DenseError& error : load.dense)
    line +=
        fourfold::format("{}{} {} ({} {})", line.empty() ? "" : ", ", error.kind, percent(error.relative_rms),
                         error.matrix_count, error.matrix_count == 1 ? "matrix" : "matrices");
  if (!line.empty())
    listener.fact(fourfold::format("--dense {}: relative RMS error of the weights: {}", options.dense, line));
  if (load.kept_count > 0)
    listener.notice(
        fourfold::format("--dense {}: {} matrices stay as they are stored: they (or what they are multiplied "
                         "together with) are quantised already",
                         options.dense, load.kept_count));
}

// Makes the backend of each rank; options learn how ranks that wait are told to stop.
using MakeRank = std::function<std::shared_ptr<backend::Backend>(int rank)>;
// For each rank, of whom it tells the kernels: an empty name is all of them.
using KernelTellers = std::vector<std::optional<std::string>>;
struct RankMaking {
  const OpenModel& model;
  const BackendOptions& options;
  const backend::Capacity& capacity;
  checkpoint::LoadProgress& progress;
  const Listener& listener;
  PreparedModel& out;
  backend::RankOptions& ranks;
  const KernelTellers& tellers;
};

// The widths of MLPs are all that ranks' parts differ in (model/shard.h), and with them their kernels: of
// ranks with the same ones the first tells.
KernelTellers kernel_tellers(const std::vector<RankProgram>& programs) {
  using Widths = std::array<std::int64_t, 3>;
  std::map<Widths, std::vector<int>, std::greater<>> ranks_of;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    const checkpoint::ModelConfig& config = programs[rank].part->config;
    const checkpoint::MoeConfig moe = config.moe.value_or(checkpoint::MoeConfig{});
    ranks_of[{config.dense_intermediate_size, moe.intermediate_size, moe.shared_intermediate_size}].push_back(
        static_cast<int>(rank));
  }
  KernelTellers out(programs.size());
  for (const auto& [widths, ranks] : ranks_of)
    out[static_cast<std::size_t>(ranks.front())] =
        ranks_of.size() == 1 ? std::string() : backend::names_of_ranks(ranks);
  return out;
}

// Rank 0 of several machines, on a GPU or a simulated one: its kernels meet the others' through the
// collective.
std::shared_ptr<backend::Backend> make_first_machine(const RankMaking& making,
                                                     const std::shared_ptr<backend::Collective>& collective,
                                                     NodeRoom& room) {
  const auto& [model, options, capacity, progress, listener, out, ranks, tellers] = making;
  const backend::PartOf part{0, options.tp};
  const auto all = open_node_machine(options.backend, part, 0);
  room.collective = choose_collective(options, listener);
  join_processes(*all, room.collective, part, collective);
  room.machine = machine_words(*all->machines.front());
  backend::GpuOptions gpu = gpu_options(options, model, progress, listener, *all->machines.front());
  gpu.load.report = &out.load;
  gpu.on_new_shape = tell_kernels(options, *tellers.front());  // the others' are told nowhere
  // Others of this machine may be on the same GPU.
  kernels::Memory& memory = all->machines.front()->memory();
  out.rooms =
      rank_rooms(devices_of_ranks(options.backend, ranks_here(options)), gpu.memory_fraction, [&](int) {
        return kernels::GpuMemory{memory.free_bytes(), memory.total_bytes()};
      });
  out.rooms.resize(1);
  out.devices = {0};
  gpu.room = out.rooms.front();
  gpu.graphs = records_steps(room.collective);
  return make_machine_rank(all, 0, std::move(gpu));
}

MakeRank node_rank_maker(const RankMaking& making) {
  const auto& [model, options, capacity, progress, listener, out, ranks, tellers] = making;
  const auto collective = backend::make_host_collective(options.tp, ranks.patience);
  NodeRoom room{.capacity = capacity, .machine = {}, .collective = {}};
  const std::shared_ptr<backend::Backend> here =
      on_machine(options.backend)
          ? make_first_machine(making, collective, room)
          : make_rank_backend(options, progress, cpu_share(options, ranks_here(options)), collective);
  out.nodes = open_node_ranks(model, options, room, collective, listener);
  const std::shared_ptr<NodeRanks> nodes = out.nodes;
  ranks.give_up = [nodes](int rank, const std::string& why) { nodes->leader->give_up(rank, why); };
  ranks.away = [nodes] { return nodes->leader->away(); };
  ranks.mend = [nodes] { return nodes->leader->mend(); };
  return [nodes, here](int rank) { return rank == 0 ? first_rank(here, nodes) : nodes->leader->rank(rank); };
}

MakeRank rank_maker(const RankMaking& making) {
  const auto& [model, options, capacity, progress, listener, out, ranks, tellers] = making;
  if (options.backend == "sim") ranks.patience = std::chrono::hours(1);
  if (options.nodes) return node_rank_maker(making);
  if (!on_machine(options.backend)) {
    const auto collective = backend::make_host_collective(options.tp, ranks.patience);
    const CpuShare share = cpu_share(options, options.tp);
    ranks.give_up = [collective](int rank, const std::string& why) { collective->give_up(rank, why); };
    return [&options = options, &progress = progress, share, collective](int rank) {
      return make_rank_backend(options, progress, {share.threads, rank * share.threads}, collective);
    };
  }
  const auto all = open_rank_machines(options.backend, options.tp, listener);
  ranks.give_up = [all](int, const std::string&) { all->exchange->stop(); };
  backend::GpuOptions gpu = gpu_options(options, model, progress, listener, *all->machines.front());
  out.rooms = rank_rooms(all->devices, gpu.memory_fraction, [&](int device) {
    const auto rank =
        static_cast<std::size_t>(std::ranges::find(all->devices, device) - all->devices.begin());
    all->enter[rank]();
    kernels::Memory& memory = all->machines[rank]->memory();
    return kernels::GpuMemory{memory.free_bytes(), memory.total_bytes()};
  });
  out.devices = all->devices;
  return [&out = out, &options = options, all, gpu, tellers = tellers](int rank) {
    backend::GpuOptions mine = gpu;
    mine.room = out.rooms[static_cast<std::size_t>(rank)];
    if (rank == 0) mine.load.report = &out.load;
    const std::optional<std::string>& whose = tellers[static_cast<std::size_t>(rank)];
    mine.on_new_shape = whose ? tell_kernels(options, *whose) : nullptr;
    return make_machine_rank(all, static_cast<std::size_t>(rank), std::move(mine));
  };
}

std::unique_ptr<backend::Prepared> prepare_all_ranks(const OpenModel& model, const BackendOptions& options,
                                                     const backend::Capacity& capacity,
                                                     checkpoint::LoadProgress& progress,
                                                     const Listener& listener, PreparedModel& out) {
  if (options.experts == "auto")
    if (const std::string said = expert_sharding_words(model.config, model.bound.weights, options.tp);
        !said.empty())
      listener.fact(said);
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < options.tp; ++rank)
    programs.push_back(rank_program(model, options, rank, out.activations.activations));
  const KernelTellers tellers = kernel_tellers(programs);
  backend::RankOptions ranks_options;
  const MakeRank make =
      rank_maker({model, options, capacity, progress, listener, out, ranks_options, tellers});
  std::vector<backend::Rank> ranks;
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < options.tp; ++rank) {
    RankProgram& made = programs[static_cast<std::size_t>(rank)];
    if (rank == 0 || !options.nodes) bytes += checkpoint::stored_bytes(made.part->weights);
    ranks.push_back({make(rank), std::move(made.program), std::move(made.part)});
  }
  progress.set_total(bytes);
  return backend::prepare_ranks(std::move(ranks), capacity, std::move(ranks_options));
}

std::int64_t megabytes(std::int64_t bytes) { return (bytes + 500'000) / 1'000'000; }

// The uses whose names begin so, without the beginning.
void mention_uses(const backend::Prepared& prepared, const std::string& prefix, const std::string& of_what,
                  const Listener& listener) {
  std::string line;
  std::int64_t total = 0;
  for (const backend::MemoryUse& use : prepared.memory()) {
    if (!use.what.starts_with(prefix)) continue;
    line += fourfold::format("{}{} {} MB", line.empty() ? "" : ", ", use.what.substr(prefix.size()),
                             megabytes(use.bytes));
    total += use.bytes;
  }
  if (!line.empty())
    listener.fact(fourfold::format("memory: {}{} MB of {}: {}", prefix, megabytes(total), of_what, line));
}

// With ranks on GPUs a line for each: what it takes, and of what.
void mention_memory(const PreparedModel& model, const Listener& listener) {
  if (model.rooms.empty()) return mention_uses(*model, "", "the GPU", listener);
  for (std::size_t rank = 0; rank < model.rooms.size(); ++rank) {
    const backend::MemoryRoom& room = model.rooms[rank];
    std::string of_what = fourfold::format("GPU {}", model.devices[rank]);
    if (room.total != std::numeric_limits<std::int64_t>::max())  // which a simulated one has
      of_what = fourfold::format("{} MB that it may take of {}", megabytes(room.usable), of_what);
    if (room.sharers > 1) of_what += fourfold::format(", its share: {} ranks are there", room.sharers);
    mention_uses(*model, fourfold::format("rank {} ", rank), of_what, listener);
  }
  if (model.nodes)
    for (int rank = 1; rank < model.whole_ranks; ++rank)
      mention_uses(*model, fourfold::format("rank {} ", rank), "its own GPU", listener);
}

}  // namespace

void require_known(const BackendOptions& options) {
  if (options.backend != "cpu" && options.backend != "reference" && !on_machine(options.backend))
    fail_with_hint(Code::invalid_request, "Known backends: cpu, cuda, sim, reference.",
                   "unknown backend '{}'", options.backend);
  if (options.backend != "cpu" && options.threads != 0)
    fail(Code::invalid_request,
         "--threads {}: the cpu backend alone has threads to choose, not the {} backend", options.threads,
         options.backend);
  if (options.tp < 1 || options.tp > kRanksMax)
    fail(Code::invalid_request, "--tp {}: 1 to {} ranks", options.tp, kRanksMax);
  if (options.tp == 1 && options.experts != "auto")
    fail(Code::invalid_request, "--experts {}: with one rank (--tp 1) all experts are there",
         options.experts);
  if (options.tp > 1 && !options.cache.empty())
    fail_with_hint(Code::invalid_request, "Leave out --cache.",
                   "--cache with --tp {}: packed copies are of whole models", options.tp);
  if (options.nodes) require_known_nodes(options);
  if (on_machine(options.backend)) return;
  const auto refuse = [&](bool given, const char* option) {
    if (given)
      fail(Code::invalid_request, "{}: the cuda and sim backends alone have it, not the {} backend", option,
           options.backend);
  };
  refuse(options.dense != "keep", "--dense");
  refuse(!options.cache.empty(), "--cache");
  refuse(options.rebuild_cache, "--rebuild-cache");
  refuse(options.memory_fraction.has_value(), "--memory-fraction");
  refuse(options.explain, "--explain");
  refuse(!options.tuned.empty(), "--tuned");
}

CpuShare cpu_share(const BackendOptions& options, int sharers) {
  const int all =
      options.threads != 0 ? options.threads : static_cast<int>(backend::cpu::allowed_cpus().size());
  return {.threads = std::max(all / sharers, 1), .first_cpu = 0};
}

std::shared_ptr<backend::Backend> make_rank_backend(const BackendOptions& options,
                                                    checkpoint::LoadProgress& progress, const CpuShare& share,
                                                    const std::shared_ptr<backend::Collective>& collective) {
  if (options.backend == "reference") return std::make_shared<backend::ReferenceBackend>(collective);
  return backend::make_cpu_backend({.threads = share.threads,
                                    .keep_values = options.keep_values,
                                    .progress = &progress,
                                    .collective = collective,
                                    .first_cpu = share.first_cpu});
}

bool on_machine(std::string_view backend) { return backend == "cuda" || backend == "sim"; }

model::ExpertSharding parse_expert_sharding(std::string_view text) {
  if (text == "auto") return model::ExpertSharding::automatic;
  if (text == "tp") return model::ExpertSharding::columns;
  if (text == "ep") return model::ExpertSharding::experts;
  fail_with_hint(Code::invalid_request,
                 "Known: auto, tp (every rank has a part of every expert), ep (every rank has some experts).",
                 "unknown --experts '{}'", text);
}

RankProgram rank_program(const OpenModel& model, const BackendOptions& options, int rank,
                         model::Activations activations) {
  RankProgram out;
  if (options.tp == 1) {
    out.program = model::build_program(model.config, model.bound.weights, activations);
  } else {
    out.part = std::make_shared<const model::ModelShard>(model::shard_model(
        model.config, model.bound.weights, {rank, options.tp}, parse_expert_sharding(options.experts)));
    out.program = model::build_program(*out.part, activations);
  }
  take_fp8_rows(out.program, options, activations);
  store_kv(out.program, options.kv);
  return out;
}

backend::DenseWeights parse_dense_weights(std::string_view text) {
  if (text == "keep") return std::nullopt;
  if (text == "fp8") return WeightFormat::fp8;
  if (text == "nvfp4") return WeightFormat::nvfp4;
  fail(Code::invalid_request, "--dense is '{}'; keep, fp8 and nvfp4 are possible", text);
}

void store_kv(backend::Program& program, std::string_view kv) {
  if (kv == "auto") return;
  if (kv != "bf16" && kv != "fp8")
    fail_with_hint(Code::invalid_request, "Known formats of keys and values: auto, bf16, fp8.",
                   "unknown --kv '{}'", kv);
  for (backend::KvCache& cache : program.kv_caches)
    cache.format = kv == "fp8" ? backend::KvFormat::fp8 : backend::KvFormat::bf16;
}

double parse_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    fail(Code::invalid_request, "--memory-fraction {}: more than 0 and at most 1", fraction);
  return fraction;
}

PreparedModel prepare_model(const OpenModel& model, const BackendOptions& options,
                            const backend::Capacity& capacity, const Listener& listener) {
  require_known(options);
  const auto start = std::chrono::steady_clock::now();
  checkpoint::LoadProgress progress(checkpoint::stored_bytes(model.bound.weights), listener.on_progress);
  PreparedModel out;
  backend::Program program = program_of(model, options, listener, out.activations);
  mention_threads(options, listener);
  if (options.tp > 1) {
    out.prepared = prepare_all_ranks(model, options, capacity, progress, listener, out);
    out.whole = std::move(program);
    out.whole_ranks = options.tp;
  } else {
    out.backend = make_backend(options, model, progress, listener, out);
    out.prepared = out.backend->prepare(std::move(program), capacity);
  }
  mention_memory(out, listener);
  mention_dense(out.load, options, listener);
  mention_folded(model, options, listener);
  if (!out.load.cache_file.empty())
    listener.fact(fourfold::format("packed copy {}: {}", out.load.from_cache ? "read" : "written",
                                   out.load.cache_file));
  for (const std::string& text : out.prepared->notices()) listener.notice(text);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace fourfold::library
