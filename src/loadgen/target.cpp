#include "loadgen/target.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <charconv>

#include "base/error.h"
#include "base/json_writer.h"
#include "http/client.h"
#include "json/parse.h"
#include "loadgen/driver.h"

namespace fourfold::loadgen {
namespace {

constexpr std::int64_t kTrialTokens = 8;

std::int64_t word_count(std::string_view text) {
  return 1 + static_cast<std::int64_t>(std::count(text.begin(), text.end(), ' '));
}

const boost::json::value* find(const boost::json::value& value, std::string_view name) {
  const auto* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::optional<std::int64_t> count_of(const boost::json::value* value) {
  if (value == nullptr || !value->is_int64() || value->as_int64() < 0) return std::nullopt;
  return value->as_int64();
}

std::string text_of(const boost::json::value* value) {
  return value == nullptr || !value->is_string() ? std::string() : std::string(value->as_string());
}

// The sum of a counter over its labels, in Prometheus' text form.
std::optional<double> counter(std::string_view metrics, std::string_view name) {
  std::optional<double> sum;
  while (!metrics.empty()) {
    const auto end = std::min(metrics.find('\n'), metrics.size());
    const std::string_view line = metrics.substr(0, end);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
    if (!line.starts_with(name) || line.size() <= name.size()) continue;
    const char after = line[name.size()];
    if (after != '{' && after != ' ') continue;
    const auto space = line.rfind(' ');
    double value = 0;
    if (std::from_chars(line.data() + space + 1, line.data() + line.size(), value).ec == std::errc())
      sum = sum.value_or(0) + value;
  }
  return sum;
}

}  // namespace

Target::Target(TargetOptions options) : options_(std::move(options)) {
  // A key with a line end would be a second header.
  for (const char letter : options_.key)
    if (static_cast<unsigned char>(letter) <= ' ')
      fail(Code::invalid_request, "the API key has a space or a line end in it");
  read_models();
  read_version();
  for (const Tokenize form : {Tokenize::prompt, Tokenize::content})
    if (tokenize_ == Tokenize::none && count(form, "one two three")) tokenize_ = form;
  try_out();
}

std::optional<std::string> Target::get(const std::string& path) const {
  try {
    auto answer = http::ask(options_.url, {.path = path, .key = options_.key});
    if (answer.status == 200) return std::move(answer.body);
  } catch (const Error&) {
    // A page it does not have may be anything; the one that must be there is asked for by read_models.
  }
  return std::nullopt;
}

void Target::read_models() {
  const auto answer = http::ask(options_.url, {.path = "/v1/models", .key = options_.key});
  if (answer.status == 401 || answer.status == 403)
    fail_with_hint(Code::io, "Give the key with --api-key or in FOURFOLD_API_KEY.",
                   "/v1/models answers with status {}: the server wants a key, or another one",
                   answer.status);
  if (answer.status != 200) fail(Code::io, "/v1/models answers with status {}", answer.status);
  const auto value = json::parse(answer.body, "/v1/models");
  const auto* data = find(value, "data");
  if (data == nullptr || !data->is_array() || data->as_array().empty())
    fail(Code::io, "/v1/models lists no model");
  std::string known;
  for (const auto& entry : data->as_array()) {
    const std::string id = text_of(find(entry, "id"));
    known += (known.empty() ? "" : ", ") + id;
    if (!options_.model.empty() && id != options_.model) continue;
    options_.model = id;
    context_limit_ = count_of(find(entry, "max_model_len"));
    if (const auto* meta = find(entry, "meta"); meta != nullptr && !context_limit_)
      context_limit_ = count_of(find(*meta, "n_ctx"));
    return;
  }
  fail(Code::invalid_request, "the server has no model '{}'; it lists {}", options_.model, known);
}

void Target::read_version() {
  try {
    if (const auto body = get("/version")) {
      const auto value = json::parse(*body, "/version");
      version_ = text_of(find(value, "version"));
      for (const char* name : {"commit", "name"})
        if (const std::string more = text_of(find(value, name)); !more.empty()) version_ += " " + more;
    }
    if (!version_.empty() && context_limit_) return;
    if (const auto body = get("/props")) {  // llama.cpp
      const auto value = json::parse(*body, "/props");
      if (version_.empty()) version_ = text_of(find(value, "build_info"));
      if (!version_.empty()) version_ = "llama.cpp " + version_;
      if (const auto* settings = find(value, "default_generation_settings"); settings != nullptr)
        if (const auto limit = count_of(find(*settings, "n_ctx"))) context_limit_ = limit;
    }
  } catch (const Error&) {
    // What it says of itself is for the header alone.
  }
}

std::optional<std::int64_t> Target::count(Tokenize form, std::string_view text) const {
  JsonWriter body;
  body.begin_object();
  if (form == Tokenize::prompt) body.member("model", options_.model);
  body.member(form == Tokenize::prompt ? "prompt" : "content", text).end_object();
  try {
    const auto answer = http::ask(
        options_.url, {.method = "POST", .path = "/tokenize", .body = body.finish(), .key = options_.key});
    if (answer.status != 200) return std::nullopt;
    const auto value = json::parse(answer.body, "/tokenize");
    if (const auto counted = count_of(find(value, "count"))) return counted;
    const auto* tokens = find(value, "tokens");
    // A server that did not understand the field answers with an empty list.
    if (tokens == nullptr || !tokens->is_array() || tokens->as_array().empty()) return std::nullopt;
    return static_cast<std::int64_t>(tokens->as_array().size());
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Target::request(const Ask& ask) const {
  JsonWriter json;
  json.begin_object().member("model", options_.model).member("stream", true);
  json.member("temperature", options_.temperature).member("max_tokens", ask.output);
  if (sends_seed_) json.member("seed", ask.seed);
  if (sends_usage_) json.key("stream_options").begin_object().member("include_usage", true).end_object();
  if (sends_ignore_eos_) json.member("ignore_eos", true);
  if (options_.completions) {
    json.member("prompt", ask.prompt);
  } else {
    if (sends_thinking_ && ask.thinking)
      json.key("chat_template_kwargs").begin_object().member("enable_thinking", *ask.thinking).end_object();
    json.key("messages").begin_array().begin_object().member("role", "user").member("content", ask.prompt);
    json.end_object().end_array();
  }
  json.end_object();
  return http::request_text(options_.url,
                            {.method = "POST",
                             .path = options_.completions ? "/v1/completions" : "/v1/chat/completions",
                             .body = json.finish(),
                             .key = options_.key});
}

Timeline Target::trial(std::string_view prompt) const {
  const std::string text = request({.prompt = std::string(prompt),
                                    .output = kTrialTokens,
                                    .thinking = options_.completions ? std::nullopt : std::optional(false)});
  return drive({.url = options_.url, .timeout_s = options_.timeout_s}, {&text, 1}).front();
}

void Target::try_out() {
  const std::string prompt = prompt_text(PromptKind::random, 0, 0, 64);
  struct Optional {
    bool& sent;
    const char* name;
    const char* without;
  };
  const Optional optionals[] = {
      {sends_ignore_eos_, "ignore_eos", "answers may end before the output length"},
      {sends_thinking_, "chat_template_kwargs", "thinking is as the server does by itself"},
      {sends_usage_, "stream_options", "chunks are counted as tokens"},
      {sends_seed_, "seed", "answers are those of the server's own seeds"},
  };
  Timeline line = trial(prompt);
  // A refusal that names a field is believed; otherwise fields are left out one after another.
  for (int round = 0; round < 4 && line.failure.starts_with("status 4"); ++round) {
    const Optional* dropped = nullptr;
    for (const Optional& field : optionals)
      if (field.sent && (dropped == nullptr || line.failure.find(field.name) != std::string::npos))
        if (dropped == nullptr || line.failure.find(dropped->name) == std::string::npos) dropped = &field;
    if (dropped == nullptr) break;
    dropped->sent = false;
    notes_.push_back(fourfold::format("the server refuses {}: {}", dropped->name, dropped->without));
    line = trial(prompt);
  }
  // A model that says nothing of eight tokens' length is strange, not unusable.
  if (line.failed() && line.failure != "the stream ended without any text")
    fail(Code::io, "the first request failed: {}", line.failure);
  if (!line.output_tokens) {
    notes_.push_back("the server sends no usage: chunks are counted as tokens, which is too few with drafts");
  } else if (sends_ignore_eos_ && *line.output_tokens < kTrialTokens) {
    sends_ignore_eos_ = false;
    notes_.push_back("the server takes ignore_eos and ends answers early all the same");
  }
  if (!line.prompt_tokens) return;
  const auto counted = tokenize_ == Tokenize::none ? std::nullopt : count(tokenize_, prompt);
  template_tokens_ = counted ? *line.prompt_tokens - *counted : 0;
  tokens_per_word_ =
      static_cast<double>(*line.prompt_tokens - template_tokens_) / static_cast<double>(word_count(prompt));
  if (!counted)
    notes_.push_back(
        fourfold::format("the server does not count tokens (/tokenize): prompt lengths are estimated "
                         "at {} tokens a word, and the true ones are in the table",
                         tokens_per_word_));
}

SizedPrompt Target::prompt(PromptKind kind, std::uint64_t seed, std::uint64_t index,
                           std::int64_t tokens) const {
  CountTokens counter_of;
  if (counts_tokens()) counter_of = [this](std::string_view text) { return count(tokenize_, text); };
  const std::int64_t inside = tokens <= 0 ? 0 : std::max<std::int64_t>(1, tokens - template_tokens_);
  SizedPrompt sized = sized_prompt(kind, seed, index, inside, tokens_per_word_, counter_of);
  if (sized.tokens) *sized.tokens += template_tokens_;
  return sized;
}

std::optional<DraftTotals> Target::draft_totals() const {
  const auto metrics = get("/metrics");
  if (!metrics) return std::nullopt;
  const auto accepted = counter(*metrics, "vllm:spec_decode_num_accepted_tokens_total");
  auto steps = counter(*metrics, "vllm:spec_decode_num_drafts_total");
  // Where steps are not counted: every token is either an accepted draft or a step's own.
  if (const auto tokens = counter(*metrics, "vllm:generation_tokens_total"); !steps && tokens && accepted)
    steps = *tokens - *accepted;
  if (!steps || !accepted) return std::nullopt;
  return DraftTotals{*steps, *accepted};
}

}  // namespace fourfold::loadgen
