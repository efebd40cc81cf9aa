// Removes every synchronisation of the kernels of a step in turn (mutations.h): dense matrices, attention,
// DeltaNet, sampling, norms. What is run are the proofs of `fourfold verify`, at shapes whose rings wrap.
#include <map>
#include <sstream>

#include "kernels/launch/sim_machine.h"
#include "kernels/verify/step_case.h"
#include "tests/kernels/mutations.h"

namespace fourfold::test {
namespace {

// Rows whose blocks are of two kernels, each with a wait of its own.
constexpr const char* kOthersWait =
    "a launch of which no block waits is a fault, and here blocks of the other kernel do; each alone is "
    "caught at it";
bool is_of_two_kernels(const plan::RowFacts& row) {
  return row.kernel == "dense_table" || row.row.ends_with(" near");
}

const Survivor kSurvivors[] = {
    kReleasesSurvive,
    {SyncOp::wait_predecessors, "decode.h", "cta.wait_predecessors();  // without rows",
     "of a block without rows, which reads nothing: it keeps in order what kernels behind this one may rely "
     "on; whole models on the simulator run such chains"},
    {SyncOp::wait_predecessors, "dense_few.h", "cta.wait_predecessors();", kOthersWait, is_of_two_kernels},
    {SyncOp::wait_predecessors, "dense_near.h", "cta.wait_predecessors();", kOthersWait, is_of_two_kernels},
    {SyncOp::sync_warp, "attend_prompt_wgmma.h", "cta.sync_warp();  // every lane knows",
     "keeps lane 0 from saying `seen` while another lane has not passed its wait for `cleared`: the loader "
     "could complete the next tail's phase, and that lane would wait for a parity that has gone by. For that "
     "it must miss its turns for as long as the loader takes for a tail, which one schedule in many does",
     [](const plan::RowFacts&) { return true; }, true},
    {SyncOp::wgmma_wait, "attend_prompt_wgmma.h", "wgmma_wait<1>",
     "with two panels each has a set of operands of its own: nothing is overwritten before the wait for both",
     [](const plan::RowFacts& row) { return row.k == 128; }},
    {SyncOp::sync_warp, "attend_prompt.h", "if (n % 4 == 0) cta.sync_warp();",
     "keeps the compiler from decoding more values ahead than registers hold; it orders nothing"},
};

// Of a kernel with several: every path and format, as each has code of its own. That is the row's name
// without its sizes: "dense_few norm bf16" of "dense_few 16x8x512 norm bf16 w8". Rows for a window wait where
// the others do.
std::string kind_of(const plan::RowFacts& row) {
  std::istringstream words(row.row);
  std::string kind;
  for (std::string word; words >> word;) {
    const bool is_size = word.find_first_not_of("0123456789wx") == std::string::npos;
    if (!is_size && word != "window") kind += word + " ";
  }
  return kind;
}

// Operations differ behind the sums only: one of them, or all.
std::vector<std::string> ops_of(const plan::RowFacts& row) {
  std::vector<std::string> ops = verify::step_ops(row);
  if (!wants_all()) ops.resize(1);
  return ops;
}

// With everything in its place, at two shapes that verify --quick does not have. On a device of its own,
// for what a third shape synchronises the mutations' two need not reach.
void expect_proofs_pass(const plan::ArchFacts& arch, const plan::RowFacts& row, const std::string& op) {
  sim::Device device;
  const auto machine =
      kernels::make_sim_machine(device, {.arch = &arch, .persistent_blocks = 2, .dependent_launch = true});
  for (const int variant : {1, 2}) {
    const verify::Result whole = verify::run_step_case(*machine, {row, op, variant, 5}, true);
    EXPECT_TRUE(whole.passed()) << whole.row << " " << whole.shape << ": " << whole.failure << " error "
                                << whole.max_error << " of " << whole.bound << ", " << whole.bit_mismatches
                                << " values differ in their bits";
  }
}

void mutate_row(const plan::ArchFacts& arch, const plan::RowFacts& row, const std::set<std::string>& files,
                const std::set<SyncOp>& only = {}) {
  SCOPED_TRACE(row.row);
  for (const std::string& op : ops_of(row)) {
    expect_proofs_pass(arch, row, op);
    sim::Device device;
    const auto machine =
        kernels::make_sim_machine(device, {.arch = &arch, .persistent_blocks = 2, .dependent_launch = true});
    const Run<std::uint8_t> run = [&] {
      std::vector<std::uint8_t> all;
      for (const int variant : {0, 1}) {
        const auto bytes = verify::step_output(*machine, {row, op, variant, 5});
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
      return all;
    };
    mutate_all<std::uint8_t>(device, row.row + " " + op, row, kSurvivors, run, files, only);
  }
}

// Mutations of a ring that is filled once would find little: a row of more stages than its proof has shapes
// for fails that proof.
TEST(StepMutation, AProofWhoseRingIsNotFilledAgainFails) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  int rows = 0;
  for (plan::RowFacts row : machine->rows(kernels::RowKind::step)) {
    const bool scans = row.kernel == "delta_scan";
    if (row.row != "delta_scan 32 bf16" && row.row != "dense_many 32x16x512 nvfp4" &&
        row.row != "dense_many_pair 16x512 bf16 nvfp4")
      continue;
    (scans ? row.stages : row.total_bytes) *= 2;
    const verify::Result result =
        verify::run_step_case(*machine, {row, verify::step_ops(row)[0], scans ? 1 : 0, 5}, true);
    EXPECT_NE(result.failure.find(scans ? "places" : "ring"), std::string::npos) << row.row << result.failure;
    ++rows;
  }
  EXPECT_EQ(rows, 3);
}

enum class Heads { narrow, wide };

// The row with the smallest tile and the wanted heads of each kind, or all rows. files: where kernels are
// proved together with others.
void mutate_kernel(const char* kernel, const std::set<std::string>& files = {}, Heads heads = Heads::narrow) {
  for (const auto* arch : {&plan::kSm120, &plan::kSm90}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    std::map<std::string, const plan::RowFacts*> smallest;
    std::vector<std::function<void()>> rows;
    for (const plan::RowFacts& row : machine->rows(kernels::RowKind::step)) {
      if (row.kernel != kernel || row.arch != machine->arch().name) continue;
      if (wants_all()) rows.push_back([&] { mutate_row(*arch, row, files); });
      const plan::RowFacts*& least = smallest[kind_of(row)];
      const auto is_smaller = [heads](const plan::RowFacts& a, const plan::RowFacts& b) {
        return a.m != b.m ? a.m < b.m : heads == Heads::wide ? a.k > b.k : a.k < b.k;
      };
      if (least == nullptr || is_smaller(row, *least)) least = &row;
    }
    if (!wants_all())
      for (const auto& [kind, row] : smallest) mutate_row(*arch, *row, files);
    mutate_rows(rows);
    EXPECT_TRUE(arch == &plan::kSm90 || !smallest.empty()) << "no row of " << kernel;
  }
}

TEST(StepMutation, DenseFew) { mutate_kernel("dense_few"); }
TEST(StepMutation, DenseNear) { mutate_kernel("dense_near"); }
TEST(StepMutation, DensePair) { mutate_kernel("dense_pair"); }
TEST(StepMutation, DenseTable) { mutate_kernel("dense_table"); }
TEST(StepMutation, DenseMany) { mutate_kernel("dense_many"); }
TEST(StepMutation, DenseManyTable) { mutate_kernel("dense_many_table", {"few_tables.h", "top_k.h"}); }
TEST(StepMutation, DenseTall) { mutate_kernel("dense_tall"); }
TEST(StepMutation, DenseSum) { mutate_kernel("dense_sum", {"dense_sum.h", "dense_epilogue.h"}); }
// many_pair.h is mutated by DenseSumPair, too, and dense_many.h by DenseMany.
TEST(StepMutation, DenseManyPair) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  mutate_kernel("dense_many_pair", {"many_pair.h", "dense_many.h"});
}
TEST(StepMutation, DenseSumPair) { mutate_kernel("dense_sum_pair", {"many_pair.h"}); }
TEST(StepMutation, DenseSumNorm) {
  mutate_kernel("dense_sum_norm", {"dense_sum_norm.h", "dense_sum.h", "norm.h"});
}
TEST(StepMutation, CombineNorm) { mutate_kernel("combine_norm"); }
TEST(StepMutation, NormRows) { mutate_kernel("norm_rows"); }
TEST(StepMutation, NormPrompt) { mutate_kernel("norm_prompt"); }
TEST(StepMutation, NormFp4) { mutate_kernel("norm_fp4"); }
TEST(StepMutation, QuantizeRows) { mutate_kernel("quantize_rows"); }
TEST(StepMutation, SelectNorm) { mutate_kernel("select_norm"); }
TEST(StepMutation, AddGated) { mutate_kernel("add_gated"); }
TEST(StepMutation, AddBias) { mutate_kernel("add_bias"); }
TEST(StepMutation, Prepare) { mutate_kernel("prepare"); }
TEST(StepMutation, RowSquares) { mutate_kernel("row_squares"); }
// The pages of wide heads wrap the ring inside a split.
TEST(StepMutation, Attend) { mutate_kernel("attend", {}, Heads::wide); }
TEST(StepMutation, Combine) { mutate_kernel("combine splits"); }
TEST(StepMutation, AttendPrompt) { mutate_kernel("attend_prompt"); }
// Heads of 64 are one panel and those of 128 two: between panels is a wait that only more of them need.
TEST(StepMutation, AttendPromptOfSeveralPanels) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  int rows = 0;
  for (const plan::RowFacts& row : machine->rows(kernels::RowKind::step)) {
    if (row.row != "attend_prompt 256 bf16 wgmma") continue;
    mutate_row(plan::kSm90, row, {"attend_prompt_wgmma.h"}, {SyncOp::wgmma_wait});
    ++rows;
  }
  EXPECT_EQ(rows, 1);
}
// Wide tiles have the shortest ring: it wraps inside a unit.
TEST(StepMutation, AttendLatent) { mutate_kernel("attend_latent", {}, Heads::wide); }
TEST(StepMutation, AttendLatentPrompt) { mutate_kernel("attend_latent_prompt", {}, Heads::wide); }
// Where two warpgroups have vectors of their own, a warp's rows of the query are its alone.
TEST(StepMutation, AttendLatentPromptOfTwoGroups) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  int rows = 0;
  for (const plan::RowFacts& row : machine->rows(kernels::RowKind::step)) {
    if (row.row != "attend_latent_prompt 256 x128 wgmma") continue;
    mutate_row(plan::kSm90, row, {"attend_latent_wgmma.h", "page_ring.h", "attend_prompt_wgmma.h"});
    ++rows;
  }
  EXPECT_EQ(rows, 1);
}
TEST(StepMutation, LatentRows) { mutate_kernel("latent_rows"); }
TEST(StepMutation, TurnQueries) { mutate_kernel("turn_queries"); }
TEST(StepMutation, HeadLinear) { mutate_kernel("head_linear"); }
TEST(StepMutation, AbsorbQueries) {
  mutate_kernel("absorb_queries", {"absorb_queries.h", "prepare_latent.h", "head_linear.h"});
}
TEST(StepMutation, CombineExpand) { mutate_kernel("combine_expand"); }
// delta_mutation_test.cpp has the small rows, prompts too.
TEST(StepMutation, DeltaDecode) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  mutate_kernel("delta_decode");
}
// Its three kernels are proved together, whichever row is asked for.
TEST(StepMutation, DeltaPrompt) {
  if (!wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  mutate_kernel("delta_scan");
}
TEST(StepMutation, Sampling) { mutate_kernel("sampling"); }

}  // namespace
}  // namespace fourfold::test
