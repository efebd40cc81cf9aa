#include "cli/verify_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "kernels/gpu/gpu.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/verify/cases.h"
#include "kernels/verify/runner.h"
#include "kernels/verify/step_case.h"
#include "sim/device.h"
#include "tests/cli/support.h"

namespace fourfold::cli {
namespace {

VerifyOptions fixed_seed(std::string rows) {
  VerifyOptions options;
  options.seed = 20;
  options.seeds = 1;
  options.rows = std::move(rows);
  return options;
}

std::vector<verify::Case> cases_of(const plan::ArchFacts& arch, verify::RowSet set) {
  std::vector<verify::Case> cases;
  verify::simulator_target(arch).use(
      0, [&](kernels::Machine& machine) { cases = verify::make_cases(machine, set, {}); });
  return cases;
}

TEST(VerifyCommand, QuickPassesOnTheSimulatorAndListsEveryRow) {
  VerifyOptions options;
  options.quick = options.json = true;
  options.seed = 7;
  Captured captured;
  EXPECT_EQ(run_verify(options, captured.console), kFine) << captured.out.str();
  const Json json = read_json(captured.out.str());
  EXPECT_TRUE(json.at("passed").truth);
  EXPECT_EQ(json.at("device").text, "sim");
  std::set<std::string> proved;
  for (const Json& row : json.at("rows").items) {
    EXPECT_EQ(row.at("verdict").text, "pass") << row.at("row").text;
    EXPECT_EQ(row.at("bit_mismatches").number, 0.0);
    EXPECT_GT(row.at("compared").number, 0.0);
    proved.insert(row.at("row").text);
  }
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90})
    verify::simulator_target(*arch).use(0, [&](kernels::Machine& machine) {
      for (const kernels::RowKind kind : kernels::kChosenKinds)
        for (const plan::RowFacts& row : machine.rows(kind)) EXPECT_TRUE(proved.count(row.row)) << row.row;
    });
}

// Every row with every operation it has, on the chips whose lists the full proof takes.
TEST(VerifyCommand, TheFullListSkipsNoOperation) {
  const auto shared = verify::case_names(cases_of(plan::kSm120, verify::RowSet::all));
  const auto own = verify::case_names(cases_of(plan::kSm90, verify::RowSet::own));
  std::set<std::string> listed(shared.begin(), shared.end());
  listed.insert(own.begin(), own.end());
  int expected = 0;
  verify::simulator_target(plan::kSm90).use(0, [&](kernels::Machine& machine) {
    for (const plan::RowFacts& row : machine.rows(kernels::RowKind::gemm))
      for (const char* op : {"gate_up", "down", "plain"}) {
        if (row.path == "w4a4" && row.format == "mxfp4" && std::string(op) == "gate_up") continue;
        ++expected;
        EXPECT_TRUE(listed.count(fourfold::format("{} | {} | {}", row.kernel, row.row, op)))
            << row.row << " " << op;
      }
  });
  EXPECT_GT(expected, 150);
  verify::simulator_target(plan::kSm90).use(0, [&](kernels::Machine& machine) {
    for (const plan::RowFacts& row : machine.rows(kernels::RowKind::step))
      for (const std::string& op : verify::step_ops(row))
        EXPECT_TRUE(listed.count(fourfold::format("{} | {} | {}", row.kernel, row.row, op)))
            << row.row << " " << op;
  });
  // What a Hopper GPU lists, the simulator's two lists hold together; layers choose their rows by chip, so
  // only by name.
  for (const std::string& name : verify::case_names(cases_of(plan::kSm90, verify::RowSet::all)))
    EXPECT_TRUE(listed.count(name)) << name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a Hopper GPU is asked for at the shapes of published models: every row of a kernel, or the reason.
TEST(VerifyCommand, TheLargeListHasEveryKernelAndChosenRow) {
  std::set<std::string> kernels, rows;
  verify::CaseOptions options;
  options.large = true;
  verify::simulator_target(plan::kSm90).use(0, [&](kernels::Machine& machine) {
    for (const verify::Case& item : verify::make_cases(machine, verify::RowSet::all, options)) {
      kernels.insert(item.kernel);
      rows.insert(item.row);
    }
    for (const plan::RowFacts& row : machine.rows(kernels::RowKind::gemm)) {
      // FP4 by FP4 is emulated there, and never served.
      EXPECT_EQ(rows.count(row.row), row.path == "w4a4" ? 0u : 1u) << row.row;
    }
    for (const plan::RowFacts& row : machine.rows(kernels::RowKind::step)) {
      // Those that have no large shape are not listed as if they had.
      const std::set<std::string> small{"all_reduce",  "all_gather",   "prepare", "combine splits",
                                        "row_squares", "accept",       "embed",   "take_rows",
                                        "latent_rows", "turn_queries", "add_bias"};
      const bool is_small = small.count(std::string(row.kernel)) + small.count(std::string(row.role)) > 0;
      const bool has_other_heads = row.kernel.starts_with("delta") && row.k != 128;
      EXPECT_EQ(rows.count(row.row), is_small || has_other_heads ? 0u : 1u) << row.row;
    }
  });
  for (const char* kernel : {"moe_layer", "moe_route", "moe_stream", "moe_gemm"})
    EXPECT_TRUE(kernels.count(kernel)) << kernel;
}

TEST(VerifyCommand, LargeIsForAGpuAlone) {
  VerifyOptions options;
  options.large = true;
  Captured captured;
  const auto refusal = [&] {
    try {
      run_verify(options, captured.console);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal().find("--large is for a GPU"), std::string::npos) << refusal();
  options.device = "cuda";
  options.quick = true;  // not the refusal of a machine without a GPU
  EXPECT_NE(refusal().find("--large has shapes of its own"), std::string::npos) << refusal();
}

// "kernel | row" -> its operations.
using Operations = std::map<std::string, std::set<std::string>>;
void add_case(Operations& to, const std::string& name) {
  const std::size_t at = name.rfind(" | ");
  to[name.substr(0, at)].insert(name.substr(at + 3));
}

// The committed report of the H200 and the list the simulator makes for that chip: the same names, none
// skipped. A row that is younger than the report is in the one at large shapes.
TEST(VerifyCommand, TheH200ReportListsTheSameRows) {
  const std::string path = std::string(FOURFOLD_SOURCE_DIR) + "/bench/results/verify-h200.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " does not exist yet";
  const Json json = read_json(read_file(path));
  EXPECT_TRUE(json.at("passed").truth);
  Operations proved, expected, younger;
  double proofs = 0, exact = 0;
  for (const Json& row : json.at("rows").items) {
    EXPECT_EQ(row.at("verdict").text, "pass") << row.at("row").text;
    proofs += row.at("proofs").number;
    exact += row.at("bits_exact").truth ? row.at("proofs").number : 0;
    if (row.at("machine").text.find("simulator") == std::string::npos)
      add_case(proved, row.at("kernel").text + " | " + row.at("row").text + " | " + row.at("op").text);
  }
  const Json large =
      read_json(read_file(std::string(FOURFOLD_SOURCE_DIR) + "/bench/results/verify-large-h200.json"));
  EXPECT_TRUE(large.at("passed").truth);
  for (const Json& row : large.at("rows").items)
    add_case(younger, row.at("kernel").text + " | " + row.at("row").text + " | " + row.at("op").text);
  for (const std::string& name : verify::case_names(cases_of(plan::kSm90, verify::RowSet::all)))
    add_case(expected, name);
  for (const auto& [row, operations] : expected)
    if (proved.contains(row))
      EXPECT_EQ(proved[row], operations) << row;
    else
      EXPECT_TRUE(younger.contains(row)) << row << " was never proved on an H200";
  for (const auto& [row, operations] : proved) EXPECT_TRUE(expected.contains(row)) << row << " is no row";
  // README says how many of them compare bits.
  const std::string counts =
      fourfold::format("{} of\n  {} proofs bit for bit", with_commas(static_cast<long long>(exact)),
                       with_commas(static_cast<long long>(proofs)));
  EXPECT_NE(read_file(std::string(FOURFOLD_SOURCE_DIR) + "/README.md").find(counts), std::string::npos)
      << counts;
}

TEST(VerifyCommand, TheTableEndsWithCountsAndTheReportIsWritten) {
  const std::string path = testing::TempDir() + "/fourfold_verify_report.json";
  std::remove(path.c_str());
  VerifyOptions options = fixed_seed("pack");
  options.report = path;
  Captured captured;
  EXPECT_EQ(run_verify(options, captured.console), kFine);
  EXPECT_NE(captured.out.str().find("pass, bits equal"), std::string::npos);
  EXPECT_NE(captured.out.str().find(
                "14 proofs of 14 rows and operations on 2 machines: 14 passed, 0 missed, 0 refused"),
            std::string::npos)
      << captured.out.str();
  EXPECT_EQ(read_json(read_file(path)).at("rows").items.size(), 14u);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST(VerifyCommand, TheSameSeedGivesTheSameNumbers) {
  const auto run = [] {
    VerifyOptions options = fixed_seed("moe_stream 32x8x64 w4a16-mma nvfp4");
    options.json = true;
    Captured captured;
    EXPECT_EQ(run_verify(options, captured.console), kFine);
    const Json json = read_json(captured.out.str());
    std::string numbers;
    for (const Json& row : json.at("rows").items)
      numbers += row.at("op").text + " " + std::to_string(row.at("max_error").number) + " " +
                 std::to_string(row.at("seed").number) + "\n";
    return numbers;
  };
  EXPECT_EQ(run(), run());
}

// The first synchronisation of a kind that a row executes: what a mutation can remove.
std::optional<sim::SyncSite> site_of(const verify::Case& test, sim::SyncOp op) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  EXPECT_TRUE(test.run(*machine, true).passed());
  for (const sim::SyncSite& site : device.executed_sites())
    if (site.op == op) return site;
  return std::nullopt;
}

// verify that cannot fail proves nothing: leave a barrier of the tiled kernel without its start.
TEST(VerifyCommand, ADamagedKernelIsAMiss) {
  const verify::Case* damaged = nullptr;
  const auto cases = cases_of(plan::kSm120, verify::RowSet::all);
  for (const verify::Case& test : cases)
    if (damaged == nullptr && test.kernel == "moe_gemm" && test.op == "plain" &&
        test.row.find("w4a4") != std::string::npos)
      damaged = &test;
  ASSERT_NE(damaged, nullptr);
  const auto site = site_of(*damaged, sim::SyncOp::init);
  ASSERT_TRUE(site.has_value());
  VerifyOptions options = fixed_seed(damaged->row);
  options.prepare_simulator = [&](sim::Device& device) { device.install({*site, sim::MutationKind::skip}); };
  Captured captured;
  EXPECT_EQ(run_verify(options, captured.console), kMiss);
  EXPECT_NE(captured.out.str().find("what did not pass:"), std::string::npos);
  EXPECT_NE(captured.out.str().find(" miss"), std::string::npos);
  options.json = true;
  Captured as_json;
  EXPECT_EQ(run_verify(options, as_json.console), kMiss);
  const Json json = read_json(as_json.out.str());
  EXPECT_FALSE(json.at("passed").truth);
  EXPECT_EQ(json.at("rows").items.front().at("verdict").text, "miss");
  EXPECT_FALSE(json.at("rows").items.front().at("failure").text.empty());
}

// A row that nobody wrote a proof for is listed, and fails.
TEST(VerifyCommand, AStepRowWithoutAProofIsAMiss) {
  verify::StepCase test;
  test.row.kernel = test.row.row = "new_kernel";
  test.row.role = "decode";
  EXPECT_EQ(verify::step_ops(test.row), std::vector<std::string>{"decode"});
  verify::simulator_target(plan::kSm120).use(0, [&](kernels::Machine& machine) {
    const verify::Result result = verify::run_step_case(machine, test, true);
    EXPECT_FALSE(result.passed());
    EXPECT_NE(result.failure.find("no proof is written for kernel 'new_kernel'"), std::string::npos);
  });
}

// A step kernel that loses a synchronisation is a miss, as a GEMM is.
TEST(VerifyCommand, ADamagedStepKernelIsAMiss) {
  const auto cases = cases_of(plan::kSm120, verify::RowSet::all);
  using Damage = std::pair<const char*, sim::SyncOp>;
  for (const auto& [kernel, op] :
       {Damage{"norm_rows", sim::SyncOp::sync_block}, Damage{"attend", sim::SyncOp::sync_block},
        Damage{"delta_decode", sim::SyncOp::sync_block}, Damage{"dense_few", sim::SyncOp::wait}}) {
    const auto damaged =
        std::find_if(cases.begin(), cases.end(),
                     [&, name = kernel](const verify::Case& test) { return test.kernel == name; });
    ASSERT_NE(damaged, cases.end()) << kernel;
    const auto site = site_of(*damaged, op);
    ASSERT_TRUE(site.has_value()) << kernel;
    sim::Device device;
    device.install({*site, sim::MutationKind::skip});
    EXPECT_FALSE(damaged->run(*kernels::make_sim_machine(device), true).passed()) << kernel;
  }
}

TEST(VerifyCommand, RefusedRowsAreListedAndFail) {
  verify::Target target = verify::simulator_target(plan::kSm120);
  target.probes = {{"accumulation", "", "nvfp4", verify::Outcome::beyond_bound, "a probe failed"},
                   {"MXFP4", "", "mxfp4", verify::Outcome::beyond_bound, "a probe failed"}};
  std::vector<verify::Job> jobs;
  for (verify::Case& test : cases_of(plan::kSm120, verify::RowSet::all))
    if (test.row.find("moe_stream 32x8x64 w4a4") == 0 || test.row == "moe_stream 32x8x64 w4a16-mma nvfp4")
      jobs.push_back({&target, std::move(test)});
  int refused = 0, passed = 0;
  for (const verify::Result& result : verify::run_jobs(jobs, {})) {
    refused += result.verdict() == "refused";
    passed += result.passed();
    EXPECT_EQ(result.verdict() == "refused", result.row.find("w4a4") != std::string::npos);
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(passed, 3);
}

// A GPU whose compiler did not make a row as planned: the others are proved, and the verdict is no pass.
TEST(VerifyCommand, ARowThatMissesItsPlanIsRefusedAlone) {
  const std::string row = "dense_sum_norm fp8";
  verify::Target target = verify::simulator_target(plan::kSm90);
  target.use = [&](std::uint64_t seed, const std::function<void(kernels::Machine&)>& with) {
    sim::Device device;
    device.set_seed(seed);
    kernels::SimMachineOptions options;
    options.arch = &plan::kSm90;
    options.refused = {{row, "2 blocks an SM are planned, 1 fits"}};
    with(*kernels::make_sim_machine(device, options));
  };
  target.use(1, [&](kernels::Machine& machine) {
    EXPECT_FALSE(machine.find(kernels::RowKind::step, row).found());
    EXPECT_EQ(machine.no_row(row),
              "simulator, sm90 has no row 'dense_sum_norm fp8': 2 blocks an SM are planned, 1 fits");
  });
  VerifyOptions options;
  options.device = "cuda";
  options.seeds = 1;
  options.stand_in = std::make_shared<const verify::Target>(std::move(target));
  const auto verified = [&](const char* rows, int exit) {
    options.rows = rows;
    Captured captured;
    EXPECT_EQ(run_verify(options, captured.console), exit) << captured.out.str();
    return captured.out.str();
  };
  const std::string page = verified("dense_sum_norm *", kMiss);
  EXPECT_NE(page.find("2 blocks an SM are planned, 1 fits"), std::string::npos) << page;
  EXPECT_NE(page.find("0 missed, 1 refused"), std::string::npos) << page;
  verified("dense_sum_norm bf16", kFine);
}

TEST(VerifyCommand, TwoMachinesAreComparedByteForByte) {
  const verify::Target first = verify::simulator_target(plan::kSm120),
                       second = verify::simulator_target(plan::kSm90);
  verify::Case test;
  for (const verify::Case& item : cases_of(plan::kSm120, verify::RowSet::all))
    if (item.row == "moe_stream 32x8x64 w4a16-mma nvfp4" && item.op == "down") test = item;
  const auto same = verify::compare_machines(first, second, test);
  EXPECT_TRUE(same.passed()) << same.failure;
  EXPECT_GT(same.bytes, 1000);
  // One machine gives another byte; one has no such row.
  int calls = 0;
  verify::Case wrong = test;
  wrong.output = [&](kernels::Machine& machine) {
    std::vector<std::uint8_t> bytes = test.output(machine);
    bytes[7] = static_cast<std::uint8_t>(bytes[7] + calls++);
    return bytes;
  };
  EXPECT_EQ(verify::compare_machines(first, second, wrong).different, 1);
  verify::StepCase unknown;
  unknown.row.kernel = "add_gated";
  unknown.row.row = "no such row";
  unknown.op = "f32";
  wrong.output = [&](kernels::Machine& machine) { return verify::step_output(machine, unknown); };
  EXPECT_NE(verify::compare_machines(first, second, wrong).failure.find("no such row"), std::string::npos);
}

TEST(VerifyCommand, BadInputIsRefused) {
  const auto error_of = [](const VerifyOptions& options) {
    Captured captured;
    try {
      run_verify(options, captured.console);
    } catch (const Error& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return std::string("no error");
  };
  VerifyOptions options;
  options.device = "tpu";
  EXPECT_NE(error_of(options).find("sim, cuda, all"), std::string::npos);
  EXPECT_NE(error_of(fixed_seed("no_such_row*")).find("no row matches"), std::string::npos);
  options = fixed_seed("pack");
  options.seeds = 0;
  EXPECT_NE(error_of(options).find("--seeds is 0"), std::string::npos);
  options = fixed_seed("pack");
  options.report = "/no/such/folder/report.json";
  EXPECT_NE(error_of(options).find("cannot write /no/such/folder/report.json"), std::string::npos);
  if (!kernels::why_no_gpu().empty()) {
    options = fixed_seed("pack");
    options.device = "cuda";
    EXPECT_NE(error_of(options).find("no GPU can be used"), std::string::npos);
  }
}

TEST(VerifyCommand, AllWithoutAGpuIsANotice) {
  if (kernels::why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU here";
  VerifyOptions options = fixed_seed("pack");
  options.device = "all";
  Captured captured;
  EXPECT_EQ(run_verify(options, captured.console), kFine);
  EXPECT_NE(captured.err.str().find("notice: no GPU was used"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::cli
