#include "cli/run_command.h"

#include <charconv>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/fetch_model.h"
#include "cli/figures.h"
#include "cli/find_model.h"
#include "cli/parse.h"
#include "text/chat_prompt.h"

namespace fourfold::cli {
namespace {

// How long an answer may get when nobody says.

std::vector<engine::TokenId> parse_ids(const std::string& text) {
  std::vector<engine::TokenId> ids;
  for (const std::string& part : split_commas(text)) {
    engine::TokenId id = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (status != std::errc{} || end != part.data() + part.size())
      fail_with_hint(Code::invalid_request, "Token ids are whole numbers with commas between them: 1,2,3.",
                     "'{}' is not a token id", part);
    ids.push_back(id);
  }
  return ids;
}

void require_consistent(const RunOptions& options) {
  if (options.prompt && !options.ids.empty())
    fail_with_hint(Code::invalid_request, "Give one of them.", "there are two prompts, -p and --ids");
  const GenerationOptions& generation = options.generation;
  if (options.raw && (!generation.system.empty() || generation.thinking || generation.no_thinking))
    fail(Code::invalid_request,
         "--system, --thinking and --no-thinking are for the chat template; --raw continues the text without "
         "one");
  if (options.ids.empty()) return;
  if (options.raw || generation.thinking || generation.no_thinking || !generation.system.empty() ||
      !generation.stops.empty())
    fail(Code::invalid_request,
         "--raw, --system, --thinking, --no-thinking and --stop are about text; --ids has none");
}

// `fourfold run "Hello"` is what many type first.
void require_model(const RunOptions& options) {
  if (options.prompt || !options.ids.empty() || is_model(options.model)) return;
  if (checkpoint::as_hub_name(options.model)) return;  // it is fetched
  std::string hint = fourfold::format("To ask the model that comes with the program: fourfold run -p {}",
                                      shell_word(options.model));
  try {
    find_model(options.model);
  } catch (const Error& error) {
    if (error.hint().starts_with("Did you mean")) hint = error.hint() + "\n  " + hint;
  }
  fail_with_hint(Code::invalid_request, hint,
                 "'{}' is no model: there is no such folder, and no such name in the hub cache",
                 options.model);
}

// From -p, or from stdin.
std::string prompt_text(const RunOptions& options) {
  std::string text = options.prompt.value_or(options.stdin_may_prompt ? "-" : "");
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  require_utf8(text, "the prompt");
  if (!options.prompt && text.find_first_not_of(" \t\r\n") == std::string::npos)
    fail_with_hint(
        Code::invalid_request,
        "Give -p TEXT (one chat turn), -p TEXT --raw (to be continued), or --ids 1,2,3; or pipe the text "
        "in. For a conversation: fourfold chat.",
        "there is no prompt");
  return text;
}

std::int64_t context_limit(const RunOptions& options, const OpenModel& model) {
  const std::int64_t most = model.config.position_limit;
  const std::int64_t limit = options.max_context.value_or(most);
  if (limit < 2 || limit > most)
    fail(Code::invalid_request, "--max-context {}: at least 2 and at most the model's {} positions", limit,
         most);
  return limit;
}

std::vector<std::int32_t> chat_prompt(const RunOptions& options, const OpenModel& model,
                                      const text::Tokenizer& tokenizer, const std::string& text) {
  const auto chat = text::ChatTemplate::load(model.folder);
  if (!chat)
    fail_with_hint(Code::invalid_request, "Use --raw to have the text continued.",
                   "{}: there is no chat template in this folder", model.folder.string());
  std::vector<text::jinja::Value> messages;
  const auto add = [&](const char* role, const std::string& content) {
    text::jinja::Dict message;
    message.set("role", role);
    message.set("content", content);
    messages.emplace_back(std::move(message));
  };
  if (!options.generation.system.empty()) add("system", options.generation.system);
  add("user", text);
  text::ChatRequest request{.messages = text::jinja::Value::list(std::move(messages))};
  if (options.generation.thinking) request.enable_thinking = true;
  if (options.generation.no_thinking) request.enable_thinking = false;
  return text::ChatPrompt(*chat, tokenizer, std::move(request)).ids();
}

void report(const Answer& answer, const engine::Request& request, bool seed_was_drawn, double load_seconds,
            const Console& console) {
  console.err << "fourfold: loaded in " << rounded(load_seconds) << " s; " << speed_line(answer);
  if (seed_was_drawn && !request.params.greedy()) console.err << "; --seed " << request.params.seed;
  console.err << "\n";
  if (answer.finish == engine::Finish::max_tokens)
    console.err << "fourfold: notice: the answer was cut at " << counted(answer.token_count, "token")
                << " (--max-tokens)" << (answer.content.empty() ? "; the model was still thinking" : "")
                << "\n";
}

}  // namespace

int run_run(const RunOptions& options, const Console& console) {
  ignore_broken_pipes();
  require_consistent(options);
  require_model(options);
  const bool is_text = options.ids.empty();
  const std::string asked = is_text ? prompt_text(options) : "";
  require_utf8(options.generation.system, "--system");
  for (const std::string& stop : options.generation.stops) require_utf8(stop, "--stop");
  const auto model = fetch_and_open_model(options.model, console, options.generation.backend.strict);
  std::optional<text::Tokenizer> tokenizer;
  if (is_text) tokenizer = load_tokenizer(model->folder);
  engine::Request request = make_request(options.generation, *model, tokenizer ? &*tokenizer : nullptr);
  if (is_text) {
    request.prompt = options.raw ? tokenizer->encode(asked, {.add_special_tokens = true})
                                 : chat_prompt(options, *model, *tokenizer, asked);
  } else {
    request.prompt = parse_ids(options.ids);
  }
  const std::int64_t limit = context_limit(options, *model);
  const std::int64_t room = limit - std::ssize(request.prompt);
  request.max_tokens = options.generation.max_tokens.value_or(std::clamp<std::int64_t>(room, 1, kMaxTokens));
  engine::require_valid(request, limits_of(*model));
  const std::int64_t needed = std::ssize(request.prompt) + request.max_tokens;
  if (needed > limit)
    fail_with_hint(Code::invalid_request, "Make room with --max-context N, or lower --max-tokens.",
                   "{} tokens of prompt and {} of answer; --max-context makes room for {}",
                   request.prompt.size(), request.max_tokens, limit);

  const PreparedModel prepared = prepare_model(*model, options.generation.backend,
                                               room_for(options.max_context.value_or(needed)), console);
  // On a terminal an interrupt ends the answer first: thinking is dimmed, and would leave it so.
  std::optional<InterruptWatch> watch;
  if (console.err_is_terminal) watch.emplace();
  const AnswerOptions shown{.tokenizer = tokenizer ? &*tokenizer : nullptr,
                            .stops = options.generation.stops,
                            .split_thinking = is_text && !options.raw,
                            .watch = watch ? &*watch : nullptr,
                            .cached = nullptr,
                            .wrap = !options.generation.no_wrap};
  const Answer answer = stream_answer(*prepared, request, shown, console);
  report(answer, request, !options.generation.seed, prepared.seconds, console);
  const bool stopped = watch && watch->interrupted();
  watch.reset();
  if (stopped) std::raise(SIGINT);  // whoever started this sees an interrupt
  return kFine;
}

}  // namespace fourfold::cli
