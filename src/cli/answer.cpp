#include "cli/answer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/token_grain.h"
#include "cli/figures.h"
#include "cli/parse.h"
#include "cli/reader_gone.h"
#include "cli/terminal_text.h"
#include "cli/word_wrap.h"
#include "engine/answer_text.h"
#include "engine/step_loop.h"

namespace fourfold::cli {
namespace {

// Rows of one pass: enough to read each weight once for many tokens, few enough that Ctrl-C is heard soon.
constexpr std::int64_t kRowsMax = 256;

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc{} && end == text.data() + text.size();
}

std::vector<sample::LogitBias> parse_logit_bias(const std::string& text) {
  std::vector<sample::LogitBias> out;
  if (text.empty()) return out;
  for (const std::string& part : split_commas(text)) {
    const std::size_t equals = part.find('=');
    sample::LogitBias entry;
    if (equals == std::string::npos || !read_number(std::string_view(part).substr(0, equals), entry.id) ||
        !read_number(std::string_view(part).substr(equals + 1), entry.bias))
      fail_with_hint(Code::invalid_request, "Write ID=BIAS with commas between: 50=-100,7=1.5.",
                     "--logit-bias: '{}' cannot be read", part);
    out.push_back(entry);
  }
  return out;
}

// The command line over the model's own suggestions.
void take_options(const GenerationOptions& options, sample::Params& params) {
  const auto take = [](const auto& given, auto& param) {
    if (given) param = *given;
  };
  take(options.temperature, params.temperature);
  take(options.top_k, params.top_k);
  take(options.top_p, params.top_p);
  take(options.min_p, params.min_p);
  take(options.repetition_penalty, params.repetition_penalty);
  take(options.presence_penalty, params.presence_penalty);
  take(options.frequency_penalty, params.frequency_penalty);
  params.logit_bias = parse_logit_bias(options.logit_bias);
  params.seed = options.seed ? *options.seed : library::draw_seed();
}

// Writes pieces where they belong.
class AnswerWriter {
 public:
  AnswerWriter(const Console& console, bool wrap) : console_(console), wrap_(wrap) {}
  ~AnswerWriter() { end_thinking(); }

  void think(std::string_view text) {
    if (text.empty()) return;
    if (!thinking_ && console_.err_is_terminal) console_.err << (console_.styled ? "\033[2m" : "[thinking] ");
    thinking_ = true;
    if (console_.err_is_terminal)
      console_.err << thoughts_.push(terminal_safe(text), columns(STDERR_FILENO)) << std::flush;
    else
      console_.err << text << std::flush;
  }
  void say(std::string_view text) {
    if (text.empty()) return;
    end_thinking();
    last_ = text.back();
    if (console_.out_is_terminal)
      write(words_.push(terminal_safe(text), columns(STDOUT_FILENO)));
    else
      write(text);
  }
  void finish() {
    end_thinking();
    if (console_.out_is_terminal) write(words_.finish(columns(STDOUT_FILENO)));
    if (last_ != '\n') write("\n");
  }

 private:
  // Asked each time: windows change.
  int columns(int descriptor) const { return wrap_ ? terminal_columns(descriptor) : 0; }
  void end_thinking() {
    if (!thinking_) return;
    if (console_.err_is_terminal) console_.err << thoughts_.finish(columns(STDERR_FILENO));
    console_.err << (console_.err_is_terminal && console_.styled ? "\033[0m\n" : "\n") << std::flush;
    thinking_ = false;
  }
  void write(std::string_view text) {
    errno = 0;
    console_.out << text << std::flush;
    if (!console_.out && errno == EPIPE) throw ReaderGone();
    if (!console_.out)
      fail(Code::io, "the answer cannot be written to standard output: {}",
           errno == 0 ? "it is closed" : std::strerror(errno));
  }

  const Console& console_;
  bool wrap_;
  WordWrap words_, thoughts_;
  bool thinking_ = false;
  char last_ = '\n';  // an empty answer is an empty file
};

}  // namespace

engine::Request make_request(const GenerationOptions& options, const OpenModel& model,
                             const text::Tokenizer* tokenizer) {
  library::RequestDefaults defaults = library::request_defaults(model, tokenizer);
  engine::Request request;
  request.params = std::move(defaults.params);
  take_options(options, request.params);
  request.stop_ids = std::move(defaults.stop_ids);
  request.token_limit = defaults.token_limit;
  request.draft_count = options.mtp;
  if (options.drafts != "chosen" && options.drafts != "drawn")
    fail_with_hint(Code::invalid_request, "Known kinds of drafts: chosen, drawn.", "unknown drafts '{}'",
                   options.drafts);
  request.draw_drafts = options.drafts == "drawn";
  if (request.draw_drafts && options.mtp == 0)
    fail_with_hint(Code::invalid_request, "Say how many drafts a step: --mtp 1 to 5.",
                   "--drafts drawn: there are none without --mtp");
  sample::StopStrings{options.stops};  // refuses bad ones now, not when the model is loaded
  return request;
}

backend::Capacity room_for(std::int64_t token_count) {
  return {.page_count = (token_count + kTokenGrain - 1) / kTokenGrain,
          .page_tokens = kTokenGrain,
          .state_slot_count = 1,
          .row_count = std::clamp<std::int64_t>(token_count, engine::kDraftCountMax + 1, kRowsMax)};
}

Answer stream_answer(backend::Prepared& prepared, engine::Request request, const AnswerOptions& options,
                     const Console& console) {
  engine::Home home;
  for (std::int64_t page = 0; page < prepared.capacity().page_count; ++page)
    home.pages.push_back(static_cast<std::int32_t>(page));
  std::optional<engine::AnswerText> text;
  if (options.tokenizer != nullptr)
    text.emplace(*options.tokenizer,
                 engine::AnswerTextOptions{
                     .stops = options.stops,
                     .split_thinking = options.split_thinking,
                     .starts_thinking = options.split_thinking &&
                                        engine::ends_in_thinking(request.prompt, *options.tokenizer),
                     .header = text::last_header(request.prompt, *options.tokenizer)});
  // Taken away first: after an error nothing is known about the caches.
  if (options.cached != nullptr && (prepared.roles_agree() || options.fast))
    request.cached_count = engine::reusable_count(std::exchange(*options.cached, {}), request);
  const std::vector<engine::TokenId> stop_ids = request.stop_ids;
  engine::Sequence sequence(prepared.program(), std::move(request), std::move(home));
  engine::Sequence* all[] = {&sequence};
  engine::StepLoop loop(prepared);
  AnswerWriter writer(console, options.wrap);
  Answer answer;
  answer.prompt_count = sequence.prompt_count();
  answer.reused_count = sequence.cached().end;
  const auto show = [&](const engine::AnswerPiece& piece) {
    answer.thinking += piece.thinking;
    answer.content += piece.content;
    writer.think(piece.thinking);
    writer.say(piece.content);
  };
  const Clock::time_point start = Clock::now();
  Clock::time_point first = start;
  while (!sequence.finished() && !answer.stopped) {
    loop.step(all);
    if (first == start && !sequence.newest().empty()) first = Clock::now();
    for (const sample::Sampled& token : sequence.newest()) {
      ++answer.token_count;
      if (!text) {
        show({{}, (answer.content.empty() ? "" : ",") + std::to_string(token.token)});
      } else if (std::ranges::find(stop_ids, token.token) == stop_ids.end()) {
        show(text->push(token.token));
        if ((answer.stopped = text->stopped())) break;
      }
    }
    if (options.watch != nullptr && options.watch->interrupted()) sequence.cancel();
  }
  if (text) show(text->finish());
  writer.finish();
  answer.finish = sequence.finish();
  answer.prompt_seconds = seconds_between(start, first);
  answer.token_seconds = seconds_between(first, Clock::now());
  answer.drafts = sequence.drafts();
  if (prepared.history_limit() > 0) answer.host_choices = loop.choices().here;
  if (options.cached != nullptr) *options.cached = sequence.cached();
  return answer;
}

std::string speed_line(const Answer& answer) {
  const auto rate = [](std::int64_t count, double seconds) {
    if (count <= 0 || seconds <= 0) return std::string();
    return ", " + rounded(static_cast<double>(count) / seconds) + " tok/s";
  };
  const std::string reused =
      answer.reused_count > 0 ? fourfold::format(" ({} reused)", answer.reused_count) : "";
  std::string line = fourfold::format("{}{}{}; {}{}", counted(answer.prompt_count, "prompt token"), reused,
                                      rate(answer.prompt_count - answer.reused_count, answer.prompt_seconds),
                                      counted(answer.token_count, "token"),
                                      rate(answer.token_count - 1, answer.token_seconds));
  if (answer.drafts.verified > 0)
    line += fourfold::format("; {} of {} drafts accepted", answer.drafts.accepted, answer.drafts.verified);
  if (answer.host_choices > 0) line += fourfold::format("; {} chosen by the host", answer.host_choices);
  return line;
}

}  // namespace fourfold::cli
