#include "doctor/live_server.h"

#include <array>
#include <boost/json/object.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/json_writer.h"
#include "http/client.h"
#include "http/event_reader.h"
#include "json/parse.h"

namespace fourfold::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// Two texts of the kinds people ask for; what is easy to draft (lists, thinking) would flatter a server.
constexpr std::array<std::string_view, 2> kPrompts{
    "Write a C++ function that merges two sorted singly linked lists without allocating memory, and explain "
    "each step.",
    "Explain to a neighbour, in plain prose and without lists, why the sky is blue and the evening sky is "
    "red."};

struct Sample {
  double tokens = 0;
  double seconds = 0;  // from the first token to the last
  double first_ms = 0;
  bool by_chunks = false;
};

// What arrives of one answer.
class Stream {
 public:
  explicit Stream(Clock::time_point start) : start_(start) {}

  bool take(std::string_view part) {
    events_.take(part, [&](std::string_view data) {
      if (data == "[DONE]")
        done_ = true;
      else if (!done_)
        event(data);
    });
    return !done_;
  }

  std::optional<Sample> sample() const {
    const double tokens = usage_ > 0 ? usage_ : chunks_;
    if (tokens < 2 || last_ <= first_) return std::nullopt;
    return Sample{tokens - 1, std::chrono::duration<double>(last_ - first_).count(),
                  std::chrono::duration<double, std::milli>(first_ - start_).count(), usage_ == 0};
  }

 private:
  void event(std::string_view text) {
    const auto value = json::parse(text, "the server's stream");
    const auto* object = value.if_object();
    if (object == nullptr) return;
    if (const auto* usage = object->if_contains("usage"); usage != nullptr && usage->is_object())
      if (const auto* count = usage->as_object().if_contains("completion_tokens");
          count != nullptr && count->is_int64())
        usage_ = static_cast<double>(count->as_int64());
    const auto* choices = object->if_contains("choices");
    if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return;
    const auto* choice = choices->as_array().front().if_object();
    const auto* delta = choice == nullptr ? nullptr : choice->if_contains("delta");
    if (delta == nullptr || !delta->is_object()) return;
    for (const char* name : {"content", "reasoning_content", "reasoning"})
      if (const auto* part = delta->as_object().if_contains(name);
          part != nullptr && part->is_string() && !part->as_string().empty()) {
        last_ = Clock::now();
        if (chunks_ == 0) first_ = last_;
        ++chunks_;
        return;
      }
  }

  Clock::time_point start_, first_, last_;
  http::EventReader events_;
  bool done_ = false;
  double chunks_ = 0, usage_ = 0;
};

std::string request_body(const std::string& model, std::string_view prompt, bool thinking,
                         const LiveOptions& options) {
  JsonWriter json;
  json.begin_object().member("model", model).member("stream", true).member("temperature", 0);
  json.member("max_tokens", options.max_tokens);
  json.key("stream_options").begin_object().member("include_usage", true).end_object();
  json.key("chat_template_kwargs").begin_object().member("enable_thinking", thinking).end_object();
  json.key("messages").begin_array().begin_object().member("role", "user").member("content", prompt);
  return json.end_object().end_array().end_object().finish();
}

class Server {
 public:
  Server(const std::string& address, const LiveOptions& options)
      : url_(http::parse_url(address)), options_(options) {}

  std::string model() {
    const auto [status, body] = http::ask(url_, {.path = "/v1/models"});
    if (status != 200) fail(Code::io, "/v1/models answers with status {}", status);
    const auto value = json::parse(body, "/v1/models");
    const auto* object = value.if_object();
    const auto* data = object == nullptr ? nullptr : object->if_contains("data");
    if (data == nullptr || !data->is_array() || data->as_array().empty() || !data->as_array()[0].is_object())
      fail(Code::io, "/v1/models lists no model");
    const auto* id = data->as_array()[0].as_object().if_contains("id");
    if (id == nullptr || !id->is_string()) fail(Code::io, "/v1/models lists a model without an id");
    return std::string(id->as_string());
  }

  Sample answer(const std::string& model, std::string_view prompt, bool thinking) {
    Stream stream(Clock::now());
    std::string refusal;
    int status = 0;
    try {
      status = http::ask(url_,
                         {.method = "POST",
                          .path = "/v1/chat/completions",
                          .body = request_body(model, prompt, thinking, options_),
                          .limit = options_.limit},
                         [&](std::string_view part) {
                           if (refusal.size() < 200) refusal += part;
                           return stream.take(part);
                         });
    } catch (const Error&) {
      // A slow server is cut off after a while; what it has sent so far is measured.
      if (!stream.sample()) throw;
      status = 200;
    }
    if (status != 200)
      fail(Code::io, "/v1/chat/completions answers with status {}: {}", status, refusal.substr(0, 200));
    const auto sample = stream.sample();
    if (!sample) fail(Code::io, "the answer had fewer than two pieces to time");
    return *sample;
  }

 private:
  http::Url url_;
  LiveOptions options_;
};

// All prompts together.
Sample measure(Server& server, const std::string& model, bool thinking) {
  Sample sum;
  for (const std::string_view prompt : kPrompts) {
    const Sample one = server.answer(model, prompt, thinking);
    sum.tokens += one.tokens;
    sum.seconds += one.seconds;
    sum.first_ms += one.first_ms / static_cast<double>(kPrompts.size());
    sum.by_chunks |= one.by_chunks;
  }
  return sum;
}

void measure_one(const std::string& address, int index, const LiveOptions& options, Facts& facts) {
  const auto set = [&](const char* name, auto value) { facts.set(indexed("url", index, name), value); };
  set("name", address);
  Server server(address, options);
  try {
    const std::string model = server.model();
    set("model", model);
    const Sample plain = measure(server, model, false);
    set("tok_per_s", plain.tokens / plain.seconds);
    set("first_token_ms", plain.first_ms);
    set("counted",
        plain.by_chunks ? "chunks (the server sends no usage; drafts make this too low)" : "tokens");
    const Sample thinking = measure(server, model, true);
    set("tok_per_s_thinking", thinking.tokens / thinking.seconds);
    set("ok", true);
  } catch (const Error& error) {
    set("ok", false);
    set("error", std::string(error.what()));
  }
}

}  // namespace

void measure_servers(const std::vector<std::string>& urls, const LiveOptions& options, Facts& facts) {
  for (const std::string& url : urls) http::parse_url(url);  // refuse before anything is measured
  facts.set("urls", urls.size());
  for (std::size_t i = 0; i < urls.size(); ++i) measure_one(urls[i], static_cast<int>(i), options, facts);
  if (urls.size() != 2) return;
  for (const int i : {0, 1})
    if (const Value other = facts.get(indexed("url", 1 - i, "tok_per_s"));
        !std::holds_alternative<Unknown>(other))
      facts.set_value(indexed("url", i, "other_tok_per_s"), other);
}

}  // namespace fourfold::doctor
