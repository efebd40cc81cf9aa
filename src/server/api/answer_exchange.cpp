#include "server/api/answer_exchange.h"

#include "base/check.h"
#include "base/random.h"
#include "server/api/request_error.h"

namespace fourfold::server::api {

std::string sse(std::string_view data) {
  std::string out = "data: ";
  out += data;
  return out += "\n\n";
}

std::string sse(std::string_view name, std::string_view data) {
  std::string out = "event: ";
  out += name;
  out += "\n";
  return out += sse(data);
}

AnswerExchange::AnswerExchange(const ServedModel& model, Plan plan, Notes& noted)
    : model_(&model), plan_(std::move(plan)), schemas_(plan_.tools.schemas()) {
  std::int64_t prompt_tokens = 0;
  for (Prompt& prompt : plan_.prompts) {
    const std::size_t whole = prompt.ids.size();
    truncate_prompt(prompt.ids, plan_.generation, model, noted);
    if (prompt.ids.size() < whole) prompt.text = model.tokenizer.decode(prompt.ids);
    prompt_tokens += std::ssize(prompt.ids);
    const std::int64_t room = answer_room(prompt, plan_.generation, model);
    if (plan_.generation.max_tokens.value_or(room) > room)
      noted.add(NoteKind::length, plan_.generation.max_tokens_field, std::to_string(room));
    require_long_enough(std::min(plan_.generation.max_tokens.value_or(room), room), plan_.generation);
    ChoiceOptions options;
    options.stops = plan_.generation.stops;
    options.split_thinking = plan_.split_thinking;
    options.starts_thinking = prompt.starts_thinking;
    options.schemas = plan_.tools.offered() ? &schemas_ : nullptr;
    if (model.chat_template) options.format = model.chat_template->call_format();
    if (options.format == text::CallFormat::harmony)
      options.header = text::last_header(prompt.ids, model.tokenizer);
    options.one_call = !plan_.tools.parallel;
    options.guided = static_cast<bool>(plan_.make_guide);
    options.call_prefix = plan_.call_prefix;
    options.keep_logprobs = plan_.generation.logprobs;
    options.logprobs_with_text = plan_.logprobs_with_text;
    options.keep_ids = plan_.generation.token_ids;
    options.min_tokens = plan_.generation.min_tokens;
    options.show_stop = plan_.generation.show_stop;
    options.show_special = plan_.generation.show_special;
    for (std::int64_t i = 0; i < plan_.generation.answer_count; ++i)
      choices_.emplace_back(model.tokenizer, options);
  }
  begun_.resize(choices_.size());
  long_bytes_ = require_measurable(prompt_tokens, plan_.generation);
}

// A stream shows each choice as it comes; a whole answer has a prompt measured once, however often answered.
std::size_t AnswerExchange::measured_choice(std::size_t choice) const {
  const auto each = static_cast<std::size_t>(plan_.generation.answer_count);
  return streams() ? choice : choice / each * each;
}

const Prompt& AnswerExchange::prompt_of(std::size_t choice) const {
  return plan_.prompts[choice / static_cast<std::size_t>(plan_.generation.answer_count)];
}

std::vector<engine::Submission> AnswerExchange::submissions() {
  const Generation& generation = plan_.generation;
  std::vector<engine::Submission> out(choices_.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Prompt& prompt = prompt_of(i);
    engine::Request& request = out[i].request;
    request.prompt = prompt.ids;
    request.params = generation.params;
    // The first choice is what the request gives alone; the others are as reproducible and differ from it.
    if (i > 0) request.params.seed = random_bits(generation.params.seed, i);
    // Zero alternatives still need the chosen token's own.
    request.params.logprob_count = generation.logprobs ? std::max(1, generation.top_logprobs) : 0;
    const std::int64_t room = answer_room(prompt, generation, *model_);
    request.max_tokens = std::min(generation.max_tokens.value_or(room), room);
    request.min_tokens = generation.min_tokens;
    if (measured_choice(i) == i) request.prompt_logprobs = prompt_alternatives(generation);
    // An echo of the prompt and nothing else: the engine has no request that is for nothing.
    if (request.max_tokens == 0 && !request.prompt_logprobs) request.prompt_logprobs = 0;
    request.stop_ids = generation.stop_ids;
    request.token_limit = model_->token_limit;
    out[i].cache_salt = generation.cache_salt;
    if (plan_.make_guide) out[i].guide = plan_.make_guide(prompt);
  }
  return out;
}

std::string AnswerExchange::begin() {
  return streams() && !std::exchange(stream_begun_, true) ? begin_stream() : std::string();
}

std::string AnswerExchange::take(std::size_t index, const engine::Delivery& delivery) {
  Choice& choice = choices_[index];
  if (choice.ended()) return {};
  const std::vector<AnswerEvent> events = choice.take(delivery);
  const bool failed = choice.ending() == Ending::failed;
  if (failed) {
    failure_ = failure_of(choice);
    for (Choice& other : choices_)
      if (!other.ended()) other.give_up();
  }
  if (!streams()) return {};
  std::string out = begin();
  if (!begun_[index]) {
    begun_[index] = true;
    out += begin_choice(index);
  }
  out += show(index, events);
  if (failed) return out += break_stream(failure_);
  if (choice.ended()) out += end_choice(index);
  if (done()) out += end_stream();
  return out;
}

bool AnswerExchange::done() const {
  for (const Choice& choice : choices_)
    if (!choice.ended()) return false;
  return true;
}

HttpError AnswerExchange::failure_of(const Choice& choice) const {
  switch (choice.finish()) {
    case engine::Finish::time_limit: {
      const std::string message = fourfold::format(
          "the time limit of the request ended it after {} tokens of the answer", choice.token_count());
      return {504, error_body(message, 504, "time_limit")};
    }
    case engine::Finish::shutdown:
      return {503, error_body("the server is shutting down; the answer was cut off", 503, "shutting_down")};
    case engine::Finish::cancelled: return {499, error_body("the request was cancelled", 499, "cancelled")};
    default: {
      // What is away comes back, here or on another server: whoever sees 503 asks again.
      const int status = choice.trouble() == engine::Trouble::away ? 503 : 500;
      return {status, error_body("the answer failed: " + choice.error(), status, code_of(choice.trouble()))};
    }
  }
}

int AnswerExchange::status() const { return failure_.status == 0 ? 200 : failure_.status; }

std::string AnswerExchange::body() { return failure_.status == 0 ? whole() : failure_.body; }

TokenCounts AnswerExchange::counts() const {
  TokenCounts out;
  const auto each = static_cast<std::size_t>(plan_.generation.answer_count);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    out.answer += choices_[i].token_count();
    out.thinking += choices_[i].thinking_count();
    out.drafts_verified += choices_[i].usage().drafts.verified;
    out.drafts_accepted += choices_[i].usage().drafts.accepted;
    if (i % each != 0) continue;
    out.prompt += std::ssize(prompt_of(i).ids);
    // Later answers to a prompt find it in the cache because of the first.
    out.cached += choices_[i].usage().cached_count;
  }
  return out;
}

}  // namespace fourfold::server::api
