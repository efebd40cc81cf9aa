#include "cli/bench_load_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "backend/cuda/load/record_cache.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/token_grain.h"
#include "cli/figures.h"
#include "cli/load_model.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Files = std::vector<std::filesystem::path>;

constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
constexpr std::int64_t kReadsOfOne = 8;  // so many one after another by one thread
constexpr std::size_t kCopyBytes = std::size_t{32} << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Asks the kernel to forget the files; pages that are not on the disk yet stay.
void evict(const Files& files) {
  for (const auto& file : files) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }
}

struct Timed {
  double bytes = 0;
  double seconds = 0;
  double rate() const { return seconds > 0 ? bytes / seconds : 0; }
};

// All of the files, by as many threads as there are cores.
Timed read_files(const Files& files) {
  Timed timed;
  const auto start = Clock::now();
  for (const auto& path : files) {
    const checkpoint::OpenFile file(path);
    const std::uint64_t size = file.size();
    timed.bytes += static_cast<double>(size);
    const auto count = static_cast<std::int64_t>((size + kReadBytes - 1) / kReadBytes);
    parallel_for(count, kReadsOfOne, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::byte> buffer(kReadBytes);
      for (auto i = static_cast<std::uint64_t>(begin); i < static_cast<std::uint64_t>(end); ++i)
        file.read(i * kReadBytes, std::span(buffer).first(std::min(kReadBytes, size - i * kReadBytes)));
    });
  }
  timed.seconds = seconds_since(start);
  return timed;
}

// Page-locked memory to the device, nobody waiting between the copies.
Timed copy_to_device(kernels::Memory& memory, int rounds) {
  void* host = memory.allocate_host(kCopyBytes);
  void* device = memory.allocate(kCopyBytes, "target of the copies");
  std::fill_n(static_cast<unsigned char*>(host), kCopyBytes, static_cast<unsigned char>(1));
  memory.send(device, host, kCopyBytes);
  memory.wait();
  const auto start = Clock::now();
  for (int i = 0; i < rounds; ++i) memory.send(device, host, kCopyBytes);
  memory.wait();
  const Timed timed{static_cast<double>(rounds) * static_cast<double>(kCopyBytes), seconds_since(start)};
  memory.release(device);
  memory.release_host(host);
  return timed;
}

std::string row(const char* what, const Timed& timed, const std::string& rest) {
  char text[160];
  std::snprintf(text, sizeof text, "  %-34s %9.3f GB in %8.3f s  %8.2f GB/s", what, timed.bytes / 1e9,
                timed.seconds, timed.rate() / 1e9);
  return text + rest + "\n";
}

// What the files give: as they lie on the disk, or the better of two readings, the first of which brings them
// into memory.
Timed read_ceiling(const Files& files, bool cold) {
  if (cold) {
    evict(files);
    return read_files(files);
  }
  const Timed first = read_files(files), second = read_files(files);
  return first.rate() > second.rate() ? first : second;
}

// One load between its two ceilings. Whether a packed copy was made, so that it can be loaded next.
bool bench_once(const OpenModel& model, const BenchLoadOptions& options, const Console& console) {
  constexpr backend::Capacity capacity{
      .page_count = 4, .page_tokens = kTokenGrain, .state_slot_count = 1, .row_count = 8};
  Files files;
  for (const auto& shard : model.checkpoint.shards()) files.push_back(shard.file().path());
  // Before the load, so that both find the files in memory (or both on the disk).
  const Timed shards = read_ceiling(files, options.cold);
  if (options.cold) {
    evict(files);
    if (!options.backend.cache.empty())
      evict({backend::cuda::cache_file(options.backend.cache, model.folder,
                                       library::parse_dense_weights(options.backend.dense))});
  }
  const PreparedModel prepared = prepare_model(model, options.backend, capacity, console);
  const backend::LoadReport& load = prepared.load;
  const Timed file = load.from_cache ? read_ceiling({load.cache_file}, options.cold) : shards;
  // The simulated machine copies with the host's own hands.
  const Timed copy = copy_to_device(prepared.machine->memory(), options.backend.backend == "cuda" ? 128 : 1);
  const Timed loading{static_cast<double>(load.bytes_read), load.seconds};
  console.out << fourfold::format("{}: --dense {}, {}, on {}\n", model.folder.string(), options.backend.dense,
                                  load.from_cache ? "from the packed copy" : "from the checkpoint",
                                  prepared.machine->description());
  console.out << row(options.cold ? "reading the file, cold" : "reading the file, warm", file, "");
  console.out << row("host to device, page-locked", copy, "");
  const double slower = std::min(file.rate(), copy.rate());
  console.out << row("loading", loading,
                     fourfold::format("  {} % of the slower", 100 * loading.rate() / slower));
  console.out << fourfold::format("  with the device's start, buffers and what was written: {} s\n",
                                  prepared.seconds);
  return !load.from_cache && !load.cache_file.empty();
}

}  // namespace

int run_bench_load(const BenchLoadOptions& options, const Console& console) {
  if (!on_machine(options.backend.backend))
    fail(Code::invalid_request, "--backend is '{}'; cuda and sim are possible", options.backend.backend);
  const auto start = Clock::now();
  const auto model = open_model(options.model, console, options.backend.strict);
  console.out << fourfold::format("opened in {} s: {} tensors in {} files\n", rounded(seconds_since(start)),
                                  with_commas(static_cast<long long>(model->checkpoint.tensors().size())),
                                  model->checkpoint.shards().size());
  BenchLoadOptions again = options;
  again.backend.rebuild_cache = false;
  if (bench_once(*model, options, console)) bench_once(*model, again, console);
  return kFine;
}

}  // namespace fourfold::cli
