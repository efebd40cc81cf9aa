// A whole server on a golden model in this process: sockets, protocols, engine and CPU backend are the real
// ones.
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/serve_model.h"
#include "engine/engine.h"
#include "json/parse.h"
#include "server/api/form_cache.h"
#include "server/engine_runner.h"
#include "server/service.h"
#include "tests/cli_model/support.h"
#include "tests/server/client.h"

namespace fourfold::server {

struct RealOptions {
  std::vector<std::string> keys = {};
  HttpLimits limits = {};
  ServiceOptions service = {};
  std::int64_t max_context = 512, kv_tokens = 2048, max_sequences = 8, max_queue = 64;
  std::string mtp = "auto";
  std::size_t form_bytes = 0;  // of all forms in use; 0: as the program has it
  int store_responses_mb = 64;
};

class RealServer {
 public:
  explicit RealServer(const RealOptions& options = {})
      : console{out_, err_},
        model(cli::open_model(folder.path(), console)),
        http({.port = 0, .limits = options.limits}),
        keys(options.keys, {}) {
    cli::ServeOptions serve;
    serve.store_responses_mb = options.store_responses_mb;
    serve.model = folder.path();
    serve.served_names = {"micro"};
    serve.max_context = options.max_context;
    serve.kv_tokens = options.kv_tokens;
    serve.max_sequences = options.max_sequences;
    serve.backend.threads = 1;
    serve.max_queue = options.max_queue;
    serve.mtp = options.mtp;
    const library::EngineSettings settings = cli::engine_settings(serve, *model);
    served.emplace(cli::served_model(serve, *model));
    if (options.form_bytes > 0)
      served->forms =
          std::make_shared<api::FormCache>(std::make_shared<const constrain::Vocabulary>(
                                               served->tokenizer, served->stop_ids, served->token_limit),
                                           options.form_bytes, options.form_bytes);
    opened = library::open_engine(*model, settings, {}, [this](std::vector<engine::Delivery>&& deliveries) {
      mailbox.put(std::move(deliveries));
    });
    engine = opened.engine.get();
    runner.emplace(*engine);
    service.emplace(http, *runner, mailbox, *served, keys, ServerFacts{.version = "test", .backend = "cpu"},
                    options.service);
    http.listen();
    thread_ = std::thread([this] { http.run(*service); });
  }
  ~RealServer() {
    http.post([this] { http.stop(); });
    thread_.join();
    engine->stop(std::chrono::milliseconds(0));
    service.reset();
  }

  std::uint16_t port() const { return http.port(); }
  Reply ask(std::string_view request) const { return server::ask(http.port(), request, 60'000); }
  Reply chat(std::string_view body) const { return ask(post("/v1/chat/completions", body)); }
  Reply complete(std::string_view body) const { return ask(post("/v1/completions", body)); }
  engine::EngineStatus status() const { return engine->status(); }
  // Everything a request held is free again.
  bool settles(int wait_ms = 1'000) const {
    return eventually(
        [&] {
          const engine::EngineStatus now = status();
          return now.running == 0 && now.waiting == 0 && now.pages_used == now.pages_cached;
        },
        wait_ms);
  }

 private:
  std::ostringstream out_, err_;

 public:
  cli::Console console;
  cli::TalkingModel folder;
  std::unique_ptr<cli::OpenModel> model;
  std::optional<ServedModel> served;
  HttpServer http;
  ApiKeys keys;
  Mailbox mailbox;
  library::OpenEngine opened;
  engine::Engine* engine = nullptr;  // the opened one
  std::optional<EngineRunner> runner;
  std::optional<Service> service;

 private:
  std::thread thread_;
};

// The text of a choice, whole or a streamed piece of it, with what the model thinks.
inline std::string choice_text(const boost::json::object& choice) {
  std::string text;
  const auto add = [&](const boost::json::object& holder, const char* name) {
    if (const auto* part = holder.if_contains(name); part != nullptr && part->is_string())
      text += std::string_view(part->as_string());
  };
  add(choice, "text");
  for (const char* holder : {"message", "delta"})
    if (const auto* message = choice.if_contains(holder))
      for (const char* name : {"reasoning_content", "content"}) add(message->as_object(), name);
  return text;
}

// Of a finished answer, of either protocol; empty when there is none.
inline std::string answer_text(const Reply& reply) {
  if (reply.status != 200) return {};
  return choice_text(json::parse(reply.body, "answer").at("choices").at(0).as_object());
}

// A refusal as clients expect it, without a word about this machine.
inline void expect_refusal(const Reply& reply, int status, const std::string& about) {
  EXPECT_EQ(reply.status, status) << about << "\n" << reply.body;
  if (reply.status == 200 || reply.body.empty()) return;
  const auto body = json::parse(reply.body, "refusal");
  const auto& error = body.at("error").as_object();
  for (const char* name : {"message", "type", "param", "code"})
    EXPECT_TRUE(error.contains(name)) << name << " " << about;
  for (const char* inside : {"0x", "/tmp", "/home", "/root", ".cpp", "std::"})
    EXPECT_EQ(reply.body.find(inside), std::string::npos) << reply.body;
}

}  // namespace fourfold::server
