// Faults 17 to 19 of docs/faults.md: clients that leave, stall, or pretend, against a real engine.
#include "tests/faults/support.h"

namespace fourfold::server {
namespace {

const std::string kLong = R"({"prompt":"hello","max_tokens":400,"ignore_eos":true,"stream":true,"seed":1})";

TEST(Connections, Fault17WhoLeavesIsCancelledAtEveryMoment) {
  RealServer server;
  std::string ids = "1";
  for (int i = 1; i < 300; ++i) ids += "," + std::to_string(i);
  const std::string whole = "{\"prompt\":[" + ids + "],\"max_tokens\":200,\"ignore_eos\":true,\"n\":2}";
  for (int moment = 0; moment < 30; ++moment) {
    Client client(server.port());
    const bool streams = moment % 2 == 0;
    const std::string request = post("/v1/completions", streams ? kLong : whole);
    // Of the request, of the prompt, of the answer: a little later each time.
    client.send(moment < 6 ? request.substr(0, request.size() * moment / 6) : request);
    if (moment >= 6) usleep(static_cast<unsigned>((moment - 6) * 700));
    if (moment % 5 == 4) client.end_sending();
    if (moment % 5 == 3 && streams) client.receive_until("data:", 200);
    client.close();
  }
  EXPECT_TRUE(server.settles(5'000));
  EXPECT_EQ(server.complete(R"({"prompt":"a","max_tokens":2})").status, 200);
  EXPECT_EQ(server.status().failed, 0);
}

TEST(Connections, Fault17WhoDoesNotReadStallsNobody) {
  RealServer server({.limits = {.pending_bytes_max = 4096,
                                .send_buffer_bytes = 4096,
                                .write_time = std::chrono::milliseconds(500)},
                     .max_context = 700,
                     .kv_tokens = 6'000});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port(), 2048);
    clients.back().send(
        post("/v1/completions",
             R"({"prompt":"a","max_tokens":600,"ignore_eos":true,"stream":true,"logprobs":5,"n":2})"));
  }
  ASSERT_TRUE(eventually([&] { return server.status().running >= 3; }));
  EXPECT_EQ(server.complete(R"({"prompt":"a","max_tokens":20})").status, 200);
  EXPECT_TRUE(server.settles(60'000));
  EXPECT_GE(server.status().cancelled, 6) << "two choices of each";
}

TEST(Connections, Fault18TwoThousandIdleConnectionsAndThoseWhoCrawl) {
  if (raise_descriptor_limit() < 4'300) GTEST_SKIP() << "fewer than 4,300 files may be open here";
  RealServer server({.limits = {.header_time = std::chrono::milliseconds(3'000),
                                .body_time = std::chrono::milliseconds(3'000)}});
  std::vector<Client> idle;
  for (int i = 0; i < 2'000; ++i) {
    idle.emplace_back(server.port());
    ASSERT_TRUE(idle.back().connected()) << i;
  }
  Client head(server.port()), body(server.port());
  head.send("POST /v1/comp");
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_EQ(server.complete(R"({"prompt":"a","max_tokens":2})").status, 200);
  EXPECT_EQ(head.reply(10'000).status, 408);
  EXPECT_EQ(body.reply(10'000).status, 408);
  for (int i = 0; i < 2'000; i += 97) {
    idle[i].send(get("/health"));
    EXPECT_EQ(idle[i].reply().status, 200) << i;
  }
}

TEST(Connections, Fault19EveryRouteAsksForTheKey) {
  std::string logged;
  RealServer server({.keys = {"the-secret-key"},
                     .service = {.log_request = [&](const std::string& line) { logged += line; }}});
  const auto with = [](std::string_view path, bool is_get, const char* more) {
    return is_get ? get(path, more) : post(path, "{}", more);
  };
  for (const Route& route : all_routes()) {
    const bool is_get = route.method == "GET";
    const bool named = route.kind == RouteKind::model || route.kind == RouteKind::response;
    const std::string path = std::string(route.path) + (named ? "micro" : "");
    const bool is_open = route.kind == RouteKind::health;
    EXPECT_EQ(server.ask(with(path, is_get, "")).status, is_open ? 200 : 401) << path;
    EXPECT_EQ(server.ask(with(path + "?api_key=the-secret-key", is_get, "")).status, is_open ? 200 : 401)
        << path;
    EXPECT_EQ(server.ask(with("http://localhost" + path, is_get, "")).status, is_open ? 200 : 401) << path;
    EXPECT_EQ(server.ask(with(path, is_get, "Authorization: Bearer the-secret-kez\r\n")).status,
              is_open ? 200 : 401)
        << path;
    const int status = server.ask(with(path, is_get, "Authorization: Bearer the-secret-key\r\n")).status;
    EXPECT_TRUE(status == 200 || status == 400 || (status == 404 && route.kind == RouteKind::response))
        << path << " " << status;
  }
  EXPECT_NE(logged.find("status=401"), std::string::npos);
  EXPECT_EQ(logged.find("secret"), std::string::npos) << "keys are never logged";
}

}  // namespace
}  // namespace fourfold::server
