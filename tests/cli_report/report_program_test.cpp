// `fourfold report` as a user types it, on a machine that need not have a GPU.
#include <gtest/gtest.h>

#include <string>

#include "kernels/gpu/gpu.h"
#include "tests/cli_report/support.h"
#include "tests/support/shell.h"

namespace fourfold::cli {
namespace {

class ReportProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  Outcome run(const std::string& arguments) { return shell("PROGRAM report " + arguments + " 2>&1"); }
  TestFolder folder;
};

TEST_F(ReportProgram, OnTheSimulator) {
  const std::string path = folder / "r.json";
  const std::string command = "--device sim --quick --rows 'moe_route*' --out " + path;
  const Outcome done = run(command);
  ASSERT_EQ(done.status, kFine) << done.out;
  EXPECT_NE(done.out.find("read it before you send it"), std::string::npos) << done.out;
  const Json report = read_json(text_of(path));
  EXPECT_EQ(status_of(report, "verify"), "done");
  const Json& verified = part_of(report, "verify").at("result");
  EXPECT_TRUE(verified.at("passed").truth);
  EXPECT_FALSE(verified.at("rows").items.empty());
  EXPECT_TRUE(verified.at("probes").items.empty());  // of silicon
  EXPECT_EQ(status_of(report, "doctor"), "done");
  EXPECT_GT(part_of(report, "doctor").at("recording").items.size(), 5u);
  EXPECT_EQ(part_of(report, "doctor").at("result").kind, Json::Kind::object);
  // The recording is one for `doctor --root`, which says of it what it said here.
  std::string recording;
  for (const Json& line : part_of(report, "doctor").at("recording").items) recording += line.text + "\n";
  std::filesystem::create_directory(folder.path() / "machine");
  std::ofstream(folder / "machine/machine.txt") << recording;
  const Json again_judged =
      read_json(shell("PROGRAM doctor --json --root " + (folder / "machine") + " 2>&1").out);
  EXPECT_EQ(again_judged.at("verdict").text, part_of(report, "doctor").at("result").at("verdict").text);
  EXPECT_EQ(status_of(report, "bench moe 35b"), "skipped");
  EXPECT_EQ(status_of(report, "bench model tiny on the CPU"), "done");
  EXPECT_FALSE(part_of(report, "bench model tiny on the CPU").at("output").items.empty());
  // It is not overwritten, and nothing is measured for that.
  const Outcome again = run(command);
  EXPECT_EQ(again.status, kFailed);
  EXPECT_NE(again.out.find("is there already"), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("report: 1 of"), std::string::npos) << again.out;
}

// The tuning file is written, named and taken by the next run.
TEST_F(ReportProgram, TheTuningFileCanBeUsed) {
  const std::string path = folder / "r.json", tuned = folder / "tuned.json";
  const Outcome done = run("--device sim --quick --rows 'moe_route*' --tune-out " + tuned + " --out " + path);
  ASSERT_EQ(done.status, kFine) << done.out;
  const Json report = read_json(text_of(path));
  EXPECT_EQ(status_of(report, "tune tiny"), "done");
  EXPECT_EQ(part_of(report, "tune tiny").at("tuning_file").text, tuned);
  std::string lines;
  for (const Json& line : part_of(report, "tune tiny").at("tuning").items) lines += line.text + "\n";
  EXPECT_EQ(lines, text_of(tuned));
  const std::string use =
      "'" FOURFOLD_PROGRAM "' run " FOURFOLD_GOLDEN "/bf16 --backend sim --ids 1,2 --max-tokens 1 --tuned ";
  const Outcome next = shell(use + tuned + " 2>&1");
  EXPECT_EQ(next.status, kFine) << next.out;
  // A file that is there and cannot be kept is refused before anything is measured, and that is recorded.
  std::ofstream(tuned) << "{";
  const Outcome refused =
      run("--device sim --quick --force --rows 'moe_route*' --tune-out " + tuned + " --out " + path);
  EXPECT_EQ(refused.status, kMiss) << refused.out;
  const Json second = read_json(text_of(path));
  EXPECT_EQ(status_of(second, "tune tiny"), "failed");
  EXPECT_NE(part_of(second, "tune tiny").at("error").text.find("tuned.json"), std::string::npos);
  EXPECT_EQ(part_of(second, "tune tiny").at("output").items.size(), 3u) << "it was measured all the same";
  EXPECT_EQ(status_of(second, "bench model tiny on the CPU"), "done");
}

// A part that is refused is recorded with its sentence, and the others are there.
TEST_F(ReportProgram, OnePartFails) {
  const std::string path = folder / "r.json";
  const Outcome done = run("--device sim --quick --rows nothing --out " + path);
  EXPECT_EQ(done.status, kMiss) << done.out;
  const Json report = read_json(text_of(path));
  EXPECT_EQ(status_of(report, "verify"), "failed");
  EXPECT_EQ(part_of(report, "verify").at("error").text, "no row matches 'nothing'");
  EXPECT_EQ(status_of(report, "doctor"), "done");
  EXPECT_EQ(status_of(report, "bench model tiny on the CPU"), "done");
}

TEST_F(ReportProgram, InterruptedItLeavesAValidFile) {
  const std::string path = folder / "r.json";
  // Every row four times: minutes, unless it is interrupted.
  const Outcome done =
      shell("timeout --preserve-status -s INT 4 PROGRAM report --device sim --out " + path + " 2>&1");
  EXPECT_EQ(done.status, kFailed) << done.out;
  EXPECT_NE(done.out.find("has what was done until then"), std::string::npos) << done.out;
  int stopped = 0;
  const Json report = read_json(text_of(path));
  for (const Json& part : report.at("parts").items) stopped += part.at("status").text == "stopped";
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(status_of(report, "bench model 35b on the CPU"), "not run");
}

TEST_F(ReportProgram, WrongUseIsExplained) {
  const auto says = [&](const std::string& arguments, int status, const char* words) {
    const Outcome done = run(arguments);
    EXPECT_EQ(done.status, status) << arguments;
    EXPECT_NE(done.out.find(words), std::string::npos) << done.out;
  };
  says("--device tpu", kFailed, "unknown device 'tpu'");
  says("--quik", kUsage, "report has no option --quik; did you mean --quick?");
  says("--device sim --out " + (folder / "none/r.json"), kFailed, "there is no folder");
  says("--device sim --no-tune --tune-out x --out " + (folder / "none/r.json"), kFailed,
       "--tune-out x and --no-tune contradict");
  says("--device sim --tune-out " + (folder / "none/t.json") + " --out " + (folder / "r.json"), kFailed,
       "none/t.json: there is no folder");
  says("--help", kFine, "One file to send");
  if (!kernels::why_no_gpu().empty())
    says("--out " + (folder / "r.json"), kFailed, "Here `fourfold report --device sim --quick` can write");
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json"));
}

}  // namespace
}  // namespace fourfold::cli
