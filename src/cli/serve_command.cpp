#include "cli/serve_command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/fetch_model.h"
#include "cli/file_signals.h"
#include "cli/interrupt.h"
#include "cli/serve_model.h"
#include "cli/terminal_text.h"
#include "engine/engine.h"
#include "events/publisher.h"
#include "kernels/cpu/isa.h"
#include "server/engine_runner.h"
#include "server/few_heaps.h"
#include "server/log_queue.h"
#include "server/service.h"

namespace fourfold::cli {
namespace {

std::chrono::milliseconds milliseconds(double seconds, const char* option) {
  if (!(seconds >= 0 && seconds <= 1e6))
    fail(Code::invalid_request, "{} {}: 0 to 1000000 seconds", option, seconds);
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

void require_consistent(const ServeOptions& options) {
  if (options.port < 0 || options.port > 65535)
    fail(Code::invalid_request, "--port {}: 0 to 65535; 0 is one that is free", options.port);
  if (options.no_auth && !(options.api_keys.empty() && options.api_key_files.empty()))
    fail(Code::invalid_request, "--no-auth and a key: one of them must go");
  if (options.max_body_mb < 1 || options.max_body_mb > 1024)
    fail(Code::invalid_request, "--max-body-mb {}: 1 to 1024", options.max_body_mb);
  if (options.store_responses_mb < 0 || options.store_responses_mb > 65536)
    fail(Code::invalid_request, "--store-responses {}: 0 to 65536", options.store_responses_mb);
  constexpr std::int64_t megabytes_max = 1'000'000'000;
  if (options.prefix_cache_mb > megabytes_max)
    fail(Code::invalid_request, "--prefix-cache-mb {}: at most {}", options.prefix_cache_mb, megabytes_max);
  if (!(options.stall_timeout >= 0))
    fail(Code::invalid_request, "--stall-timeout {}: 0 or more seconds", options.stall_timeout);
  if (!(options.rate_limit >= 0))
    fail(Code::invalid_request, "--rate-limit {}: 0 or more", options.rate_limit);
}

server::HttpOptions http_options(const ServeOptions& options) {
  server::HttpOptions http{.host = options.host,
                           .port = static_cast<std::uint16_t>(options.port),
                           .tls_certificate = options.tls_cert,
                           .tls_key = options.tls_key,
                           .take_signals = true};
  http.limits.body_bytes_max = static_cast<std::size_t>(options.max_body_mb) << 20;
  return http;
}

void require_key_or_loopback(const ServeOptions& options, const server::HttpServer& http,
                             const server::ApiKeys& keys) {
  if (keys.any() || options.no_auth || http.is_loopback()) return;
  fail_with_hint(Code::invalid_request,
                 "Give --api-key-file FILE (or --api-key KEY), or --no-auth if everybody may ask.",
                 "--host {} can be reached from other machines, and there is no key", options.host);
}

std::string megabytes(std::int64_t bytes) { return fourfold::format("{} MB", (bytes + 500'000) / 1'000'000); }

std::string url_of(const ServeOptions& options, const server::HttpServer& http) {
  std::string host = options.host;
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fourfold::format("{}://{}:{}", http.is_tls() ? "https" : "http", host, http.port());
}

void show_banner(const ServeOptions& options, const server::HttpServer& http, const server::ApiKeys& keys,
                 const server::ServedModel& model, const server::ServerFacts& facts,
                 const library::EngineRoom& room, const events::Publisher* publisher,
                 const Console& console) {
  const std::string url = url_of(options, http);
  std::string names;
  for (const std::string& name : model.names) names += (names.empty() ? "" : ", ") + terminal_safe(name);
  const backend::Capacity& capacity = room.capacity;
  std::string memory;
  std::int64_t total = 0;
  for (const backend::MemoryUse& use : facts.memory) {
    memory += fourfold::format("{}{} {}", memory.empty() ? "" : ", ", use.what, megabytes(use.bytes));
    total += use.bytes;
  }
  std::ostream& out = console.out;
  out << fourfold::format("fourfold {}: {} on {}\n", facts.version, names, facts.device);
  out << fourfold::format("  chat page   {}/\n  API         {}/v1   (OpenAI's base URL; Anthropic's: {})\n",
                          url, url, url);
  out << fourfold::format("  room        {} requests at once, {} tokens each, {} together; {} may wait\n",
                          room.sequences, with_commas(room.context),
                          with_commas(capacity.page_count * capacity.page_tokens), options.max_queue);
  if (capacity.anchor_count == 0)
    out << fourfold::format("  prefixes    NOT shared: {}\n", options.prefix_cache_mb == 0
                                                                  ? "--prefix-cache-mb 0"
                                                                  : "no memory is left for their states");
  if (model.chat_template)
    out << fourfold::format("  tools       calls are read as {}\n",
                            text::name_of(model.chat_template->call_format()));
  if (!memory.empty()) out << fourfold::format("  memory      {}: {}\n", megabytes(total), memory);
  out << "  keys        "
      << (keys.any() ? fourfold::format("{}; every path but /health and the pages needs one", keys.count())
          : http.is_loopback() ? std::string("none: whoever is on this machine may ask")
                               : std::string("NONE, and other machines can reach it (--no-auth)"))
      << "\n";
  if (publisher != nullptr) {
    const std::string replay = publisher->replay_endpoint();
    out << fourfold::format("  kv events   {}{}; whoever reaches it reads the tokens of prompts\n",
                            publisher->endpoint(), replay.empty() ? "" : ", replays " + replay);
  }
  if (keys.any() && !http.is_loopback() && !http.is_tls())
    out << "  notice      keys and texts travel unencrypted: give --tls-cert and --tls-key, or a proxy\n";
  for (const std::string& text : facts.notices) out << "  notice      " << terminal_safe(text) << "\n";
  out << "  Ctrl-C ends it." << std::endl;
}

// Before the model, as the server's own port.
std::unique_ptr<events::Publisher> open_events(const ServeOptions& options) {
  if (options.kv_events.empty()) {
    if (!options.kv_events_replay.empty())
      fail(Code::invalid_request, "--kv-events-replay-endpoint needs --kv-events");
    return nullptr;
  }
  if (options.prefix_cache_mb == 0)
    fail(Code::invalid_request,
         "--kv-events tells of the prefix cache, and --prefix-cache-mb 0 is without one");
  if (options.kv_events_format != "map" && options.kv_events_format != "array")
    fail(Code::invalid_request, "--kv-events-format {}: map or array", options.kv_events_format);
  return std::make_unique<events::Publisher>(events::PublisherOptions{
      .endpoint = options.kv_events,
      .replay_endpoint = options.kv_events_replay,
      .topic = options.kv_events_topic,
      .buffer_steps = options.kv_events_buffer,
      .form = options.kv_events_format == "map" ? events::EventForm::map : events::EventForm::array});
}

server::EventCounts event_counts(const events::Publisher& publisher) {
  const events::PublisherCounts counts = publisher.counts();
  return {.batches = counts.batches,
          .dropped = counts.dropped,
          .subscribers = counts.subscribers,
          .subscriber_dropped = counts.subscriber_dropped,
          .replays = counts.replays};
}

std::string device_words(const BackendOptions& backend) {
  return fourfold::format(
      "the {} backend{}", backend.backend,
      backend.tp > 1 ? fourfold::format(", {} ranks{}", backend.tp, backend.nodes ? ", a process each" : "")
                     : "");
}

server::ServiceOptions service_options(const ServeOptions& options, server::LogQueue& log) {
  server::ServiceOptions service{.cors_origins = options.cors_origins,
                                 .allowed_hosts = options.allowed_hosts,
                                 .rate_limit = options.rate_limit};
  const auto request_time = milliseconds(options.request_timeout, "--request-timeout");
  if (request_time.count() > 0) service.request_time = request_time;
  service.grace = milliseconds(options.grace, "--grace");
  // A step of a large model on a CPU can take a minute and be well.
  const double stall = options.stall_timeout > 0 ? options.stall_timeout
                       : on_machine(options.backend.backend) && options.backend.backend != "sim" ? 30
                                                                                                 : 300;
  service.stall = milliseconds(stall, "--stall-timeout");
  service.log = [&log](const std::string& line) { log.add(line); };
  service.flush_log = [&log] { log.flush(std::chrono::milliseconds(200)); };
  if (options.log_requests) service.log_request = service.log;
  return service;
}

// Nothing: it was asked to end meanwhile, and has, with the ranks it had started.
std::optional<library::OpenEngine> load_engine(const OpenModel& model,
                                               const library::EngineSettings& settings,
                                               const library::Deliver& deliver, const Console& console) {
  LoadDisplay display(settings.backend, console);
  library::Listener listener = display.listener();
  if (!settings.backend.nodes) return library::open_engine(model, settings, listener, deliver);
  listener.on_progress = [show = listener.on_progress](std::uint64_t done, std::uint64_t total) {
    FileSignals::stop_if_asked();
    show(done, total);
  };
  try {
    return library::open_engine(model, settings, listener, deliver);
  } catch (const Error&) {
    if (!FileSignals::asked()) throw;
    console.err << "fourfold: ended before the model was loaded, as it was asked to" << std::endl;
    return std::nullopt;
  }
}

// Not through the stream where it is the process's own: whoever waits in there has its lock, and a process
// that ends waits for that.
void write_log(std::ostream& err, std::string_view line) {
  if (&err != &std::cerr) {
    err << line << std::flush;
    return;
  }
  while (!line.empty()) {
    const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {  // somebody else's non-blocking terminal
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (written < 0 && errno != EINTR) return;
    if (written > 0) line.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

int run_serve(const ServeOptions& options, const Console& console) {
  ignore_broken_pipes();
  require_consistent(options);
  const std::optional<library::NodeOptions> nodes = node_options(options);
  server::ApiKeys keys(options.api_keys, {options.api_key_files.begin(), options.api_key_files.end()});
  server::ApiKeys operator_keys({}, {options.operator_key_files.begin(), options.operator_key_files.end()},
                                "--operator-key");
  server::use_few_heaps();
  server::raise_descriptor_limit();
  // Before the model: a port in use or a missing key is known in a moment, a model may take minutes.
  server::HttpServer http(http_options(options));
  require_key_or_loopback(options, http, keys);
  const std::unique_ptr<events::Publisher> publisher = open_events(options);
  // Whoever reads the log may stop reading; the server's thread does not wait for that.
  server::LogQueue log([&err = console.err](const std::string& line) { write_log(err, line); });
  server::ServiceOptions service_settings = service_options(options, log);
  if (operator_keys.any()) service_settings.operator_keys = &operator_keys;

  const auto model = fetch_and_open_model(options.model, console, options.backend.strict);
  library::EngineSettings settings = engine_settings(options, *model);
  if (publisher)
    settings.on_blocks = [&](std::vector<schedule::BlockEvent>&& blocks, std::int64_t block_tokens) {
      return publisher->publish(std::move(blocks), block_tokens);
    };
  settings.backend.nodes = nodes;
  const server::ServedModel served = served_model(options, *model);
  const auto kernels = std::make_shared<server::KernelLines>();
  if (on_machine(options.backend.backend))
    settings.backend.on_kernels = [kernels](const std::string& text) { kernels->add(text); };
  if (options.backend.backend == "cpu")
    kernels->add(fourfold::format("CPU kernels for {}", cpu::isa_name(cpu::choose_isa(""))));
  settings.backend = with_explain(settings.backend, console);
  std::optional<FileSignals> signals;  // from here on: the ranks it starts end with it
  if (settings.backend.nodes) {
    signals.emplace();
    settings.backend.nodes->is_stopped = FileSignals::asked;
    settings.backend.nodes->log = [&log](const std::string& line) { log.add("info ranks " + line); };
  }
  server::Mailbox mailbox;
  const auto deliver = [&](std::vector<engine::Delivery>&& deliveries) {
    mailbox.put(std::move(deliveries));
  };
  const std::optional<library::OpenEngine> opened = load_engine(*model, settings, deliver, console);
  if (!opened) return kFine;
  const PreparedModel& prepared = opened->prepared;

  server::ServerFacts facts{
      .version = version(),
      .commit = commit(),
      .model = model->folder.filename().string(),
      .backend = options.backend.backend,
      .device = prepared.machine ? prepared.machine->description() : device_words(settings.backend),
      .memory = {prepared->memory().begin(), prepared->memory().end()},
      .notices = {prepared->notices().begin(), prepared->notices().end()},
      .kernels = kernels};
  if (publisher) facts.events = [&] { return event_counts(*publisher); };
  if (!served.chat_template) facts.notices.push_back("this model has no chat template: /v1/completions only");
  server::EngineRunner runner(*opened->engine);
  server::Service service(http, runner, mailbox, served, keys, facts, std::move(service_settings));
  http.listen();
  show_banner(options, http, keys, served, facts, opened->room, publisher.get(), console);
  // One that came too late for the load and too early for the server.
  if (signals)
    http.post([&] {
      if (FileSignals::asked()) service.signal(SIGTERM);
    });
  http.run(service);
  // Whoever restarts it sees that it did not end well.
  return opened->engine->status().fault.empty() ? kFine : kMiss;
}

}  // namespace fourfold::cli
