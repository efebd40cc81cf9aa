#include "cli/bench_pack_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "cli/parse.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/arena.h"
#include "kernels/record/launch_pack.h"

namespace fourfold::cli {
namespace {

// Gate and up of several experts as a checkpoint stores them, one behind the other.
struct Checkpoint {
  bool mxfp4;
  int experts;
  std::int64_t rows, columns;  // of gate and up together
  std::vector<std::uint8_t> codes, scales;
  std::size_t record_bytes;  // of one expert

  std::size_t code_bytes() const { return static_cast<std::size_t>(rows * columns / 2); }
  std::size_t scale_bytes() const { return static_cast<std::size_t>(rows * columns / (mxfp4 ? 32 : 16)); }
  std::size_t moved_bytes() const {  // read and written
    return static_cast<std::size_t>(experts) * (code_bytes() + scale_bytes() + record_bytes);
  }
};

Checkpoint make_checkpoint(const BenchPackOptions& options) {
  const moe_layer::Shape shape = parse_layer_shape(options.shape);
  Checkpoint checkpoint{};
  checkpoint.mxfp4 = parse_format(options.format) == WeightFormat::mxfp4;
  checkpoint.experts = options.experts;
  checkpoint.rows = 2 * shape.intermediate;
  checkpoint.columns = shape.hidden;
  checkpoint.record_bytes =
      checkpoint.mxfp4 ? record::packed_bytes<record::Mxfp4>(static_cast<std::size_t>(checkpoint.rows),
                                                             static_cast<std::size_t>(checkpoint.columns))
                       : record::packed_bytes<record::Nvfp4>(static_cast<std::size_t>(checkpoint.rows),
                                                             static_cast<std::size_t>(checkpoint.columns));
  checkpoint.codes.resize(checkpoint.code_bytes() * static_cast<std::size_t>(options.experts));
  checkpoint.scales.resize(checkpoint.scale_bytes() * static_cast<std::size_t>(options.experts));
  Random random(1);
  for (auto& byte : checkpoint.codes) byte = static_cast<std::uint8_t>(random.bits());
  for (auto& byte : checkpoint.scales) byte = static_cast<std::uint8_t>(0x60 + random.below(0x18));
  return checkpoint;
}

record::PackJob job_of(const Checkpoint& checkpoint, int expert, const std::uint8_t* codes,
                       const std::uint8_t* scales, std::uint8_t* records) {
  const auto at = static_cast<std::size_t>(expert);
  codes += at * checkpoint.code_bytes();
  scales += at * checkpoint.scale_bytes();
  return {{codes, scales},
          {codes + checkpoint.code_bytes() / 2, scales + checkpoint.scale_bytes() / 2},
          records + at * checkpoint.record_bytes,
          checkpoint.rows,
          checkpoint.columns,
          record::RowOrder::gate_up,
          record::BitOrder::half};
}

std::string line(const std::string& where, double seconds, const Checkpoint& checkpoint) {
  char text[96];
  std::snprintf(text, sizeof text, "%9.2f ms  %8.2f GB/s read and written\n", 1e3 * seconds,
                static_cast<double>(checkpoint.moved_bytes()) / seconds / 1e9);
  return fourfold::format("  {}{}", where, text);
}

double best_host_seconds(const Checkpoint& checkpoint, int rounds) {
  std::vector<std::uint8_t> records(checkpoint.record_bytes * static_cast<std::size_t>(checkpoint.experts));
  double best = 1e300;
  for (int round = 0; round < rounds + 1; ++round) {  // the first one touches the pages
    const auto start = std::chrono::steady_clock::now();
    for (int expert = 0; expert < checkpoint.experts; ++expert) {
      const record::PackJob job =
          job_of(checkpoint, expert, checkpoint.codes.data(), checkpoint.scales.data(), records.data());
      if (checkpoint.mxfp4)
        record::pack_records<record::Mxfp4>(job);
      else
        record::pack_records<record::Nvfp4>(job);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round > 0) best = std::min(best, seconds);
  }
  return best;
}

double gpu_seconds(kernels::Gpu& gpu, const Checkpoint& checkpoint, int rounds) {
  kernels::Machine& machine = gpu.machine();
  kernels::Arena arena(machine.memory());
  const auto* codes = arena.upload(checkpoint.codes, "codes");
  const auto* scales = arena.upload(checkpoint.scales, "scales");
  auto* records = arena.take<std::uint8_t>(
      checkpoint.record_bytes * static_cast<std::size_t>(checkpoint.experts), "records");
  const record::PackRows rows = record::find_pack_rows(machine);
  std::vector<double> microseconds = gpu.time(std::max(rounds, 5), [&] {
    for (int expert = 0; expert < checkpoint.experts; ++expert)
      record::launch_pack(machine, rows, job_of(checkpoint, expert, codes, scales, records),
                          checkpoint.mxfp4);
  });
  std::sort(microseconds.begin(), microseconds.end());
  return 1e-6 * microseconds[microseconds.size() / 2];
}

}  // namespace

int run_bench_pack(const BenchPackOptions& options, const Console& console) {
  if (options.experts < 1 || options.experts > 1024)
    fail(Code::invalid_request, "--experts is {}; 1 to 1,024 are possible", options.experts);
  if (options.rounds < 1) fail(Code::invalid_request, "--rounds is {}; at least 1 is needed", options.rounds);
  const Checkpoint checkpoint = make_checkpoint(options);
  console.out << fourfold::format("{} experts of {} ({}x{} gate and up, {}), {} bytes read and written\n",
                                  options.experts, options.shape, checkpoint.rows, checkpoint.columns,
                                  options.format,
                                  with_commas(static_cast<long long>(checkpoint.moved_bytes())));
  const std::string threads =
      fourfold::format("host, {} threads: ", std::max(1u, std::thread::hardware_concurrency()));
  console.out << line(threads, best_host_seconds(checkpoint, options.rounds), checkpoint);
  if (const std::string why = kernels::why_no_gpu(); !why.empty()) {
    console.err << "fourfold: notice: the GPU's packing was not timed: " << why << "\n";
    return kFine;
  }
  const std::unique_ptr<kernels::Gpu> gpu = kernels::open_gpu(options.gpu);
  console.out << line(gpu->machine().description() + ": ", gpu_seconds(*gpu, checkpoint, options.rounds),
                      checkpoint);
  return kFine;
}

}  // namespace fourfold::cli
