#include "server/pump.h"

#include <utility>

namespace fourfold::server {
namespace {

constexpr std::size_t kLongBytes = std::size_t{1} << 20;

double seconds(Pump::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Several answers to one prompt read it once.
std::int64_t prompt_tokens(const std::vector<engine::Submission>& submissions) {
  std::int64_t count = 0;
  const std::vector<engine::TokenId>* before = nullptr;
  for (const engine::Submission& submission : submissions) {
    const std::vector<engine::TokenId>& prompt = submission.request.prompt;
    if (before == nullptr || *before != prompt) count += std::ssize(prompt);
    before = &prompt;
  }
  return count;
}

}  // namespace

void Mailbox::connect(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void Mailbox::put(std::vector<engine::Delivery>&& deliveries) {
  if (deliveries.empty()) return;
  const std::lock_guard lock(mutex_);
  const bool first = waiting_.empty();
  if (first)
    waiting_ = std::move(deliveries);
  else
    for (engine::Delivery& delivery : deliveries) waiting_.push_back(std::move(delivery));
  if (first && wake_) wake_();
}

std::vector<engine::Delivery> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void Pump::start(std::shared_ptr<HttpCall> call, PreparedRequest prepared, HttpResponse head,
                 Clock::time_point begun, Answer answer, Ended ended) {
  const auto live = std::make_shared<Live>();
  live->call = std::move(call);
  live->exchange = std::move(prepared.exchange);
  live->room = std::move(prepared.room);
  live->answer = std::move(answer);
  live->begun = live->last_sent = live->last_token = begun;
  live->end.prompt_tokens = prompt_tokens(prepared.submissions);
  try {
    for (engine::Submission& submission : prepared.submissions) {
      const engine::RequestId id = runner_.submit(std::move(submission));
      choices_[id] = {live, live->ids.size()};
      live->ids.push_back(id);
    }
  } catch (...) {
    drop(live);
    throw;
  }
  live->ended = std::move(ended);
  live_.insert(live);
  live->call->on_gone([this, weak = std::weak_ptr(live)] {
    if (const auto left = weak.lock()) leave(left);
  });
  if (!live->exchange->streams()) return;
  live->call->begin_stream(std::move(head));
  if (const std::string first = live->exchange->begin(); !first.empty()) live->call->send(first);
}

void Pump::release(const std::shared_ptr<Live>& live, engine::Finish counted_as) {
  for (const engine::RequestId id : live->ids)
    if (choices_.erase(id) > 0) {
      runner_.cancel(id);
      metrics_.count_finish(counted_as);
    }
  live_.erase(live);
}

void Pump::end(Live& live) {
  if (const Ended ended = std::exchange(live.ended, nullptr)) ended(live.call->request(), live.end);
}

void Pump::drop(const std::shared_ptr<Live>& live, engine::Finish counted_as) {
  release(live, counted_as);
  end(*live);
}

void Pump::leave(const std::shared_ptr<Live>& live) {
  live->end.left = true;
  drop(live);
}

void Pump::take(std::vector<engine::Delivery> deliveries) {
  const Clock::time_point now = Clock::now();
  for (const engine::Delivery& delivery : deliveries) take_one(delivery, now);
  for (const auto& live : std::exchange(touched_, {})) {
    live->touched = false;
    if (!live_.contains(live)) continue;
    if (!live->exchange->streams() && live->exchange->done() && live->exchange->long_bytes() > kLongBytes) {
      write_elsewhere(live);
      continue;
    }
    try {
      flush(*live, now);
    } catch (const std::exception&) {
      spoil(live);
      continue;
    }
    // A choice that runs on behind a finished answer was ended by a stop string.
    if (live->exchange->done())
      drop(live, engine::Finish::stop_id);
    else if (!live->call->open())
      leave(live);
  }
}

void Pump::take_one(const engine::Delivery& delivery, Clock::time_point now) {
  const auto found = choices_.find(delivery.id);
  if (found == choices_.end()) return;
  const auto [live, index] = found->second;
  note(*live, delivery, now);
  if (delivery.finish != engine::Finish::running) choices_.erase(found);
  try {
    live->bytes += live->exchange->take(index, delivery);
    if (delivery.finish == engine::Finish::running && live->exchange->satisfied(index)) {
      // The engine's last word on it, Finish::cancelled, is still handed over where an exchange waits for it.
      runner_.cancel(delivery.id);
    }
  } catch (const std::exception&) {
    spoil(live);
    return;
  }
  if (!std::exchange(live->touched, true)) touched_.push_back(live);
}

// Our own fault, in one answer: it ends here, the others go on. A stream ends without its last chunk, so that
// the client does not take it for whole.
void Pump::spoil(const std::shared_ptr<Live>& live) {
  live->end.status = 500;
  drop(live);
  if (live->exchange->streams())
    live->call->abort();
  else
    live->answer(*live->call,
                 refusal(live->call->request().path, 500, "internal", "the answer could not be written"));
}

void Pump::note(Live& live, const engine::Delivery& delivery, Clock::time_point now) {
  live.end.answer_tokens += std::ssize(delivery.tokens);
  if (!delivery.tokens.empty()) {
    if (!live.any_token)
      metrics_.first_token.observe(seconds(now - live.begun));
    else
      metrics_.between_tokens.observe(seconds(now - live.last_token));
    live.any_token = true;
    live.last_token = now;
  }
  if (delivery.finish == engine::Finish::running) return;
  metrics_.count_finish(delivery.finish);
  const engine::Usage& usage = delivery.usage;
  metrics_.queued.observe(usage.queued_seconds);
  metrics_.prompt_tokens.observe(static_cast<double>(usage.prompt_count));
  metrics_.answer_tokens.observe(static_cast<double>(usage.answer_count));
  metrics_.whole.observe(seconds(now - live.begun));
  if (usage.answer_count > 1)
    metrics_.per_token.observe(usage.answer_seconds / static_cast<double>(usage.answer_count - 1));
}

void Pump::flush(Live& live, Clock::time_point now) {
  if (live.exchange->streams()) {
    if (!live.bytes.empty()) {
      live.call->send(live.bytes);
      live.last_sent = now;
    }
    if (live.exchange->done()) live.call->finish();
  } else if (live.exchange->done()) {
    live.end.status =
        live.answer(*live.call, {.status = live.exchange->status(), .body = live.exchange->body()});
  }
  live.bytes.clear();
}

void Pump::write_elsewhere(const std::shared_ptr<Live>& live) {
  release(live, engine::Finish::stop_id);
  const auto body = std::make_shared<std::string>();
  elsewhere_(
      live->call->request(), [live, body] { *body = live->exchange->body(); },
      [this, live, body](bool worked) {
        if (!live->call->open()) return;
        if (!worked) return spoil(live);
        live->end.status =
            live->answer(*live->call, {.status = live->exchange->status(), .body = std::move(*body)});
        end(*live);
      });
}

void Pump::give_up(const std::string& why) {
  std::vector<engine::Delivery> ends;
  for (const auto& [id, choice] : choices_) {
    runner_.cancel(id);
    ends.push_back({.id = id,
                    .tokens = {},
                    .finish = engine::Finish::failed,
                    .error = why,
                    .trouble = engine::Trouble::stalled,
                    .usage = {}});
  }
  take(std::move(ends));
}

void Pump::keep_alive(Clock::time_point now, std::chrono::milliseconds silence) {
  const std::vector<std::shared_ptr<Live>> all(live_.begin(), live_.end());
  for (const auto& live : all) {
    if (!live->exchange->streams() || now - live->last_sent < silence) continue;
    ++metrics_.keep_alives;
    live->last_sent = now;
    live->call->send(live->exchange->keep_alive());
  }
}

}  // namespace fourfold::server
