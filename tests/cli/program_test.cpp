// The built program from outside: exit codes, streams, and what a shell user meets first.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/console.h"
#include "cli/parse.h"
#include "kernels/gpu/gpu.h"
#include "tests/cli/support.h"
#include "tests/support/shell.h"

namespace fourfold::cli {
namespace {

// Both streams together, or one of them: redirect is appended to the command.
Outcome run(const std::string& arguments, const std::string& redirect = "2>&1") {
  return shell("PROGRAM " + arguments + " " + redirect);
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
};

TEST_F(Program, AloneItPrintsHelp) {
  const Outcome alone = run("");
  EXPECT_EQ(alone.status, kFine);
  EXPECT_EQ(alone.out.rfind("Fourfold: NVFP4 mixture-of-experts models on CPUs", 0), 0u) << alone.out;
  for (const char* command : {"plan", "verify", "run", "chat", "bench"})
    EXPECT_NE(alone.out.find(command), std::string::npos);
  EXPECT_EQ(run("--help").status, kFine);
  EXPECT_EQ(run("verify --help").status, kFine);
}

// The commands that have --seed, as the program itself lists them for a shell.
std::vector<std::string> commands_with_seeds() {
  std::istringstream lines(run("completion bash").out);
  std::vector<std::string> out;
  std::string words;
  for (std::string line; std::getline(lines, line);) {
    // "    'bench serve '*)", and behind it "      flags='-h --help ... --seed ...' ;;".
    if (const std::size_t end = line.find(" '*)"); end != std::string::npos) words = line.substr(5, end - 5);
    for (const char* flag : {" --seed ", " --seed'"})
      if (line.find(flag) != std::string::npos) out.push_back(words);
  }
  return out;
}

// Not another seed than the one that was typed: none that wraps around, and none that is octal.
TEST_F(Program, SeedsBeyond64BitsAreRefused) {
  const std::vector<std::string> commands = commands_with_seeds();
  for (const char* known : {"run", "chat", "verify", "make-model", "bench serve", "diff-backends"})
    EXPECT_NE(std::find(commands.begin(), commands.end(), known), commands.end()) << known;
  for (const std::string& command : commands) {
    const std::string words = command == "make-model" ? "make-model /nowhere/m" : command;
    for (const auto& [seed, why] : {std::pair(" --seed 99999999999999999999", "beyond 64 bits"),
                                    std::pair(" --seed -1", "'-1' is no whole number"),
                                    std::pair(" --seed=-1", "'-1' is no whole number"),
                                    std::pair(" --seed 010", "'010' is no whole number"),
                                    std::pair(" --seed 0x10", "'0x10' is no whole number")}) {
      const Outcome refused = run(words + seed);
      EXPECT_EQ(refused.status, kUsage) << words << seed;
      EXPECT_NE(refused.out.find(why), std::string::npos) << words << seed << ": " << refused.out;
    }
  }
  for (const char* seed : {"0", "7", "10", "18446744073709551615"}) EXPECT_EQ(why_no_seed(seed), "") << seed;
}

TEST_F(Program, Version) {
  const Outcome version = run("--version");
  EXPECT_EQ(version.status, kFine);
  EXPECT_EQ(version.out.rfind("fourfold ", 0), 0u) << version.out;
}

TEST_F(Program, HelpAndVersionAreWordsToo) {
  EXPECT_EQ(run("help").out, run("--help").out);
  EXPECT_EQ(run("help run").out, run("run --help").out);
  EXPECT_EQ(run("help bench moe").out, run("bench moe --help").out);
  EXPECT_EQ(run("version").out, run("--version").out);
  for (const char* words : {"help", "help run", "version"}) EXPECT_EQ(run(words).status, kFine) << words;
  const Outcome wrong = run("help sevre");
  EXPECT_EQ(wrong.status, kUsage);
  EXPECT_NE(wrong.out.find("there is no command 'sevre'; did you mean serve?"), std::string::npos)
      << wrong.out;
}

// Ranks are not GPUs alone: on a CPU they are parts of one process.
TEST_F(Program, HelpSaysWhatRanksAre) {
  for (const char* command : {"run", "chat", "serve", "perplexity", "compare"}) {
    const std::string help = run((std::string("help ") + command).c_str()).out;
    const std::size_t option = help.find("--tp,--tensor-parallel-size");
    ASSERT_NE(option, std::string::npos) << command;
    EXPECT_NE(help.find("a GPU each with cuda, else in this process", option), std::string::npos) << command;
  }
}

TEST_F(Program, MistypedWordsAreExplained) {
  const auto says = [](const char* arguments, const char* words) {
    const Outcome wrong = run(arguments);
    EXPECT_EQ(wrong.status, kUsage) << arguments;
    EXPECT_NE(wrong.out.find(words), std::string::npos) << arguments << ": " << wrong.out;
  };
  says("sevre --port 1", "there is no command 'sevre'; did you mean serve?");
  says("frobnicate", "there is no command 'frobnicate'\n  fourfold help lists them.");
  says("help run extra",
       "'extra' is one word too many: run has no commands of its own\n  fourfold help run says what it "
       "takes.");
  says("run --max-tokns 5", "run has no option --max-tokns; did you mean --max-tokens?");
  says("run -max-tokens 5", "did you mean --max-tokens?");
  says("plan --strikt", "plan has no option --strikt; did you mean --strict?");
  says("bench modle", "there is no bench command 'modle'; did you mean model?");
  says("bench", "bench needs to know what: model, ");
  says("bench moe --tokns 1", "bench moe has no option --tokns; did you mean --tokens?");
  says("run Tell me a story", "fourfold run -p 'Tell me a story'");
  says("verify extra", "verify has no use for 'extra'");
  says("verify --seeds many", "verify: ");
}

TEST_F(Program, WrongUsageIs64) {
  for (const char* arguments : {"--no-such-flag", "plan --no-such-flag", "bench", "bench nothing",
                                "verify --seeds many", "plan verify", "nonsense", "verify extra"}) {
    const Outcome wrong = run(arguments);
    EXPECT_EQ(wrong.status, kUsage) << arguments << ": " << wrong.out;
    EXPECT_EQ(wrong.out.rfind("fourfold: ", 0), 0u) << wrong.out;
  }
}

TEST_F(Program, ErrorsAre2WithAHintOnStderr) {
  const Outcome unknown = run("plan --arch sm999");
  EXPECT_EQ(unknown.status, kFailed);
  EXPECT_NE(unknown.out.find("fourfold: unknown architecture 'sm999'"), std::string::npos);
  EXPECT_NE(unknown.out.find("Known architectures: sm80"), std::string::npos);
  EXPECT_EQ(run("plan --arch sm999", "2>/dev/null").out, "");
  EXPECT_EQ(run("plan --choose --shape 64,64,2,4 --tokens 1").status, kFailed);
  EXPECT_EQ(run("verify --device tpu").status, kFailed);
  if (!kernels::why_no_gpu().empty()) {
    EXPECT_EQ(run("bench moe --tokens 1").status, kFailed);
  }
}

TEST_F(Program, MissesAre1) {
  EXPECT_EQ(run("plan --choose --shape 35b --tokens 1 --arch sm100").status, kMiss);
}

TEST_F(Program, StrictWorksBeforeAndAfterTheCommand) {
  const std::string choose = "plan --choose --shape 35b --tokens 8 --arch sm90 --activations w4a4";
  EXPECT_EQ(run(choose).status, kFine);
  EXPECT_EQ(run(choose + " --strict").status, kFailed);
  EXPECT_EQ(run("--strict " + choose).status, kFailed);
}

TEST_F(Program, JsonIsJson) {
  for (const char* arguments :
       {"plan --json", "plan --json --arch sm90,sm100", "plan --choose --shape 35b --tokens 1,64 --json",
        "verify --rows pack --json --seeds 1"}) {
    const Outcome result = run(arguments, "2>/dev/null");
    EXPECT_EQ(result.status, kFine) << arguments;
    EXPECT_NO_THROW(read_json(result.out)) << arguments;
  }
}

TEST_F(Program, PlanNamesTheLimit) {
  const Outcome plan = run("plan");
  EXPECT_EQ(plan.status, kFine);
  EXPECT_NE(plan.out.find("101,376"), std::string::npos);
  EXPECT_NE(run("plan --explain 256x128x128 --arch sm120").out.find("102,400"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::cli
