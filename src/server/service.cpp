#include "server/service.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/seeded_hash.h"
#include "server/api/request_error.h"
#include "server/kept_response.h"
#include "server/page/static_files.h"
#include "server/request_log.h"
#include "server/status_json.h"
#include "server/text_routes.h"

namespace fourfold::server {
namespace {

constexpr std::size_t kJobsMax = 4096;
constexpr std::size_t kSharedPlaces = 16;
constexpr auto kWatchEvery = std::chrono::seconds(1);

bool equal_ignoring_case(std::string_view text, std::string_view small) {
  return std::ranges::equal(text, small,
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

std::string_view bearer_key(const HttpRequest& request) {
  const std::string_view value = request.header("authorization");
  // The scheme's name is not case-sensitive, its value is.
  constexpr std::string_view kBearer = "bearer ";
  if (value.size() > kBearer.size() && equal_ignoring_case(value.substr(0, kBearer.size()), kBearer))
    return value.substr(kBearer.size());
  return value.empty() ? request.header("x-api-key") : std::string_view{};
}

std::string_view route_label(const HttpRequest& request) {
  const Route* route = find_route(request.path);
  return route == nullptr ? "other" : route->path;
}

bool is_loopback_name(std::string_view host) { return host == "localhost" || host.ends_with(".localhost"); }

HttpResponse json_answer(std::string body) { return {.body = std::move(body)}; }

}  // namespace

Service::Service(HttpServer& http, EngineClient& runner, Mailbox& mailbox, const ServedModel& model,
                 ApiKeys& keys, ServerFacts facts, ServiceOptions options)
    : http_(http),
      runner_(runner),
      mailbox_(mailbox),
      model_(model),
      keys_(keys),
      facts_(std::move(facts)),
      options_(std::move(options)),
      pump_(runner, metrics_,
            [this](const HttpRequest& request, std::function<void()> work, std::function<void(bool)> done) {
              write_elsewhere(request, std::move(work), std::move(done));
            }),
      rate_limiter_(options_.rate_limit),
      workers_(options_.worker_count, kJobsMax, options_.waiting_bytes_max) {
  for (std::string& name : options_.allowed_hosts) name = host_name(name).value_or(name);
  const engine::EngineStatus limits = runner_.status();
  const auto places = static_cast<std::size_t>(limits.sequence_limit + limits.queue_limit);
  if (limits.queue_limit > 0 && places >= kSharedPlaces) room_ = std::make_shared<ClientShares>(places);
  answers_ = std::make_shared<ClientShares>(options_.waiting_bytes_max);
  mailbox_.connect([this] { http_.post([this] { take(mailbox_.take()); }); });
}

Service::~Service() {
  ending_ = true;
  mailbox_.connect({});
  if (stopper_.joinable()) stopper_.join();
}

// ---- who may ask

std::optional<HttpResponse> Service::admit(HttpRequest& request) {
  request.begun = Clock::now();
  const std::string_view id = request.header("x-request-id");
  request.id = is_plain_id(id) ? std::string(id) : fourfold::format("req-{}", next_id_++);
  auto refused = refuse(request);
  if (!refused) return std::nullopt;
  decorate(request, *refused);
  metrics_.count_request(route_label(request), refused->status);
  log_answer(request, refused->status);
  return refused;
}

std::optional<HttpResponse> Service::refuse(HttpRequest& request) {
  const Route* route = find_route(request.path);
  // Host names that a stranger's DNS points here: without a key the browser of a page out there could ask.
  const auto host = host_name(request.header("host"));
  if (!keys_.any() && host && !is_loopback_name(*host) && !is_address(*host) &&
      std::ranges::find(options_.allowed_hosts, *host) == options_.allowed_hosts.end())
    return refusal(request.path, 403, "unknown_host",
                   "this server has no such host name; --allow-host NAME gives it one");
  if (request.method == "OPTIONS" && !request.header("access-control-request-method").empty() &&
      origin_allowed(request))
    return HttpResponse{.status = 204};
  if (route == nullptr || route->needs_key)
    if (auto stranger = refuse_stranger(request, route)) return stranger;
  return refuse_route(request, route);
}

// Operators see how the server is, and nothing of those who ask.
std::optional<HttpResponse> Service::refuse_operator(const HttpRequest& request, const Route* route) const {
  const bool allowed = route != nullptr && (route->for_operators || route->kind == RouteKind::ready ||
                                            route->kind == RouteKind::version);
  if (allowed) return std::nullopt;
  return refusal(request.path, 403, "operator_key",
                 "an operator's key reads /metrics, /status.json, /get_load, /ready and /version only");
}

std::optional<HttpResponse> Service::refuse_stranger(HttpRequest& request, const Route* route) {
  const std::string_view key = bearer_key(request);
  if (options_.operator_keys != nullptr) {
    if (options_.operator_keys->tenant(key)) return refuse_operator(request, route);
    if (route != nullptr && route->for_operators) {
      ++metrics_.refused_keys;
      return refusal(request.path, keys_.tenant(key) ? 403 : 401, "invalid_api_key",
                     "this path needs an operator's key (--operator-key-file)");
    }
  }
  if (!keys_.any()) return std::nullopt;
  const auto tenant = keys_.tenant(key);
  if (tenant) {
    request.tenant = *tenant;
    request.client = fourfold::format("key {}", *tenant);
    return std::nullopt;
  }
  ++metrics_.refused_keys;
  return refusal(request.path, 401, "invalid_api_key",
                 key.empty() ? "a key is needed: send the header 'Authorization: Bearer KEY'"
                             : "this key is not one of the server's");
}

std::optional<HttpResponse> Service::refuse_route(const HttpRequest& request, const Route* route) {
  if (route == nullptr)
    return refusal(request.path, 404, "not_found",
                   "there is no such path here; /v1/models and "
                   "/v1/chat/completions are good ones to begin with");
  if (!route->takes(request.method)) {
    std::string methods(route->method == "GET" ? "GET, HEAD" : route->method);
    if (!route->other_method.empty()) methods += ", " + std::string(route->other_method);
    HttpResponse response =
        refusal(request.path, 405, "method_not_allowed", fourfold::format("this path takes {}", methods));
    response.headers.emplace_back("Allow", methods);
    return response;
  }
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  if (draining_) return refusal(request.path, 503, "shutting_down", "the server is shutting down");
  // A page from elsewhere can make a browser send this, and without keys nothing else would stop it.
  if (!keys_.any() && !request.header("origin").empty() && !origin_allowed(request))
    return refusal(request.path, 403, "unknown_origin",
                   "pages of this origin may not ask here; --cors-origin ORIGIN lets them");
  const std::string_view type = request.header("content-type");
  if (!type.empty() && !equal_ignoring_case(type.substr(0, type.find_first_of("; ")), "application/json"))
    return refusal(request.path, 415, "unsupported_media_type", "the Content-Type must be application/json");
  if (const std::string_view coding = request.header("content-encoding");
      !coding.empty() && !equal_ignoring_case(coding, "identity"))
    return refusal(request.path, 415, "unsupported_encoding", "bodies are taken as they are, not compressed");
  if (const auto wait = rate_limiter_.take(request.client, Clock::now())) {
    ++metrics_.rate_limited;
    HttpResponse response = refusal(request.path, 429, "rate_limit_exceeded",
                                    fourfold::format("more than {} requests a second", options_.rate_limit));
    for (auto& [name, value] : response.headers)
      if (name == "Retry-After") value = std::to_string(*wait);
    return response;
  }
  return std::nullopt;
}

bool Service::origin_allowed(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return false;
  for (const std::string& allowed : options_.cors_origins)
    if (allowed == "*" || allowed == origin) return true;
  // The page of this server itself, whatever proxy stands before it.
  const std::size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

void Service::decorate(const HttpRequest& request, HttpResponse& response) const {
  if (!request.id.empty()) response.headers.emplace_back("X-Request-Id", request.id);
  if (!origin_allowed(request)) return;
  // Keys travel in a header, never in cookies: credentials need not be allowed, and are not.
  response.headers.emplace_back("Access-Control-Allow-Origin", request.header("origin"));
  response.headers.emplace_back("Vary", "Origin");
  response.headers.emplace_back("Access-Control-Expose-Headers",
                                "X-Fourfold-Ignored, X-Fourfold-Changed, X-Request-Id, Retry-After");
  if (request.method != "OPTIONS") return;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  // Clients send headers of their own (x-stainless-os, anthropic-beta ...); none of them means anything here.
  const std::string_view wanted = request.header("access-control-request-headers");
  const bool plain = wanted.size() <= 2048 && std::ranges::all_of(wanted, [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
                     });
  if (plain && !wanted.empty())
    response.headers.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  response.headers.emplace_back("Access-Control-Max-Age", "600");
}

HttpResponse Service::malformed(int status, std::string_view what, std::string_view path) {
  metrics_.count_request("other", status);
  return HttpHandler::malformed(status, what, path);
}

void Service::log_answer(const HttpRequest& request, int status, const Pump::End* tokens) const {
  if (options_.log_request) options_.log_request(request_line(request, route_label(request), status, tokens));
}

void Service::say(const api::Notes& notes, const HttpRequest& request, Headers& head) {
  for (const api::Note& note : notes.all()) {
    metrics_.count_note(note.kind);
    const std::string line = note_log_.line(note, route_label(request));
    if (options_.log && !line.empty()) options_.log(line);
  }
  for (auto& header : notes.headers()) head.push_back(std::move(header));
}

// ---- answers

void Service::respond(HttpCall& call, HttpResponse response) {
  log_answer(call.request(), send_answer(call, std::move(response)));
}

int Service::send_answer(HttpCall& call, HttpResponse response) {
  const HttpRequest& request = call.request();
  if (auto refused = attempt(request.path, [&] { hold_share(call, response.body.size()); }))
    response = std::move(*refused);
  const int status = response.status;
  decorate(request, response);
  metrics_.count_request(route_label(request), status);
  call.answer(std::move(response));
  return status;
}

void Service::serve(std::shared_ptr<HttpCall> call) {
  const HttpRequest& request = call->request();
  const Route* route = find_route(request.path);
  try {
    switch (route->kind) {
      case RouteKind::health: return respond(*call, health());
      case RouteKind::ready: return respond(*call, ready());
      case RouteKind::version: return respond(*call, json_answer(version_json(facts_)));
      case RouteKind::metrics: {
        HttpResponse response = json_answer(prometheus_text(metrics_, runner_.status(), http_.counts(),
                                                            workers_.status(), facts_, model_.names.front()));
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        return respond(*call, std::move(response));
      }
      case RouteKind::status:
        return respond(*call,
                       json_answer(status_json(runner_.status(), metrics_, http_.counts(), facts_, model_)));
      case RouteKind::server_info:
        return respond(*call, json_answer(server_info_json(runner_.status(), facts_, model_)));
      case RouteKind::load: return respond(*call, json_answer(load_json(runner_.status())));
      case RouteKind::models: return respond(*call, json_answer(models_answer(model_)));
      case RouteKind::model: {
        std::string body = model_answer(std::string_view(request.path).substr(route->path.size()), model_);
        if (body.empty())
          return respond(*call,
                         refusal(request.path, 404, "model_not_found", "this model is not served here"));
        return respond(*call, json_answer(std::move(body)));
      }
      case RouteKind::response: return respond(*call, kept_response(request, route->path, model_));
      case RouteKind::tokenizer_info: return respond(*call, json_answer(model_.tokenizer_info));
      case RouteKind::page: return respond(*call, page(request));
      case RouteKind::tokenize:
      case RouteKind::detokenize: return run_text(call, *route);
      case RouteKind::exchange: return run_exchange(call, *route);
    }
  } catch (const std::exception&) {
    respond(*call, refusal(call->request().path, 500, "internal", "the server could not answer this"));
  }
}

HttpResponse Service::health() const {
  if (stalled_) return refusal("/health", 503, "stalled", "the model has not finished a step for too long");
  if (workers_lost_)
    return refusal("/health", 503, "stalled", "no request has been read to its end for too long");
  if (!runner_.status().fault.empty()) return refusal("/health", 503, "failed", "the engine has failed");
  return json_answer(R"({"status":"ok"})");
}

HttpResponse Service::ready() const {
  if (draining_) return refusal("/ready", 503, "shutting_down", "the server is shutting down");
  if (HttpResponse sick = health(); sick.status != 200) return sick;
  if (workers_stuck_)
    return refusal("/ready", 503, "busy", "all workers have been reading one request each for long");
  const engine::EngineStatus status = runner_.status();
  // The process is well, so /health stays as it is: who restarts it would lose the ranks that are there.
  if (!status.away.empty()) return refusal("/ready", 503, "rank_lost", status.away);
  if (status.queue_limit > 0 && status.waiting >= status.queue_limit)
    return refusal("/ready", 503, "queue_full", "the queue is full");
  return json_answer(R"({"status":"ready"})");
}

HttpResponse Service::page(const HttpRequest& request) const {
  const auto file = static_file(request.path);
  HttpResponse response{.content_type = std::string(file->content_type)};
  response.headers.emplace_back("ETag", file->etag);
  response.headers.emplace_back("Cache-Control", kPageCacheControl);
  response.headers.emplace_back("Content-Security-Policy", kPageSecurityPolicy);
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  if (request.header("if-none-match") == file->etag)
    response.status = 304;
  else
    response.body = file->body;
  return response;
}

// ---- answers of the model

void Service::start_exchange(const std::shared_ptr<HttpCall>& call, PreparedRequest prepared,
                             Clock::time_point begun) {
  const HttpRequest& request = call->request();
  if (draining_) throw api::RequestError(503, "the server is shutting down", "", "shutting_down");
  if (stalled_) throw api::RequestError(503, "the model has not finished a step for too long", "", "stalled");
  for (engine::Submission& submission : prepared.submissions) {
    // Whoever has another key shares no prefix, whatever salt was asked for. Without a salt the only key, or
    // none, has the empty one: its blocks are told to routers as anybody's.
    if (request.tenant > 1 || !submission.cache_salt.empty())
      submission.cache_salt = fourfold::format("{}:{}", request.tenant, submission.cache_salt);
    submission.client = SeededHash()(request.client);
    if (options_.request_time && (!submission.time_limit || *submission.time_limit > *options_.request_time))
      submission.time_limit = options_.request_time;
  }
  // When its queue is full, the engine says so itself.
  hold_share(*call, prepared.exchange->long_bytes());
  prepared.room = take_share(room_, request.client, prepared.submissions.size(), "requests");
  const bool streams = prepared.exchange->streams();
  Headers noted;
  say(prepared.exchange->notes, request, noted);
  HttpResponse head{.content_type = "text/event-stream; charset=utf-8", .headers = noted};
  decorate(request, head);
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  pump_.start(
      call, std::move(prepared), std::move(head), begun,
      [this, noted = std::move(noted)](HttpCall& finished, HttpResponse response) {
        response.headers.insert(response.headers.end(), noted.begin(), noted.end());
        if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
        return send_answer(finished, std::move(response));
      },
      [this](const HttpRequest& asked, const Pump::End& end) { log_answer(asked, end.status, &end); });
  if (streams) metrics_.count_request(route_label(request), 200);
}

// ---- time and signals

void Service::tick() {
  const Clock::time_point now = Clock::now();
  pump_.keep_alive(now, options_.silence);
  if (engine_stopped_) return end_when_told(now);
  if (draining_ && now >= engine_ends_) abandon("the engine does not end its step");
  if (now - last_watch_ < kWatchEvery) return;
  last_watch_ = now;
  watch_engine(now);
  watch_workers(now);
  reload_keys();
}

void Service::reload_keys() {
  for (ApiKeys* keys : {&keys_, options_.operator_keys})
    if (const std::string said = keys == nullptr ? "" : keys->reload_changed(); !said.empty() && options_.log)
      options_.log("warning server " + said);
}

void Service::watch_engine(Clock::time_point now) {
  const engine::EngineStatus status = runner_.status();
  // Not status.running: before the first step has ended the engine counts no request. Only a step ends a
  // stall: a stall itself makes the requests go away.
  if (status.steps != last_step_count_ || (pump_.live_count() == 0 && !stalled_)) {
    last_step_count_ = status.steps;
    last_step_ = now;
    stalled_ = false;
  } else if (!stalled_ && now - last_step_ >= options_.stall) {
    stalled_ = true;
    if (options_.log)
      options_.log(fourfold::format(
          "error server no step has ended for {} s: {} requests are given up; /health answers 503",
          options_.stall.count() / 1000, pump_.live_count()));
    pump_.give_up("the model has not finished a step for too long");
  }
}

// The engine has stopped, the last bytes go out; what is still being read is not wanted any more.
void Service::end_when_told(Clock::time_point now) {
  ending_ = true;
  if (give_up_ == Clock::time_point::max()) give_up_ = now + options_.farewell;
  if (workers_.status().busy > 0) {
    if (now >= give_up_ + options_.farewell) abandon("a request is still being read");
    return;
  }
  if (http_.idle() || now >= give_up_) http_.stop();
}

void Service::take(std::vector<engine::Delivery> deliveries) {
  if (options_.log)
    for (const engine::Delivery& delivery : deliveries)
      if (delivery.finish == engine::Finish::failed)
        options_.log(fourfold::format("error engine an answer failed: {}", delivery.error));
  pump_.take(std::move(deliveries));
}

void Service::signal(int number) {
  if (number == SIGHUP) {
    reload_keys();
    if (!options_.log) return;
    const ApiKeys* operators = options_.operator_keys;
    options_.log(fourfold::format("info server {} keys are known{}", keys_.count(),
                                  operators == nullptr
                                      ? std::string()
                                      : fourfold::format(", and {} of operators", operators->count())));
    return;
  }
  if (draining_) {
    if (options_.flush_log) options_.flush_log();
    std::_Exit(128 + number);
  }
  if (options_.log)
    options_.log(
        fourfold::format("info server shutting down: {} requests may finish within {} s; once more to "
                         "end at once",
                         pump_.live_count(), static_cast<double>(options_.grace.count()) / 1000));
  begin_shutdown();
}

void Service::begin_shutdown() {
  if (draining_) return;
  draining_ = true;
  engine_ends_ = Clock::now() + options_.grace + options_.stall;
  http_.drain();
  stopper_ = std::thread([this] {
    runner_.stop(options_.grace);
    engine_stopped_ = true;
  });
}

}  // namespace fourfold::server
