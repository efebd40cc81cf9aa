#include "cli/chat_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

using checkpoint::expect_error;

const TalkingModel& talking_model() {
  static const TalkingModel model;
  return model;
}

ChatOptions chat_options() {
  ChatOptions options;
  options.model = talking_model().path();
  options.generation.max_tokens = 8;
  options.generation.seed = 11;
  options.generation.no_thinking = true;
  return options;
}

// A conversation of these lines; the answers, one a line.
struct Talk {
  int status = -1;
  std::string out, err;
};
Talk talk(const ChatOptions& options, const std::string& lines) {
  const checkpoint::TempFolder folder;
  const int input = ::open(folder.write("lines", lines).c_str(), O_RDONLY);
  Captured captured;
  Talk result;
  try {
    result.status = run_chat(options, input, captured.console);
  } catch (...) {
    ::close(input);
    throw;
  }
  ::close(input);
  result.out = captured.out.str();
  result.err = captured.err.str();
  return result;
}

TEST(ChatCommand, AnswersLineByLine) {
  const Talk one = talk(chat_options(), "Hello\n");
  EXPECT_EQ(one.status, kFine);
  EXPECT_FALSE(one.out.empty());
  EXPECT_TRUE(contains(one.err, "tok/s"));
  EXPECT_FALSE(contains(one.err, "> ")) << "without a terminal there is no prompt";
  // The same start, then more; the last line without an end, empty ones without an answer.
  const Talk two = talk(chat_options(), "Hello\n\n\r\nAgain");
  EXPECT_EQ(two.out.substr(0, one.out.size()), one.out);
  EXPECT_GT(two.out.size(), one.out.size());
  EXPECT_EQ(talk(chat_options(), "").out, "");
}

TEST(ChatCommand, DoesNotReadTheConversationAgain) {
  const Talk two = talk(chat_options(), "Hello\nAgain\n");
  EXPECT_TRUE(contains(two.err, " reused)")) << two.err;
}

// On a GPU prompt rows and generated rows round differently, so turns are run again, unless --fast.
TEST(ChatCommand, FastKeepsTheTurnsOfAGpu) {
  ChatOptions options = chat_options();
  options.fast = true;
  EXPECT_TRUE(contains(talk(options, "").err, "--fast gains nothing on the cpu backend"));
  options.generation.backend.backend = "sim";
  options.generation.max_tokens = 2;
  options.context = 256;
  const Talk two = talk(options, "Hello\nAgain\n");
  EXPECT_EQ(two.status, kFine);
  EXPECT_TRUE(contains(two.err, "--fast: a turn goes on from the rows its answers left")) << two.err;
  EXPECT_TRUE(contains(two.err, " reused)")) << two.err;
}

TEST(ChatCommand, RemembersAndForgets) {
  const std::string hello = talk(chat_options(), "Hello\n").out;
  const Talk twice = talk(chat_options(), "Hello\nHello\n");
  EXPECT_NE(twice.out, hello + hello) << "the second answer has seen the first";
  EXPECT_EQ(talk(chat_options(), "Hello\n/new\nHello\n").out, hello + hello);
  ChatOptions options = chat_options();
  options.generation.system = "Be brief.";
  EXPECT_NE(talk(options, "Hello\n").out, hello);
}

// At a terminal: a prompt, thinking dimmed, and a line that cannot be answered is not the end.
TEST(ChatCommand, AtATerminal) {
  ChatOptions options = chat_options();
  options.generation.no_thinking = false;
  std::ostringstream out, err;
  const Console console{out, err, true, true};
  const checkpoint::TempFolder folder;
  const int input = ::open(folder.write("lines", "Hello\na\xFF\nHello\n").c_str(), O_RDONLY);
  EXPECT_EQ(run_chat(options, input, console), kFine);
  ::close(input);
  const std::string text = err.str();
  EXPECT_TRUE(contains(text, "Ctrl-C stops an answer")) << text;
  EXPECT_TRUE(contains(text, "> \033[2m")) << text;
  EXPECT_TRUE(contains(text, "\033[0m\n")) << text;
  const std::size_t refusal = text.find("the line is not UTF-8");
  ASSERT_NE(refusal, std::string::npos) << text;
  EXPECT_NE(text.find("tok/s", refusal), std::string::npos) << "the third line was answered";
}

TEST(ChatCommand, AConversationThatIsFullSaysSo) {
  ChatOptions options = chat_options();
  options.context = 64;
  try {
    talk(options, "Hello\nHello\nHello\nHello\n");
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::over_capacity);
    EXPECT_TRUE(contains(error.what(), "room for 64")) << error.what();
  }
}

TEST(ChatCommand, AnAnswerWithLessRoomThanAskedForIsMentionedBeforeIt) {
  ChatOptions options = chat_options();
  options.context = 64;
  options.generation.max_tokens = 60;
  const Talk got = talk(options, "Hello\n");
  const std::size_t mention = got.err.find("--max-tokens asks for 60");
  ASSERT_NE(mention, std::string::npos) << got.err;
  EXPECT_LT(mention, got.err.find("tok/s"));
  options.generation.max_tokens = 8;
  EXPECT_FALSE(contains(talk(options, "Hello\n").err, "asks for")) << "it fits";
}

TEST(ChatCommand, ADrawnSeedIsSaidAndRepeatsTheAnswers) {
  ChatOptions options = chat_options();
  options.generation.seed.reset();
  const Talk first = talk(options, "Hello\nAgain\n");
  const std::size_t at = first.err.find("--seed ");
  ASSERT_NE(at, std::string::npos) << first.err;
  options.generation.seed = std::stoull(first.err.substr(at + 7));
  const Talk second = talk(options, "Hello\nAgain\n");
  EXPECT_EQ(second.out, first.out);
  EXPECT_FALSE(contains(second.err, "--seed"));
}

TEST(ChatCommand, BadOptionsAreRefused) {
  const auto refused = [](const std::vector<std::string>& parts, auto change) {
    ChatOptions options = chat_options();
    change(options);
    expect_error(Code::invalid_request, parts, [&] { talk(options, "Hello\n"); });
  };
  refused({"--context 1:"}, [](ChatOptions& o) { o.context = 1; });
  refused({"--context 4097", "4096"}, [](ChatOptions& o) { o.context = 4097; });
  refused({"--max-tokens 64", "room for 64"}, [](ChatOptions& o) {
    o.context = 64;
    o.generation.max_tokens = 64;
  });
  refused({"temperature is 200"}, [](ChatOptions& o) { o.generation.temperature = 200; });
  refused({"6 drafts"}, [](ChatOptions& o) { o.generation.mtp = 6; });
  expect_error(Code::invalid_request, {"the line is not UTF-8"}, [] { talk(chat_options(), "a\xFF\n"); });
  const TalkingModel model;
  model.remove("chat_template.jinja");
  refused({"no chat template"}, [&](ChatOptions& o) { o.model = model.path(); });
}

TEST(LineReader, GivesLinesAndStopsForInterrupts) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  InterruptWatch watch;
  LineReader reader(ends[0], watch);
  std::string line;
  ASSERT_EQ(::write(ends[1], "one\ntwo\r\nthr", 12), 12);
  EXPECT_EQ(reader.read(line), LineReader::Outcome::line);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(reader.read(line), LineReader::Outcome::line);
  EXPECT_EQ(line, "two");
  ::raise(SIGINT);
  EXPECT_TRUE(watch.interrupted());
  EXPECT_EQ(reader.read(line), LineReader::Outcome::interrupted);
  watch.clear();
  ASSERT_EQ(::write(ends[1], "ee", 2), 2);
  ::close(ends[1]);
  EXPECT_EQ(reader.read(line), LineReader::Outcome::line);
  EXPECT_EQ(line, "three");
  EXPECT_EQ(reader.read(line), LineReader::Outcome::end);
  ::close(ends[0]);
}

// The program with its stdin, stdout and stderr in our hands.
class Spawned {
 public:
  explicit Spawned(const std::vector<std::string>& words) {
    int to_in[2], from_out[2], from_err[2];
    EXPECT_EQ(::pipe2(to_in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_out, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from_err, O_CLOEXEC), 0);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to_in[0], 0);
      ::dup2(from_out[1], 1);
      ::dup2(from_err[1], 2);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(to_in[0]), ::close(from_out[1]), ::close(from_err[1]);
    in_ = to_in[1], out_ = from_out[0], err_ = from_err[0];
  }
  ~Spawned() {
    if (process_ > 0) ::kill(process_, SIGKILL), ::waitpid(process_, nullptr, 0);
    close_input();
    ::close(out_), ::close(err_);
  }
  void say(const std::string& text) {
    ASSERT_EQ(::write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void interrupt() const { ::kill(process_, SIGINT); }
  void close_input() {
    if (in_ >= 0) ::close(in_);
    in_ = -1;
  }
  // Waits until stderr has said this, and whatever stdout said meanwhile; false after half a minute.
  bool wait_for(const std::string& words) {
    return wait([&] { return contains(err, words); });
  }
  bool wait_for_output() {
    return wait([&] { return !out.empty(); });
  }
  int status() {
    wait([] { return false; });  // until both streams end
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string out, err;

 private:
  template <class Done>
  bool wait(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd waits[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
      ::poll(waits, 2, 100);
      const bool out_ended = waits[0].revents != 0 && take(out_, out);
      const bool err_ended = waits[1].revents != 0 && take(err_, err);
      if (out_ended && err_ended) return done();
    }
    return true;
  }
  static bool take(int descriptor, std::string& to) {
    char bytes[4096];
    const ssize_t count = ::read(descriptor, bytes, sizeof bytes);
    if (count > 0) to.append(bytes, static_cast<std::size_t>(count));
    return count <= 0;
  }

  pid_t process_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
};

class ChatProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!program_exists()) GTEST_SKIP() << "the program was not built: CLI11 is missing";
  }
  static std::vector<std::string> words(std::vector<std::string> more) {
    std::vector<std::string> all{FOURFOLD_PROGRAM, "chat",   talking_model().path(),
                                 "--no-thinking",  "--seed", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(ChatProgram, EndsWithItsInput) {
  const Outcome talk = shell("printf 'Hello\\nAgain\\n' | PROGRAM chat '" + talking_model().path() +
                             "' --no-thinking --max-tokens 5 --seed 1 2>/dev/null");
  EXPECT_EQ(talk.status, kFine);
  EXPECT_FALSE(talk.out.empty());
  EXPECT_EQ(shell("PROGRAM chat '" + talking_model().path() + "' </dev/null").status, kFine);
  EXPECT_EQ(shell("PROGRAM chat ./no-such/model </dev/null 2>&1").status, kFailed);
  EXPECT_EQ(shell("PROGRAM chat '" + talking_model().path() + "' --nonsense 2>&1").status, kUsage);
}

// Ctrl-C in the middle of a long answer: it stops, the conversation goes on.
TEST_F(ChatProgram, CtrlCStopsTheAnswerAndNotTheProgram) {
  // No token that ends an answer: the template's two and the config's one.
  const text::MadeUpTokens tokens = text::made_up_tokens(kMicroVocabulary);
  Spawned chat(words({"--max-tokens", "4000", "--backend", "reference", "--logit-bias",
                      fourfold::format("{}=-100,{}=-100,319=-100", tokens.end_of_turn, tokens.end_of_text)}));
  for (const char* line : {"Hello\n", "More\n"}) {
    chat.out.clear();
    chat.err.clear();
    chat.say(line);
    ASSERT_TRUE(chat.wait_for_output());
    chat.interrupt();
    ASSERT_TRUE(chat.wait_for("; stopped\n")) << chat.err;
  }
  chat.close_input();
  EXPECT_EQ(chat.status(), kFine);
}

TEST_F(ChatProgram, TwoCtrlCAtThePromptEndIt) {
  Spawned chat(words({"--max-tokens", "4"}));
  chat.say("Hello\n");
  ASSERT_TRUE(chat.wait_for("tok/s"));
  chat.interrupt();
  ASSERT_TRUE(chat.wait_for("Ctrl-C again")) << chat.err;
  chat.err.clear();
  chat.say("Hello\n");  // a line in between begins the count anew
  ASSERT_TRUE(chat.wait_for("tok/s"));
  chat.err.clear();
  chat.interrupt();
  ASSERT_TRUE(chat.wait_for("Ctrl-C again")) << chat.err;
  chat.interrupt();
  EXPECT_EQ(chat.status(), kFine);
}

}  // namespace
}  // namespace fourfold::cli
