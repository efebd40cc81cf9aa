// fourfold/fourfold.h over fourfold/engine.h: exceptions become status codes, structs of other versions are
// read as far as they go.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "fourfold/engine.h"
#include "fourfold/fourfold.h"

struct fourfold_model {
  fourfold::library::Model model;
};

namespace fourfold::library {
namespace {

static_assert(static_cast<int>(Code::invalid_request) + 1 == FOURFOLD_INVALID_REQUEST);
static_assert(static_cast<int>(Code::internal) + 1 == FOURFOLD_INTERNAL);

std::string& last_error() {
  thread_local std::string text;
  return text;
}

fourfold_status status_of(std::string_view code) {
  for (int i = FOURFOLD_INVALID_REQUEST; i < FOURFOLD_INTERNAL; ++i)
    if (code_name(static_cast<Code>(i - 1)) == code) return static_cast<fourfold_status>(i);
  return FOURFOLD_INTERNAL;
}

// The only way in: no exception leaves.
template <class Body>
fourfold_status enter(const Body& body) noexcept {
  try {
    body();
    return FOURFOLD_OK;
  } catch (const Failure& failure) {
    last_error() = failure.what();
    if (!failure.hint().empty()) last_error() += ": " + failure.hint();
    return status_of(failure.code());
  } catch (const std::bad_alloc&) {
    last_error() = "there is not enough memory";
    return FOURFOLD_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return FOURFOLD_INTERNAL;
  } catch (...) {
    last_error() = "something that is not an exception was thrown";
    return FOURFOLD_INTERNAL;
  }
}

[[noreturn]] void refuse(const std::string& message) { throw Failure("invalid_request", message, ""); }

// The caller's struct as this library knows it: a shorter one is filled up with zeros, a longer one must have
// zeros where this library knows nothing.
template <class Struct>
Struct read_struct(const Struct* from, const char* name) {
  Struct out{};
  out.struct_size = sizeof(Struct);
  if (from == nullptr) return out;
  const std::size_t size = from->struct_size;
  if (size < sizeof from->struct_size)
    refuse(std::string(name) + ": struct_size is " + std::to_string(size) + "; use FOURFOLD_INIT");
  std::memcpy(&out, from, std::min(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(Struct); i < size; ++i)
    if (bytes[i] != 0)
      refuse(std::string(name) + ": byte " + std::to_string(i) + " of " + std::to_string(size) +
             " is set, and this library knows " + std::to_string(sizeof(Struct)));
  return out;
}

// The callbacks refer to the caller's struct.
ModelOptions model_options(const fourfold_model_options& from) {
  ModelOptions to;
  if (from.backend != nullptr) to.backend = from.backend;
  to.threads = from.threads;
  to.max_context = from.max_context;
  if (from.max_sequences != 0) to.max_sequences = from.max_sequences;
  if (from.mtp_plus_one < 0 || from.mtp_plus_one > 6) refuse("mtp_plus_one is not 0 to 6");
  to.mtp = from.mtp_plus_one - 1;
  if (from.no_prefix_cache != 0) to.prefix_cache_bytes = 0;
  const auto take = [](const char* given, std::string& option) {
    if (given != nullptr) option = given;
  };
  take(from.experts, to.experts);
  take(from.activations, to.activations);
  take(from.kv, to.kv);
  take(from.dense, to.dense);
  take(from.cache, to.cache);
  take(from.tuned, to.tuned);
  take(from.kv_events, to.kv_events);
  take(from.kv_events_replay, to.kv_events_replay);
  take(from.kv_events_topic, to.kv_events_topic);
  if (from.memory_fraction != 0) to.memory_fraction = from.memory_fraction;
  if (from.kv_tokens != 0) to.kv_tokens = from.kv_tokens;
  to.step_rows = from.step_rows;
  if (from.max_queue != 0) to.max_queue = from.max_queue;
  if (from.tp != 0) to.tp = from.tp;
  to.strict = from.strict != 0;
  to.rebuild_cache = from.rebuild_cache != 0;
  if (from.reserved != 0) refuse("fourfold_model_options: reserved is not 0");
  if (from.no_prefix_cache != 0 && from.prefix_cache_bytes != 0)
    refuse("no_prefix_cache and prefix_cache_bytes: one of them must go");
  if (from.prefix_cache_bytes < 0) refuse("prefix_cache_bytes is negative");
  if (from.prefix_cache_bytes > 0) to.prefix_cache_bytes = from.prefix_cache_bytes;
  if (from.on_text != nullptr)
    to.on_text = [&](const std::string& text) { from.on_text(from.user, text.data(), text.size()); };
  if (from.on_progress != nullptr)
    to.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      if (from.on_progress(from.user, done, total) != 0)
        fourfold::fail(fourfold::Code::cancelled, "on_progress gave the load up after {} of {} bytes", done,
                       total);
    };
  return to;
}

GenerateOptions generate_options(const fourfold_generate_options& from) {
  GenerateOptions options;
  if (from.max_tokens != 0) options.max_tokens = from.max_tokens;
  if (from.has_seed != 0) options.seed = from.seed;
  if (from.has_temperature != 0) options.temperature = from.temperature;
  if (from.stop_count > 0 && from.stops == nullptr) refuse("stops is null and stop_count is not 0");
  for (std::uint64_t i = 0; i < from.stop_count; ++i) {
    if (from.stops[i] == nullptr) refuse("stop string " + std::to_string(i) + " is null");
    options.stops.emplace_back(from.stops[i]);
  }
  return options;
}

Result generate(const Model& model, const char* prompt, const fourfold_generate_options& from,
                const Model::OnText& on_text) {
  const GenerateOptions options = generate_options(from);
  if (from.is_chat == 0) return model.generate(prompt, options, on_text);
  std::vector<Message> messages;
  if (from.system != nullptr) messages.push_back({"system", from.system});
  messages.push_back({"user", prompt});
  return model.chat(messages, options, on_text);
}

}  // namespace

std::uint32_t version() { return FOURFOLD_VERSION; }

}  // namespace fourfold::library

using namespace fourfold::library;

uint32_t fourfold_version(void) { return FOURFOLD_VERSION; }

const char* fourfold_last_error(void) { return last_error().c_str(); }

fourfold_status fourfold_model_open(const char* folder, const fourfold_model_options* options,
                                    fourfold_model** model) {
  return enter([&] {
    if (folder == nullptr || model == nullptr) refuse("folder or model is null");
    *model = nullptr;
    const fourfold_model_options from = read_struct(options, "fourfold_model_options");
    *model = new fourfold_model{Model(folder, model_options(from))};
  });
}

void fourfold_model_close(fourfold_model* model) { delete model; }

fourfold_status fourfold_generate(fourfold_model* model, const char* prompt,
                                  const fourfold_generate_options* options, fourfold_on_text on_text,
                                  void* user, fourfold_generate_result* result) {
  return enter([&] {
    if (model == nullptr || prompt == nullptr) refuse("model or prompt is null");
    if (result != nullptr && result->struct_size < sizeof result->struct_size)
      refuse("fourfold_generate_result: struct_size is not set (FOURFOLD_INIT)");
    const fourfold_generate_options from = read_struct(options, "fourfold_generate_options");
    Model::OnText say;
    if (on_text != nullptr)
      say = [&](std::string_view piece) { return on_text(user, piece.data(), piece.size()) == 0; };
    const Result made = generate(model->model, prompt, from, say);
    if (result == nullptr) return;
    fourfold_generate_result out{};
    out.struct_size = result->struct_size;
    out.end = static_cast<int32_t>(made.end);
    out.prompt_tokens = made.prompt_tokens;
    out.cached_tokens = made.cached_tokens;
    out.answer_tokens = made.answer_tokens;
    std::memcpy(result, &out, std::min<std::size_t>(result->struct_size, sizeof out));
  });
}

fourfold_status fourfold_request(fourfold_model* model, const char* route, const char* body,
                                 const fourfold_request_options* options) {
  return enter([&] {
    if (model == nullptr || route == nullptr || body == nullptr) refuse("model, route or body is null");
    const fourfold_request_options from = read_struct(options, "fourfold_request_options");
    if (from.on_answer == nullptr) refuse("on_answer is null: there is nobody to take the answer");
    if (from.reserved != 0) refuse("reserved is not 0");
    const auto say = [&](std::string_view piece) {
      return from.on_answer(from.user, piece.data(), piece.size()) == 0;
    };
    OnNote note;
    if (from.on_note != nullptr)
      note = [&](const std::string& name) { from.on_note(from.user, name.data(), name.size()); };
    const std::string whole = model->model.request(route, body, say, note);
    if (!whole.empty()) say(whole);
  });
}

fourfold_status fourfold_model_status(fourfold_model* model, fourfold_on_text on_text, void* user) {
  return enter([&] {
    if (model == nullptr || on_text == nullptr) refuse("model or on_text is null");
    const std::string text = model->model.status();
    on_text(user, text.data(), text.size());
  });
}
