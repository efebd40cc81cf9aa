#include "cli/run_command.h"

#include <unistd.h>

#include <algorithm>

#include "base/utf8.h"
#include "tests/cli_model/support.h"
#include "text/tokenizer.h"

namespace fourfold::cli {
namespace {

using checkpoint::expect_error;

const TalkingModel& talking_model() {
  static const TalkingModel model;
  return model;
}

RunOptions ask(const std::string& prompt, std::int64_t max_tokens = 16) {
  RunOptions options;
  options.model = talking_model().path();
  options.prompt = prompt;
  options.generation.max_tokens = max_tokens;
  options.generation.seed = 11;
  options.generation.no_thinking = true;
  return options;
}

struct Ran {
  std::string out, err;
};
Ran ran(const RunOptions& options) {
  Captured captured;
  EXPECT_EQ(run_run(options, captured.console), kFine);
  return {captured.out.str(), captured.err.str()};
}

void refused(const std::vector<std::string>& parts, const RunOptions& options,
             Code code = Code::invalid_request) {
  Captured captured;
  expect_error(code, parts, [&] { run_run(options, captured.console); });
  EXPECT_EQ(captured.out.str(), "");
}

// Ids in, ids out: the tokens of the independent reference, on both backends, with any number of drafts.
TEST(RunCommand, GreedyIdsAreTheReferences) {
  for (const char* model : {"bf16", "modelopt", "modelopt_mixed", "compressed"})
    for (const char* prompt : {"short", "long"}) {
      const std::string wanted = golden_ids(model, std::string(prompt) + ".greedy_ids");
      for (const char* backend : {"reference", "cpu"})
        for (const int drafts : {0, 1, 5}) {
          RunOptions options;
          options.model = checkpoint::golden_model(model).string();
          options.ids = golden_ids(model, std::string(prompt) + ".input_ids");
          options.generation.max_tokens = 1 + std::ranges::count(wanted, ',');
          options.generation.temperature = 0;
          options.generation.mtp = drafts;
          options.generation.backend.backend = backend;
          options.generation.backend.activations = "f32";
          EXPECT_EQ(ran(options).out, wanted + "\n")
              << model << " " << prompt << " " << backend << " " << drafts;
        }
    }
}

TEST(RunCommand, TheAnswerIsOnStdoutAndTheRestOnStderr) {
  const Ran got = ran(ask("Hello"));
  EXPECT_TRUE(is_valid_utf8(got.out));
  EXPECT_GT(got.out.size(), 5u);
  EXPECT_TRUE(got.out.ends_with('\n'));
  EXPECT_FALSE(contains(got.out, "tok/s"));
  EXPECT_TRUE(contains(got.err, "tok/s")) << got.err;
  EXPECT_TRUE(contains(got.err, "16 tokens"));
  EXPECT_TRUE(contains(got.err, "cut at 16 tokens"));
}

TEST(RunCommand, TheSameSeedGivesTheSameAnswerWithAndWithoutDrafts) {
  RunOptions options = ask("Hello", 40);
  const std::string plain = ran(options).out;
  EXPECT_EQ(ran(options).out, plain);
  for (const int drafts : {1, 5}) {
    options.generation.mtp = drafts;
    const Ran drafted = ran(options);
    EXPECT_EQ(drafted.out, plain);
    EXPECT_TRUE(contains(drafted.err, "drafts accepted"));
  }
}

TEST(RunCommand, ADrawnSeedIsSaidAndRepeatsTheAnswer) {
  RunOptions options = ask("Hello", 40);
  options.generation.seed.reset();
  const Ran first = ran(options);
  const std::size_t at = first.err.find("--seed ");
  ASSERT_NE(at, std::string::npos) << first.err;
  options.generation.seed = std::stoull(first.err.substr(at + 7));
  EXPECT_EQ(ran(options).out, first.out);
}

TEST(RunCommand, OptionsStandAboveTheModelsDefaults) {
  RunOptions options = ask("Hello", 30);
  const std::string suggested = ran(options).out;  // temperature 0.6, top-k 20, top-p 0.95
  options.generation.temperature = 5;
  options.generation.top_k = 0;
  options.generation.top_p = 1;
  EXPECT_NE(ran(options).out, suggested);
  options.generation.top_k = 1;  // one token to choose from is the greedy answer
  const std::string only_best = ran(options).out;
  options.generation.top_k.reset();
  options.generation.temperature = 0;
  EXPECT_EQ(ran(options).out, only_best);
}

TEST(RunCommand, ThinkingGoesToStderr) {
  RunOptions options = ask("Hello");
  options.generation.no_thinking = false;
  const auto end_id = text::Tokenizer::load(options.model + "/tokenizer.json").added_token("</think>");
  ASSERT_TRUE(end_id.has_value());
  options.generation.logit_bias = fourfold::format("{}=-100", *end_id);
  const Ran thinking = ran(options);
  EXPECT_EQ(thinking.out, "");
  EXPECT_TRUE(contains(thinking.err, "still thinking")) << thinking.err;
  // The same tokens said aloud.
  options.raw = true;
  options.prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n";
  const Ran aloud = ran(options);
  EXPECT_EQ(thinking.err.substr(0, aloud.out.size()), aloud.out);
}

TEST(RunCommand, RawContinuesTheText) {
  RunOptions options = ask("Hello");
  const Ran chat = ran(options);
  options.generation.no_thinking = false;
  options.raw = true;
  const Ran raw = ran(options);
  EXPECT_NE(raw.out, chat.out);
  EXPECT_TRUE(contains(raw.err, "4 prompt tokens") || contains(raw.err, "5 prompt tokens")) << raw.err;
}

TEST(RunCommand, StopStringsAndStopIdsEndTheAnswer) {
  RunOptions options = ask("Hello", 40);
  const std::string whole = ran(options).out;
  const std::string stop = whole.substr(whole.size() / 2, 3);
  options.generation.stops = {stop};
  const std::string cut = ran(options).out;
  EXPECT_EQ(cut, whole.substr(0, whole.find(stop)) + "\n");

  options = ask("Hello", 40);
  const text::TokenId end = text::made_up_tokens(kMicroVocabulary).end_of_turn;
  options.generation.logit_bias = std::to_string(end) + "=100";
  const Ran nothing = ran(options);
  EXPECT_EQ(nothing.out, "");
  EXPECT_TRUE(contains(nothing.err, "; 1 token\n")) << nothing.err;
}

TEST(RunCommand, BadOptionsAreRefusedBeforeTheModelIsLoaded) {
  const auto changed = [](auto change) {
    RunOptions options = ask("Hello");
    options.generation.backend.backend = "cpu";
    change(options);
    return options;
  };
  refused({"temperature is -1"}, changed([](RunOptions& o) { o.generation.temperature = -1; }));
  refused({"top_p is 2"}, changed([](RunOptions& o) { o.generation.top_p = 2; }));
  refused({"top_k is -5"}, changed([](RunOptions& o) { o.generation.top_k = -5; }));
  refused({"6 drafts"}, changed([](RunOptions& o) { o.generation.mtp = 6; }));
  refused({"unknown drafts 'no'"}, changed([](RunOptions& o) { o.generation.drafts = "no"; }));
  refused({"max_tokens is 0"}, changed([](RunOptions& o) { o.generation.max_tokens = 0; }));
  refused({"max_tokens 4096", "4096"}, changed([](RunOptions& o) { o.generation.max_tokens = 4096; }));
  refused({"--logit-bias", "'x'"}, changed([](RunOptions& o) { o.generation.logit_bias = "x"; }));
  refused({"logit_bias", "320"}, changed([](RunOptions& o) { o.generation.logit_bias = "320=1"; }));
  refused({"0 bytes"}, changed([](RunOptions& o) { o.generation.stops = {""}; }));
  refused({"unknown backend 'tpu'"}, changed([](RunOptions& o) { o.generation.backend.backend = "tpu"; }));
  refused({"-1 threads"}, changed([](RunOptions& o) { o.generation.backend.threads = -1; }));
  refused({"1025 threads"}, changed([](RunOptions& o) { o.generation.backend.threads = 1025; }));
  refused({"repetition_penalty is 1e-308", "0.01"},
          changed([](RunOptions& o) { o.generation.repetition_penalty = 1e-308; }));
  refused({"unknown activations 'w8'"},
          changed([](RunOptions& o) { o.generation.backend.activations = "w8"; }));
}

// What would have no effect is refused, not ignored.
TEST(RunCommand, OptionsWithoutEffectAreRefused) {
  const auto changed = [](auto change) {
    RunOptions options = ask("Hello");
    change(options);
    return options;
  };
  refused({"--no-thinking", "--raw"}, changed([](RunOptions& o) { o.raw = true; }));
  refused({"--system", "--raw"}, changed([](RunOptions& o) {
            o.raw = true;
            o.generation.no_thinking = false;
            o.generation.system = "Be brief.";
          }));
  refused({"--no-thinking", "--ids"}, changed([](RunOptions& o) {
            o.prompt.reset();
            o.ids = "1,2";
          }));
  refused({"--drafts drawn", "--mtp"}, changed([](RunOptions& o) { o.generation.drafts = "drawn"; }));
  refused({"--threads 2", "reference"}, changed([](RunOptions& o) {
            o.generation.backend.backend = "reference";
            o.generation.backend.threads = 2;
          }));
}

TEST(RunCommand, FarMoreThreadsThanCoresAreMentionedAndUnderStrictRefused) {
  RunOptions options = ask("Hello", 2);
  options.generation.backend.threads = 900;
  EXPECT_TRUE(contains(ran(options).err, "--threads 900 on ")) << ran(options).err;
  options.generation.backend.strict = true;
  refused({"--threads 900 on "}, options);
}

TEST(RunCommand, BadPromptsAreRefused) {
  RunOptions options = ask("Hello");
  options.ids = "1,2";
  refused({"two prompts"}, options);
  options.prompt.reset();
  options.generation.no_thinking = false;
  options.ids = "";
  refused({"no prompt"}, options);
  options.ids = "1,x";
  refused({"'x' is not a token id"}, options);
  options.ids = "1,320";
  refused({"id 320", "320"}, options);
  options.ids = "1,-1";
  refused({"id -1"}, options);
  options.ids = "1,99999999999999999999";
  refused({"is not a token id"}, options);
  options.raw = true;
  options.ids = "1,2";
  refused({"--ids"}, options);
  options = ask("");
  options.generation.no_thinking = false;
  options.raw = true;
  refused({"the prompt is empty"}, options);
  options = ask(std::string("ab\xFF") + "c");
  refused({"not UTF-8", "byte 2 of 4"}, options);
  options = ask("Hello");
  options.generation.system = "\xC3";
  refused({"--system", "not UTF-8"}, options);
  std::string letters(5000, ' ');
  for (std::size_t i = 0; i < letters.size(); i += 2) letters[i] = 'x';
  options = ask(letters);
  options.generation.max_tokens.reset();
  refused({"limit is 4096"}, options);
}

// `fourfold run "Hello"` is what many type first.
TEST(RunCommand, AQuestionInTheModelsPlaceIsUnderstood) {
  RunOptions options = ask("");
  options.prompt.reset();
  options.model = "Tell me a 'story'";
  Captured captured;
  const std::string hint = expect_error(Code::invalid_request, {"'Tell me a 'story'' is no model"},
                                        [&] { run_run(options, captured.console); });
  EXPECT_TRUE(contains(hint, R"(fourfold run -p 'Tell me a '\''story'\''')")) << hint;
  options.model = "storytellr";
  const std::string meant =
      expect_error(Code::invalid_request, {"is no model"}, [&] { run_run(options, captured.console); });
  EXPECT_TRUE(contains(meant, "Did you mean storyteller?")) << meant;
}

TEST(RunCommand, AModelThatIsNotThereOrHasNoTextSide) {
  RunOptions options = ask("Hello");
  options.model = "no-such-org/no-such-model";
  Captured captured;
  ::setenv("HF_HUB_OFFLINE", "1", 1);  // tests/hub has what happens without
  const std::string hint =
      expect_error(Code::invalid_request, {"no-such-org/no-such-model", "HF_HUB_OFFLINE"},
                   [&] { run_run(options, captured.console); });
  ::unsetenv("HF_HUB_OFFLINE");
  EXPECT_EQ(hint, "Unset HF_HUB_OFFLINE to fetch it.");

  const TalkingModel model;
  options.model = model.path();
  model.remove("chat_template.jinja");
  refused({"no chat template"}, options);
  options.generation.no_thinking = false;
  options.raw = true;
  EXPECT_NE(ran(options).out, "");
  model.remove("tokenizer.json");
  refused({"no tokenizer.json"}, options, Code::bad_checkpoint);
}

class RunProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  std::string model = "'" + talking_model().path() + "'";
};

TEST_F(RunProgram, AnswersOnStdoutAlone) {
  const Outcome answer =
      shell("PROGRAM run " + model +
            " -p Hello --no-thinking --max-tokens 8 --seed 4 --temperature 0.7 2>/dev/null");
  EXPECT_EQ(answer.status, kFine);
  EXPECT_GT(answer.out.size(), 1u);
  EXPECT_EQ(shell("printf Hello | PROGRAM run " + model +
                  " -p - --no-thinking --max-tokens 8 --seed 4 --temperature 0.7 2>/dev/null")
                .out,
            answer.out);
  EXPECT_EQ(shell("PROGRAM run " + model +
                  " --prompt Hello --no-thinking --max-tokens 8 --seed 4 --temperature 0.7 --mtp 2 --threads "
                  "1 2>/dev/null")
                .out,
            answer.out);
}

// What people type first: no model, no -p; the answer is that of the same words as an option.
TEST_F(RunProgram, APipeIsAPromptForTheBuiltInModel) {
  const Outcome piped = shell("echo hi | PROGRAM run --max-tokens 4 --seed 1 2>/dev/null");
  EXPECT_EQ(piped.status, kFine);
  EXPECT_GT(piped.out.size(), 1u);
  EXPECT_EQ(piped.out, shell("PROGRAM run -p hi --max-tokens 4 --seed 1 2>/dev/null").out);
}

// Without one option of memory or context.
TEST_F(RunProgram, TheSimulatedGpuHoldsTheBuiltInModel) {
  const Outcome ran = shell("PROGRAM run --backend sim --ids 1 --max-tokens 1 2>&1");
  EXPECT_EQ(ran.status, kFine) << ran.out;
}

TEST_F(RunProgram, StopMayBeGivenAgain) {
  const Outcome answer =
      shell("PROGRAM run " + model + " -p Hello --raw --max-tokens 4 --stop a --stop b --seed 1 2>/dev/null");
  EXPECT_EQ(answer.status, kFine);
  EXPECT_EQ(answer.out.find_first_of("ab"), std::string::npos) << answer.out;
}

TEST_F(RunProgram, ErrorsAre2AndWrongUsage64) {
  const Outcome missing = shell("PROGRAM run ./no-such/model -p Hi 2>&1");
  EXPECT_EQ(missing.status, kFailed);
  EXPECT_TRUE(contains(missing.out, "./no-such/model: there is no such folder\n")) << missing.out;
  EXPECT_EQ(shell("PROGRAM run " + model + " -p Hi --temperature 1000 2>&1").status, kFailed);
  EXPECT_EQ(shell("PROGRAM run " + model + " -p Hi --no-such-flag 2>&1").status, kUsage);
  EXPECT_EQ(shell("PROGRAM run " + model + " -p Hi --max-tokens many 2>&1").status, kUsage);
  EXPECT_EQ(shell("PROGRAM run " + model + " -p Hi another-model 2>&1").status, kUsage);
}

TEST_F(RunProgram, AFullStdoutIsAnErrorAndAReaderThatLeftIsNone) {
  const std::string run = "PROGRAM run " + model + " -p Hi --raw --max-tokens 2000 --seed 1 ";
  // The program's own status and words where the reader of its stdout has gone. It has gone before the
  // program starts: the whole answer fits a pipe, so a reader that leaves later may leave behind the last
  // byte.
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  ::close(pipe_ends[0]);
  ASSERT_LT(pipe_ends[1], 10) << "a shell redirects to descriptors of one digit";
  const Outcome closed = shell(run + " 2>&1 >&" + std::to_string(pipe_ends[1]));
  ::close(pipe_ends[1]);
  EXPECT_EQ(closed.status, 128 + SIGPIPE) << closed.out;
  EXPECT_FALSE(contains(closed.out, "standard output")) << closed.out;
  const Outcome full = shell(run + " 2>&1 >/dev/full");
  EXPECT_EQ(full.status, kFailed);
  EXPECT_TRUE(contains(full.out, "standard output")) << full.out;
  const Outcome shut = shell(run + " 2>&1 >&-");
  EXPECT_EQ(shut.status, kFailed);
  EXPECT_TRUE(contains(shut.out, "standard output")) << shut.out;
}

}  // namespace
}  // namespace fourfold::cli
