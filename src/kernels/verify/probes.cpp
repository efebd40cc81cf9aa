#include "kernels/verify/probes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/moe/paths.h"
#include "kernels/record/pack.h"
#include "kernels/verify/gemm_case.h"
#include "kernels/verify/inputs.h"
#include "plan/w4a16_price.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using kernels::Machine;
using kernels::RowKind;

// The row whose lanes use every selector: 64 tokens are two rounds of four token groups and a strip is two
// tiles, so each scale word a lane supplies is junk to most of the instructions that see it.
const plan::RowFacts* probe_row(const Machine& machine) {
  for (const plan::RowFacts& row : machine.rows(RowKind::gemm))
    if (row.kernel == "moe_stream" && row.path == "w4a4" && row.format == "nvfp4" && row.n == 64 &&
        row.k == 64)
      return &row;
  return nullptr;
}

constexpr std::int64_t kTokens = 64;

struct ProbeInput {
  CheckpointMatrix weights;  // [32, columns]
  CheckpointMatrix tokens;   // [64, columns]
};

ProbeInput random_input(std::uint64_t seed, std::int64_t columns) {
  Random random(seed);
  ProbeInput input;
  input.weights = random_matrix(random, record::kRows, columns, false);
  input.tokens = random_matrix(random, kTokens, columns, false);
  return input;
}

// Changes packed records before they are uploaded, to hold what packing refuses.
using Spoil = std::function<void(std::vector<std::uint8_t>& weights, std::vector<std::uint8_t>& tokens)>;

// [64 tokens][32 rows] f32, straight from the accumulators.
std::vector<float> outputs(Machine& machine, const plan::RowFacts& row, const ProbeInput& input,
                           const Spoil& spoil) {
  const std::int64_t columns = input.weights.columns;
  std::vector<std::uint8_t> weights(
      record::packed_bytes<record::Nvfp4>(record::kRows, static_cast<std::size_t>(columns)));
  record::pack_records<record::Nvfp4>({{input.weights.codes.data(), input.weights.scales.data()},
                                       {},
                                       weights.data(),
                                       record::kRows,
                                       columns,
                                       record::RowOrder::plain,
                                       record::BitOrder::fp4});
  std::vector<std::uint8_t> tokens = token_records(input.tokens);
  if (spoil) spoil(weights, tokens);
  Arena arena(machine.memory());
  moe::GemmParams params{};
  params.weights = arena.upload(weights, "probe weights");
  params.tokens = arena.upload(tokens, "probe tokens");
  params.tiles =
      arena.upload(std::vector<moe::TokenTile>{{0, 0, static_cast<std::int32_t>(kTokens), 0}}, "probe tile");
  params.tile_count = arena.upload(std::vector<std::int32_t>{1}, "probe tile count");
  params.op = moe::Op::down;
  params.strips = 1;
  params.records = static_cast<std::int32_t>(columns / record::kColumns);
  params.out_columns = record::kRows;
  auto* out = arena.take<float>(static_cast<std::size_t>(kTokens * record::kRows), "probe result");
  params.out = out;
  moe::launch_gemm(machine, machine.find(RowKind::gemm, row.row), params);
  std::vector<float> host(static_cast<std::size_t>(kTokens * record::kRows));
  machine.memory().read(host.data(), out, host.size() * sizeof(float));
  return host;
}

using ExpectNan = std::function<bool(std::int64_t token, std::int64_t row)>;

struct Seen {
  Outcome outcome = Outcome::same_bits;
  std::string detail = "as the model says";
};

Seen seen_of(const Result& result, const std::string& first) {
  if (!result.failure.empty()) return {Outcome::beyond_bound, result.failure};
  if (result.bit_mismatches == 0 && result.worst_ratio <= 1.0) return {};
  const bool within = result.worst_ratio <= 1.0;
  return {within ? Outcome::within_bound : Outcome::beyond_bound,
          fourfold::format("{} of {} results differ{}{}; the worst is {} off where {} is allowed",
                           result.bit_mismatches, result.compared, first.empty() ? "" : ", ", first,
                           result.max_error, result.bound)};
}

// The first value whose bits differ and the worst against the bound are named; one beyond it decides.
Seen seen_of(const ProbeInput& input, const std::vector<float>& actual, const ExpectNan& expect_nan) {
  const reference::Weights weights = reference_of(input.weights), tokens = reference_of(input.tokens);
  Result result;
  std::string first;
  for (std::int64_t token = 0; token < kTokens; ++token)
    for (std::int64_t row = 0; row < record::kRows; ++row) {
      const float value = actual[static_cast<std::size_t>(token * record::kRows + row)];
      const reference::Dot dot = reference::dot_w4a4(weights, row, tokens, token, reference::Order::decode);
      const bool is_nan = expect_nan && expect_nan(token, row);
      const bool same = is_nan
                            ? std::isnan(value)
                            : std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(dot.bits);
      if (is_nan)
        result.compare(same ? 0.0 : 1.0, 0.0, 0.0, same);  // a number in a NaN's place is beyond any bound
      else
        result.compare(value, dot.value, dot.bound, same);
      if (!same && first.empty())
        first = fourfold::format("row {}, token {}: got {}, the model says {}", row, token, value,
                                 is_nan ? std::nanf("") : dot.bits);
    }
  return seen_of(result, first);
}

// run() says what was seen.
Probe probe(const char* name, const char* asks, const char* form, const std::function<Seen()>& run) {
  Probe result{name, asks, form, Outcome::beyond_bound, {}};
  try {
    const Seen seen = run();
    result.outcome = seen.outcome;
    result.detail = seen.detail;
  } catch (const std::exception& error) {
    result.detail = error.what();
  }
  return result;
}

void set_scale_bit_7(std::vector<std::uint8_t>& weights, std::vector<std::uint8_t>& tokens) {
  const auto set = [](std::vector<std::uint8_t>& bytes, std::size_t record, std::size_t payload,
                      std::size_t every) {
    for (std::size_t at = 0; at < bytes.size(); ++at)
      if (at % record >= payload && at % every == 0) bytes[at] = static_cast<std::uint8_t>(bytes[at] | 0x80);
  };
  set(weights, record::kRecordBytes<record::Nvfp4>, record::kPayloadBytes, 3);
  set(tokens, record::kTokenRecordBytes, record::kTokenPayloadBytes, 5);
}

// One scale of one row and one of one token: exactly that row and that column must become NaN.
constexpr std::int64_t kNanRow = 13, kNanToken = 42;
void set_nan_scales(std::vector<std::uint8_t>& weights, std::vector<std::uint8_t>& tokens) {
  for (int tile = 0; tile < 2; ++tile)
    for (int slot = 0; slot < 16; ++slot)
      if (record::row_of_slot(record::RowOrder::plain, record::BitOrder::fp4, 0, tile, slot) == kNanRow)
        weights[static_cast<std::size_t>(record::kPayloadBytes +
                                         record::scale_offset<record::Nvfp4>(tile, slot))] = 0x7F;
  const std::int64_t group = kNanToken / record::kTokens;
  tokens[static_cast<std::size_t>(group * record::kTokenRecordBytes + record::kTokenPayloadBytes +
                                  4 * (kNanToken % record::kTokens))] = 0x7F;
}

// A whole row of the table on one full tile.
Probe row_probe(Machine& machine, const char* name, const char* asks, std::string_view path,
                const char* format_name, const char* form, std::uint64_t seed) {
  return probe(name, asks, form, [&]() -> Seen {
    for (const plan::RowFacts& row : machine.rows(RowKind::gemm)) {
      if (row.path != path || row.format != format_name) continue;
      GemmCase test;
      test.row = row;
      test.rows = row.m;
      test.columns = row.k;
      test.tokens_per_expert = {row.n};
      test.seed = seed;
      return seen_of(run_gemm_case(machine, test, true), fourfold::format("of {}", row.row));
    }
    fail(Code::unsupported_op, "there is no {} {} row", path, format_name);
  });
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::same_bits: return "bit for bit";
    case Outcome::within_bound: return "within the bound";
    case Outcome::beyond_bound: break;
  }
  return "beyond the bound";
}

std::vector<Probe> run_probes(Machine& machine, std::uint64_t seed) {
  const plan::RowFacts* row = probe_row(machine);
  const auto run = [&](std::int64_t columns, std::uint64_t at, const Spoil& spoil,
                       const ExpectNan& expect_nan) {
    if (row == nullptr)
      fail(Code::unsupported_op, "{} has no 64-token W4A4 row to probe with", machine.description());
    const ProbeInput input = random_input(at, columns);
    return seen_of(input, outputs(machine, *row, input, spoil), expect_nan);
  };
  std::vector<Probe> probes;
  probes.push_back(probe("scale lanes",
                         "does each selector read its own lanes, with other scales in the rest?", "nvfp4",
                         [&] { return run(64, seed, {}, {}); }));
  probes.push_back(probe("accumulation", "are a sum and four block products added as the model says?",
                         "nvfp4", [&] { return run(512, seed + 1, {}, {}); }));
  probes.push_back(probe("sign of a scale", "is bit 7 of a scale ignored?", "nvfp4",
                         [&] { return run(64, seed + 2, set_scale_bit_7, {}); }));
  probes.push_back(
      probe("NaN scale", "does 0x7F make its row and its column NaN, and nothing else?", "nvfp4", [&] {
        return run(64, seed + 3, set_nan_scales,
                   [](std::int64_t token, std::int64_t at) { return token == kNanToken || at == kNanRow; });
      }));
  probes.push_back(row_probe(machine, "MXFP4", "does the 32-wide form add up as the model says?", "w4a4",
                             "mxfp4", "mxfp4", seed + 4));
  probes.push_back(row_probe(machine, "bf16", "does the bf16 instruction add up as on Hopper?", "w4a16-mma",
                             "nvfp4", "bf16", seed + 5));
  // Hopper has none: its FP8 rows are wgmma's, whose arithmetic was measured.
  if (std::ranges::any_of(machine.rows(RowKind::gemm),
                          [](const plan::RowFacts& its) { return its.path == moe::W8a8Mma::name; }))
    probes.push_back(row_probe(machine, "FP8", "does the E4M3 instruction add up as the model says?",
                               moe::W8a8Mma::name, "fp8", "fp8", seed + 6));
  return probes;
}

Arithmetic arithmetic_of(const std::vector<Probe>& probes, std::string_view form) {
  Arithmetic arithmetic;
  for (const Probe& result : probes) {
    if (result.form != form || result.outcome == Outcome::same_bits) continue;
    // W4A16 is what remains, so bf16 refuses nothing here: a row that misses its bound fails its own proof.
    const bool refuses = result.outcome == Outcome::beyond_bound && form != "bf16";
    std::string& said = refuses ? arithmetic.refusal : arithmetic.notice;
    if (!said.empty()) continue;
    said = fourfold::format("the silicon probe '{}' is {} on this chip ({})", result.name,
                            outcome_name(result.outcome), result.detail);
    said += refuses && form == "fp8" ? "; use 16-bit activations (w4a16) in their place"
            : refuses                ? fourfold::format("; use W4A16 in its place: {}", plan::w4a16_price())
                      : fourfold::format("; {} rows are proved by their bounds, not bit for bit", form);
  }
  return arithmetic;
}

}  // namespace fourfold::verify
