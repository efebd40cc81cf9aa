#include "server/api/choice.h"

#include <random>
#include <utility>

namespace fourfold::server::api {
namespace {

engine::AnswerTextOptions text_options(const ChoiceOptions& options) {
  return {.stops = options.stops,
          .min_tokens = options.min_tokens,
          .show_stop = options.show_stop,
          .show_special = options.show_special,
          .split_thinking = options.split_thinking,
          .starts_thinking = options.starts_thinking,
          .format = options.format,
          .reads_calls = options.schemas != nullptr,
          .header = options.header,
          .only_token_ends_thinking = options.guided};
}

}  // namespace

std::string new_id(std::string_view prefix) {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::string out(prefix);
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = engine();
    for (int digit = 0; digit < 12; ++digit, bits >>= 4) out += "0123456789abcdef"[bits & 15];
  }
  return out;
}

Choice::Choice(const text::Tokenizer& tokenizer, ChoiceOptions options)
    : options_(std::move(options)), text_(tokenizer, text_options(options_)) {
  if (options_.schemas != nullptr && options_.format != text::CallFormat::harmony)
    calls_ = text::make_tool_call_parser(options_.format, *options_.schemas);
}

std::vector<AnswerEvent> Choice::take(const engine::Delivery& delivery) {
  if (ended()) return {};
  usage_ = delivery.usage;
  if (!delivery.prompt_logprobs.empty()) prompt_logprobs_ = delivery.prompt_logprobs;
  const bool stop_id = delivery.finish == engine::Finish::stop_id;
  for (std::size_t i = 0; i < delivery.tokens.size() && !ended(); ++i) {
    if (options_.keep_ids) ids_.push_back(delivery.tokens[i].token);
    // The stop id counts, but it is no part of what is said unless asked for.
    if (stop_id && i + 1 == delivery.tokens.size() && !options_.show_stop) {
      ++token_count_;
    } else {
      push(delivery.tokens[i]);
    }
  }
  if (!ended() && delivery.finish != engine::Finish::running) end(delivery);
  return std::exchange(events_, {});
}

void Choice::push(const sample::Sampled& sampled) {
  ++token_count_;
  const bool was_thinking = text_.thinking();
  const engine::AnswerPiece piece = text_.push(sampled.token);
  const bool thinks = was_thinking || text_.thinking();
  if (thinks) ++thinking_count_;
  if (options_.keep_logprobs && !(thinks && options_.logprobs_with_text)) logprobs_.push_back(sampled);
  add(piece);
  if (text_.stopped()) {
    if (calls_) add_tool_events(calls_->finish(true));
    ending_ = Ending::stop_string;
    satisfied_ = true;
  }
}

void Choice::end(const engine::Delivery& delivery) {
  finish_ = delivery.finish;
  error_ = delivery.error;
  trouble_ = delivery.trouble;
  const bool cut_off = finish_ != engine::Finish::stop_id;
  add(text_.finish(cut_off));
  if (ended()) return;  // by the end of a single call
  if (calls_) add_tool_events(calls_->finish(cut_off));
  if (text_.stopped()) {
    ending_ = Ending::stop_string;
  } else if (finish_ == engine::Finish::stop_id) {
    ending_ = Ending::stop;
  } else {
    ending_ = finish_ == engine::Finish::max_tokens ? Ending::length : Ending::failed;
  }
}

void Choice::add(const engine::AnswerPiece& piece) {
  emit(EventKind::thinking, piece.thinking);
  if (!calls_) {
    emit(EventKind::text, piece.content);
  } else if (!piece.content.empty()) {
    add_tool_events(calls_->push(piece.content));
  }
  add_tool_events(piece.calls);
}

void Choice::add_tool_events(std::vector<text::ToolEvent> events) {
  for (text::ToolEvent& event : events) {
    if (ended()) return;
    switch (event.kind) {
      case text::ToolEvent::Kind::text: emit(EventKind::text, std::move(event.text)); break;
      case text::ToolEvent::Kind::begin:
        ++call_count_;
        emit(EventKind::call_begin, std::move(event.text), new_id(options_.call_prefix));
        break;
      case text::ToolEvent::Kind::arguments: emit(EventKind::call_arguments, std::move(event.text)); break;
      case text::ToolEvent::Kind::end:
        emit(EventKind::call_end, {});
        if (options_.one_call) {
          ending_ = Ending::stop;
          satisfied_ = true;
        }
        break;
    }
  }
}

void Choice::emit(EventKind kind, std::string text, std::string call_id) {
  const bool streams =
      kind == EventKind::thinking || kind == EventKind::text || kind == EventKind::call_arguments;
  if (streams && text.empty()) return;
  if (kind == EventKind::call_arguments || kind == EventKind::call_end) {
    if (kind == EventKind::call_end) items_.back().complete = true;
    items_.back().text += text;
  } else if (kind == EventKind::call_begin) {
    items_.push_back({.kind = kind, .text = {}, .name = text, .call_id = call_id, .complete = false});
  } else if (!items_.empty() && items_.back().kind == kind) {
    items_.back().text += text;
  } else {
    items_.push_back({.kind = kind, .text = text, .name = {}, .call_id = {}, .complete = true});
  }
  if (streams && !events_.empty() && events_.back().kind == kind) {
    events_.back().text += text;
  } else {
    events_.push_back({kind, std::move(text), std::move(call_id)});
  }
  if (!options_.logprobs_with_text) return;
  // What led up to text is the text's; what led up to a call is dropped.
  const std::vector<sample::Sampled> tokens = std::exchange(logprobs_, {});
  if (kind != EventKind::text) return;
  for (auto* target : {&items_.back().logprobs, &events_.back().logprobs})
    target->insert(target->end(), tokens.begin(), tokens.end());
}

std::vector<sample::Sampled> Choice::take_logprobs() {
  if (options_.logprobs_with_text) return {};
  return std::exchange(logprobs_, {});
}

std::vector<text::TokenId> Choice::take_ids() { return std::exchange(ids_, {}); }

}  // namespace fourfold::server::api
