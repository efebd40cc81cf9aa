#include "server/api/generation.h"

#include <charconv>
#include <limits>
#include <random>

#include "base/sampling_limits.h"
#include "server/api/conversation.h"
#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kBiasCountMax = 1024;
constexpr std::size_t kStopIdCountMax = 256;
// Log-probabilities of prompts that one answer may hold, alternatives included: some 100 MB of JSON, which a
// worker writes. Those of a stream are one event, which the server's thread writes.
constexpr std::int64_t kPromptLogprobsMax = 1'000'000, kStreamedLogprobsMax = 100'000;
constexpr std::size_t kLogprobBytes = 100;   // of one of them, about
constexpr std::size_t kSaltBytesMax = 1024;  // the prefix cache keeps it

void read_bias(Fields& fields, const ServedModel& model, Generation& out) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_dict())
    refuse("logit_bias", "logit_bias is {}; it must be an object of token ids and numbers", shown(*value));
  const auto& items = value->dict()->items();
  if (items.size() > kBiasCountMax)
    refuse("logit_bias", "logit_bias has {} entries; at most {}", items.size(), kBiasCountMax);
  for (const auto& [key, bias] : items) {
    const std::string& text = key.text();
    text::TokenId id = -1;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), id);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || id < 0 ||
        id >= model.limits.vocab_size) {
      refuse("logit_bias", "logit_bias names token {}; it must be an id, at least 0 and below {}", shown(key),
             model.limits.vocab_size);
    }
    if (!bias.is_number() || bias.is_bool() || !(bias.number() >= -100 && bias.number() <= 100))
      refuse("logit_bias", "logit_bias of token {} is {}; it must be a number, at least -100 and at most 100",
             id, shown(bias));
    for (const sample::LogitBias& other : out.params.logit_bias)
      if (other.id == id) refuse("logit_bias", "logit_bias names token {} twice", id);
    out.params.logit_bias.push_back({id, bias.number()});
  }
}

void read_stream(Fields& fields, Generation& out) {
  out.stream = fields.boolean("stream").value_or(false);
  if (auto options = fields.object("stream_options")) {
    out.usage_at_end = options->boolean("include_usage").value_or(false);
    out.usage_always = options->boolean("continuous_usage_stats").value_or(false);
    options->ignore({"include_obfuscation"});
    options->finish();
    if (!out.stream) refuse("stream_options", "stream_options is given, but stream is not true");
  }
}

// What vLLM adds about tokens: when they may end, and how they are shown.
void read_token_fields(Fields& fields, const ServedModel& model, Generation& out) {
  out.min_tokens = fields.integer("min_tokens", 0, model.limits.position_limit).value_or(0);
  if (const auto count = fields.integer("prompt_logprobs", 0, kLogprobsMax)) {
    out.prompt_logprobs = static_cast<int>(*count);
    if (out.stream) refuse("prompt_logprobs", "prompt_logprobs is {}, which no stream can carry", *count);
  }
  out.truncate_prompt = fields.integer("truncate_prompt_tokens", -1, model.limits.position_limit);
  if (out.truncate_prompt == 0)
    refuse("truncate_prompt_tokens", "truncate_prompt_tokens is 0; it must be -1, or at least 1");
  out.show_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.show_special = !fields.boolean("skip_special_tokens").value_or(true);
  out.token_ids = fields.boolean("return_token_ids").value_or(false);
  out.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(false);
  // Tokenizers of this kind put no spaces between control tokens.
  fields.boolean("spaces_between_special_tokens");
}

std::uint64_t random_seed() {
  thread_local std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

void read_sampling(Fields& fields, const ServedModel& model, Generation& out) {
  sample::Params& params = out.params;
  params = model.defaults;
  params.logprob_count = 0;
  const auto take = [&](std::string_view name, const Range& range, double& target) {
    target = fields.number(name, range).value_or(target);
  };
  take("temperature", {0, kTemperatureMost}, params.temperature);
  take("top_p", {0, 1, false}, params.top_p);
  take("min_p", {0, 1}, params.min_p);
  take("presence_penalty", {-2, 2}, params.presence_penalty);
  take("frequency_penalty", {-2, 2}, params.frequency_penalty);
  take("repetition_penalty", {kRepetitionPenaltyLeast, kRepetitionPenaltyMost}, params.repetition_penalty);
  if (const auto top_k = fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()))
    params.top_k = std::max<std::int64_t>(*top_k, 0);
  const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max());
  params.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  read_bias(fields, model, out);
}

void read_max_tokens(Fields& fields, std::string_view name, Generation& out) {
  // None, where the prompt itself is what is asked about.
  const std::int64_t least = out.echo || out.prompt_logprobs ? 0 : 1;
  const auto most = fields.integer(name, least, std::numeric_limits<std::int64_t>::max());
  if (!most) return;
  if (out.max_tokens && out.max_tokens != most)
    refuse(fields.name_of(name), "{} is {} and {} is {}; one answer has one limit", out.max_tokens_field,
           *out.max_tokens, fields.name_of(name), *most);
  out.max_tokens = most;
  out.max_tokens_field = fields.name_of(name);
}

void read_stops(Fields& fields, std::string_view name, Generation& out) {
  const Json* value = fields.find(name);
  if (value == nullptr) return;
  const std::string shown_name = fields.name_of(name);
  std::vector<Json> stops;
  if (value->is_text()) {
    stops.push_back(*value);
  } else if (value->is_sequence()) {
    stops = value->sequence()->items;
  } else {
    refuse(shown_name, "{} is {}; it must be a string or an array of strings", shown_name, shown(*value));
  }
  if (stops.size() > kStopCountMax)
    refuse(shown_name, "{} has {} strings; at most {}", shown_name, stops.size(), kStopCountMax);
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::string place = value->is_text() ? shown_name : fourfold::format("{}[{}]", shown_name, i);
    if (!stops[i].is_text()) refuse(place, "{} is {}; it must be a string", place, shown(stops[i]));
    const std::string& stop = stops[i].text();
    if (stop.empty()) {
      // Some clients send it for none.
      fields.notes().add(NoteKind::field, place, "empty");
      continue;
    }
    if (stop.size() > kStopBytesMax)
      refuse(place, "{} has {} bytes; it must have at most {}", place, stop.size(), kStopBytesMax);
    out.stops.push_back(stop);
  }
}

std::vector<text::TokenId> read_ids(const std::vector<Json>& list, const std::string& name,
                                    const ServedModel& model) {
  std::vector<text::TokenId> out;
  out.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto id = whole_number(list[i]);
    if (!id || *id < 0 || *id >= model.limits.vocab_size)
      refuse(name, "{}[{}] is {}; it must be a token id, at least 0 and below {}", name, i, shown(list[i]),
             model.limits.vocab_size);
    out.push_back(static_cast<text::TokenId>(*id));
  }
  return out;
}

Generation read_generation(Fields& fields, const ServedModel& model) {
  Generation out;
  read_sampling(fields, model, out);
  read_stream(fields, out);
  read_stops(fields, "stop", out);
  read_token_fields(fields, model, out);
  out.echo = fields.boolean("echo").value_or(false);
  read_max_tokens(fields, "max_tokens", out);
  out.answer_count = fields.integer("n", 1, model.answers_max).value_or(1);
  if (const auto best_of = fields.integer("best_of", 1, model.answers_max);
      best_of && *best_of != out.answer_count)
    refuse("best_of", "best_of is {}; this server only does best_of = n, which is {}", *best_of,
           out.answer_count);
  if (!fields.boolean("ignore_eos").value_or(false)) out.stop_ids = model.stop_ids;
  if (const auto* ids = fields.list("stop_token_ids")) {
    if (ids->size() > kStopIdCountMax)
      refuse("stop_token_ids", "stop_token_ids has {} ids; at most {}", ids->size(), kStopIdCountMax);
    for (const text::TokenId id : read_ids(*ids, "stop_token_ids", model)) out.stop_ids.push_back(id);
  }
  out.cache_salt = fields.text("cache_salt").value_or("");
  if (out.cache_salt.size() > kSaltBytesMax)
    refuse("cache_salt", "cache_salt has {} bytes; at most {}", out.cache_salt.size(), kSaltBytesMax);
  fields.only_false({"use_beam_search", "early_stopping"});
  // SGLang's, which its router and those that descend from it add to every request.
  fields.only_false({"no_stop_trim", "return_hidden_states"});
  fields.only_true({"separate_reasoning", "stream_reasoning"});
  fields.only_number("length_penalty", 1);
  fields.only_number("priority", 0);
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "prediction", "request_id", "cache_prompt"});
  return out;
}

void require_model(Fields& fields, const ServedModel& model) {
  const auto wanted = fields.text("model");
  if (!wanted || *wanted == "default") return;
  for (const std::string& name : model.names)
    if (*wanted == name) return;
  throw RequestError(404,
                     fourfold::format("model {} is not served here; it is {}, or leave the field out",
                                      shown(Json(std::string_view(*wanted))), model.names.front()),
                     "model", "model_not_found");
}

namespace {

// The words "prompt is too long: N tokens > M maximum" are what agents look for before they shorten a
// conversation by themselves; "maximum context length is" is what LiteLLM, which reads no code, takes another
// model by.
[[noreturn]] void refuse_length(const std::string& how_long, const std::string& field,
                                const ServedModel& model) {
  const std::int64_t limit = model.limits.position_limit;
  const std::string more =
      model.context_most > limit
          ? fourfold::format(", or start the server with a larger --max-context: the model has {}",
                             model.context_most)
          : std::string();
  throw RequestError(400,
                     fourfold::format("prompt is too long: {} > {} maximum, for prompt and answer together. "
                                      "This model's maximum context length is {} tokens here. Shorten it{}",
                                      how_long, limit, limit, more),
                     field, "context_length_exceeded");
}

}  // namespace

void require_near_context(std::size_t prompt_bytes, const std::string& field, const ServedModel& model) {
  const std::int64_t limit = model.limits.position_limit;
  if (prompt_bytes <= model.tokenizer.bytes_max(limit)) return;
  refuse_length(fourfold::format("{} bytes, more than {} tokens", prompt_bytes, limit), field, model);
}

std::optional<int> prompt_alternatives(const Generation& generation) {
  std::optional<int> out = generation.prompt_logprobs;
  if (generation.echo && generation.logprobs) out = std::max(out.value_or(0), generation.top_logprobs);
  return out;
}

std::size_t require_measurable(std::int64_t token_count, const Generation& generation) {
  const auto alternatives = prompt_alternatives(generation);
  if (!alternatives) return 0;
  // Each answer to a prompt shows it again.
  const std::int64_t count = token_count * (1 + *alternatives) * generation.answer_count;
  const std::int64_t most = generation.stream ? kStreamedLogprobsMax : kPromptLogprobsMax;
  if (count <= most) return static_cast<std::size_t>(count) * kLogprobBytes;
  const std::string_view field = generation.prompt_logprobs ? "prompt_logprobs" : "logprobs";
  refuse(std::string(field),
         "{} asks for {} alternatives to each of {} tokens of the prompt, in {} answers; tokens and "
         "alternatives may be {} together{}",
         field, *alternatives, token_count, generation.answer_count, most,
         generation.stream ? " in a stream" : "");
}

void truncate_prompt(std::vector<text::TokenId>& ids, const Generation& generation, const ServedModel& model,
                     Notes& notes) {
  if (!generation.truncate_prompt) return;
  std::int64_t most = *generation.truncate_prompt;
  const std::int64_t limit = model.limits.position_limit, answer = generation.max_tokens.value_or(1);
  // An answer that no prompt leaves room for gets what is left, as ever.
  if (most < 0) most = answer < limit ? limit - answer : std::max<std::int64_t>(limit - 1, 1);
  const std::int64_t dropped = std::ssize(ids) - most;
  if (dropped <= 0) return;
  ids.erase(ids.begin(), ids.begin() + dropped);
  notes.add(NoteKind::cut, "truncate_prompt_tokens", std::to_string(dropped));
}

void require_long_enough(std::int64_t most, const Generation& generation) {
  if (generation.min_tokens > most)
    refuse("min_tokens", "min_tokens is {}; the answer may have at most {} tokens", generation.min_tokens,
           most);
}

std::int64_t answer_room(const Prompt& prompt, const Generation& generation, const ServedModel& model) {
  const std::int64_t room = model.limits.position_limit - std::ssize(prompt.ids);
  const std::int64_t least = generation.max_tokens == 0 ? 0 : 1;
  if (room < least) refuse_length(fourfold::format("{} tokens", prompt.ids.size()), prompt.field, model);
  return room;
}

}  // namespace fourfold::server::api
