// make-model, inspect, quantize and compare through the program: what they print, what they return, and that
// nothing half-written stays behind.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/cli_model/support.h"
#include "tests/support/long_test.h"

extern char** environ;

namespace fourfold::cli {
namespace {

class CheckpointCommands : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome make(const std::string& name, const std::string& arguments) const {
    return shell("PROGRAM make-model " + at(name) + " " + arguments + " 2>&1");
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  checkpoint::TempFolder folder_;
};

std::string golden(const std::string& name) { return checkpoint::golden_model(name).string(); }

// From the checkpoint to the chosen tokens on the simulated GPU, with drafts: those of the reference.
TEST_F(CheckpointCommands, Mxfp4ExpertsRunOnTheGpu) {
  ASSERT_EQ(make("m", "--shape tiny --format mxfp4 --seed 3").status, kFine);
  const auto answer = [&](const std::string& how) {
    const Outcome out =
        shell("PROGRAM run " + at("m") + " --ids 1,2,3 --max-tokens 6 --temperature 0 " + how);
    EXPECT_EQ(out.status, kFine) << how;
    return out.out;
  };
  const std::string expected = answer("--backend reference --activations w4a16 2>/dev/null");
  EXPECT_EQ(answer("--backend sim --mtp 0 2>/dev/null"), expected);
  EXPECT_EQ(answer("--backend sim --mtp 2 2>/dev/null"), expected);
  // A rank's part of an expert is narrower than a record.
  EXPECT_EQ(answer("--backend sim --tp 2 --mtp 0 2>/dev/null"), expected);
  EXPECT_FALSE(contains(answer("--backend cpu 2>&1"), "are held as"));  // as they are
}

// On each backend, at a high temperature and with drafts: the same words.
TEST_F(CheckpointCommands, MakeModelFollowsAScript) {
  folder_.write("tokenizer.json", text::make_tokenizer_json(kMicroVocabulary));
  folder_.write("chat_template.jinja", text::make_chat_template());
  folder_.write("script.json", R"({"thought": "so it is.", "without_tools": [{"text": "kolami tuba 42!"}]})");
  const Outcome made = make("m", "--script " + at("script.json") + " --text-of " + at(""));
  ASSERT_EQ(made.status, kFine) << made.out;
  EXPECT_TRUE(contains(made.out, "1 answers")) << made.out;
  for (const char* how : {"--backend reference --temperature 0", "--temperature 2 --seed 1",
                          "--mtp 1 --seed 2", "--mtp 5 --temperature 2 --seed 3"})
    for (const char* thinking : {"--no-thinking", "--thinking", ""}) {
      const Outcome answer =
          shell(format("PROGRAM run {} -p 'who are you?' {} {} 2>/dev/null", at("m"), how, thinking));
      EXPECT_EQ(answer.status, kFine) << how;
      EXPECT_EQ(answer.out, "kolami tuba 42!\n") << how << " " << thinking;
    }
  const std::string text = " --text-of " + at("");
  folder_.write("twice.json", R"({"without_tools": [{"text": "xxxxxxxxy"}]})");
  for (const auto& [arguments, message] :
       {std::pair{"--script " + at("none.json") + text, "none.json"},
        std::pair{"--script " + at("twice.json") + text, "come both"},
        std::pair{"--script " + at("script.json"), "--text-of MODEL"},
        std::pair{"--script " + at("script.json") + " --text-of " + at("m/nothing"), "m/nothing"}}) {
    const Outcome refused = make("n", arguments);
    EXPECT_EQ(refused.status, kFailed) << arguments;
    EXPECT_TRUE(contains(refused.out, message)) << refused.out;
  }
  EXPECT_EQ(make("n", "--script " + at("script.json") + text + " --shape tiny").status, kUsage);
  EXPECT_EQ(make("n", "--text-of " + at("")).status, kUsage);
}

TEST_F(CheckpointCommands, PerplexityOfAText) {
  ASSERT_EQ(make("m", "--shape tiny --format modelopt --seed 3").status, kFine);
  folder_.write("text.txt", "It was a dark night, and the wind blew over the old house by the sea.\n");
  const std::string line = "PROGRAM perplexity " + at("m") + " " + at("text.txt");
  const Outcome text = shell(line + " --window 16 2>&1");
  EXPECT_EQ(text.status, kFine) << text.out;
  EXPECT_TRUE(contains(text.out, "perplexity ") && contains(text.out, "MTP, one draft")) << text.out;
  const Outcome json = shell(line + " --tokens 5 --backend reference --json 2>&1");
  EXPECT_EQ(json.status, kFine) << json.out;
  EXPECT_TRUE(contains(json.out, "\"tokens\": 5")) << json.out;
  EXPECT_EQ(shell(line + " --window 1 2>&1").status, kFailed);
  EXPECT_EQ(shell("PROGRAM perplexity " + at("m") + " " + at("none.txt") + " 2>&1").status, kFailed);
  folder_.write("text.txt", "\xff\xfe");
  EXPECT_TRUE(contains(shell(line + " 2>&1").out, "not UTF-8"));
}

// A random model may end its turn at once; not for every seed.
TEST_F(CheckpointCommands, MakeModelAnswersInWords) {
  ASSERT_EQ(make("model", "--seed 5").status, kFine);
  std::string words;
  for (int seed = 1; seed <= 3; ++seed) {
    const Outcome answer =
        shell(format("PROGRAM run {} -p 'Hello there' --no-thinking --max-tokens 12 --seed {} 2>/dev/null",
                     at("model"), seed));
    EXPECT_EQ(answer.status, kFine);
    words += answer.out;
  }
  EXPECT_NE(words.find_first_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << words;
}

TEST_F(CheckpointCommands, MakeModelRefuses) {
  ASSERT_EQ(make("model", "").status, kFine);
  const Outcome again = make("model", "");
  EXPECT_EQ(again.status, kFailed);
  EXPECT_TRUE(contains(again.out, "exists already")) << again.out;
  EXPECT_EQ(make("a", "--shape 7b").status, kFailed);
  EXPECT_EQ(make("a", "--format int4").status, kFailed);
  EXPECT_EQ(make("a", "--layers -1").status, kFailed);
  EXPECT_EQ(make("a", "--layers 0").status, kFailed);
  const Outcome nameless = shell("PROGRAM make-model '' 2>&1");
  EXPECT_EQ(nameless.status, kFailed);
  EXPECT_TRUE(contains(nameless.out, "has no name")) << nameless.out;
  EXPECT_EQ(make("no/such/folder", "").status, kFailed);
  EXPECT_EQ(shell("PROGRAM make-model 2>&1").status, kUsage);
  EXPECT_EQ(entries(), 1u);
}

// Ctrl-C as soon as the folder's partial one is there: both commands need seconds from then on.
TEST_F(CheckpointCommands, AnInterruptLeavesNothing) {
  ASSERT_EQ(make("source", "--shape 35b --layers 2 --format bf16 --sparse").status, kFine);
  for (const std::string& command : {"make-model " + at("out") + " --shape 35b --layers 4",
                                     "quantize " + at("source") + " " + at("out")}) {
    const Outcome stopped =
        shell("PROGRAM " + command + " 2>&1 & child=$!; for i in $(seq 500); do ls " + at("") +
              " | grep -q out.partial && break; sleep 0.02; done; " + "kill -INT $child; wait $child");
    EXPECT_EQ(stopped.status, kFailed) << command << ": " << stopped.out;
    EXPECT_TRUE(contains(stopped.out, "stopped; what was written has been removed")) << stopped.out;
    EXPECT_EQ(entries(), 1u) << "the source alone";
  }
}

TEST_F(CheckpointCommands, AFullStandardOutputIsAnError) {
  const std::string reference = golden("bf16") + " " + golden("bf16") + "/reference.safetensors";
  for (const std::string& command :
       {"inspect " + golden("bf16") + " --no-measure --json", "inspect " + golden("bf16") + " --no-measure",
        "compare " + reference + " --activations f32 --json", "quantize " + golden("bf16") + " " + at("out"),
        std::string("plan"), std::string("--help")}) {
    const Outcome full = shell("PROGRAM " + command + " 2>&1 >/dev/full");
    EXPECT_EQ(full.status, kFailed) << command;
    EXPECT_TRUE(contains(full.out, "standard output cannot be written")) << command << ": " << full.out;
  }
}

// Names from a model's files, in errors, notices and on stdout.
TEST_F(CheckpointCommands, EscapeSequencesDoNotReachTheTerminal) {
  ASSERT_EQ(make("model", "--format bf16").status, kFine);
  const std::string config = checkpoint::read_file(at("model/config.json"));
  const auto with = [&](const std::string& field) {
    std::filesystem::remove(at("model/config.json"));
    folder_.write("model/config.json", "{" + field + ", " + config.substr(config.find('{') + 1));
    return shell("PROGRAM inspect " + at("model") + " --no-measure 2>&1");
  };
  const Outcome noticed = with(R"("a\u001b[2Jb": 1)");
  EXPECT_EQ(noticed.status, kFine) << noticed.out;
  EXPECT_TRUE(contains(noticed.out, "a\xEF\xBF\xBD[2Jb")) << noticed.out;
  EXPECT_FALSE(contains(noticed.out, "\033"));
  const Outcome strict = shell("PROGRAM inspect " + at("model") + " --no-measure --strict 2>&1");
  EXPECT_EQ(strict.status, kFailed) << "a field that is not used is less than the model asks for";
  EXPECT_FALSE(contains(strict.out, "\033")) << strict.out;
}

TEST_F(CheckpointCommands, StrictIsRefusedWhereNothingCanDegrade) {
  EXPECT_EQ(make("model", "--strict").status, kUsage);
  EXPECT_EQ(shell("PROGRAM bench model --strict 2>&1").status, kUsage);
  EXPECT_EQ(entries(), 0u);
  for (const std::string& command :
       {"inspect " + golden("bf16") + " --no-measure", "run " + golden("bf16") + " --ids 1 --max-tokens 2"})
    EXPECT_EQ(shell("PROGRAM " + command + " --strict 2>&1").status, kFine) << command;
}

// Largest resident size of the program with these arguments, in bytes; its output goes nowhere.
std::int64_t peak_bytes(const std::vector<std::string>& arguments, int& status) {
  std::vector<char*> words;
  std::string program = FOURFOLD_PROGRAM;
  words.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  return usage.ru_maxrss * 1024;
}

TEST_F(CheckpointCommands, A250GigabyteCheckpointIsMadeAndInspectedInLittleMemory) {
  int status = -1;
  EXPECT_LT(peak_bytes({"make-model", at("big"), "--shape", "397b", "--sparse"}, status), 1'500'000'000);
  ASSERT_EQ(status, 0);
  EXPECT_LT(peak_bytes({"inspect", at("big"), "--no-measure"}, status), 1'500'000'000);
  EXPECT_EQ(status, 0);
  const Json facts = read_json(shell("PROGRAM inspect " + at("big") + " --json --no-measure").out);
  EXPECT_NEAR(facts.at("tensor_bytes").number / 1e9, 250.2, 0.1);
  EXPECT_EQ(facts.at("layers").number, 60);
}

// Random numbers have rows that rounding moves far: the default command on the default model must know them.
TEST_F(CheckpointCommands, DiffBackendsIsFineOnWhatMakeModelMakes) {
  ASSERT_EQ(make("m", "").status, kFine);
  const Outcome diff = shell("PROGRAM diff-backends " + at("m") + " 2>&1");
  EXPECT_EQ(diff.status, kFine) << diff.out;
  EXPECT_TRUE(contains(diff.out, "fine: every layer within its bound")) << diff.out;
}

// One number for the model that comes with the program, wherever it is written.
TEST_F(CheckpointCommands, StorytellersParameterCountIsTheSameEverywhere) {
  const Outcome inspect = shell("PROGRAM inspect storyteller --no-measure 2>&1");
  EXPECT_EQ(inspect.status, kFine) << inspect.out;
  EXPECT_TRUE(contains(inspect.out, "20.7 million weights, 12 million active for a token")) << inspect.out;
  EXPECT_EQ(shell("PROGRAM inspect --no-measure 2>&1").out, inspect.out)
      << "without a MODEL it is the same one";
  const auto page = [](const char* name) {
    std::ifstream file(std::string(FOURFOLD_SOURCE_DIR "/") + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_TRUE(contains(page("models/storyteller/README.md"), "| parameters | 20.7 M, 12.0 M of them active"));
  for (const char* name : {"README.md", "training/README.md"})
    EXPECT_TRUE(contains(page(name), "20.7 M parameters")) << name;
}

TEST_F(CheckpointCommands, EveryCommandThatTakesAModelKnowsTheBuiltInOne) {
  for (const char* words :
       {"run storyteller -p Hello --max-tokens 2", "inspect storyteller --no-measure",
        "plan --model storyteller --gpu rtx-5090", "doctor --model storyteller --quick",
        "perplexity storyteller " FOURFOLD_SOURCE_DIR "/tests/golden/storyteller/held_out.txt --tokens 8",
        "chat storyteller </dev/null"}) {
    const Outcome ran = shell(fourfold::format("PROGRAM {} 2>&1", words));
    EXPECT_FALSE(contains(ran.out, "there is no such folder")) << words << ": " << ran.out;
    // Doctor's status is of the machine.
    EXPECT_LE(ran.status, std::string_view(words).starts_with("doctor") ? kFailed : kFine)
        << words << ran.out;
  }
  const Outcome wrong = shell("PROGRAM inspect Storyteler 2>&1");
  EXPECT_EQ(wrong.status, kFailed);
  EXPECT_TRUE(contains(wrong.out, "Did you mean storyteller?")) << wrong.out;
}

TEST_F(CheckpointCommands, NamesOfTheHubCacheAreSuggested) {
  std::filesystem::create_directories(folder_.path() / "hub" / "models--Qwen--Qwen3.6-35B-A3B");
  const std::string cache = "HF_HUB_CACHE='" + (folder_.path() / "hub").string() + "' ";
  for (const char* typed : {"qwen/qwen3.6-35b-a3b", "Qwen/Qwen3.6-35B-A3", "Qwen3.6-35B-A3B"}) {
    const Outcome wrong = shell(cache + "PROGRAM inspect " + typed + " 2>&1");
    EXPECT_TRUE(contains(wrong.out, "Did you mean Qwen/Qwen3.6-35B-A3B?")) << typed << ": " << wrong.out;
  }
}

TEST_F(CheckpointCommands, InspectShowsFormatsAndCeilings) {
  const Outcome text = shell("PROGRAM inspect " + golden("modelopt_mixed") + " --no-measure 2>&1");
  EXPECT_EQ(text.status, kFine);
  for (const char* part : {"NVFP4", "FP8", "BF16", "routed experts", "RTX 5090", "tokens/s", "MTP"})
    EXPECT_TRUE(contains(text.out, part)) << part << " is not in " << text.out;
  const Json facts = read_json(shell("PROGRAM inspect " + golden("modelopt_mixed") + " --json").out);
  EXPECT_EQ(facts.at("family").text, "Qwen3.5");
  EXPECT_TRUE(facts.at("mtp").truth);
  const Json& own = facts.at("ceilings").items.back();
  EXPECT_EQ(own.at("machine").text, "this machine's CPU");
  EXPECT_GT(own.at("gb_per_s").number, 0);
  EXPECT_NEAR(own.at("tokens_per_s").number,
              own.at("gb_per_s").number * 1e9 / facts.at("token_bytes").at("total").number, 1e-3);
}

TEST_F(CheckpointCommands, ComparePassesOnTheGoldenModels) {
  for (const char* model : {"bf16", "compressed", "modelopt", "modelopt_mixed"})
    for (const char* backend : {"reference", "cpu"}) {
      if (!test::wants_all() && std::string_view(model).starts_with("modelopt")) continue;
      const Outcome result = shell(format("PROGRAM compare {} {}/reference.safetensors --backend {} --json",
                                          golden(model), golden(model), backend));
      EXPECT_EQ(result.status, kFine) << model << " on " << backend << ": " << result.out;
      const Json report = read_json(result.out);
      EXPECT_TRUE(report.at("fine").truth);
      const bool fp4 = std::string(model) == "modelopt" || std::string(model) == "compressed";
      ASSERT_EQ(report.at("runs").items.size(), fp4 ? 3u : 2u) << "f32, w4a16, w4a4 where it was made for it";
      const Json& exact = report.at("runs").items.front();
      EXPECT_EQ(exact.at("activations").text, "f32");
      for (const Json& numbers : exact.at("numbers").items) {
        EXPECT_LE(numbers.at("largest").number, 1e-3) << numbers.at("what").text;
      }
      EXPECT_TRUE(exact.at("hidden_compared").truth);
      EXPECT_TRUE(exact.at("mtp_compared").truth);
    }
}

TEST_F(CheckpointCommands, RanksGiveTheSameTokens) {
  const std::string compare = "PROGRAM compare " + golden("modelopt") + " " + golden("modelopt") +
                              "/reference.safetensors --activations f32";
  for (const char* cut : {"--tp 2", "--tensor-parallel-size 4", "--tp 4 --experts ep"}) {
    const Outcome result = shell(format("{} {} --json", compare, cut));
    EXPECT_EQ(result.status, kFine) << cut << ": " << result.out;
    const Json report = read_json(result.out);
    EXPECT_EQ(report.at("ranks").number, contains(cut, "4") ? 4 : 2);
    for (const Json& tokens : report.at("runs").items.front().at("tokens").items)
      EXPECT_EQ(tokens.at("same").number, tokens.at("count").number) << cut;
  }
  const auto refused = [&](const std::string& options, const std::string& why) {
    const Outcome result = shell(compare + " " + options + " 2>&1");
    EXPECT_EQ(result.status, kFailed) << result.out;
    EXPECT_TRUE(contains(result.out, why)) << result.out;
  };
  refused("--tp 3", "4 attention heads are not a multiple of 3");
  refused("--tp 0", "--tp 0: 1 to 16 ranks");
  refused("--experts ep", "with one rank");
  refused("--tp 2 --experts some", "unknown --experts 'some'");
}

// The kernels of two ranks, on a simulated GPU each.
TEST_F(CheckpointCommands, RanksOnSimulatedGpusAreWithinTheBounds) {
  const Outcome result = shell("PROGRAM compare " + golden("bf16") + " " + golden("bf16") +
                               "/reference.safetensors --backend sim --tp 2 2>&1");
  EXPECT_EQ(result.status, kFine) << result.out;
  EXPECT_TRUE(contains(result.out, "on the sim backend, 2 ranks")) << result.out;
  EXPECT_TRUE(contains(result.out, "fine: everything within its bound")) << result.out;
  for (const char* line :
       {"fourfold: memory: rank 0 ", "fourfold: memory: rank 1 ", " MB of GPU 1: ", "exchange of ranks ",
        "--experts auto: by column (tp), as wherever their width can be cut; in a step of 1, 8 and 64 rows"})
    EXPECT_TRUE(contains(result.out, line)) << line << " is not in " << result.out;
}

TEST_F(CheckpointCommands, CompareFailsOnAnotherModelsNumbers) {
  const Outcome result = shell("PROGRAM compare " + golden("compressed") + " " + golden("bf16") +
                               "/reference.safetensors --activations f32 2>&1");
  EXPECT_EQ(result.status, kMiss) << result.out;
  EXPECT_TRUE(contains(result.out, "BEYOND")) << result.out;
  const std::string reference = golden("bf16") + "/reference.safetensors";
  EXPECT_EQ(shell("PROGRAM compare " + golden("bf16") + " nothing.safetensors 2>&1").status, kFailed);
  EXPECT_EQ(shell("PROGRAM compare " + golden("bf16") + " " + reference + " --backend tpu 2>&1").status,
            kFailed);
  EXPECT_EQ(shell("PROGRAM compare " + golden("bf16") + " " + reference + " --activations int8 2>&1").status,
            kFailed);
  EXPECT_EQ(shell("PROGRAM compare " + golden("bf16") + " 2>&1").status, kUsage);
  const Outcome cut = shell("PROGRAM compare " + golden("bf16") + " " + reference + " --step-rows 100 2>&1");
  EXPECT_EQ(cut.status, kFailed) << cut.out;
  EXPECT_TRUE(contains(cut.out, "100 rows a step; a multiple of 64")) << cut.out;
}

TEST_F(CheckpointCommands, QuantizeWritesItsReport) {
  const Outcome done =
      shell("PROGRAM quantize " + golden("bf16") + " " + at("out") + " --json --report " + at("report.json"));
  ASSERT_EQ(done.status, kFine);
  EXPECT_EQ(done.out, checkpoint::read_file(at("report.json")));
  const Json report = read_json(done.out);
  EXPECT_EQ(report.at("matrices").items.size(), 4u * 8 * 3);
  EXPECT_LT(report.at("bytes_after").number, report.at("bytes_before").number);
  for (const Json& matrix : report.at("matrices").items) {
    EXPECT_LT(matrix.at("relative_rms").number, 0.13);
    EXPECT_EQ(matrix.at("format").text, "NVFP4");
  }
}

TEST_F(CheckpointCommands, QuantizeDoesNotOverwriteWhatIsThere) {
  folder_.write("report.json", "precious");
  const std::string command = "PROGRAM quantize " + golden("bf16") + " " + at("out") + " --report ";
  const Outcome refused = shell(command + at("report.json") + " 2>&1");
  EXPECT_EQ(refused.status, kFailed);
  EXPECT_TRUE(contains(refused.out, "report.json: exists already")) << refused.out;
  EXPECT_EQ(checkpoint::read_file(at("report.json")), "precious");
  EXPECT_EQ(entries(), 1u);
  // A report that cannot be written is noticed before the work.
  const Outcome nowhere = shell(command + at("no/such/folder.json") + " 2>&1");
  EXPECT_EQ(nowhere.status, kFailed);
  EXPECT_TRUE(contains(nowhere.out, "there is no folder")) << nowhere.out;
  EXPECT_EQ(entries(), 1u);
}

TEST_F(CheckpointCommands, QuantizeRefuses) {
  const auto quantize = [&](const std::string& arguments) {
    return shell("PROGRAM quantize " + arguments + " 2>&1");
  };
  EXPECT_EQ(quantize(golden("compressed") + " " + at("out")).status, kFailed);
  EXPECT_EQ(quantize(golden("bf16") + " " + at("out") + " --format gguf").status, kFailed);
  EXPECT_EQ(quantize(golden("bf16") + " " + at("out") + " --dense int4").status, kFailed);
  EXPECT_EQ(quantize("no-such-model " + at("out")).status, kFailed);
  EXPECT_EQ(quantize(golden("bf16") + " " + folder_.path().string()).status, kFailed);
  EXPECT_EQ(quantize(golden("bf16")).status, kUsage);
  EXPECT_EQ(entries(), 0u);
}

// A disk that fills up in the middle: by the size a file may have, and where we may, by a real small disk.
TEST_F(CheckpointCommands, AFullDiskIsAnErrorAndLeavesNothing) {
  const std::string source = at("source");
  ASSERT_EQ(make("source", "--format bf16").status, kFine);
  for (const std::string& command :
       {"PROGRAM quantize " + source + " " + at("out"), "PROGRAM make-model " + at("out")}) {
    const Outcome full = shell("ulimit -f 1000; " + command + " 2>&1");  // 512,000 bytes
    EXPECT_EQ(full.status, kFailed) << full.out;
    EXPECT_TRUE(contains(full.out, "failed at byte")) << full.out;
    EXPECT_TRUE(contains(full.out, "free space")) << full.out;
    EXPECT_EQ(entries(), 1u);
  }
  const std::string disk = at("disk");
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "no disk can be mounted here; the limit on file sizes was tried";
  for (const std::string& command :
       {"PROGRAM quantize " + source + " " + disk + "/out", "PROGRAM make-model " + disk + "/out",
        // The files have room as long as they are holes; the tokenizer then has not.
        "PROGRAM make-model " + disk + "/out --shape 35b --layers 1 --sparse"}) {
    const Outcome full = shell(command + " 2>&1");
    EXPECT_EQ(full.status, kFailed) << full.out;
    EXPECT_TRUE(contains(full.out, disk)) << full.out;
    EXPECT_TRUE(std::filesystem::is_empty(disk)) << command;
  }
  ::umount(disk.c_str());
}

struct BadConfig {
  const char* from;
  const char* to;
};

TEST_F(CheckpointCommands, BadModelsAreErrorsWithTheirNames) {
  ASSERT_EQ(make("model", "--shape tiny-qwen3-moe --format bf16").status, kFine);
  const std::string model = at("model");
  const std::string config = checkpoint::read_file(model + "/config.json");
  const auto inspect = [&] { return shell("PROGRAM inspect " + model + " --no-measure 2>&1"); };
  for (const BadConfig& bad :
       {BadConfig{"\"num_attention_heads\": 4", "\"num_attention_heads\": 0"},
        BadConfig{"\"num_experts\": 8", "\"num_experts\": 2147483648"},
        BadConfig{"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN"},
        BadConfig{"\"hidden_size\": 128", "\"hidden_size\": 256"}, BadConfig{"\"qwen3_moe\"", "\"gpt2\""}}) {
    std::string text = config;
    const auto place = text.find(bad.from);
    ASSERT_NE(place, std::string::npos) << bad.from;
    text.replace(place, std::string(bad.from).size(), bad.to);
    folder_.write("model/config.json", text);
    const Outcome refused = inspect();
    EXPECT_EQ(refused.status, kFailed) << bad.to << ": " << refused.out;
    EXPECT_EQ(refused.out.rfind("fourfold: ", 0), 0u) << refused.out;
  }
  folder_.write("model/config.json", config);
  ASSERT_EQ(inspect().status, kFine);
  const std::string shard = model + "/model.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 5);
  const Outcome shortened = inspect();
  EXPECT_EQ(shortened.status, kFailed);
  EXPECT_TRUE(contains(shortened.out, "model.safetensors")) << shortened.out;
  std::filesystem::remove(shard);
  std::filesystem::create_symlink("model.safetensors", shard);  // points at itself
  EXPECT_EQ(inspect().status, kFailed);
  std::filesystem::remove(shard);
  EXPECT_EQ(inspect().status, kFailed);
}

}  // namespace
}  // namespace fourfold::cli
