#include "engine/engine.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/batcher.h"

namespace fourfold::engine {

using Clock = Batcher::Clock;

namespace {

// How often what is away is looked for.
constexpr std::chrono::milliseconds kLook{200};

}  // namespace

struct Engine::Body {
  Body(backend::Prepared& runs_on, const EngineOptions& options, Deliver deliver_to)
      : max_queue(options.max_queue),
        prepared(runs_on),
        may_leave(runs_on.comes_back()),
        batcher(runs_on, options),
        deliver(std::move(deliver_to)),
        shown(batcher.status()) {
    if (max_queue < 0)
      fail(Code::invalid_request, "a queue of {} requests: it must be at least 0", max_queue);
    thread = std::thread([this] { run(); });
  }

  struct Arrived {
    RequestId id = 0;
    Submission submission;
    Clock::time_point time;
  };

  void run();
  bool take_news(std::vector<Delivery>& out);
  void hand_out(std::vector<Delivery>& out);
  // Before the engine's own thread has noticed, too.
  std::string away_now() const { return may_leave ? prepared.away() : std::string(); }
  void wait_for_news(std::unique_lock<std::mutex>& lock);
  bool break_down(const std::string& why, bool is_lost, std::vector<Delivery>& out);
  bool wait_for_return();

  const std::int64_t max_queue;
  backend::Prepared& prepared;
  const bool may_leave;  // ranks that come and go are looked for between steps, too
  Batcher batcher;       // of the thread; any thread may call require_valid and sequence_limit
  const Deliver deliver;

  std::mutex mutex;  // of all below
  std::condition_variable news;
  std::vector<Arrived> arrived;
  std::vector<RequestId> unwanted;
  std::int64_t live = 0;  // accepted, and not yet ended
  std::int64_t refused = 0;
  RequestId next_id = 1;
  std::optional<Clock::time_point> stop_at;
  std::string fault;  // for good
  std::string away;   // until it is back
  EngineStatus shown;

  std::mutex stopping;  // one waits for the thread, the others for that one
  std::thread thread;
};

void Engine::Body::wait_for_news(std::unique_lock<std::mutex>& lock) {
  const auto woken = [&] { return !batcher.idle() || !arrived.empty() || !unwanted.empty() || stop_at; };
  if (!may_leave) return news.wait(lock, woken);
  while (!news.wait_for(lock, kLook, woken))
    if (const std::string why = prepared.away(); !why.empty()) fail(Code::device_lost, "{}", why);
}

// What has come from outside since the last step. False: the engine has stopped.
bool Engine::Body::take_news(std::vector<Delivery>& out) {
  std::vector<Arrived> newcomers;
  std::vector<RequestId> leavers;
  bool cut_off = false;
  {
    std::unique_lock lock(mutex);
    wait_for_news(lock);
    newcomers.swap(arrived);
    leavers.swap(unwanted);
    cut_off = stop_at && Clock::now() >= *stop_at;
    if (stop_at && batcher.idle() && newcomers.empty()) return false;
  }
  for (Arrived& one : newcomers) {
    try {
      batcher.add(one.id, std::move(one.submission), one.time);
    } catch (const std::exception& error) {
      out.push_back(
          {.id = one.id, .tokens = {}, .finish = Finish::failed, .error = error.what(), .usage = {}});
    }
  }
  for (const RequestId id : leavers) batcher.end(id, Finish::cancelled, out);
  if (cut_off) batcher.end_all(Finish::shutdown, out);
  return true;
}

void Engine::Body::hand_out(std::vector<Delivery>& out) {
  std::int64_t ended = 0;
  for (const Delivery& delivery : out) ended += delivery.finish != Finish::running ? 1 : 0;
  EngineStatus now = batcher.status();
  {
    const std::lock_guard lock(mutex);
    live -= ended;
    shown = now;
  }
  if (!out.empty()) deliver(std::exchange(out, {}));
}

void Engine::Body::run() {
  std::vector<Delivery> out;
  for (;;) {
    try {
      batcher.tell_blocks();  // that there are none yet
      while (take_news(out)) {
        batcher.step(out);
        batcher.tell_blocks();
        hand_out(out);
      }
      return;
    } catch (const Error& error) {
      if (!break_down(error.what(), error.code() == Code::device_lost, out)) return;
    } catch (const std::exception& error) {
      if (!break_down(error.what(), false, out)) return;
    }
    if (!wait_for_return()) return;
  }
}

// False: it does not come back, or the engine has been stopped.
bool Engine::Body::wait_for_return() {
  if (!prepared.comes_back()) return false;
  while (!prepared.restore()) {
    std::unique_lock lock(mutex);
    if (news.wait_for(lock, kLook, [&] { return stop_at.has_value(); })) return false;
  }
  batcher.begin_anew();
  const std::lock_guard lock(mutex);
  shown = batcher.status();
  away.clear();
  return true;
}

// A step's own faults end its requests (Batcher::run); this is what lies outside of one, such as states that
// cannot be copied on a device that was lost. Every request is told, and no new one is taken; true: until
// what was lost is back. Any other failure is for good: waiting would hide it.
bool Engine::Body::break_down(const std::string& why, bool is_lost, std::vector<Delivery>& out) {
  const bool returns = is_lost && prepared.comes_back();
  // Those that ended in the step that broke have their last delivery in `out` already.
  const Trouble trouble = returns ? Trouble::away : Trouble::fault;
  batcher.abandon(why, trouble, out);
  {
    const std::lock_guard lock(mutex);
    (returns ? away : fault) = why;
    for (const Arrived& one : arrived)
      out.push_back({.id = one.id,
                     .tokens = {},
                     .finish = Finish::failed,
                     .error = why,
                     .trouble = trouble,
                     .usage = {}});
    arrived.clear();
    live = 0;
    shown.running = shown.waiting = 0;
    shown.fault = fault;
  }
  if (!out.empty()) deliver(std::exchange(out, {}));
  return returns;
}

Engine::Engine(backend::Prepared& prepared, EngineOptions options, Deliver deliver)
    : body_(std::make_unique<Body>(prepared, options, std::move(deliver))) {}

Engine::~Engine() { stop(std::chrono::milliseconds(0)); }

RequestId Engine::submit(Submission submission) {
  body_->batcher.require_valid(submission);
  const std::string away = body_->away_now();
  const std::lock_guard lock(body_->mutex);
  if (!body_->fault.empty()) {
    ++body_->refused;
    throw NotTaken(Trouble::fault, Code::device_lost,
                   fourfold::format("the engine has failed: {}", body_->fault), "Start it again.");
  }
  if (!away.empty() || !body_->away.empty()) {
    ++body_->refused;
    throw NotTaken(Trouble::away, Code::over_capacity, body_->away.empty() ? away : body_->away,
                   "Try again when it is back.");
  }
  if (body_->stop_at) {
    ++body_->refused;
    throw NotTaken(Trouble::stopping, Code::over_capacity, "the engine is stopping", "Ask another server.");
  }
  const std::int64_t most = body_->batcher.sequence_limit() + body_->max_queue;
  if (body_->live >= most) {
    ++body_->refused;
    throw NotTaken(
        Trouble::queue_full, Code::over_capacity,
        fourfold::format("{} requests run and {} wait; no more are taken (--max-sequences, --max-queue)",
                         body_->batcher.sequence_limit(), body_->live - body_->batcher.sequence_limit()),
        "Try again later.");
  }
  ++body_->live;
  const RequestId id = body_->next_id++;
  body_->arrived.push_back({id, std::move(submission), Clock::now()});
  body_->news.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(body_->mutex);
  body_->unwanted.push_back(id);
  body_->news.notify_one();
}

EngineStatus Engine::status() const {
  const std::string away = body_->away_now();
  const std::lock_guard lock(body_->mutex);
  EngineStatus status = body_->shown;
  status.away = body_->away.empty() ? away : body_->away;
  status.waiting += static_cast<std::int64_t>(body_->arrived.size());
  status.refused = body_->refused;
  // Noted with each step: an engine at rest would show its last speed for ever.
  if (status.running == 0) status.tokens_per_second = 0;
  return status;
}

void Engine::stop(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(body_->mutex);
    const Clock::time_point at = Clock::now() + grace;
    if (!body_->stop_at || at < *body_->stop_at) body_->stop_at = at;
    body_->news.notify_one();
  }
  const std::lock_guard lock(body_->stopping);
  if (body_->thread.joinable()) body_->thread.join();
}

}  // namespace fourfold::engine
