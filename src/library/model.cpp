// fourfold/engine.h: a folder to an engine, calls to submissions, deliveries to text.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "engine/answer_text.h"
#include "events/publisher.h"
#include "fourfold/engine.h"
#include "library/calls.h"
#include "library/model_status.h"
#include "library/open_engine.h"
#include "library/served_model.h"
#include "server/api/form_cache.h"
#include "server/exchange.h"
#include "server/json_guard.h"
#include "text/chat_prompt.h"

namespace fourfold::library {
namespace {

constexpr std::int64_t kContextMost = 8'192;  // when nobody asked for more

// Errors leave the library as Failure.
template <class Work>
auto translated(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw Failure(std::string(code_name(error.code())), error.what(), error.hint());
  }
}

EngineSettings settings_of(const ModelOptions& options, const OpenModel& model) {
  EngineSettings settings;
  settings.backend = {.backend = options.backend,
                      .activations = options.activations,
                      .kv = options.kv,
                      .threads = options.threads,
                      .memory_fraction = options.memory_fraction,
                      .strict = options.strict,
                      .tuned = options.tuned,
                      .dense = options.dense,
                      .cache = options.cache,
                      .rebuild_cache = options.rebuild_cache,
                      .tp = options.tp,
                      .experts = options.experts};
  settings.max_context =
      options.max_context != 0 ? options.max_context : std::min(model.config.position_limit, kContextMost);
  settings.kv_tokens = options.kv_tokens;
  // 0 is the engine's word for choosing; here it is a mistake.
  if (options.max_sequences < 1)
    fail(Code::invalid_request, "{} sequences at once: it must be at least 1", options.max_sequences);
  settings.max_sequences = options.max_sequences;
  settings.max_queue = options.max_queue;
  settings.step_rows = options.step_rows;
  settings.mtp = options.mtp;
  settings.prefix_cache_bytes = options.prefix_cache_bytes;
  return settings;
}

std::unique_ptr<events::Publisher> open_events(const ModelOptions& options) {
  if (options.kv_events.empty()) {
    if (!options.kv_events_replay.empty())
      fail(Code::invalid_request, "kv_events_replay without kv_events: there is nothing to repeat");
    return nullptr;
  }
  if (options.prefix_cache_bytes == 0)
    fail(Code::invalid_request, "kv_events tells of the prefix cache, and there is to be none");
  return std::make_unique<events::Publisher>(
      events::PublisherOptions{.endpoint = options.kv_events,
                               .replay_endpoint = options.kv_events_replay,
                               .topic = options.kv_events_topic});
}

Listener listener_of(const ModelOptions& options) {
  return {.on_fact = options.on_text,
          .on_notice =
              [&options](const std::string& text) {
                if (options.strict) fail(Code::invalid_request, "{}", text);
                if (options.on_text) options.on_text(text);
              },
          .on_progress = options.on_progress};
}

text::jinja::Value message_list(const std::vector<Message>& messages) {
  std::vector<text::jinja::Value> list;
  for (const Message& message : messages) {
    require_utf8(message.content, "a message");
    text::jinja::Dict dict;
    dict.set("role", message.role);
    dict.set("content", message.content);
    list.emplace_back(std::move(dict));
  }
  return text::jinja::Value::list(std::move(list));
}

void require_whole(const engine::Delivery& delivery) {
  if (delivery.finish == engine::Finish::failed) fail(Code::internal, "{}", delivery.error);
  if (delivery.finish == engine::Finish::shutdown) fail(Code::cancelled, "the model was closed");
}

// What a request asks and does not get is heard by somebody, or the request is refused.
void tell(const server::api::Notes& notes, const OnNote& on_note) {
  std::string names;
  for (const server::api::Note& note : notes.all()) {
    if (on_note) on_note(note.name);
    names += (names.empty() ? "" : ", ") + note.name;
  }
  if (!names.empty() && !on_note)
    fail_with_hint(Code::invalid_request, "Leave it out, or give on_note to have the rest answered.",
                   "the request asks for what it would not get: {}", names);
}

}  // namespace

Failure::Failure(std::string code, const std::string& message, std::string hint)
    : std::runtime_error(message), code_(std::move(code)), hint_(std::move(hint)) {}
Failure::~Failure() = default;

struct Model::Body {
  Body(const std::string& folder, const ModelOptions& options);

  engine::Request make_request(const GenerateOptions& options) const;
  Result run(engine::Request request, const GenerateOptions& options, bool is_chat, const OnText& on_text);
  std::string answer(const std::string& route, const std::string& body, const OnText& on_event,
                     const OnNote& on_note);

  EngineSettings settings(const ModelOptions& options) const;

  OpenModel opened;
  server::ServedModel served;
  std::unique_ptr<events::Publisher> publisher;
  std::once_flag forms_once;  // served.forms: made for the first request that may ask for one
  Inboxes inboxes;
  OpenEngine engine;  // goes first
};

Model::Body::Body(const std::string& folder, const ModelOptions& options)
    : opened(folder),
      served(served_model(
          opened, text::Tokenizer::load(opened.folder / "tokenizer.json"),
          {.context = context_of(opened, settings_of(options, opened)), .strict = options.strict})),
      publisher(open_events(options)),
      engine([&] {
        const Listener listener = listener_of(options);
        mention_contents(opened, listener);
        return open_engine(
            opened, settings(options), listener,
            [this](std::vector<engine::Delivery>&& deliveries) { inboxes.deliver(std::move(deliveries)); });
      }()) {}

EngineSettings Model::Body::settings(const ModelOptions& options) const {
  EngineSettings out = settings_of(options, opened);
  if (publisher)
    out.on_blocks = [this](std::vector<schedule::BlockEvent>&& blocks, std::int64_t block_tokens) {
      return publisher->publish(std::move(blocks), block_tokens);
    };
  return out;
}

engine::Request Model::Body::make_request(const GenerateOptions& options) const {
  engine::Request request;
  request.params = served.defaults;
  const auto take = [](const auto& given, auto& param) {
    if (given) param = *given;
  };
  take(options.temperature, request.params.temperature);
  take(options.top_k, request.params.top_k);
  take(options.top_p, request.params.top_p);
  take(options.min_p, request.params.min_p);
  take(options.repetition_penalty, request.params.repetition_penalty);
  take(options.presence_penalty, request.params.presence_penalty);
  take(options.frequency_penalty, request.params.frequency_penalty);
  request.params.seed = options.seed ? *options.seed : draw_seed();
  request.max_tokens = options.max_tokens;
  request.stop_ids = served.stop_ids;
  request.token_limit = served.token_limit;
  return request;
}

Result Model::Body::run(engine::Request request, const GenerateOptions& options, bool is_chat,
                        const OnText& on_text) {
  for (const std::string& stop : options.stops) require_utf8(stop, "a stop string");
  const std::int64_t context = served.limits.position_limit;
  if (request.max_tokens > context - std::ssize(request.prompt))
    fail_with_hint(Code::invalid_request, "Open the model with a larger max_context.",
                   "a prompt of {} tokens and max_tokens {} exceed the context of {}", request.prompt.size(),
                   request.max_tokens, context);
  engine::AnswerText text(
      served.tokenizer,
      {.stops = options.stops,
       .split_thinking = is_chat,
       .starts_thinking = is_chat && engine::ends_in_thinking(request.prompt, served.tokenizer),
       .header = text::last_header(request.prompt, served.tokenizer)});
  const std::vector<engine::TokenId> stop_ids = request.stop_ids;
  Result result;
  bool wanted = true;
  const auto say = [&](const engine::AnswerPiece& piece) {
    result.thinking += piece.thinking;
    result.text += piece.content;
    if (wanted && !piece.content.empty() && on_text) wanted = on_text(piece.content);
  };
  std::vector<engine::Submission> submissions(1);
  submissions.front().request = std::move(request);
  Call call(*engine.engine, inboxes, std::move(submissions));
  engine::Delivery delivery;
  bool cancelled = false;
  do {
    delivery = call.take().delivery;
    for (const sample::Sampled& token : delivery.tokens) {
      if (cancelled || std::ranges::find(stop_ids, token.token) != stop_ids.end()) continue;
      say(text.push(token.token));
      if (!wanted || text.stopped()) cancelled = true;
    }
    if (cancelled && delivery.finish == engine::Finish::running) call.cancel(0);
  } while (delivery.finish == engine::Finish::running);
  if (wanted) say(text.finish());
  require_whole(delivery);
  result.end = !wanted                                         ? End::cancelled
               : text.stopped()                                ? End::stop
               : delivery.finish == engine::Finish::max_tokens ? End::max_tokens
                                                               : End::stop;
  result.prompt_tokens = delivery.usage.prompt_count;
  result.cached_tokens = delivery.usage.cached_count;
  result.answer_tokens = delivery.usage.answer_count;
  return result;
}

std::string Model::Body::answer(const std::string& route, const std::string& body, const OnText& on_event,
                                const OnNote& on_note) {
  std::call_once(forms_once, [&] { server::api::prepare_forms(served); });
  server::require_bounded(body);
  const std::unique_ptr<server::Exchange> exchange = server::make_exchange(route, body, served);
  tell(exchange->notes, on_note);
  if (exchange->streams() && !on_event)
    fail_with_hint(Code::invalid_request, "Give on_event, or leave out stream.",
                   "the request asks for a stream, and there is nobody to take it");
  bool wanted = true;
  const auto say = [&](const std::string& events) {
    if (wanted && !events.empty()) wanted = on_event(events);
  };
  Call call(*engine.engine, inboxes, exchange->submissions());
  say(exchange->begin());
  while (wanted && !exchange->done()) {
    const auto [index, delivery] = call.take();
    say(exchange->take(index, delivery));
    require_whole(delivery);
    if (delivery.finish == engine::Finish::running && exchange->satisfied(index)) call.cancel(index);
  }
  return exchange->streams() ? std::string() : exchange->body();
}

Model::Model(const std::string& folder, const ModelOptions& options)
    : body_(translated([&] { return std::make_unique<Body>(folder, options); })) {}

Model::~Model() = default;

Result Model::generate(const std::string& prompt, const GenerateOptions& options,
                       const OnText& on_text) const {
  return translated([&] {
    require_utf8(prompt, "the prompt");
    engine::Request request = body_->make_request(options);
    request.prompt = body_->served.tokenizer.encode(prompt, {.add_special_tokens = true});
    return body_->run(std::move(request), options, /*is_chat=*/false, on_text);
  });
}

Result Model::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                   const OnText& on_text) const {
  return translated([&] {
    if (!body_->served.chat_template)
      fail_with_hint(Code::invalid_request, "Use generate to have a text continued.",
                     "{}: there is no chat template in this folder", body_->opened.folder.string());
    text::ChatRequest chat{.messages = message_list(messages)};
    chat.enable_thinking = options.thinking;
    engine::Request request = body_->make_request(options);
    request.prompt =
        text::ChatPrompt(*body_->served.chat_template, body_->served.tokenizer, std::move(chat)).ids();
    return body_->run(std::move(request), options, /*is_chat=*/true, on_text);
  });
}

std::string Model::request(const std::string& route, const std::string& body, const OnText& on_event,
                           const OnNote& on_note) const {
  return translated([&] { return body_->answer(route, body, on_event, on_note); });
}

std::string Model::status() const {
  return translated([&] {
    return model_status(body_->engine.engine->status(), body_->served.limits.position_limit,
                        body_->publisher.get());
  });
}

std::vector<std::int32_t> Model::encode(const std::string& text) const {
  return translated([&] {
    require_utf8(text, "the text");
    return body_->served.tokenizer.encode(text);
  });
}

std::string Model::decode(const std::vector<std::int32_t>& ids) const {
  return translated([&] { return body_->served.tokenizer.decode(ids); });
}

}  // namespace fourfold::library
