// tune and diff-backends through the program, on the simulated GPU: what they print and write, that a tuning
// file changes which rows run and no answer, and that a bad one is refused.
#include <fstream>
#include <sstream>

#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

std::string read_all(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TuneCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string golden_ = checkpoint::golden_model("bf16").string();
  checkpoint::TempFolder folder_;
};

TEST_F(TuneCommand, ListsCandidatesOfEqualBitsAndTimesNoneOnTheSimulator) {
  const Outcome tuned = shell(
      "PROGRAM tune --backend sim --shape tiny --users 2 --prompt '' --context 70"
      " --ops 'attend *' --out " +
      at("t.json") + " 2>&1");
  ASSERT_EQ(tuned.status, kFine) << tuned.out;
  for (const char* part : {"simulator, sm120", "nothing is timed", "attend 64 bf16 x16", "attend 64 bf16 x32",
                           "attend 64 bf16 x64", "refused:  for heads of 256; these have 64", "default",
                           "0 choices other than the defaults in"})
    EXPECT_TRUE(contains(tuned.out, part)) << part << " is not in:\n" << tuned.out;
  EXPECT_FALSE(contains(tuned.out, "other bits")) << tuned.out;
  const std::string file = read_all(at("t.json"));
  EXPECT_TRUE(contains(file, "\"fourfold_tuning\": 1")) << file;
  EXPECT_TRUE(contains(file, "\"choices\": []")) << file;
}

TEST_F(TuneCommand, Refuses) {
  const auto refused = [&](const std::string& arguments, const char* part) {
    const Outcome outcome = shell("PROGRAM tune " + arguments + " 2>&1");
    EXPECT_EQ(outcome.status, kFailed) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, part)) << outcome.out;
  };
  refused("--backend sim", "a MODEL or a --shape");
  refused(golden_ + " --shape tiny --backend sim", "one of them");
  refused("--shape tiny --backend cpu", "cuda and sim");
  refused("--shape tiny --backend sim --users 0", "--users");
  refused("--shape tiny --backend sim --users '' --prompt ''", "nothing to tune");
  refused("--shape 7b --backend sim", "7b");
  refused("--shape tiny --backend sim --seconds 0", "--seconds");
  refused("--shape tiny --backend sim --users 1 --prompt '' --context 0 --ops nothing*", "matches no op");
}

TEST_F(TuneCommand, ATuningFileChangesNoAnswer) {
  const auto choice = [](const std::string& op, const std::string& shape, const std::string& row) {
    return "{\"op\": \"" + op + "\", \"shape\": \"" + shape +
           "\", \"tokens_from\": 1, \"tokens_to\": 8, \"row\": \"" + row +
           "\", \"us\": 1, \"default\": {\"row\": \"x\"}, \"default_us\": 2}";
  };
  const std::string head =
      "{\"fourfold_tuning\": 1, \"chip\": \"simulator, sm120\", \"sm_count\": 3, \"driver\": \"none\","
      "\"commit\": \"c\", \"date\": \"d\", \"choices\": [";
  folder_.write("good.json",
                head + choice("attend", "4/2 heads of 64 bf16, 1 a sequence", "attend 64 bf16 x64") + "]}");
  folder_.write("chip.json",
                "{\"fourfold_tuning\": 1, \"chip\": \"NVIDIA H200, sm90\", \"sm_count\": 132,"
                " \"driver\": \"d\", \"commit\": \"c\", \"date\": \"d\", \"choices\": []}");
  folder_.write("row.json", head + choice("attend", "a", "attend 64 bf16 x17") + "]}");
  // A row there is, but not for these heads: noticed where the op is launched.
  folder_.write("unfit.json",
                head + choice("attend", "4/2 heads of 64 bf16, 1 a sequence", "attend 256 bf16 x16") + "]}");
  folder_.write("broken.json", head);
  const std::string line =
      "PROGRAM run " + golden_ + " --backend sim --ids 1,2,3 --max-tokens 3 --temperature 0 --tuned ";
  const Outcome plain = shell(line + "none 2>/dev/null");
  ASSERT_EQ(plain.status, kFine);
  const Outcome tuned = shell(line + at("good.json") + " 2>" + at("said"));
  EXPECT_EQ(tuned.status, kFine) << read_all(at("said"));
  EXPECT_EQ(tuned.out, plain.out);
  EXPECT_TRUE(contains(read_all(at("said")), "tuned by")) << read_all(at("said"));
  const auto refused = [&](const std::string& file, const char* part) {
    const Outcome outcome = shell(line + at(file) + " 2>&1");
    EXPECT_EQ(outcome.status, kFailed) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, part)) << outcome.out;
  };
  refused("chip.json", "measured on NVIDIA H200, sm90 with 132 SMs; this is simulator, sm120");
  refused("row.json", "has no row 'attend 64 bf16 x17'");
  refused("unfit.json", "cannot run as attend 256 bf16 x16");
  refused("broken.json", "broken.json");
  refused("absent.json", "absent.json");
  const Outcome on_cpu =
      shell("PROGRAM run " + golden_ + " --ids 1 --max-tokens 1 --tuned " + at("good.json") + " 2>&1");
  EXPECT_EQ(on_cpu.status, kFailed);
  EXPECT_TRUE(contains(on_cpu.out, "cuda and sim backends alone have it")) << on_cpu.out;
  const Outcome compared =
      shell("PROGRAM compare " + golden_ + " " + golden_ + "/reference.safetensors --backend sim --tuned " +
            at("absent.json") + " 2>&1");
  EXPECT_EQ(compared.status, kFailed);
  EXPECT_TRUE(contains(compared.out, "absent.json")) << compared.out;
}

TEST_F(TuneCommand, DiffBackendsHoldsLayersAgainstTheFirst) {
  const Outcome fine = shell("PROGRAM diff-backends " + golden_ +
                             " --backends cpu,reference,sim --tokens 6"
                             " --generated 2 2>&1");
  EXPECT_EQ(fine.status, kFine) << fine.out;
  for (const char* part :
       {"embedding", "layer 3", "logits", "reference", "sim", "every layer within its bound"})
    EXPECT_TRUE(contains(fine.out, part)) << part << " is not in:\n" << fine.out;
  const Outcome exact =
      shell("PROGRAM diff-backends " + golden_ +
            " --backends reference,cpu --activations f32 --prompt-ids 5,6,7 --generated 1 --json");
  EXPECT_EQ(exact.status, kFine) << exact.out;
  EXPECT_TRUE(contains(exact.out, "\"bounds\": \"largest\"")) << exact.out;
  const auto refused = [&](const std::string& arguments, const char* part) {
    const Outcome outcome = shell("PROGRAM diff-backends " + golden_ + " " + arguments + " 2>&1");
    EXPECT_EQ(outcome.status, kFailed) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, part)) << outcome.out;
  };
  refused("--backends cpu", "two at least");
  refused("--backends cpu,tpu", "unknown backend 'tpu'");
  refused("--prompt-ids 1,2 --generated 3", "2 tokens, 3 of them generated");
  refused("--prompt-ids 1,320", "--prompt-ids");
}

}  // namespace
}  // namespace fourfold::cli
