#include "cli/chat_command.h"

#include <algorithm>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/default_model.h"
#include "cli/line_reader.h"
#include "text/chat_prompt.h"

namespace fourfold::cli {
namespace {

// Tokens a conversation has room for, and an answer may have, when nobody says.
constexpr std::int64_t kContext = 16384;
constexpr std::int64_t kMaxTokens = 4096;

class Chat {
 public:
  Chat(const ChatOptions& options, const Console& console);

  int run(int input);

 private:
  void mention_fast() const;
  void forget();
  void add_message(const char* role, const std::string& content, const std::string& thinking = {});
  // Adds the line and its answer to the conversation.
  void answer_line(const std::string& line, InterruptWatch& watch);
  void show_prompt() const {
    if (console_.err_is_terminal) console_.err << "> " << std::flush;
  }

  const ChatOptions& options_;
  const Console& console_;
  std::unique_ptr<OpenModel> model_;
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> template_;
  engine::Request request_;  // all but prompt and max_tokens
  std::int64_t context_ = 0;
  PreparedModel prepared_;
  std::vector<text::jinja::Value> messages_;
  engine::CachedTokens cached_;
};

Chat::Chat(const ChatOptions& options, const Console& console)
    : options_(options),
      console_(console),
      model_(open_model(model_or_default(options.model), console, options.generation.backend.strict)),
      tokenizer_(load_tokenizer(model_->folder)),
      template_(text::ChatTemplate::load(model_->folder)),
      request_(make_request(options.generation, *model_, &tokenizer_)) {
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
  forget();
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

void Chat::forget() {
  messages_.clear();
  if (!options_.generation.system.empty()) add_message("system", options_.generation.system);
}

void Chat::add_message(const char* role, const std::string& content, const std::string& thinking) {
  text::jinja::Dict message;
  message.set("role", role);
  message.set("content", content);
  if (!thinking.empty()) message.set("reasoning_content", thinking);
  messages_.emplace_back(std::move(message));
}

void Chat::answer_line(const std::string& line, InterruptWatch& watch) {
  require_utf8(line, "the line");
  add_message("user", line);
  text::ChatRequest chat{.messages = text::jinja::Value::list(messages_)};
  if (options_.generation.thinking) chat.enable_thinking = true;
  if (options_.generation.no_thinking) chat.enable_thinking = false;
  engine::Request request = request_;
  request.prompt = text::ChatPrompt(*template_, tokenizer_, std::move(chat)).ids();
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
                                       .fast = options_.fast},
                                      console_);
  // What was said before Ctrl-C was said.
  add_message("assistant", answer.content, answer.thinking);
  const bool cut = answer.finish == engine::Finish::max_tokens;
  const bool cancelled = answer.finish == engine::Finish::cancelled;
  if (cancelled) watch.clear();  // one that came later is for the prompt
  console_.err << "fourfold: " << speed_line(answer)
               << (cancelled ? "; stopped"
                   : cut     ? "; cut at " + std::to_string(request.max_tokens)
                             : "")
               << "\n";
}

int Chat::run(int input) {
  InterruptWatch watch;
  LineReader reader(input, watch);
  if (console_.err_is_terminal)
    console_.err << "Ctrl-C stops an answer, Ctrl-D ends, /new begins a new conversation.\n";
  if (!options_.generation.seed && !request_.params.greedy())
    console_.err << "fourfold: --seed " << request_.params.seed << " repeats these answers\n";
  bool interrupted_before = false;
  std::string line;
  for (;;) {
    show_prompt();
    const LineReader::Outcome outcome = reader.read(line);
    if (outcome == LineReader::Outcome::end) return kFine;
    if (outcome == LineReader::Outcome::interrupted) {
      watch.clear();
      console_.err << "\n";
      if (interrupted_before) return kFine;
      console_.err << "fourfold: Ctrl-C again, or Ctrl-D, ends the chat\n";
      interrupted_before = true;
      continue;
    }
    interrupted_before = false;
    if (line.empty()) continue;
    if (line == "/new") {
      forget();
      continue;
    }
    const std::size_t message_count = messages_.size();
    try {
      answer_line(line, watch);
    } catch (const Error& error) {
      // At a terminal a line that cannot be answered is not the end; a script wants to know.
      if (!console_.err_is_terminal ||
          (error.code() != Code::invalid_request && error.code() != Code::over_capacity))
        throw;
      messages_.resize(message_count);
      show_error(console_, error.what(), error.hint());
    }
  }
}

}  // namespace

int run_chat(const ChatOptions& options, int input, const Console& console) {
  ignore_broken_pipes();
  require_utf8(options.generation.system, "--system");
  for (const std::string& stop : options.generation.stops) require_utf8(stop, "--stop");
  return Chat(options, console).run(input);
}

}  // namespace fourfold::cli
