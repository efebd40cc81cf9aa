// doctor and env through the program: exit codes, forms, and what they read beside the machine.
#include <fstream>
#include <sstream>

#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

const std::filesystem::path kMachines = std::filesystem::path(FOURFOLD_SOURCE_DIR) / "tests/doctor/machines";

std::string at(const std::string& machine) { return "--root " + (kMachines / machine).string(); }

std::string committed(const std::string& machine) {
  std::ifstream file(kMachines / machine / "verdict.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Doctor : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  static Outcome doctor(const std::string& arguments) {
    return shell("PROGRAM doctor " + arguments + " 2>&1");
  }

  checkpoint::TempFolder folder_;
};

TEST_F(Doctor, ExitCodesSpeakOfTheMachineOrOfTheCommandLine) {
  EXPECT_EQ(doctor(at("rtx-5090")).status, 0);
  EXPECT_EQ(doctor(at("wsl2-5090")).status, 1);
  EXPECT_EQ(doctor(at("container-64mb")).status, 2);
  for (const std::string wrong :
       {"--json --markdown", "--root /nowhere/at/all", "--log /nowhere/at/all", "--scan /nowhere/at/all",
        "--model /nowhere/at/all", "--measured 55", "--url https://example.org", "--no-such-flag",
        "--url http://a --url http://b --url http://c", "--root . --record x"}) {
    const Outcome outcome = doctor(wrong);
    EXPECT_EQ(outcome.status, 64) << wrong << ": " << outcome.out;
    EXPECT_TRUE(outcome.out.starts_with("fourfold: ")) << outcome.out;
  }
}

// JSON is the verdict that is committed; beside a GPU it also has the lines about our own rows.
TEST_F(Doctor, JsonIsTheCommittedVerdict) {
  EXPECT_EQ(doctor(at("no-gpu") + " --json").out, committed("no-gpu"));
  for (const std::string machine : {"threadripper-iommu", "dgx-spark", "h200"}) {
    const Outcome outcome = doctor(at(machine) + " --json");
    const std::string verdict = committed(machine);
    EXPECT_TRUE(outcome.out.starts_with(verdict.substr(0, verdict.size() - 3))) << outcome.out;
    EXPECT_GE(read_json(outcome.out).at("about").items.size(), 3u);
  }
}

TEST_F(Doctor, AnyMachineAnswersQuicklyAndCanBeRecorded) {
  const std::string record = (folder_.path() / "here").string();
  const Outcome here = doctor("--quick --json --record " + record);
  const Outcome there = doctor("--json --root " + record);
  EXPECT_LE(here.status, 2);
  EXPECT_EQ(there.out, here.out);
  EXPECT_EQ(there.status, here.status);
}

TEST_F(Doctor, ALogOfSkippedTacticsAloneIsFine) {
  const std::string line = "flashinfer.jit: [Autotuner]: Skipping tactic <MoERunner> 15, due to failure";
  const Outcome fine =
      shell("yes '" + line + "' | head -1000 | PROGRAM doctor " + at("rtx-5090") + " --log - 2>&1");
  EXPECT_EQ(fine.status, 0);
  EXPECT_TRUE(contains(fine.out, "1000 skipped tactics")) << fine.out;
  folder_.write("server.log", "Using 'MARLIN' NvFp4 MoE backend out of potential backends: []\n");
  const Outcome slow = doctor(at("rtx-5090") + " --log " + (folder_.path() / "server.log").string());
  EXPECT_EQ(slow.status, 1);
  EXPECT_TRUE(contains(slow.out, "the experts ran on MARLIN; yes")) << slow.out;
}

// 35B with routed experts in NVFP4 alone: about 4.5 GB a token, so about 398 tok/s at 1,792 GB/s.
TEST_F(Doctor, AModelHasItsFloor) {
  const std::string model = (folder_.path() / "35b").string();
  ASSERT_EQ(shell("PROGRAM make-model " + model + " --shape 35b --format modelopt --sparse 2>&1").status,
            kFine);
  const Outcome slow = doctor(at("rtx-5090") + " --model " + model + " --measured 55");
  EXPECT_EQ(slow.status, 1);
  EXPECT_TRUE(contains(slow.out, "55 of 398 tok/s: 13.8 %")) << slow.out;
  EXPECT_TRUE(contains(slow.out, "1 x 398 tok/s, 2 x 795 tok/s, 4 x 1590 tok/s")) << slow.out;
  EXPECT_TRUE(contains(slow.out, "drafts (MTP) pay above 1.38")) << slow.out;
  EXPECT_TRUE(contains(slow.out, "others report 257")) << slow.out;
  const Outcome fine = doctor(at("rtx-5090") + " --model " + model + " --measured 250 --markdown");
  EXPECT_EQ(fine.status, 0) << fine.out;
  EXPECT_TRUE(contains(fine.out, "**fourfold doctor: fine**")) << fine.out;
  EXPECT_EQ(doctor(at("laptop") + " --model " + model).status, 2);  // 24 GB of weights on 24 GB of memory
}

TEST_F(Doctor, EnvSaysWhy) {
  const Outcome four = shell("PROGRAM env --gpus 4 --for vllm " + at("threadripper-iommu") + " 2>&1");
  EXPECT_EQ(four.status, kFine);
  EXPECT_TRUE(contains(four.out, "# 24 cores for 4 workers")) << four.out;
  EXPECT_TRUE(contains(four.out, "export OMP_NUM_THREADS=6\n")) << four.out;
  EXPECT_EQ(shell("PROGRAM env --gpus 5 " + at("threadripper-iommu") + " 2>&1").status, 64);
  EXPECT_EQ(shell("PROGRAM env --for windows 2>&1").status, 64);
  // For a machine that is not here: said, and answered.
  const Outcome none = shell("PROGRAM env --gpus 4 --for vllm " + at("no-gpu") + " 2>&1");
  EXPECT_EQ(none.status, kFine);
  EXPECT_TRUE(contains(none.out, "has no NVIDIA GPU")) << none.out;
  EXPECT_TRUE(contains(none.out, "VLLM_WORKER_MULTIPROC_METHOD=spawn")) << none.out;
}

}  // namespace
}  // namespace fourfold::cli
