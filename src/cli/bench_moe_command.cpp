#include "cli/bench_moe_command.h"

#include <cstdio>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/parse.h"
#include "kernels/gpu/gpu.h"
#include "kernels/verify/probes.h"
#include "plan/text.h"

namespace fourfold::cli {
namespace {

using bench::MoeBenchLine;
using bench::Routing;
using moe_layer::Activations;

std::vector<Routing> routings_of(const std::string& text) {
  if (text == "all") return {Routing::uniform, Routing::zipf, Routing::same};
  if (text == "uniform") return {Routing::uniform};
  if (text == "zipf") return {Routing::zipf};
  if (text == "same") return {Routing::same};
  fail_with_hint(Code::invalid_request, "Known routings: uniform, zipf, same, all.", "unknown routing '{}'",
                 text);
}

// Everything that can be wrong with the command line, before a GPU is touched.
bench::MoeBenchOptions bench_options(const BenchMoeOptions& options) {
  bench::MoeBenchOptions bench;
  bench.shape_name = options.shape;
  bench.shape = parse_layer_shape(options.shape);
  bench.format = parse_format(options.format);
  bench.activations = parse_activations(options.activations);
  bench.tokens = parse_tokens(options.tokens);
  bench.prefill_from = options.prefill_from;
  bench.parts = options.parts;
  if (!options.rows.empty()) bench.rows = {options.rows};
  for (const int tokens : bench.tokens) {
    if (tokens == 0) fail(Code::invalid_request, "a layer of zero tokens does nothing that could be timed");
    moe_layer::require_shape({.shape = bench.shape, .tokens = tokens});
  }
  return bench;
}

// W4A4 needs the instruction, and on a chip that has it, the proof that it works as modelled.
void settle_activations(const BenchMoeOptions& options, kernels::Gpu& gpu, bench::MoeBenchOptions& bench,
                        const Console& console) {
  if (bench.activations != Activations::w4a4) return;
  kernels::Machine& machine = gpu.machine();
  if (!machine.arch().has_fp4_mma)
    return announce(console,
                    {"w4a4 on " + std::string(machine.arch().name), "the emulated FP4 instruction",
                     "a native one", "the chip has none; these times say nothing about SM120"},
                    options.strict);
  const auto native = verify::arithmetic_of(verify::run_probes(machine, 1), "nvfp4");
  if (!native.notice.empty()) notice(console, native.notice, false);
  if (native.refusal.empty()) return;
  announce(console, {"activations", "W4A16", "W4A4", native.refusal}, options.strict);
  bench.activations = Activations::w4a16;
}

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string table_heading() {
  return fourfold::format("{} {} {} {} {} {} {} {} {}  rows\n", plan::pad_right("routing", 8),
                          plan::pad_left("tokens", 6), plan::pad_right(" role", 9),
                          plan::pad_right("part", 8), plan::pad_left("us", 10), plan::pad_left("spread", 7),
                          plan::pad_left("GB/s", 7), plan::pad_left("share", 7), plan::pad_left("TFLOPS", 7));
}

std::string table_line(const MoeBenchLine& line) {
  return fourfold::format(
      "{} {} {} {} {} {} {} {} {}  {}\n", plan::pad_right(line.routing, 8),
      plan::pad_left(fourfold::format("{}", line.tokens), 6), plan::pad_right(" " + line.role, 9),
      plan::pad_right(line.part, 8), plan::pad_left(fixed(line.microseconds, 2), 10),
      plan::pad_left(fixed(100.0 * line.spread, 1) + " %", 7), plan::pad_left(fixed(line.gbps, 0), 7),
      plan::pad_left(fixed(100.0 * line.share, 1) + " %", 7), plan::pad_left(fixed(line.tflops, 1), 7),
      line.rows);
}

std::string csv_header(const BenchMoeOptions& options, kernels::Gpu& gpu, double ceiling_gbps) {
  const kernels::GpuState state = gpu.state();
  std::string out =
      fourfold::format("# machine: {}, {} SMs\n", gpu.machine().description(), gpu.machine().sm_count());
  out += fourfold::format("# driver: {}\n# clocks: SM {} MHz, memory {} MHz (the most the driver allows)\n",
                          state.driver, state.sm_clock_mhz, state.memory_clock_mhz);
  out += fourfold::format("# memory ceiling: {} GB/s, measured in this run\n", fixed(ceiling_gbps, 0));
  out += fourfold::format("{}# command: {}\n# strict: {}\n", csv_origin(), options.command, options.strict);
  return out + "shape,format,routing,tokens,role,part,rows,microseconds,spread,gbps,share,tflops,experts\n";
}

std::string csv_line(const BenchMoeOptions& options, const MoeBenchLine& line) {
  // A shape given as numbers holds commas.
  return fourfold::format("\"{}\",{},{},{},{},{},{},{},{},{},{},{},{}\n", line.shape, options.format,
                          line.routing, line.tokens, line.role, line.part, line.rows,
                          fixed(line.microseconds, 3), fixed(line.spread, 4), fixed(line.gbps, 1),
                          fixed(line.share, 4), fixed(line.tflops, 2), fixed(line.experts, 1));
}

}  // namespace

int run_bench_moe(const BenchMoeOptions& options, const Console& console) {
  bench::MoeBenchOptions bench = bench_options(options);
  const std::vector<Routing> routings = routings_of(options.routing);
  const std::unique_ptr<kernels::Gpu> gpu = kernels::open_gpu(options.gpu);
  settle_activations(options, *gpu, bench, console);
  std::string csv;
  for (const Routing routing : routings) {
    bench.routing = routing;
    const bench::MoeBenchReport report = gpu->bench_moe(bench);
    if (report.lines.empty())
      fail_with_hint(Code::invalid_request,
                     "Rows are listed by `fourfold plan`; a streaming row's K must divide H and I.",
                     "no row matches '{}' for this shape, format and role", options.rows);
    if (csv.empty()) {
      csv = csv_header(options, *gpu, report.ceiling_gbps);
      console.out << fourfold::format("{}; {} {} {}; memory ceiling {} GB/s\n", gpu->machine().description(),
                                      options.shape, options.format,
                                      bench.activations == Activations::w4a4 ? "w4a4" : "w4a16",
                                      fixed(report.ceiling_gbps, 0))
                  << table_heading();
    }
    for (const MoeBenchLine& line : report.lines) {
      console.out << table_line(line);
      csv += csv_line(options, line);
    }
  }
  if (!options.csv.empty()) write_file(options.csv, csv);
  return kFine;
}

}  // namespace fourfold::cli
