// The silicon probes on the simulated SM120, where the model is the machine: every bit must agree there. And
// on chips that are not the model: what is then refused, withdrawn and said.
#include "kernels/verify/probes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/bf16.h"
#include "base/error.h"
#include "cli/verify_command.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/record/record.h"
#include "kernels/verify/runner.h"
#include "plan/w4a16_price.h"
#include "tests/cli/support.h"

namespace fourfold::verify {
namespace {

TEST(Probes, EveryBitAgreesOnTheSimulator) {
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90})
    simulator_target(*arch).use(3, [](kernels::Machine& machine) {
      const std::vector<Probe> probes = run_probes(machine, 11);
      EXPECT_EQ(probes.size(), machine.arch().has_wgmma ? 6u : 7u);  // Hopper's FP8 rows are wgmma's
      for (const Probe& probe : probes)
        EXPECT_EQ(probe.outcome, Outcome::same_bits) << probe.name << ": " << probe.detail;
      for (const char* form : {"nvfp4", "mxfp4", "bf16", "fp8"}) {
        EXPECT_EQ(arithmetic_of(probes, form).refusal, "");
        EXPECT_EQ(arithmetic_of(probes, form).notice, "");
      }
    });
}

// A chip whose FP4 instruction is not the model: the simulated one, with `before` and `after` each of its
// GEMMs.
class OtherChip final : public kernels::Machine {
 public:
  using Meddle = std::function<void(kernels::Memory&, const plan::RowFacts&, const moe::GemmParams&)>;
  OtherChip(kernels::Machine& machine, Meddle before, Meddle after)
      : machine_(machine), before_(std::move(before)), after_(std::move(after)) {}
  kernels::Memory& memory() override { return machine_.memory(); }
  std::string description() const override { return "another chip, sm120"; }
  const plan::ArchFacts& arch() const override { return machine_.arch(); }
  int sm_count() const override { return machine_.sm_count(); }
  const std::vector<plan::RowFacts>& rows(kernels::RowKind kind) const override {
    return machine_.rows(kind);
  }
  int walkers(kernels::RowHandle row, int blocks_per_sm) const override {
    return machine_.walkers(row, blocks_per_sm);
  }
  void launch(kernels::RowHandle row, int blocks, const void* params, std::size_t bytes) override {
    const auto meddle = [&](const Meddle& how) {
      if (how && row.kind == kernels::RowKind::gemm)
        how(memory(), facts(row), *static_cast<const moe::GemmParams*>(params));
    };
    meddle(before_);
    machine_.launch(row, blocks, params, bytes);
    meddle(after_);
  }
  std::unique_ptr<kernels::Recording> record(const std::function<void()>&) override { return nullptr; }
  void replay(kernels::Recording&) override {}

 private:
  kernels::Machine& machine_;
  Meddle before_, after_;
};

// Scale words of the first two rows' lanes in the first record, swapped.
void swap_lanes(kernels::Memory& memory, const plan::RowFacts&, const moe::GemmParams& params) {
  auto* scales = const_cast<unsigned char*>(params.weights) + record::kPayloadBytes;
  std::uint32_t words[2];
  memory.read(words, scales, 8);
  const std::uint32_t swapped[2] = {words[1], words[0]};
  memory.write(scales, swapped, 8);
}

// The first sum of every FP4 row of one format that leaves as f32.
OtherChip::Meddle first_sum(std::string format, float (*change)(float)) {
  return [format, change](kernels::Memory& memory, const plan::RowFacts& row, const moe::GemmParams& params) {
    if (row.path != "w4a4" || row.format != format || !moe::stores_f32(params.op, row.role == "decode"))
      return;
    float value;
    memory.read(&value, params.out, sizeof value);
    value = change(value);
    memory.write(params.out, &value, sizeof value);
  };
}
// The model rounds toward zero; a chip that rounds away from it is never more than one unit off.
float last_bit(float value) { return std::nextafter(value, std::copysign(INFINITY, value)); }
float far_off(float value) { return value * 1.001f; }

Target chip(OtherChip::Meddle before, OtherChip::Meddle after) {
  Target target;
  target.use = [before, after](std::uint64_t seed, const std::function<void(kernels::Machine&)>& with) {
    simulator_target(plan::kSm120).use(seed, [&](kernels::Machine& machine) {
      OtherChip other(machine, before, after);
      with(other);
    });
  };
  return target;
}

std::vector<Probe> probes_of(const Target& target) {
  std::vector<Probe> probes;
  target.use(3, [&](kernels::Machine& machine) { probes = run_probes(machine, 11); });
  return probes;
}

bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

TEST(Probes, WrongScaleLanesAreFoundAndRefuseNativeRows) {
  const std::vector<Probe> probes = probes_of(chip(swap_lanes, {}));
  EXPECT_EQ(probes.front().outcome, Outcome::beyond_bound);
  EXPECT_TRUE(has(probes.front().detail, "results differ")) << probes.front().detail;
  EXPECT_TRUE(has(arithmetic_of(probes, "nvfp4").refusal, "use W4A16"));
}

TEST(Probes, ALastBitWithdrawsTheBitsAndALargeDifferenceTheRows) {
  const std::vector<Probe> near = probes_of(chip({}, first_sum("nvfp4", last_bit)));
  EXPECT_EQ(near.front().outcome, Outcome::within_bound) << near.front().detail;
  EXPECT_TRUE(has(near.front().detail, "1 of 2048 results differ")) << near.front().detail;
  EXPECT_EQ(arithmetic_of(near, "nvfp4").refusal, "");
  EXPECT_TRUE(has(arithmetic_of(near, "nvfp4").notice, "proved by their bounds, not bit for bit"));

  const std::vector<Probe> far = probes_of(chip({}, first_sum("nvfp4", far_off)));
  EXPECT_EQ(far.front().outcome, Outcome::beyond_bound) << far.front().detail;
  const std::string refusal = arithmetic_of(far, "nvfp4").refusal;
  EXPECT_TRUE(has(refusal, "use W4A16 in its place: W4A16 reads the same bytes of weights")) << refusal;
  EXPECT_TRUE(has(refusal, "4 times the tensor-core instructions and 3.6 times the bytes of tokens"))
      << refusal;

  for (const auto& probes : {near, far})
    for (const char* form : {"mxfp4", "bf16"}) {  // forms that compute as modelled keep what they have
      EXPECT_EQ(arithmetic_of(probes, form).refusal, "");
      EXPECT_EQ(arithmetic_of(probes, form).notice, "");
    }
}

// The 32-wide form is an instruction of its own: NVFP4 rows do not answer for it.
TEST(Probes, EachFormAnswersForItself) {
  const std::vector<Probe> probes = probes_of(chip(
      [](kernels::Memory& memory, const plan::RowFacts& row, const moe::GemmParams& params) {
        if (row.path == "w4a4" && row.format == "mxfp4") swap_lanes(memory, row, params);
      },
      {}));
  EXPECT_TRUE(has(arithmetic_of(probes, "mxfp4").refusal, "the silicon probe 'MXFP4' is beyond the bound"));
  for (const char* form : {"nvfp4", "bf16"}) {
    EXPECT_EQ(arithmetic_of(probes, form).refusal, "");
    EXPECT_EQ(arithmetic_of(probes, form).notice, "");
  }
}

// So is the E4M3 one, whose rows are another option's.
TEST(Probes, Fp8AnswersForItself) {
  const std::vector<Probe> probes = probes_of(chip(
      [](kernels::Memory& memory, const plan::RowFacts& row, const moe::GemmParams& params) {
        if (row.path != "w8a8-mma") return;
        const std::vector<unsigned char> ones(2 * 2048, 0x38);  // the first strip's records
        memory.write(const_cast<unsigned char*>(params.weights), ones.data(), ones.size());
      },
      {}));
  const std::string refusal = arithmetic_of(probes, "fp8").refusal;
  EXPECT_TRUE(has(refusal, "the silicon probe 'FP8' is beyond the bound")) << refusal;
  EXPECT_TRUE(has(refusal, "use 16-bit activations (w4a16)")) << refusal;
  for (const char* form : {"nvfp4", "mxfp4", "bf16"}) EXPECT_EQ(arithmetic_of(probes, form).refusal, "");
}

// A number where a NaN belongs is no rounding, and a probe that cannot run has shown nothing.
TEST(Probes, ANumberInPlaceOfNanIsBeyondTheBound) {
  const auto chip_without_nan = chip({}, first_sum("nvfp4", [](float) { return 1.0f; }));
  const std::vector<Probe> probes = probes_of(chip_without_nan);
  EXPECT_EQ(probes[3].name, "NaN scale");
  EXPECT_EQ(probes[3].outcome, Outcome::beyond_bound);
  simulator_target(plan::kSm120).use(3, [](kernels::Machine& machine) {
    OtherChip faulty(machine,
                     [](kernels::Memory&, const plan::RowFacts&, const moe::GemmParams&) {
                       fail(Code::device_lost, "an illegal instruction");
                     },
                     {});
    for (const Probe& probe : run_probes(faulty, 11)) {
      EXPECT_EQ(probe.outcome, Outcome::beyond_bound) << probe.name;
      EXPECT_EQ(probe.detail, "an illegal instruction");
    }
  });
}

// The price is what the formats and instructions say.
TEST(Probes, ThePriceOfW4a16IsThatOfItsRecords) {
  EXPECT_EQ(plan::kFp4StepColumns, record::kColumns);
  const double fp4_bytes =
      static_cast<double>(record::kTokenRecordBytes) / (record::kTokens * record::kColumns);
  EXPECT_DOUBLE_EQ(plan::kW4a16TokenRatio, sizeof(Bf16) / fp4_bytes);
}

struct Verified {
  int exit;
  std::string out, err;
};
Verified verify_on(Target target, bool strict = false) {
  cli::VerifyOptions options;
  options.device = "cuda";
  options.seed = 20;
  options.seeds = 1;
  options.rows = "moe_stream 32x8x64 w4a*";
  options.strict = strict;
  options.stand_in = std::make_shared<const Target>(std::move(target));
  cli::Captured captured;
  const int exit = cli::run_verify(options, captured.console);
  return {exit, captured.out.str(), captured.err.str()};
}
// Verdicts of a row's lines in the table, each once.
std::set<std::string> verdicts(const std::string& out, const std::string& row) {
  std::set<std::string> found;
  std::istringstream lines(out.substr(out.find("verdict")));
  for (std::string line; std::getline(lines, line) && !line.empty();)
    if (line.starts_with(row))
      for (const char* verdict : {"pass, bits equal", "pass, by its bound", "refused", "miss"})
        if (line.ends_with(verdict)) found.insert(verdict);
  return found;
}
constexpr const char *kNvfp4 = "moe_stream 32x8x64 w4a4 nvfp4", *kHalf = "moe_stream 32x8x64 w4a16-mma nvfp4",
                     *kHalfMxfp4 = "moe_stream 32x8x64 w4a16-mma mxfp4";
using Words = std::set<std::string>;

TEST(Probes, VerifyProvesAnExactChipBitForBit) {
  const Verified exact = verify_on(chip({}, {}));
  EXPECT_EQ(exact.exit, cli::kFine) << exact.out;
  for (const char* word : {"notice", "warning"})  // progress may be there: a busy machine takes longer
    EXPECT_FALSE(has(exact.err, word)) << exact.err;
  EXPECT_TRUE(has(exact.out, "bytes compared, all equal")) << exact.out;
  for (const char* row : {kNvfp4, kHalfMxfp4, kHalf})
    EXPECT_EQ(verdicts(exact.out, row), Words{"pass, bits equal"});
}

TEST(Probes, VerifyProvesAChipWithOtherLastBitsByBounds) {
  const Verified near = verify_on(chip({}, first_sum("nvfp4", last_bit)));
  EXPECT_EQ(near.exit, cli::kFine) << near.out;
  EXPECT_TRUE(has(near.err, "notice: the silicon probe 'scale lanes' is within the bound")) << near.err;
  EXPECT_TRUE(has(near.err, "nvfp4 rows are proved by their bounds, not bit for bit")) << near.err;
  EXPECT_EQ(verdicts(near.out, kNvfp4), Words{"pass, by its bound"}) << near.out;
  for (const char* row : {kHalfMxfp4, kHalf}) EXPECT_EQ(verdicts(near.out, row), Words{"pass, bits equal"});
  EXPECT_TRUE(has(near.out, "bytes compared, all equal")) << "the other rows' bits are still compared";
}

TEST(Probes, VerifyRefusesTheRowsOfAChipBeyondTheBound) {
  const Target target = chip({}, first_sum("nvfp4", far_off));
  const Verified far = verify_on(target);
  EXPECT_EQ(far.exit, cli::kMiss);
  EXPECT_TRUE(has(far.err, "warning: native nvfp4 rows: W4A16 instead of W4A4: the silicon probe"))
      << far.err;
  EXPECT_TRUE(has(far.err, "prompts take 4 times the tensor-core instructions")) << far.err;
  EXPECT_EQ(verdicts(far.out, kNvfp4), Words{"refused"}) << far.out;
  for (const char* row : {kHalfMxfp4, kHalf}) EXPECT_EQ(verdicts(far.out, row), Words{"pass, bits equal"});
  EXPECT_THROW(verify_on(target, true), Error);
  // What remains: every layer that had native rows has W4A16 ones.
  moe_layer::Request request{.shape = moe_layer::parse_shape("35b")};
  for (const int tokens : {1, 64, 8192})
    for (const auto role : {moe_layer::Role::decode, moe_layer::Role::prefill}) {
      request.tokens = tokens;
      request.role = role;
      request.activations = moe_layer::Activations::w4a4;
      EXPECT_TRUE(has(moe_layer::choose(plan::kSm120, request).gate_up_row, "w4a4"));
      request.activations = moe_layer::Activations::w4a16;
      EXPECT_TRUE(has(moe_layer::choose(plan::kSm120, request).gate_up_row, "w4a16-mma"));
    }
}

}  // namespace
}  // namespace fourfold::verify
