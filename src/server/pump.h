// From the engine's deliveries to clients' bytes: which request belongs to which call, one wake-up of the
// server's thread a step, cancels in both directions. Everything but Mailbox is the server's thread's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "server/engine_client.h"
#include "server/exchange.h"
#include "server/http_server.h"
#include "server/metrics.h"

namespace fourfold::server {

// Where the engine's thread leaves what a step gave. However many steps end before the server's thread looks,
// it is woken once.
class Mailbox {
 public:
  // Nothing: no more wake-ups.
  void connect(std::function<void()> wake);
  void put(std::vector<engine::Delivery>&& deliveries);
  std::vector<engine::Delivery> take();

 private:
  std::mutex mutex_;
  std::vector<engine::Delivery> waiting_;
  std::function<void()> wake_;
};

// A request that has been read and understood.
struct PreparedRequest {
  std::unique_ptr<Exchange> exchange;
  std::vector<engine::Submission> submissions;
  std::shared_ptr<const void> room = nullptr;  // kept for as long as it runs
};

class Pump {
 public:
  using Clock = std::chrono::steady_clock;
  // Called with the finished or refused call, for counting and headers; gives the status that was sent.
  using Answer = std::function<int(HttpCall& call, HttpResponse response)>;
  // Does the work on another thread, then `done` on this one; whether it was done. Never: false at once.
  using Elsewhere = std::function<void(const HttpRequest& request, std::function<void()> work,
                                       std::function<void(bool worked)> done)>;
  // What a request came to, whole or not. status: of the head that was sent, or would have been.
  struct End {
    int status = 200;
    bool left = false;  // the client did not wait for it
    std::int64_t prompt_tokens = 0, answer_tokens = 0;
  };
  using Ended = std::function<void(const HttpRequest& request, const End& end)>;

  Pump(EngineClient& runner, Metrics& metrics, Elsewhere elsewhere)
      : runner_(runner), metrics_(metrics), elsewhere_(std::move(elsewhere)) {}

  // Throws what submit throws, and then nothing runs and nothing has ended. head: of a streamed answer;
  // answer: of a whole one; ended: once, for either.
  void start(std::shared_ptr<HttpCall> call, PreparedRequest prepared, HttpResponse head,
             Clock::time_point begun, Answer answer, Ended ended);
  void take(std::vector<engine::Delivery> deliveries);
  // Streams that have been silent get a word (Exchange::keep_alive): proxies and clients stay, and those that
  // have gone are noticed.
  void keep_alive(Clock::time_point now, std::chrono::milliseconds silence);
  // Nothing more is expected of what runs: every call is told why.
  void give_up(const std::string& why);
  std::size_t live_count() const { return live_.size(); }

 private:
  struct Live {
    std::shared_ptr<HttpCall> call;
    std::unique_ptr<Exchange> exchange;
    std::vector<engine::RequestId> ids;
    std::shared_ptr<const void> room;
    Answer answer;
    Ended ended;
    End end;
    std::string bytes;  // of this batch
    Clock::time_point begun, last_token, last_sent;
    bool any_token = false;
    bool touched = false;
  };
  struct Choice {
    std::shared_ptr<Live> live;
    std::size_t index;
  };

  void take_one(const engine::Delivery& delivery, Clock::time_point now);
  void note(Live& live, const engine::Delivery& delivery, Clock::time_point now);
  void flush(Live& live, Clock::time_point now);
  // A long answer takes long to write, and all clients would wait for it.
  void write_elsewhere(const std::shared_ptr<Live>& live);
  void spoil(const std::shared_ptr<Live>& live);
  void leave(const std::shared_ptr<Live>& live);
  // What still runs of it is cancelled, and counted as having ended so.
  void release(const std::shared_ptr<Live>& live, engine::Finish counted_as);
  void end(Live& live);
  void drop(const std::shared_ptr<Live>& live, engine::Finish counted_as = engine::Finish::cancelled);

  EngineClient& runner_;
  Metrics& metrics_;
  Elsewhere elsewhere_;
  std::unordered_map<engine::RequestId, Choice> choices_;
  std::unordered_set<std::shared_ptr<Live>> live_;
  std::vector<std::shared_ptr<Live>> touched_;
};

}  // namespace fourfold::server
