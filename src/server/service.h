// What the server does with requests: who may ask, which route it is, and what comes back. Routes that run
// the model are exchanges (exchange.h); the others are answered here.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/api_keys.h"
#include "server/engine_client.h"
#include "server/exchange.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/pump.h"
#include "server/rate_limiter.h"
#include "server/routes.h"
#include "server/served_model.h"
#include "server/workers.h"

namespace fourfold::server {

struct ServiceOptions {
  std::vector<std::string> cors_origins = {};   // whose pages may ask; "*": any page
  std::vector<std::string> allowed_hosts = {};  // names this server has, beside localhost and addresses
  // Only those who have one of these may read /metrics and /status.json; none: whoever may ask
  // may.
  ApiKeys* operator_keys = nullptr;
  double rate_limit = 0;  // requests a second for each key, or address without keys
  std::optional<std::chrono::milliseconds> request_time = {};  // from request to last token
  std::chrono::milliseconds grace{30'000};                     // for running requests, after a signal
  std::chrono::milliseconds farewell{5'000};                   // for last bytes, behind the engine's end
  std::chrono::milliseconds silence{5'000};                    // of a stream, before a word is sent
  std::chrono::milliseconds stall{60'000};  // a step this long with sequences running: /health says so
  int worker_count = 2;
  std::chrono::milliseconds work_time{10'000};  // all workers on one request each for so long: not ready
  // Of bodies that wait to be read, together; and as much again of long answers on their way.
  std::size_t waiting_bytes_max = std::size_t{256} << 20;
  // One line, without an end; it must not block.
  std::function<void(const std::string& line)> log = {};
  std::function<void()> flush_log = {};                           // before a sudden end
  std::function<void(const std::string& line)> log_request = {};  // one a request; empty: none
  // Tests have their own.
  std::function<std::unique_ptr<Exchange>(std::string_view route, std::string_view body, const ServedModel&,
                                          const RequestContext&)>
      make_exchange = server::make_exchange;
};

class Service final : public HttpHandler {
 public:
  // All of them must outlive it; the mailbox is the one the runner delivers to.
  Service(HttpServer& http, EngineClient& runner, Mailbox& mailbox, const ServedModel& model, ApiKeys& keys,
          ServerFacts facts, ServiceOptions options);
  ~Service() override;

  std::optional<HttpResponse> admit(HttpRequest& request) override;
  void serve(std::shared_ptr<HttpCall> call) override;
  HttpResponse malformed(int status, std::string_view what, std::string_view path) override;
  void tick() override;
  void signal(int number) override;

  // As the first SIGTERM: requests that run may end within the grace time, then run() returns.
  void begin_shutdown();
  bool stalled() const { return stalled_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<HttpResponse> refuse(HttpRequest& request);
  std::optional<HttpResponse> refuse_stranger(HttpRequest& request, const Route* route);
  std::optional<HttpResponse> refuse_operator(const HttpRequest& request, const Route* route) const;
  std::optional<HttpResponse> refuse_route(const HttpRequest& request, const Route* route);
  bool origin_allowed(const HttpRequest& request) const;
  void decorate(const HttpRequest& request, HttpResponse& response) const;
  void respond(HttpCall& call, HttpResponse response);
  // Without the line of the log, which comes at the end of those that run the model. Gives the status.
  int send_answer(HttpCall& call, HttpResponse response);
  void log_answer(const HttpRequest& request, int status, const Pump::End* tokens = nullptr) const;
  // Counts them, logs what is new among them, and adds them to the answer's head.
  void say(const api::Notes& notes, const HttpRequest& request, Headers& head);

  // On a worker, in the client's turn: `work` with the body; then on the server's thread `done`, with the
  // answer its route has for an error. A client that has left gets neither.
  using Work = std::function<void(const std::string& body, const RequestContext& context)>;
  using Done =
      std::function<void(const std::shared_ptr<HttpCall>& call, std::optional<HttpResponse> refused)>;
  void on_worker(const std::shared_ptr<HttpCall>& call, const Route& route, Work work, Done done);
  static std::optional<HttpResponse> attempt(std::string_view route, const std::function<void()>& work);
  void run_exchange(const std::shared_ptr<HttpCall>& call, const Route& route);
  // A client's part of what all share, for as long as it is held; refuses one that would leave too little for
  // others. Nothing where all is taken, or none is shared out.
  static std::shared_ptr<const void> take_share(const std::shared_ptr<ClientShares>& shares,
                                                const std::string& client, std::size_t count,
                                                std::string_view what);
  void start_exchange(const std::shared_ptr<HttpCall>& call, PreparedRequest prepared,
                      Clock::time_point begun);
  // A quick answer that needs a worker, such as tokenising.
  void run_text(const std::shared_ptr<HttpCall>& call, const Route& route);
  // Long answers, until they are written: a client that reads slowly has them for long. Throws over_capacity
  // or the client's refusal when there is no room.
  void hold_share(HttpCall& call, std::size_t bytes);
  void write_elsewhere(const HttpRequest& request, std::function<void()> work,
                       std::function<void(bool worked)> done);
  HttpResponse health() const;
  HttpResponse ready() const;
  HttpResponse page(const HttpRequest& request) const;
  void take(std::vector<engine::Delivery> deliveries);
  void watch_engine(Clock::time_point now);
  void watch_workers(Clock::time_point now);
  void reload_keys();
  void end_when_told(Clock::time_point now);
  [[noreturn]] void abandon(std::string_view what);

  HttpServer& http_;
  EngineClient& runner_;
  Mailbox& mailbox_;
  const ServedModel& model_;
  ApiKeys& keys_;
  ServerFacts facts_;
  ServiceOptions options_;
  Metrics metrics_;
  Pump pump_;
  RateLimiter rate_limiter_;
  std::shared_ptr<ClientShares> room_;     // of what may run and wait; none: too little to be shared out
  std::shared_ptr<ClientShares> answers_;  // bytes of long answers that clients have not read yet
  api::NoteLog note_log_;
  Clock::time_point last_watch_{}, last_step_{};
  std::int64_t last_step_count_ = -1;
  std::uint64_t next_id_ = 1;
  bool stalled_ = false, draining_ = false;
  bool work_is_long_ = false, workers_stuck_ = false, workers_lost_ = false;
  std::atomic<bool> engine_stopped_{false};
  std::atomic<bool> ending_{false};  // no answer will be read: work in progress is given up
  Clock::time_point give_up_ = Clock::time_point::max();
  Clock::time_point engine_ends_ = Clock::time_point::max();  // behind a signal, at the latest
  std::thread stopper_;
  Workers workers_;  // last: its jobs use everything above
};

}  // namespace fourfold::server
