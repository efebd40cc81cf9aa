// fourfold/engine.h: a folder to an engine, calls to submissions, deliveries to text.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "engine/answer_text.h"
#include "fourfold/engine.h"
#include "library/open_engine.h"
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

// One call's deliveries, from the engine's thread to the caller's.
class Inbox {
 public:
  void put(engine::Delivery delivery) {
    const std::lock_guard lock(mutex_);
    deliveries_.push_back(std::move(delivery));
    news_.notify_one();
  }
  engine::Delivery take() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return !deliveries_.empty(); });
    engine::Delivery delivery = std::move(deliveries_.front());
    deliveries_.pop_front();
    return delivery;
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<engine::Delivery> deliveries_;
};

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

}  // namespace

Failure::Failure(std::string code, const std::string& message, std::string hint)
    : std::runtime_error(message), code_(std::move(code)), hint_(std::move(hint)) {}
Failure::~Failure() = default;

struct Model::Body {
  Body(const std::string& folder, const ModelOptions& options);

  engine::Request make_request(const GenerateOptions& options) const;
  Result run(engine::Request request, const GenerateOptions& options, bool is_chat, const OnText& on_text);
  void deliver(std::vector<engine::Delivery>&& deliveries);

  OpenModel opened;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::int64_t context = 0;  // tokens of prompt and answer together

  std::mutex mutex;  // of the inboxes
  std::map<engine::RequestId, Inbox*> inboxes;
  OpenEngine engine;  // goes first
};

Model::Body::Body(const std::string& folder, const ModelOptions& options)
    : opened(folder),
      tokenizer(text::Tokenizer::load(opened.folder / "tokenizer.json")),
      chat_template(text::ChatTemplate::load(opened.folder)) {
  const EngineSettings settings = settings_of(options, opened);
  const EngineRoom room = room_for_many(opened, settings);
  context = room.context;
  engine =
      open_engine(opened, settings, room, listener_of(options),
                  [this](std::vector<engine::Delivery>&& deliveries) { deliver(std::move(deliveries)); });
}

void Model::Body::deliver(std::vector<engine::Delivery>&& deliveries) {
  const std::lock_guard lock(mutex);
  for (engine::Delivery& delivery : deliveries)
    if (const auto found = inboxes.find(delivery.id); found != inboxes.end())
      found->second->put(std::move(delivery));
}

engine::Request Model::Body::make_request(const GenerateOptions& options) const {
  RequestDefaults defaults = request_defaults(opened, &tokenizer);
  engine::Request request;
  request.params = std::move(defaults.params);
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
  request.stop_ids = std::move(defaults.stop_ids);
  request.token_limit = defaults.token_limit;
  return request;
}

Result Model::Body::run(engine::Request request, const GenerateOptions& options, bool is_chat,
                        const OnText& on_text) {
  for (const std::string& stop : options.stops) require_utf8(stop, "a stop string");
  if (request.max_tokens > context - std::ssize(request.prompt))
    fail_with_hint(Code::invalid_request, "Open the model with a larger max_context.",
                   "a prompt of {} tokens and max_tokens {} exceed the context of {}", request.prompt.size(),
                   request.max_tokens, context);
  engine::AnswerText text(
      tokenizer, {.stops = options.stops,
                  .split_thinking = is_chat,
                  .starts_thinking = is_chat && engine::ends_in_thinking(request.prompt, tokenizer)});
  const std::vector<engine::TokenId> stop_ids = request.stop_ids;
  Result result;
  bool wanted = true;
  const auto say = [&](const engine::AnswerPiece& piece) {
    result.thinking += piece.thinking;
    result.text += piece.content;
    if (wanted && !piece.content.empty() && on_text) wanted = on_text(piece.content);
  };
  // The inbox is known before the engine can deliver to it.
  Inbox inbox;
  engine::RequestId id = 0;
  {
    const std::lock_guard lock(mutex);
    id = engine.engine->submit({.request = std::move(request)});
    inboxes[id] = &inbox;
  }
  // However this ends: nothing is delivered to an inbox that is gone, and nothing runs for nobody.
  struct Registration {
    Body& body;
    engine::RequestId id;
    ~Registration() {
      {
        const std::lock_guard lock(body.mutex);
        body.inboxes.erase(id);
      }
      body.engine.engine->cancel(id);
    }
  } registration{*this, id};
  engine::Delivery delivery;
  bool cancelled = false;
  do {
    delivery = inbox.take();
    for (const sample::Sampled& token : delivery.tokens) {
      if (cancelled || std::ranges::find(stop_ids, token.token) != stop_ids.end()) continue;
      say(text.push(token.token));
      if (!wanted || text.stopped()) cancelled = true;
    }
    if (cancelled && delivery.finish == engine::Finish::running) engine.engine->cancel(id);
  } while (delivery.finish == engine::Finish::running);
  if (wanted) say(text.finish());
  if (delivery.finish == engine::Finish::failed) fail(Code::internal, "{}", delivery.error);
  if (delivery.finish == engine::Finish::shutdown) fail(Code::cancelled, "the model was closed");
  result.end = !wanted                                         ? End::cancelled
               : text.stopped()                                ? End::stop
               : delivery.finish == engine::Finish::max_tokens ? End::max_tokens
                                                               : End::stop;
  result.prompt_tokens = delivery.usage.prompt_count;
  result.cached_tokens = delivery.usage.cached_count;
  result.answer_tokens = delivery.usage.answer_count;
  return result;
}

Model::Model(const std::string& folder, const ModelOptions& options)
    : body_(translated([&] { return std::make_unique<Body>(folder, options); })) {}

Model::~Model() = default;

Result Model::generate(const std::string& prompt, const GenerateOptions& options,
                       const OnText& on_text) const {
  return translated([&] {
    require_utf8(prompt, "the prompt");
    engine::Request request = body_->make_request(options);
    request.prompt = body_->tokenizer.encode(prompt, {.add_special_tokens = true});
    return body_->run(std::move(request), options, /*is_chat=*/false, on_text);
  });
}

Result Model::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                   const OnText& on_text) const {
  return translated([&] {
    if (!body_->chat_template)
      fail_with_hint(Code::invalid_request, "Use generate to have a text continued.",
                     "{}: there is no chat template in this folder", body_->opened.folder.string());
    text::ChatRequest chat{.messages = message_list(messages)};
    chat.enable_thinking = options.thinking;
    engine::Request request = body_->make_request(options);
    request.prompt = text::ChatPrompt(*body_->chat_template, body_->tokenizer, std::move(chat)).ids();
    return body_->run(std::move(request), options, /*is_chat=*/true, on_text);
  });
}

std::vector<std::int32_t> Model::encode(const std::string& text) const {
  return translated([&] {
    require_utf8(text, "the text");
    return body_->tokenizer.encode(text);
  });
}

std::string Model::decode(const std::vector<std::int32_t>& ids) const {
  return translated([&] { return body_->tokenizer.decode(ids); });
}

}  // namespace fourfold::library
