// The part of the service that uses its workers: requests are read there, in turns, and watched.
#include <algorithm>
#include <cstdlib>

#include "base/cancel.h"
#include "base/error.h"
#include "server/api/request_error.h"
#include "server/json_guard.h"
#include "server/service.h"
#include "server/text_routes.h"

namespace fourfold::server {

std::optional<HttpResponse> Service::attempt(std::string_view route, const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    HttpError answer = error_answer(route, error);
    HttpResponse response{.status = answer.status, .body = std::move(answer.body)};
    if (answer.status == 429 || answer.status == 503) response.headers.emplace_back("Retry-After", "1");
    return response;
  } catch (const std::bad_alloc&) {
    return refusal(route, 503, "out_of_memory", "there is no memory for this request now");
  } catch (const std::exception&) {
    // What it says may hold addresses or paths; those go to the log of the process.
    return refusal(route, 500, "internal", "the server could not read this request");
  }
}

void Service::on_worker(const std::shared_ptr<HttpCall>& call, const Route& route, Work work, Done done) {
  struct Job {
    std::shared_ptr<HttpCall> call;
    std::string body;
    RequestContext context;
    Work work;
    Done done;
    std::optional<HttpResponse> refused;
  };
  const auto job = std::make_shared<Job>();
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  call->on_gone([gone] { *gone = true; });
  const HttpRequest& request = call->request();
  job->context = {.tenant = request.tenant, .client = request.client, .cancelled = [this, gone] {
                    return *gone || ending_;
                  }};
  job->body = std::move(call->request().body);
  job->call = call;
  job->work = std::move(work);
  job->done = std::move(done);
  const auto run = [this, job, &route](bool wanted) {
    if (wanted)
      job->refused = attempt(route.path, [&] {
        const CancelScope scope(job->context.cancelled);
        require_bounded(job->body);
        job->work(job->body, job->context);
      });
    job->body = {};
    // The call goes back with the answer: a connection is the server's thread's, to its end.
    http_.post([job] {
      const auto back = std::exchange(job->call, nullptr);
      if (back->open()) job->done(back, std::move(job->refused));
    });
  };
  const auto answer = workers_.add({.client = request.client,
                                    .bytes = job->body.size(),
                                    .wanted = [job] { return !job->context.cancelled(); },
                                    .work = run});
  if (answer == Workers::Answer::taken) return;
  const bool own = answer == Workers::Answer::client_has_its_share;
  respond(*call, refusal(route.path, own ? 429 : 503, "overloaded",
                         own ? "too many requests of this client wait to be read; try again"
                             : "too many requests wait to be read"));
}

void Service::run_text(const std::shared_ptr<HttpCall>& call, const Route& route) {
  struct Made {
    HttpResponse response;
    LongAnswer answer;
    api::Notes notes;
  };
  const auto made = std::make_shared<Made>();
  made->notes = api::Notes(model_.strict);
  on_worker(
      call, route,
      [this, made, &route](const std::string& body, const RequestContext&) {
        if (route.kind == RouteKind::tokenize)
          made->answer = tokenize_answer(body, model_, made->notes);
        else
          made->response.body = detokenize_answer(body, model_, made->notes);
      },
      [this, made, &route](const std::shared_ptr<HttpCall>& back, std::optional<HttpResponse> refused) {
        if (!refused) refused = attempt(route.path, [&] { hold_share(*back, made->answer.bytes); });
        made->response.more = std::move(made->answer.more);
        if (refused) return respond(*back, std::move(*refused));
        say(made->notes, back->request(), made->response.headers);
        respond(*back, std::move(made->response));
      });
}

void Service::hold_share(HttpCall& call, std::size_t bytes) {
  constexpr std::size_t kShort = std::size_t{1} << 16;
  if (bytes <= kShort || call.holds()) return;
  auto share = take_share(answers_, call.request().client, bytes, "bytes of answers");
  if (!share) fail(Code::over_capacity, "too many long answers are on their way; try again");
  call.hold(std::move(share));
}

void Service::write_elsewhere(const HttpRequest& request, std::function<void()> work,
                              std::function<void(bool worked)> done) {
  // It goes back as a whole: what `done` holds is the server's thread's.
  struct Job {
    std::function<void()> work;
    std::function<void(bool)> done;
  };
  const auto job = std::make_shared<Job>(Job{std::move(work), std::move(done)});
  const auto finish = [this, job](bool worked) {
    http_.post([done = std::exchange(job->done, nullptr), worked] { done(worked); });
  };
  const auto answer =
      workers_.add({.client = request.client, .bytes = 0, .wanted = {}, .work = [job, finish](bool) {
                      const bool worked = !attempt({}, job->work);
                      job->work = nullptr;
                      finish(worked);
                    }});
  if (answer != Workers::Answer::taken) finish(false);
}

void Service::run_exchange(const std::shared_ptr<HttpCall>& call, const Route& route) {
  const auto prepared = std::make_shared<PreparedRequest>();
  on_worker(
      call, route,
      [this, prepared, &route](const std::string& body, const RequestContext& context) {
        prepared->exchange = options_.make_exchange(route.path, body, model_, context);
        prepared->submissions = prepared->exchange->submissions();
      },
      [this, prepared, &route, begun = Clock::now()](const std::shared_ptr<HttpCall>& back,
                                                     std::optional<HttpResponse> refused) {
        // One that runs nothing is done already.
        if (!refused && prepared->exchange->done()) {
          Exchange& exchange = *prepared->exchange;
          HttpResponse response{.status = exchange.status(), .body = exchange.body()};
          say(exchange.notes, back->request(), response.headers);
          return respond(*back, std::move(response));
        }
        if (!refused)
          refused = attempt(route.path, [&] { start_exchange(back, std::move(*prepared), begun); });
        if (refused) respond(*back, std::move(*refused));
      });
}

std::shared_ptr<const void> Service::take_share(const std::shared_ptr<ClientShares>& shares,
                                                const std::string& client, std::size_t count,
                                                std::string_view what) {
  if (!shares) return nullptr;
  if (shares->all() == 0) count = std::min(count, shares->most() / 2);  // alone, any size
  const auto answer = shares->take(client, count);
  if (answer == ClientShares::Answer::all_is_taken) return nullptr;
  if (answer == ClientShares::Answer::client_has_its_share)
    throw api::RequestError(
        429,
        fourfold::format("{} {} of this client are not done; more would leave others too little",
                         shares->of(client), what),
        "", "overloaded");
  return std::shared_ptr<const void>(
      shares.get(), [shares, client, count](const void*) { shares->give_back(client, count); });
}

// A request that takes too long to read is a bug of ours, or an attack we did not foresee. While another
// thread is left the server goes on; when none is, nothing can be read any more.
void Service::watch_workers(Clock::time_point now) {
  const Workers::Status status = workers_.status(now);
  const bool busy = status.busy > 0 && status.longest >= options_.work_time;
  if (busy && !work_is_long_ && options_.log)
    options_.log(
        fourfold::format("error server a request has been read for {} s; {} of {} workers are busy, {} wait",
                         std::chrono::duration_cast<std::chrono::seconds>(status.longest).count(),
                         status.busy, status.threads, status.waiting));
  work_is_long_ = busy;
  workers_stuck_ = status.busy == status.threads && status.shortest >= options_.work_time;
  workers_lost_ =
      status.busy == status.threads && status.shortest >= std::max(options_.stall, options_.work_time);
}

// Its thread does not come back, so it cannot be joined, and no state is worth saving.
void Service::abandon(std::string_view what) {
  if (options_.log) options_.log(fourfold::format("error server {}: the process ends without it", what));
  if (options_.flush_log) options_.flush_log();
  std::_Exit(1);
}

}  // namespace fourfold::server
