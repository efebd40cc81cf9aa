#include "cli/chat_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/chat_words.h"
#include "cli/fetch_model.h"
#include "cli/line_editor.h"
#include "cli/line_reader.h"
#include "cli/terminal_text.h"
#include "cli/transcript.h"
#include "text/chat_prompt.h"

namespace fourfold::cli {
namespace {

// Tokens a conversation has room for, and an answer may have, when nobody says.
constexpr std::int64_t kContext = 16384;

// Where lines come from: a terminal's editor, or plainly.
class ChatInput {
 public:
  ChatInput(int input, const ChatOptions& options, const InterruptWatch& watch, const Console& console)
      : reader_(input, watch), console_(console) {
    if (!console.err_is_terminal || ::isatty(input) == 0) return;
    std::string notice;
    const std::filesystem::path history = options.no_history ? std::filesystem::path() : chat_history_file();
    editor_ = make_line_editor({.input = input, .prompt = kPrompt, .history_file = history}, watch, notice);
    if (!notice.empty()) console.err << "fourfold: notice: " << terminal_safe(notice) << "\n";
  }

  LineReader::Outcome read(std::string& line) {
    if (editor_ == nullptr) {
      if (console_.err_is_terminal) console_.err << kPrompt << std::flush;
      return reader_.read(line);
    }
    console_.err << std::flush;
    const LineReader::Outcome outcome = editor_->read(line);
    const bool said =
        outcome == LineReader::Outcome::line && line.find_first_not_of(" \t\n") != std::string::npos;
    if (said) editor_->remember(line);
    return outcome;
  }

 private:
  static constexpr const char* kPrompt = "> ";

  std::unique_ptr<LineEditor> editor_;
  LineReader reader_;
  const Console& console_;
};

class Chat {
 public:
  Chat(const ChatOptions& options, const Console& console);

  int run(int input);

 private:
  void mention_fast() const;
  // Of the template, for what was said so far.
  text::ChatRequest rendering() const;
  // Adds the line and its answer to the conversation.
  void answer_line(const std::string& line, InterruptWatch& watch);
  void change_system(const std::string& text);
  void save(const std::string& name);
  // False: the chat is to end.
  bool take_line(const std::string& line, InterruptWatch& watch);

  const ChatOptions& options_;
  const Console& console_;
  std::unique_ptr<OpenModel> model_;
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_;
  engine::Request request_;  // all but prompt and max_tokens
  std::int64_t context_ = 0;
  PreparedModel prepared_;
  std::string system_;
  std::vector<ChatMessage> messages_;  // after the system's
  engine::CachedTokens cached_;
};

Chat::Chat(const ChatOptions& options, const Console& console)
    : options_(options),
      console_(console),
      model_(fetch_and_open_model(options.model, console, options.generation.backend.strict)),
      tokenizer_(load_tokenizer(model_->folder)),
      template_(text::ChatTemplate::load(model_->folder)),
      request_(make_request(options.generation, *model_, &tokenizer_)),
      system_(options.generation.system) {
  if (!template_)
    fail_with_hint(Code::invalid_request, "Use fourfold run --raw to have text continued.",
                   "{}: there is no chat template in this folder", model_->folder.string());
  context_ = options.context.value_or(std::min(kContext, model_->config.position_limit));
  if (context_ < 2 || context_ > model_->config.position_limit)
    fail(Code::invalid_request, "--context {}: at least 2 and at most the model's {} positions", context_,
         model_->config.position_limit);
  // What can be wrong with the options is said before the model is loaded.
  engine::Request trial = request_;
  trial.prompt = {0};
  trial.max_tokens = options.generation.max_tokens.value_or(1);
  engine::require_valid(trial, limits_of(*model_));
  if (trial.max_tokens >= context_)
    fail_with_hint(Code::invalid_request, "Make room with --context N, or lower --max-tokens.",
                   "--max-tokens {}: the conversation has room for {} tokens, the prompt's among them",
                   trial.max_tokens, context_);
  prepared_ = prepare_model(*model_, options.generation.backend, room_for(context_), console);
  mention_fast();
}

// The one option that gives up the same answer says what for.
void Chat::mention_fast() const {
  if (!options_.fast) return;
  if (prepared_->roles_agree())
    return notice(console_,
                  fourfold::format("--fast gains nothing on the {} backend: turns are kept there without it, "
                                   "with the same answers",
                                   options_.generation.backend.backend),
                  options_.generation.backend.strict);
  console_.err << "fourfold: --fast: a turn goes on from the rows its answers left, instead of running the "
                  "whole conversation again\n"
                  "          as a prompt; an answer may differ from the one the same conversation gets "
                  "without --fast\n";
}

text::ChatRequest Chat::rendering() const {
  std::vector<text::jinja::Value> all;
  const auto add = [&](const ChatMessage& said) {
    text::jinja::Dict message;
    message.set("role", said.role);
    message.set("content", said.content);
    if (!said.thinking.empty()) message.set("reasoning_content", said.thinking);
    all.emplace_back(std::move(message));
  };
  if (!system_.empty()) add({"system", system_, {}});
  for (const ChatMessage& message : messages_) add(message);
  text::ChatRequest chat{.messages = text::jinja::Value::list(std::move(all))};
  if (options_.generation.thinking) chat.enable_thinking = true;
  if (options_.generation.no_thinking) chat.enable_thinking = false;
  return chat;
}

void Chat::answer_line(const std::string& line, InterruptWatch& watch) {
  require_utf8(line, "the line");
  messages_.push_back({"user", line, {}});
  engine::Request request = request_;
  request.prompt = text::ChatPrompt(*template_, tokenizer_, rendering()).ids();
  const std::int64_t room = context_ - std::ssize(request.prompt);
  if (room < 1)
    fail_with_hint(Code::over_capacity,
                   "/new begins a new conversation; --context N makes room for a longer one.",
                   "the conversation has {} tokens; there is room for {}", request.prompt.size(), context_);
  request.max_tokens = std::min(options_.generation.max_tokens.value_or(kMaxTokens), room);
  if (options_.generation.max_tokens && request.max_tokens < *options_.generation.max_tokens)
    notice(console_,
           fourfold::format("there is room for {} tokens of answer, --max-tokens asks for {}; /new begins a "
                            "new conversation, --context N makes room",
                            room, *options_.generation.max_tokens),
           options_.generation.backend.strict);
  const Answer answer = stream_answer(*prepared_, request,
                                      {.tokenizer = &tokenizer_,
                                       .stops = options_.generation.stops,
                                       .split_thinking = true,
                                       .watch = &watch,
                                       .cached = &cached_,
                                       .fast = options_.fast,
                                       .wrap = !options_.generation.no_wrap},
                                      console_);
  // What was said before Ctrl-C was said.
  messages_.push_back({"assistant", answer.content, answer.thinking});
  const bool cut = answer.finish == engine::Finish::max_tokens;
  const bool cancelled = answer.finish == engine::Finish::cancelled;
  if (cancelled) watch.clear();  // one that came later is for the prompt
  console_.err << "fourfold: " << speed_line(answer)
               << (cancelled ? "; stopped"
                   : cut     ? "; cut at " + std::to_string(request.max_tokens)
                             : "")
               << "\n";
}

void Chat::change_system(const std::string& text) {
  require_utf8(text, "the system message");
  if (text == "-") {
    system_.clear();
    console_.err << "fourfold: there is no system message from now on\n";
  } else if (!text.empty()) {
    system_ = text;
    console_.err << "fourfold: the system message is set, from the next answer on\n";
  } else {
    console_.err << (system_.empty() ? "fourfold: there is no system message" : terminal_safe(system_))
                 << "\n";
  }
}

void Chat::save(const std::string& name) {
  if (name.empty()) fail(Code::invalid_request, "/save needs the name of a file: /save story.md");
  std::vector<ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_, {}});
  all.insert(all.end(), messages_.begin(), messages_.end());
  const std::filesystem::path path = save_transcript(name, model_->folder.filename().string(), all);
  console_.err << fourfold::format("fourfold: {} messages written to {}\n", all.size(),
                                   terminal_safe(path.string()));
}

bool Chat::take_line(const std::string& line, InterruptWatch& watch) {
  const ChatLine read = read_chat_line(line, console_.err_is_terminal);
  switch (read.kind) {
    case ChatLine::Kind::nothing: break;
    case ChatLine::Kind::message: answer_line(line, watch); break;
    case ChatLine::Kind::help: console_.err << chat_help(); break;
    case ChatLine::Kind::forget: messages_.clear(); break;
    case ChatLine::Kind::system: change_system(read.argument); break;
    case ChatLine::Kind::save: save(read.argument); break;
    case ChatLine::Kind::exit: return false;
    case ChatLine::Kind::unknown:
      fail_with_hint(Code::invalid_request,
                     "/help lists the commands; a message that begins with / needs a space before it.", "{}",
                     unknown_chat_command(read.argument));
  }
  return true;
}

int Chat::run(int input) {
  InterruptWatch watch;
  ChatInput lines(input, options_, watch, console_);
  if (console_.err_is_terminal)
    console_.err
        << "Ctrl-C stops an answer, Ctrl-D ends, /new begins a new conversation, /help lists the rest.\n";
  if (!options_.generation.seed && !request_.params.greedy())
    console_.err << "fourfold: --seed " << request_.params.seed << " repeats these answers\n";
  bool interrupted_before = false;
  std::string line;
  for (;;) {
    const LineReader::Outcome outcome = lines.read(line);
    if (outcome == LineReader::Outcome::end) {
      if (console_.err_is_terminal) console_.err << "\n";  // the shell's prompt is a line of its own
      return kFine;
    }
    if (outcome == LineReader::Outcome::interrupted) {
      watch.clear();
      console_.err << "\n";
      if (interrupted_before) return kFine;
      console_.err << "fourfold: Ctrl-C again, or Ctrl-D, ends the chat\n";
      interrupted_before = true;
      continue;
    }
    interrupted_before = false;
    const std::size_t message_count = messages_.size();
    try {
      if (!take_line(line, watch)) return kFine;
    } catch (const Error& error) {
      // At a terminal a line that cannot be answered is not the end; a script wants to know.
      if (!console_.err_is_terminal || (error.code() != Code::invalid_request &&
                                        error.code() != Code::over_capacity && error.code() != Code::io))
        throw;
      messages_.resize(message_count);
      show_error(console_, error.what(), error.hint());
    }
  }
}

}  // namespace

std::filesystem::path chat_history_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const char* named = std::getenv("FOURFOLD_HISTORY"); named != nullptr)
    return *named == '\0' || std::string_view(named) == "off" ? "" : named;
  std::filesystem::path state = variable("XDG_STATE_HOME");
  if (!state.is_absolute()) {
    const std::string home = variable("HOME");
    if (home.empty()) return {};
    state = std::filesystem::path(home) / ".local" / "state";
  }
  return state / "fourfold" / "chat_history";
}

int run_chat(const ChatOptions& options, int input, const Console& console) {
  ignore_broken_pipes();
  require_utf8(options.generation.system, "--system");
  for (const std::string& stop : options.generation.stops) require_utf8(stop, "--stop");
  return Chat(options, console).run(input);
}

}  // namespace fourfold::cli
