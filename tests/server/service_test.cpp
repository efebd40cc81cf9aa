#include "server/service.h"

#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "json/parse.h"
#include "tests/checkpoint/support.h"
#include "tests/server/fakes.h"

namespace fourfold::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
constexpr const char* kChat = "/v1/chat/completions";

std::string request_of(const Route& route, std::string_view more) {
  const std::string path = std::string(route.path) + (route.kind == RouteKind::model      ? "made/up"
                                                      : route.kind == RouteKind::response ? "resp_1"
                                                                                          : "");
  return route.method == "GET" ? get(path, more) : post(path, R"({"prompt":"a","tokens":[1]})", more);
}

TEST(Service, AnswersWholeAndStreamed) {
  FakeServer server;
  Reply reply = server.ask(post(kChat, "5"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "data: 5\n\ndata: 4\n\ndata: 3\n\ndata: 2\n\ndata: 1\n\n|");
  EXPECT_FALSE(reply.header("X-Request-Id").empty());
  reply = server.ask(post("/v1/messages", "stream 2", "X-Request-Id: mine-1\r\n"));
  EXPECT_EQ(reply.body, "data: 2\n\ndata: 1\n\ndata: [DONE]\n\n");
  EXPECT_EQ(reply.header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.header("X-Request-Id"), "mine-1");
  reply = server.ask(post("/v1/completions", "2 x3"));
  EXPECT_EQ(reply.body, "data: 2\n\ndata: 1\n\n|data: 2\n\ndata: 1\n\n|data: 2\n\ndata: 1\n\n|");
  reply = server.ask(post("/v1/responses", "stop 100000"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(server.runner.cancelled, 1);
}

TEST(Service, EveryRouteButHealthAndThePagesNeedsAKey) {
  FakeServer server({"secret-1", "secret-2"});
  for (const Route& route : all_routes()) {
    const int without = server.ask(request_of(route, "")).status;
    EXPECT_EQ(without, route.kind == RouteKind::health ? 200 : 401) << route.path;
    for (const char* wrong : {"Authorization: Bearer secret-3\r\n", "Authorization: Bearer secret-\r\n",
                              "Authorization: Bearer \r\n", "Authorization: Basic secret-1\r\n",
                              "X-Api-Key: no\r\n", "Cookie: key=secret-1\r\n"})
      EXPECT_EQ(server.ask(request_of(route, wrong)).status, without) << route.path << wrong;
    for (const char* right : {"Authorization: Bearer secret-1\r\n", "authorization: bearer secret-2\r\n",
                              "X-Api-Key: secret-2\r\n"})
      EXPECT_NE(server.ask(request_of(route, right)).status, 401) << route.path << right;
  }
  for (const char* page : {"/", "/status"}) EXPECT_EQ(server.ask(get(page)).status, 200) << page;
  // Every spelling and every path there is not.
  for (const char* path :
       {"/metrics?key=secret-1", "//metrics", "/metrics/", "/Metrics", "/%6detrics", "/health/../metrics",
        "/health/", "/v1", "/nothing", "http://localhost/metrics", "/status.json#"})
    EXPECT_NE(server.ask(get(path)).status / 100, 2) << path;
  EXPECT_EQ(server.ask(get("http://localhost/metrics", "X-Api-Key: secret-1\r\n")).status, 200);
  EXPECT_EQ(server.ask(get("/nothing", "X-Api-Key: secret-1\r\n")).status, 404);
  EXPECT_EQ(server.ask("DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n").status, 405);
}

TEST(Service, TenantsShareNoPrefixes) {
  FakeServer server({"key-a", "key-b"});
  server.ask(post(kChat, "1", "X-Api-Key: key-a\r\n"));
  server.ask(post(kChat, "1", "X-Api-Key: key-b\r\n"));
  server.ask(post(kChat, "1", "X-Api-Key: key-a\r\n"));
  ASSERT_EQ(server.runner.salts.size(), 3u);
  EXPECT_NE(server.runner.salts[0], server.runner.salts[1]);
  EXPECT_EQ(server.runner.salts[0], server.runner.salts[2]);
}

TEST(Service, OtherPeoplesPagesMayNotAsk) {
  FakeServer server({}, {.cors_origins = {"https://good.example"}, .allowed_hosts = {"model.lan"}});
  EXPECT_EQ(server.ask(post(kChat, "1", "Origin: https://evil.example\r\n")).status, 403);
  EXPECT_EQ(server.ask(post(kChat, "1", "Origin: null\r\n")).status, 403);
  EXPECT_EQ(server.ask(post(kChat, "1", "Origin: http://localhost\r\n")).status, 200);
  Reply reply = server.ask(post(kChat, "1", "Origin: https://good.example\r\n"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_EQ(reply.header("Access-Control-Expose-Headers"),
            "X-Fourfold-Ignored, X-Fourfold-Changed, X-Request-Id, Retry-After");
  const std::string preflight =
      " /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\nOrigin: ";
  const std::string asked = "authorization, content-type, x-stainless-os, anthropic-beta";
  reply = server.ask("OPTIONS" + preflight +
                     "https://good.example\r\nAccess-Control-Request-Headers: " + asked + "\r\n\r\n");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.header("Access-Control-Allow-Headers"), asked);
  EXPECT_EQ(server.ask("OPTIONS" + preflight + "https://evil.example\r\n\r\n").status, 405);
  EXPECT_EQ(server.ask("GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\n\r\n").status, 403);
  for (const char* host : {"127.0.0.1:80", "[::1]:80", "LOCALHOST", "model.lan:8000"})
    EXPECT_EQ(server.ask("GET /v1/models HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n").status, 200)
        << host;
  EXPECT_EQ(
      server
          .ask("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: "
               "1\r\n\r\n1")
          .status,
      403);
  EXPECT_EQ(server
                .ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
                     "Content-Length: 1\r\n\r\n1")
                .status,
            415);
}

TEST(Service, ErrorsHaveTheirShapeAndNoInsides) {
  FakeServer server;
  Reply reply = server.ask(post("/v1/nothing", "1"));
  EXPECT_EQ(reply.status, 404);
  const auto body = json::parse(reply.body, "body");
  for (const char* name : {"message", "type", "param", "code"})
    EXPECT_TRUE(body.at("error").as_object().contains(name)) << name;
  reply = server.ask(post(kChat, "crash"));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.body.find("0x7fff"), std::string::npos);
  EXPECT_EQ(reply.body.find("/home"), std::string::npos);
  reply = server.ask("PUT /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.header("Allow"), "POST");
  const std::string response = " /v1/responses/resp_1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(server.ask("PUT" + response).header("Allow"), "GET, HEAD, DELETE");
  for (const char* method : {"GET", "DELETE"}) EXPECT_EQ(server.ask(method + response).status, 404) << method;
  EXPECT_EQ(json::parse(reply.body, "body").at("type").as_string(), "error");
}

// Also of what the server refuses before it has the whole request.
TEST(Service, RefusalsOfHttpHaveTheProtocolsShape) {
  HttpLimits limits;
  limits.body_bytes_max = 100;
  limits.body_time = milliseconds(100);
  FakeServer server({}, {}, microseconds(300), limits);
  const auto parsed = [](const Reply& reply) { return json::parse(reply.body, "body"); };
  for (const bool anthropic : {true, false}) {
    const std::string path = anthropic ? "/v1/messages" : "/v1/chat/completions";
    const Reply large = server.ask(post(path, std::string(200, ' ')));
    EXPECT_EQ(large.status, 413);
    const Reply slow =
        server.ask("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{");
    EXPECT_EQ(slow.status, 408);
    for (const Reply& reply : {large, slow})
      EXPECT_EQ(parsed(reply).as_object().contains("type"), anthropic) << reply.body;
    EXPECT_EQ(parsed(large).at("error").at("type").as_string(),
              anthropic ? "request_too_large" : "invalid_request_error");
  }
}

TEST(Service, AFullQueueSaysWhenToComeAgain) {
  FakeServer server({}, {}, microseconds(300), {}, 2);
  Client first(server.http.port()), second(server.http.port());
  first.send(post(kChat, "stream 1000000"));
  second.send(post(kChat, "stream 1000000"));
  ASSERT_TRUE(first.receive_until("data:") && second.receive_until("data:"));
  // Three choices: none of them may run on when the third is refused.
  Reply reply = server.ask(post(kChat, "5 x3"));
  EXPECT_TRUE(reply.status == 429 || reply.status == 503) << reply.status;
  EXPECT_EQ(reply.header("Retry-After"), "1");
  EXPECT_EQ(server.ask(get("/ready")).status, 503);
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  first.close();
  EXPECT_TRUE(eventually([&] { return server.ask(post(kChat, "2")).status == 200; }));
}

// Whoever fills the queue leaves places for others.
TEST(Service, AClientNeverFillsTheQueue) {
  FakeServer server({"greedy", "other"}, {}, microseconds(300), {}, 40);
  std::vector<Client> greedy;
  for (int i = 0; i < 40; ++i) {
    greedy.emplace_back(server.http.port());
    greedy.back().send(post(kChat, "stream 100000000", "X-Api-Key: greedy\r\n"));
    if (greedy.back().receive_until("\r\n\r\n") && greedy.back().buffer().starts_with("HTTP/1.1 200"))
      continue;
    const Reply reply = greedy.back().reply();
    EXPECT_EQ(reply.status, 429) << reply.body;
    EXPECT_EQ(reply.header("Retry-After"), "1");
    greedy.pop_back();
    break;
  }
  EXPECT_EQ(greedy.size(), 30u);
  EXPECT_EQ(server.ask(post(kChat, "3 x4", "X-Api-Key: other\r\n")).status, 200);
  greedy.clear();
  EXPECT_TRUE(eventually([&] { return server.runner.status().running == 0; }));
  EXPECT_EQ(server.ask(post(kChat, "3 x20", "X-Api-Key: greedy\r\n")).status, 200)
      << "the places are free again";
}

// What all clients do together is for operators, where there are any.
TEST(Service, OperatorsReadMetricsAndNobodyElseDoes) {
  ApiKeys operators({"op"}, {}, "--operator-key");
  FakeServer server({"key"}, {.operator_keys = &operators});
  const auto status = [&](const std::string& request) { return server.ask(request).status; };
  for (const char* path : {"/metrics", "/status.json", "/get_load"}) {
    EXPECT_EQ(status(get(path)), 401) << path;
    EXPECT_EQ(status(get(path, "X-Api-Key: wrong\r\n")), 401) << path;
    EXPECT_EQ(status(get(path, "X-Api-Key: key\r\n")), 403) << path;
    EXPECT_EQ(status(get(path, "X-Api-Key: op\r\n")), 200) << path;
  }
  EXPECT_EQ(status(post(kChat, "2", "X-Api-Key: op\r\n")), 403);
  EXPECT_EQ(status(post(kChat, "2", "X-Api-Key: key\r\n")), 200);
  for (const char* path : {"/ready", "/version", "/health"})
    EXPECT_EQ(status(get(path, "X-Api-Key: op\r\n")), 200) << path;
  for (const char* path : {"/v1/models", "/v1/models/made%2Fup", "/server_info", "/v1/responses/resp_1",
                           "/tokenizer_info", "/nothing"})
    EXPECT_EQ(status(get(path, "X-Api-Key: op\r\n")), 403) << path;
  EXPECT_EQ(status("DELETE /v1/responses/resp_1 HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: op\r\n\r\n"), 403);
  FakeServer open({}, {.operator_keys = &operators});
  EXPECT_EQ(open.ask(get("/metrics")).status, 401);
  EXPECT_EQ(open.ask(post(kChat, "2")).status, 200);
}

TEST(Service, AHangUpReadsTheKeysOfOperatorsToo) {
  const checkpoint::TempFolder folder;
  folder.write("operators", "op\n");
  ApiKeys operators({}, {folder.path() / "operators"}, "--operator-key");
  std::mutex mutex;
  std::string logged;
  FakeServer server({"key"}, {.operator_keys = &operators, .log = [&](const std::string& line) {
                                const std::lock_guard lock(mutex);
                                logged += line + "\n";
                              }});
  folder.write("operators", "op\nanother\n");
  server.http.post([&] { server.service->signal(SIGHUP); });
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return logged.find("1 keys are known, and 2 of operators") != std::string::npos;
  }));
  EXPECT_EQ(server.ask(get("/metrics", "X-Api-Key: another\r\n")).status, 200);
}

TEST(Service, RequestsBeyondTheRateAreRefusedPerKey) {
  FakeServer server({"a", "b"}, {.rate_limit = 2});
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    const Reply reply = server.ask(post(kChat, "1", "X-Api-Key: a\r\n"));
    if (reply.status != 429) continue;
    ++refused;
    EXPECT_EQ(reply.header("Retry-After"), "1");
  }
  EXPECT_GE(refused, 3);
  EXPECT_EQ(server.ask(post(kChat, "1", "X-Api-Key: b\r\n")).status, 200);
}

TEST(Service, WhoeverLeavesIsCancelled) {
  FakeServer server;
  for (const char* body : {"stream 1000000", "1000000", "stream 1000000 x3"}) {
    Client client(server.http.port());
    client.send(post(kChat, body));
    ASSERT_TRUE(eventually([&] { return server.runner.status().running > 0; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return server.runner.status().running == 0; })) << body;
  }
  EXPECT_EQ(server.runner.cancelled, 5);
}

TEST(Service, AClientThatDoesNotReadIsCancelledAndOthersGoOn) {
  FakeServer server({}, {}, microseconds(20),
                    {.pending_bytes_max = 1 << 14, .write_time = milliseconds(300)});
  Client client(server.http.port(), 4096);
  client.send(post(kChat, "stream 100000000 x64"));
  ASSERT_TRUE(eventually([&] { return server.runner.status().running == 64; }));
  EXPECT_EQ(server.ask(post(kChat, "3")).status, 200);
  EXPECT_TRUE(eventually([&] { return server.runner.status().running == 0; }, 20'000));
  EXPECT_EQ(server.metric("fourfold_http_slow_readers_total"), "1");
}

TEST(Service, CarriesThousandsOfStreams) {
  if (raise_descriptor_limit() < 4'300) GTEST_SKIP() << "fewer than 4,300 files may be open here";
  constexpr int kStreams = 2'000, kTokens = 25;
  FakeServer server({}, {}, milliseconds(20), {}, 2 * kStreams);  // one client: no more than its share
  std::vector<Client> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(server.http.port());
    ASSERT_TRUE(clients.back().send(post(kChat, "stream " + std::to_string(kTokens)))) << i;
  }
  int whole = 0;
  for (Client& client : clients) {
    const Reply reply = client.reply(60'000);
    whole += reply.whole && reply.body.ends_with("data: 1\n\ndata: [DONE]\n\n") ? 1 : 0;
  }
  EXPECT_EQ(whole, kStreams);
}

TEST(Service, WhatIsIgnoredIsSaidInHeadersLogAndMetrics) {
  std::vector<std::string> lines;
  FakeServer server({}, {.log = [&](const std::string& line) { lines.push_back(line); }});
  EXPECT_EQ(server.ask(post(kChat, "2")).header("X-Fourfold-Ignored"), "");
  for (const char* body : {"odd 2", "odd stream 2"}) {
    const Reply reply = server.ask(post(kChat, body));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.header("X-Fourfold-Ignored"), "odd??Set-Cookie??a") << body;
    EXPECT_EQ(reply.header("Set-Cookie"), "");
  }
  const Reply text = server.ask(post("/tokenize", R"({"prompt":"a","unknown":1})"));
  EXPECT_EQ(text.status, 200);
  EXPECT_EQ(text.header("X-Fourfold-Ignored"), "unknown");
  EXPECT_EQ(server.metric("fourfold_request_notes_total{kind=\"field\"}"), "3");
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "info server ignored field=odd??Set-Cookie??a route=/v1/chat/completions; said once",
                       "info server ignored field=unknown route=/tokenize; said once"}));
}

TEST(Service, SilentStreamsGetComments) {
  FakeServer server({}, {.silence = milliseconds(50)});
  server.runner.stuck = true;
  Client client(server.http.port());
  client.send(post(kChat, "stream 2"));
  EXPECT_TRUE(client.receive_until(": waiting\n\n"));
  server.runner.stuck = false;
  EXPECT_TRUE(client.receive_until("[DONE]"));
}

TEST(Service, AnAnswerThatCannotBeWrittenIsItsOwnFault) {
  FakeServer server;
  const Reply reply = server.ask(post(kChat, "spoil 3"));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.body.find("secret"), std::string::npos) << reply.body;
  EXPECT_EQ(server.ask(post(kChat, "3")).status, 200);
}

// An engine that hangs in its first step has never said that anybody runs.
TEST(Service, AnEngineStuckInItsFirstStepIsSeenByHealth) {
  FakeServer server({}, {.stall = milliseconds(500)});
  server.runner.stuck = server.runner.silent = true;
  Client client(server.http.port());
  client.send(post(kChat, "stream 1000000"));
  EXPECT_TRUE(eventually([&] { return server.ask(get("/health")).status == 503; }));
  EXPECT_TRUE(client.receive_until("[DONE]")) << "whoever waited is told";
  EXPECT_EQ(server.ask(get("/ready")).status, 503);
  EXPECT_EQ(server.ask(post(kChat, "1")).status, 503);
  server.runner.stuck = false;
  EXPECT_TRUE(eventually([&] { return server.ask(get("/health")).status == 200; }));
}

TEST(Service, AStuckEngineIsSeenByHealth) {
  FakeServer server({}, {.stall = milliseconds(500)});
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  Client client(server.http.port());
  client.send(post(kChat, "stream 1000000"));
  ASSERT_TRUE(client.receive_until("data:"));
  server.runner.stuck = true;
  EXPECT_TRUE(eventually([&] { return server.ask(get("/health")).status == 503; }));
  server.runner.stuck = false;
  EXPECT_TRUE(eventually([&] { return server.ask(get("/health")).status == 200; }));
}

TEST(Service, ABrokenEngineIsNeitherWellNorReady) {
  FakeServer server;
  EXPECT_EQ(server.ask(get("/ready")).status, 200);
  server.runner.broken = true;
  EXPECT_EQ(server.ask(get("/health")).status, 503);
  EXPECT_EQ(server.ask(get("/ready")).status, 503);
}

TEST(Service, AHungStepDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        FakeServer server({}, {.grace = milliseconds(10), .stall = milliseconds(10)});
        server.runner.hangs = true;
        server.http.post([&] { server.service->begin_shutdown(); });
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(1), "");
}

TEST(Service, ShutsDownWithAWordToEverybody) {
  FakeServer server({}, {.request_time = milliseconds(1234), .grace = milliseconds(200)});
  Client client(server.http.port()), whole(server.http.port());
  client.send(post(kChat, "stream 1000000"));
  whole.send(post(kChat, "1000000"));
  ASSERT_TRUE(client.receive_until("data:"));
  ASSERT_TRUE(eventually([&] { return server.runner.status().running == 2; }));
  EXPECT_EQ(server.runner.time_limit, milliseconds(1234));
  server.http.post([&] { server.service->begin_shutdown(); });
  EXPECT_TRUE(client.receive_until("data: shutdown"));
  EXPECT_TRUE(client.receive_until("[DONE]"));
  EXPECT_EQ(whole.reply().status, 200);
  EXPECT_TRUE(client.sees_end());
  EXPECT_FALSE(Client(server.http.port()).connected());
}

TEST(Service, TextRoutesAreVllms) {
  FakeServer server;
  const auto parsed = [&](const Reply& reply) { return json::parse(reply.body, "body"); };
  const auto tokens = parsed(server.ask(
      post("/tokenize", R"({"model":"made/up","prompt":"hello there","return_token_strs":true})")));
  EXPECT_EQ(tokens.at("count").to_number<int>(), static_cast<int>(tokens.at("tokens").as_array().size()));
  EXPECT_EQ(tokens.at("max_model_len").to_number<int>(), 1000);
  std::string ids, texts;
  for (const auto& id : tokens.at("tokens").as_array())
    ids += (ids.empty() ? "" : ",") + std::to_string(id.to_number<int>());
  for (const auto& text : tokens.at("token_strs").as_array()) texts += text.as_string().c_str();
  EXPECT_EQ(texts, "hello there");
  const auto back = parsed(server.ask(post("/detokenize", "{\"tokens\":[" + ids + "]}")));
  EXPECT_EQ(back.at("prompt").as_string(), "hello there");
  const auto chat = parsed(server.ask(post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})")));
  EXPECT_GT(chat.at("count").to_number<int>(), 2);
  for (const char* bad :
       {R"({"prompt":"a","messages":[]})", "{}", "[]", "", R"({"prompt":1})", "{\"prompt\":\"a\"} x",
        R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"messages":[]}})",
        R"({"messages":[{"role":"robot","content":"a"}]})"})
    EXPECT_EQ(server.ask(post("/tokenize", bad)).status, 400) << bad;
  EXPECT_EQ(server.ask(post("/tokenize", R"({"prompt":"a","model":"another"})")).status, 404);
  EXPECT_EQ(server.ask(post("/detokenize", R"({"tokens":[1],"model":"another"})")).status, 404);
  // Longer than the context is no reason not to count.
  EXPECT_EQ(server.ask(post("/tokenize", "{\"prompt\":\"" + std::string(100'000, 'a') + "\"}")).status, 200);
  EXPECT_EQ(server
                .ask(post("/tokenize",
                          R"({"messages":[{"role":"user","content":")" + std::string(900'000, 'a') + "\"}]}"))
                .status,
            200);
  for (const char* bad :
       {R"({"tokens":[-1]})", R"({"tokens":[320]})", R"({"tokens":[4294967296]})",
        R"({"tokens":[18446744073709551616]})", R"({"tokens":[1.5]})", R"({"tokens":"1"})", "{}"})
    EXPECT_EQ(server.ask(post("/detokenize", bad)).status, 400) << bad;
  EXPECT_EQ(parsed(server.ask(get("/v1/models"))).at("data").at(1).at("id").as_string(), "other");
  for (const char* name : {"/v1/models/made/up", "/v1/models/made%2Fup", "/v1/models/default"})
    EXPECT_EQ(parsed(server.ask(get(name))).at("id").as_string(), "made/up") << name;
  EXPECT_EQ(server.ask(get("/v1/models/another")).status, 404);
}

TEST(Service, StatusAndMetricsAreWellFormed) {
  FakeServer server;
  server.ask(post(kChat, "stream 3"));
  server.ask(get("/no\"such\npath"));
  const auto status = json::parse(server.ask(get("/status.json")).body, "status");
  for (const char* part : {"model", "program", "sequences", "pages", "tokens", "prefix_cache", "mtp",
                           "memory", "kernels", "notices", "http", "latency"})
    EXPECT_TRUE(status.as_object().contains(part)) << part;
  EXPECT_EQ(json::parse(server.ask(get("/version")).body, "version").at("version").as_string(), "1.2.3");
  const std::string text = server.ask(get("/metrics")).body;
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size(); ++lines) {
    const std::size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# ")) continue;
    const std::size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    char* rest = nullptr;
    std::strtod(line.c_str() + space + 1, &rest);
    EXPECT_EQ(*rest, '\0') << line;
  }
  EXPECT_GT(lines, 100u);
  EXPECT_NE(text.find("vllm:time_to_first_token_seconds_count{model_name=\"made/up\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("route=\"/v1/chat/completions\",status=\"200\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("vllm:cache_config_info{model_name=\"made/up\",engine=\"0\",block_size=\""),
            std::string::npos);
  for (const char* line : {"\nfourfold_window_pages 0\n", "\nfourfold_window_bytes 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

TEST(Service, RoutersReadTheModelAndTheLoad) {
  FakeServer server;
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const auto info = json::parse(server.ask(get(path)).body, path);
    EXPECT_EQ(info.at("served_model_name").as_string(), "made/up");
    EXPECT_EQ(info.at("version").as_string(), "1.2.3");
  }
  const auto load = json::parse(server.ask(get("/get_load")).body, "load");
  ASSERT_EQ(load.as_array().size(), 1u);
  EXPECT_EQ(load.at(0).at("num_reqs").as_int64(), 0);
}

}  // namespace
}  // namespace fourfold::server
