#include "loadgen/stream_reader.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "base/error.h"
#include "json/parse.h"

namespace fourfold::loadgen {
namespace {

constexpr std::size_t kRefusalBytesMax = 4096;
constexpr std::size_t kShownBytes = 160;

const boost::json::object* member_object(const boost::json::object* object, std::string_view name) {
  const auto* value = object == nullptr ? nullptr : object->if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::int64_t> member_count(const boost::json::object* object, std::string_view name) {
  const auto* value = object == nullptr ? nullptr : object->if_contains(name);
  if (value == nullptr || !value->is_int64() || value->as_int64() < 0) return std::nullopt;
  return value->as_int64();
}

bool has_text(const boost::json::object* object, std::string_view name) {
  const auto* value = object == nullptr ? nullptr : object->if_contains(name);
  return value != nullptr && value->is_string() && !value->as_string().empty();
}

std::string member_text(const boost::json::object* object, std::string_view name) {
  return has_text(object, name) ? std::string(object->at(name).as_string()) : std::string();
}

// "status 400: max_tokens is 0": the server's own words where it has the usual error shape.
std::string words_of(std::string_view body) {
  try {
    const auto value = json::parse(body, "the error");
    const auto* error = member_object(value.if_object(), "error");
    if (has_text(error, "message")) return member_text(error, "message").substr(0, kShownBytes);
  } catch (const Error&) {
    // Not JSON: shown as it is.
  }
  return std::string(body.substr(0, kShownBytes));
}

void read_usage(const boost::json::object& usage, Timeline& timeline) {
  const auto set = [](std::optional<std::int64_t>& target, std::optional<std::int64_t> value) {
    if (value) target = value;
  };
  set(timeline.prompt_tokens, member_count(&usage, "prompt_tokens"));
  set(timeline.output_tokens, member_count(&usage, "completion_tokens"));
  set(timeline.cached_tokens, member_count(member_object(&usage, "prompt_tokens_details"), "cached_tokens"));
  const auto* details = member_object(&usage, "completion_tokens_details");
  set(timeline.reasoning_tokens, member_count(details, "reasoning_tokens"));
  const auto accepted = member_count(details, "accepted_prediction_tokens");
  const auto rejected = member_count(details, "rejected_prediction_tokens");
  if (accepted && rejected) {
    timeline.accepted_tokens = accepted;
    timeline.drafted_tokens = *accepted + *rejected;
  }
}

}  // namespace

void StreamReader::take(std::string_view bytes, double now) {
  body_.clear();
  std::optional<Error> trouble;
  try {
    answer_.take(bytes, body_);
  } catch (const Error& error) {
    trouble = error;  // what came before it still counts, so that it does not matter where bytes are cut
  }
  if (answer_.has_head() && answer_.status() != 200) {
    refusal_ += body_.substr(0, kRefusalBytesMax - refusal_.size());
    done_ = answer_.done();
  } else {
    events_.take(body_, [&](std::string_view data) {
      if (done_) return;
      if (data == "[DONE]")
        done_ = true;
      else
        event(data, now);
    });
    done_ = done_ || answer_.done();
  }
  if (trouble && !done_) throw *trouble;
}

void StreamReader::close(double) {
  answer_.close();
  done_ = true;
}

void StreamReader::event(std::string_view data, double now) {
  boost::json::value value;
  try {
    value = json::parse(data, "a chunk");
  } catch (const Error&) {
    fail(Code::io, "a chunk of the stream is no JSON");
  }
  const auto* object = value.if_object();
  if (object == nullptr) fail(Code::io, "a chunk of the stream is no JSON object");
  if (const auto* error = object->if_contains("error"); error != nullptr && !error->is_null())
    fail(Code::io, "the server failed in mid-stream: {}", words_of(data));
  if (const auto* usage = member_object(object, "usage")) read_usage(*usage, timeline_);
  // llama.cpp's own: what its drafts did.
  if (const auto* timings = member_object(object, "timings")) {
    if (const auto drafted = member_count(timings, "draft_n")) timeline_.drafted_tokens = drafted;
    if (const auto accepted = member_count(timings, "draft_n_accepted")) timeline_.accepted_tokens = accepted;
  }
  const auto* choices = object->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return;
  const auto* choice = choices->as_array().front().if_object();
  const auto* delta = member_object(choice, "delta");
  const bool answers = has_text(delta, "content") || has_text(choice, "text");
  const bool thinks = has_text(delta, "reasoning_content") || has_text(delta, "reasoning");
  if (answers || thinks) {
    timeline_.chunks.push_back(now);
    timeline_.last = now;
  }
  if (answers && !timeline_.first_answer) timeline_.first_answer = now;
  if (has_text(choice, "finish_reason")) {
    timeline_.finish_reason = member_text(choice, "finish_reason");
    timeline_.last = now;
  }
}

Timeline StreamReader::finish(double now) {
  timeline_.over = now;
  if (answer_.status() != 200)
    timeline_.failure = fourfold::format("status {}: {}", answer_.status(), words_of(refusal_));
  else if (timeline_.chunks.empty())
    timeline_.failure = timeline_.finish_reason.empty() ? "the answer is no stream of chunks"
                                                        : "the stream ended without any text";
  else if (timeline_.finish_reason.empty())
    timeline_.failure = "the stream ended without a finish reason";
  return std::move(timeline_);
}

Timeline StreamReader::fail_with(std::string failure, double now) {
  timeline_.over = now;
  timeline_.failure = std::move(failure);
  return std::move(timeline_);
}

}  // namespace fourfold::loadgen
