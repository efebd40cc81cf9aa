// What the service does with its workers: turns, bytes that wait, work nobody waits for, threads that hang.
#include <malloc.h>

#include <mutex>

#include "json/parse.h"
#include "server/api/response_store.h"
#include "server/text_routes.h"
#include "tests/server/fakes.h"

namespace fourfold::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr const char* kChat = "/v1/chat/completions";

// Bodies that wait to be read are counted in bytes too: a queue of large ones is as good as a full one.
TEST(ServiceWork, LargeBodiesThatWaitAreRefusedBeforeTheyAreMany) {
  FakeServer server({}, {.worker_count = 1, .waiting_bytes_max = 7000});
  const std::string large(4000, ' ');
  Client busy(server.http.port()), waiting(server.http.port());
  busy.send(post(kChat, "wait"));  // the only worker waits for open_gate
  ASSERT_TRUE(eventually([&] { return server.gate_waiting > 0; }));
  const std::string request = post(kChat, "2" + large);
  waiting.send(request);
  ASSERT_TRUE(eventually([&] {
    return std::atof(server.metric("fourfold_http_received_bytes_total").c_str()) >
           static_cast<double>(post(kChat, "wait").size() + request.size());
  }));
  Reply reply = server.ask(request);
  EXPECT_EQ(reply.status, 503) << reply.body;
  EXPECT_EQ(reply.header("Retry-After"), "1");
  EXPECT_NE(reply.body.find("overloaded"), std::string::npos) << reply.body;
  server.open_gate();
  EXPECT_EQ(waiting.reply(5'000).status, 200);
  EXPECT_EQ(busy.reply(5'000).status, 200);
  EXPECT_EQ(server.ask(request).status, 200);
}

// Reading a request can take long (a schema is compiled): it ends when nobody waits for the answer.
TEST(ServiceWork, WorkEndsWhenItsClientLeavesAndWhenTheServerDoes) {
  FakeServer server({}, {.worker_count = 1});
  for (const char* body : {"work", "look"}) {
    Client leaving(server.http.port());
    leaving.send(post(kChat, body));
    ASSERT_TRUE(eventually([&] { return server.working == 1; })) << body;
    leaving.close();
    EXPECT_TRUE(eventually([&] { return server.working == 0; })) << body;
  }
  EXPECT_EQ(server.ask(post(kChat, "2")).status, 200);
  Client staying(server.http.port());
  staying.send(post(kChat, "work"));
  ASSERT_TRUE(eventually([&] { return server.working == 1; }));
  // Its end, with a worker in the middle of it, is the end of the test.
}

// Templates over many messages and texts of megabytes take long, too, and know nothing of requests.
TEST(ServiceWork, TemplatesAndTokenizingEndWhenNobodyWaits) {
  const ServedModel model = made_up_model();
  std::string turns;
  for (int i = 0; i < 20'000; ++i)
    turns += R"({"role":"user","content":"a"},{"role":"assistant","content":"b"},)";
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "word ";
  for (const std::string& body : {R"({"messages":[)" + turns + R"({"role":"user","content":"c"}]})",
                                  R"({"prompt":")" + words + R"("})"}) {
    int asked = 0;
    const std::function<bool()> cancelled = [&] { return ++asked > 1; };
    const CancelScope scope(cancelled);
    api::Notes notes;
    try {
      tokenize_answer(body, model, notes);
      ADD_FAILURE() << body.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::cancelled) << error.what();
      EXPECT_EQ(asked, 2);
    }
  }
}

// One worker: a key that sent twenty requests and one that sent one take turns, and what nobody waits for any
// more is not read at all.
TEST(ServiceWork, KeysTakeTurnsAndWhoLeftIsSkipped) {
  FakeServer server({"many", "one"}, {.worker_count = 1});
  Client busy(server.http.port());
  busy.send(post(kChat, "wait", "X-Api-Key: many\r\n"));
  ASSERT_TRUE(eventually([&] { return server.gate_waiting == 1; }));
  const auto waiting = [&] { return server.metric("fourfold_work_waiting", "X-Api-Key: one\r\n"); };
  std::vector<Client> many;
  for (int i = 0; i < 20; ++i) {
    many.emplace_back(server.http.port());
    many.back().send(post(kChat, i < 10 ? "3" : "wait", "X-Api-Key: many\r\n"));
    ASSERT_TRUE(eventually([&] { return waiting() == std::to_string(i + 1); }));
  }
  Client one(server.http.port());
  one.send(post(kChat, "2", "X-Api-Key: one\r\n"));
  ASSERT_TRUE(eventually([&] { return waiting() == "21"; }));
  for (int i = 10; i < 20; ++i) many[static_cast<std::size_t>(i)].close();
  ASSERT_TRUE(
      eventually([&] { return server.metric("fourfold_http_connections", "X-Api-Key: one\r\n") == "13"; }));
  server.open_gate();
  EXPECT_EQ(one.reply().status, 200);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(many[static_cast<std::size_t>(i)].reply().status, 200);
  EXPECT_TRUE(
      eventually([&] { return server.metric("fourfold_work_skipped_total", "X-Api-Key: one\r\n") == "10"; }));
  EXPECT_EQ(server.gate_waiting, 1) << "none of those who left was read";
}

// Requests that are read for too long: as long as a worker is left the server is ready, without one it is
// not, and later it is not even well.
TEST(ServiceWork, WorkersThatDoNotComeBackAreSeen) {
  std::mutex mutex;
  std::string logged;
  FakeServer server({}, {.stall = milliseconds(3'000),
                         .worker_count = 2,
                         .work_time = milliseconds(300),
                         .log = [&](const std::string& line) {
                           const std::lock_guard lock(mutex);
                           logged += line + "\n";
                         }});
  Client first(server.http.port()), second(server.http.port());
  first.send(post(kChat, "wait"));
  ASSERT_TRUE(eventually([&] { return server.gate_waiting == 1; }));
  EXPECT_TRUE(
      eventually([&] { return std::atof(server.metric("fourfold_worker_longest_seconds").c_str()) > 0.3; }));
  EXPECT_EQ(server.metric("fourfold_workers_busy"), "1");
  EXPECT_EQ(server.ask(get("/ready")).status, 200);
  second.send(post(kChat, "wait"));
  EXPECT_TRUE(eventually([&] { return server.ask(get("/ready")).status == 503; }));
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  EXPECT_TRUE(eventually([&] { return server.ask(get("/health")).status == 503; }, 10'000));
  server.open_gate();
  EXPECT_TRUE(eventually([&] { return server.ask(get("/ready")).status == 200; }));
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  const std::lock_guard lock(mutex);
  EXPECT_NE(logged.find("a request has been read for"), std::string::npos) << logged;
}

// Told to end with a worker that never comes back, the process ends all the same.
TEST(ServiceWork, AHungWorkerDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        FakeServer server({}, {.grace = milliseconds(10), .farewell = milliseconds(100)});
        Client client(server.http.port());
        client.send(post(kChat, "wait"));
        while (server.gate_waiting == 0) usleep(1000);
        server.http.post([&] { server.service->begin_shutdown(); });
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(1), "");
}

// Megabytes of text: bounded, and the answer is made as it is read.
TEST(ServiceWork, LongTextIsTokenizedInPieces) {
  FakeServer server({}, {}, microseconds(300), {.send_buffer_bytes = 65536});
  const std::string text(4'000'000, 'q');
  const std::string request = post("/tokenize", "{\"prompt\":\"" + text + "\",\"return_token_strs\":true}");
  const Reply reply = server.ask(request);
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.whole);
  EXPECT_GT(reply.body.size(), 30'000'000u);
  // Eight of them that nobody reads: 16 MB of ids each, and not the 40 MB of the answer. What was freed is
  // given back on both sides, or it would hide what is held.
  malloc_trim(0);
  const std::int64_t before = resident_bytes();
  std::vector<Client> slow;
  for (int i = 0; i < 8; ++i) {
    slow.emplace_back(server.http.port(), 4096);
    slow.back().send(request);
  }
  for (Client& client : slow) EXPECT_TRUE(client.receive_until("tokens"));
  malloc_trim(0);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LT(resident_bytes() - before, 200'000'000);
#endif
  const auto parsed = json::parse(reply.body, "body", {.text_bytes_max = std::size_t{1} << 28});
  EXPECT_EQ(parsed.at("count").to_number<std::size_t>(), parsed.at("tokens").as_array().size());
  EXPECT_EQ(parsed.at("tokens").as_array().size(), parsed.at("token_strs").as_array().size());
  std::size_t bytes = 0;
  for (const auto& one : parsed.at("token_strs").as_array()) bytes += one.as_string().size();
  EXPECT_EQ(bytes, text.size());
  const Reply refused = server.ask(post("/tokenize", "{\"prompt\":\"" + std::string(9'000'000, 'a') + "\"}"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("8388608"), std::string::npos) << refused.body.substr(0, 300);
  for (const char* empty : {R"({"prompt":""})", R"({"prompt":"","return_token_strs":true})"})
    EXPECT_EQ(json::parse(server.ask(post("/tokenize", empty)).body, "body").at("count").to_number<int>(), 0);
}

// Answers that nobody reads are held for long: of them too a client has a share.
TEST(ServiceWork, LongAnswersNobodyReadsAreSharedOut) {
  FakeServer server({"greedy", "other"}, {.waiting_bytes_max = 40'000'000}, microseconds(300),
                    {.send_buffer_bytes = 65536});
  std::string text;  // two to four MB of ids
  for (int i = 0; i < 500'000; ++i) text += "q ";
  const auto request = [&](const std::string& key) {
    return post("/tokenize", "{\"prompt\":\"" + text + "\"}", "X-Api-Key: " + key + "\r\n");
  };
  std::vector<Client> slow;
  bool refused = false;
  while (!refused && slow.size() < 30) {
    slow.emplace_back(server.http.port(), 4096);
    slow.back().send(request("greedy"));
    ASSERT_TRUE(slow.back().receive_until("\r\n\r\n"));
    refused = slow.back().buffer().starts_with("HTTP/1.1 429");
  }
  EXPECT_TRUE(refused) << "sixty MB or more are held for one client";
  EXPECT_GE(slow.size(), 3u);
  EXPECT_EQ(server.ask(request("other")).status, 200);
  slow.clear();
  EXPECT_TRUE(eventually([&] { return server.ask(request("greedy")).status == 200; }));
}

// The same of a text that comes from ids, whose answer is there at once.
TEST(ServiceWork, LongDetokenizedTextsNobodyReadsAreSharedOut) {
  FakeServer server({"greedy", "other"}, {.waiting_bytes_max = 3'000'000}, microseconds(300),
                    {.send_buffer_bytes = 65536});
  std::string ids = "100";
  for (int i = 1; i < 400'000; ++i) ids += ",100";
  const auto request = [&](const std::string& key) {
    return post("/detokenize", "{\"tokens\":[" + ids + "]}", "X-Api-Key: " + key + "\r\n");
  };
  const Reply whole = server.ask(request("other"));
  EXPECT_TRUE(whole.status == 200 && whole.whole);
  EXPECT_GE(whole.body.size(), 400'000u);
  std::vector<Client> slow;
  bool refused = false;
  while (!refused && slow.size() < 12) {
    slow.emplace_back(server.http.port(), 4096);
    slow.back().send(request("greedy"));
    ASSERT_TRUE(slow.back().receive_until("\r\n\r\n"));
    refused = slow.back().buffer().starts_with("HTTP/1.1 429");
  }
  EXPECT_TRUE(refused) << "twelve answers are held for one client";
  // A worker may still have the body it refused last, and there is room for one.
  EXPECT_TRUE(eventually([&] { return server.ask(request("other")).status == 200; }));
  slow.clear();
  EXPECT_TRUE(eventually([&] { return server.ask(request("greedy")).status == 200; }));
}

// Answers of the model that are known to be long: a worker writes them, the client's share is taken before
// the model runs, and it is given back with the last byte, or with the client.
TEST(ServiceWork, LongAnswersOfTheModelAreSharedOutBeforeItRuns) {
  FakeServer server({"greedy", "other"}, {.waiting_bytes_max = 20'000'000}, microseconds(300),
                    {.send_buffer_bytes = 65536});
  const auto request = [](const std::string& key) {
    return post(kChat, "long 3000000", "X-Api-Key: " + key + "\r\n");
  };
  for (int i = 0; i < 8; ++i) {
    const Reply whole = server.ask(request("greedy"));
    ASSERT_TRUE(whole.status == 200 && whole.whole && whole.body.size() == 3'000'000u) << i;
    EXPECT_TRUE(whole.body.starts_with("ff-requests")) << whole.body.substr(0, 20);
  }
  const std::size_t ran = server.runner.salts.size();
  EXPECT_EQ(ran, 8u);
  std::vector<Client> slow;
  bool refused = false;
  while (!refused && slow.size() < 12) {
    slow.emplace_back(server.http.port(), 4096);
    slow.back().send(request("greedy"));
    ASSERT_TRUE(slow.back().receive_until("\r\n\r\n"));
    refused = slow.back().buffer().starts_with("HTTP/1.1 429");
  }
  EXPECT_TRUE(refused) << "36 MB are held for one client";
  EXPECT_EQ(server.runner.salts.size(), ran + slow.size() - 1) << "the refused one did not run";
  EXPECT_EQ(server.ask(request("other")).status, 200);
  slow.clear();
  EXPECT_TRUE(eventually([&] { return server.ask(request("greedy")).status == 200; }));
}

// A response that is kept may be as long as the request it came from, and be asked for again and again.
TEST(ServiceWork, LongKeptResponsesNobodyReadsAreSharedOut) {
  FakeServer server({"greedy", "other"}, {.waiting_bytes_max = 8'000'000}, microseconds(300),
                    {.send_buffer_bytes = 65536});
  server.model.responses = std::make_shared<api::ResponseStore>(std::size_t{16} << 20);
  const std::string body = "\"" + std::string(1'000'000, 'r') + "\"";
  for (const char* key : {"greedy", "other"})
    ASSERT_TRUE(server.model.responses->put(*server.keys.tenant(key), "resp_1", {{}, body}));
  const auto request = [](const std::string& key) {
    return get("/v1/responses/resp_1", "X-Api-Key: " + key + "\r\n");
  };
  const Reply whole = server.ask(request("greedy"));
  EXPECT_TRUE(whole.status == 200 && whole.whole && whole.body == body);
  std::vector<Client> slow;
  bool refused = false;
  while (!refused && slow.size() < 20) {
    slow.emplace_back(server.http.port(), 4096);
    slow.back().send(request("greedy"));
    ASSERT_TRUE(slow.back().receive_until("\r\n\r\n"));
    refused = slow.back().buffer().starts_with("HTTP/1.1 429");
  }
  EXPECT_TRUE(refused) << "twenty MB are held for one client";
  EXPECT_EQ(server.ask(request("other")).body, body);
}

}  // namespace
}  // namespace fourfold::server
