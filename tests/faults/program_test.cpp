// Fault 30 of docs/faults.md, and the faults' list itself: the program from outside, its signals, its port,
// its limits.
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/faults/serve_process.h"

namespace fourfold::server {
namespace {

constexpr const char* kEndless = R"({"prompt":"a","max_tokens":990,"ignore_eos":true,"stream":true})";

// `fourfold doctor --url` measures other people's servers; ours is one.
TEST(ServeProgram, TheDoctorMeasuresIt) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  ServeProcess server(FOURFOLD_SOURCE_DIR "/models/storyteller", "");
  ASSERT_NE(server.port, 0) << server.text;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port);
  const auto report = cli::shell("PROGRAM doctor --url " + url + " 2>&1");
  EXPECT_LE(report.status, 1) << report.out;
  EXPECT_TRUE(std::regex_search(report.out, std::regex(url + " [0-9.,]+ tok/s \\(thinking: [0-9.,]+\\)")))
      << report.out;
}

TEST(ServeProgram, Fault30SignalsUnderLoadAndAPortInUse) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  std::uint16_t port = 0;
  {
    ServeProcess server(model.path(), "--grace 0.3 --log-requests");
    ASSERT_NE(server.port, 0) << server.text;
    port = server.port;
    std::vector<Client> clients;
    for (int i = 0; i < 20; ++i) {
      clients.emplace_back(port);
      clients.back().send(post("/v1/completions", kEndless, "X-Request-Id: a\tb\r\n"));
    }
    ASSERT_TRUE(eventually(
        [&] {
          return cli::contains(ask(port, get("/metrics")).body,
                               "vllm:num_requests_running{model_name=\"" +
                                   std::filesystem::path(model.path()).filename().string() + "\"} 16\n");
        },
        20'000));
    EXPECT_EQ(ask(port, get("/health")).status, 200);
    const auto second =
        cli::shell("PROGRAM serve '" + model.path() + "' --port " + std::to_string(port) + " 2>&1");
    EXPECT_EQ(second.status, 2);
    EXPECT_TRUE(cli::contains(second.out, "is in use")) << second.out;
    server.signal(SIGTERM);
    for (Client& client : clients) {
      const Reply reply = client.reply(20'000);
      EXPECT_EQ(reply.status, 200);
      EXPECT_TRUE(reply.whole) << "the stream ends as HTTP says, also when it is cut off";
    }
    EXPECT_EQ(server.wait(), 0);
    while (server.read_more()) {
    }
    EXPECT_TRUE(cli::contains(server.text, "shutting down")) << server.text;
    EXPECT_FALSE(cli::contains(server.text, "id=a\tb")) << "ids from outside forge no log lines";
  }
  // At once on the same port, after a kill, too; a second signal does not wait.
  ServeProcess again(model.path(), "--grace 100 --port " + std::to_string(port));
  ASSERT_EQ(again.port, port) << again.text;
  Client client(port);
  client.send(post("/v1/completions", kEndless));
  ASSERT_TRUE(client.receive_until("data:"));
  again.signal(SIGINT);
  usleep(200'000);
  again.signal(SIGINT);
  EXPECT_EQ(again.wait(), 130);
  ServeProcess killed(model.path(), "--port " + std::to_string(port));
  ASSERT_EQ(killed.port, port) << killed.text;
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.wait(), 137);
  EXPECT_EQ(ServeProcess(model.path(), "--port " + std::to_string(port)).port, port);
}

// Ranks as threads of the CPU: they answer as they are asked, and the program ends when it is told to.
TEST(ServeProgram, SeveralRanksServe) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    ServeProcess server(model.path(), i == 0 ? "--mtp 0" : "--tp 2 --mtp 2");
    ASSERT_NE(server.port, 0) << server.text;
    if (i == 1) {
      EXPECT_TRUE(cli::contains(server.text, "the cpu backend, 2 ranks")) << server.text;
    }
    const Reply reply = ask(
        server.port, post("/v1/completions", R"({"prompt":"a b","max_tokens":12,"temperature":0})"), 60'000);
    EXPECT_EQ(reply.status, 200) << reply.body;
    texts[i] = answer_text(reply);
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
  }
  EXPECT_NE(texts[0], "");
  EXPECT_EQ(texts[0], texts[1]) << "f32 activations: another order of sums changes no token here";
}

// A thousand tokens of this model take ten times as long as they may.
TEST(ServeProgram, ARequestThatTakesTooLongIsToldSoAndFreesItsPages) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  ServeProcess server(FOURFOLD_SOURCE_DIR "/models/storyteller", "--request-timeout 0.1");
  ASSERT_NE(server.port, 0) << server.text;
  const std::vector<std::pair<const char*, std::string>> requests = {
      {"/v1/completions", R"({"prompt":"a","max_tokens":990,"ignore_eos":true,"n":2})"},
      {"/v1/completions", kEndless},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"a"}],"ignore_eos":true,"stream":true})"},
      {"/v1/responses", R"({"input":"a","ignore_eos":true,"stream":true})"}};
  std::vector<Client> clients;
  for (const auto& [route, body] : requests) {
    clients.emplace_back(server.port);
    clients.back().send(post(route, body));
  }
  std::vector<Reply> replies;
  for (Client& client : clients) replies.push_back(client.reply(60'000));
  expect_refusal(replies[0], 504, "whole");
  EXPECT_TRUE(cli::contains(replies[0].body, R"("code":"time_limit")")) << replies[0].body;
  for (const Reply& reply : std::span(replies).subspan(1)) {
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.whole);
    EXPECT_TRUE(cli::contains(reply.body, "the time limit of the request ended it after")) << reply.body;
    EXPECT_FALSE(cli::contains(reply.body, "\"finish_reason\":\"")) << reply.body;
    EXPECT_FALSE(cli::contains(reply.body, "response.completed")) << reply.body;
  }
  EXPECT_TRUE(cli::contains(replies[3].body, "event: response.failed")) << replies[3].body;
  EXPECT_TRUE(eventually([&] {
    const auto status = json::parse(ask(server.port, get("/status.json")).body, "status");
    return status.at("sequences").at("running") == 0 && status.at("pages").at("used") == 0;
  }));
}

TEST(ServeProgram, Fault19AddressesOthersReachNeedAKey) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  const auto refused = cli::shell("PROGRAM serve '" + model.path() + "' --host 0.0.0.0 --port 0 2>&1");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(cli::contains(refused.out, "--api-key-file")) << refused.out;
  const auto both = cli::shell("PROGRAM serve '" + model.path() + "' --api-key a --no-auth 2>&1");
  EXPECT_NE(both.status, 0);
  ServeProcess open(model.path(), "--host 0.0.0.0 --no-auth");
  EXPECT_TRUE(cli::contains(open.text, "NONE")) << open.text;
}

TEST(ServeProgram, NumbersNoServerCanKeepAreRefused) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  for (const char* option :
       {"--stall-timeout nan", "--stall-timeout -1", "--prefix-cache-mb 99999999999999"}) {
    const auto refused = cli::shell(std::string("PROGRAM serve storyteller --port 0 ") + option + " 2>&1");
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_TRUE(cli::contains(refused.out, std::string(option).substr(0, 8))) << refused.out;
  }
}

TEST(ServeProgram, SpeaksTls) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  const checkpoint::TempFolder folder;
  const std::string pem = folder.path().string() + "/";
  const std::string files = " --tls-cert " + pem + "cert.pem --tls-key " + pem + "key.pem";
  if (!has_tls()) {
    const auto refused = cli::shell("PROGRAM serve '" + model.path() + "'" + files + " 2>&1");
    EXPECT_EQ(refused.status, 2);
    EXPECT_TRUE(cli::contains(refused.out, "without TLS")) << refused.out;
    return;
  }
  EXPECT_EQ(cli::shell("PROGRAM serve '" + model.path() + "'" + files + " 2>&1").status, 2)
      << "no such files";
  if (cli::shell("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
                 "/CN=localhost -keyout " +
                 pem + "key.pem -out " + pem + "cert.pem 2>/dev/null && command -v curl")
          .status != 0)
    GTEST_SKIP() << "no openssl program or no curl here";
  ServeProcess server(model.path(), files + " --api-key k");
  ASSERT_NE(server.port, 0) << server.text;
  const std::string url = "https://127.0.0.1:" + std::to_string(server.port);
  const std::string curl = "curl -sS --max-time 20 --cacert " + pem +
                           "cert.pem --resolve localhost:" + std::to_string(server.port) +
                           ":127.0.0.1 -H 'Authorization: Bearer k' ";
  const std::string named = "https://localhost:" + std::to_string(server.port);
  EXPECT_TRUE(cli::contains(cli::shell(curl + named + "/v1/models").out, "\"object\":\"list\""));
  const auto streamed = cli::shell(curl + named + "/v1/completions -H 'Content-Type: application/json' -d '" +
                                   R"({"prompt":"a","max_tokens":20,"stream":true})" + "'");
  EXPECT_TRUE(cli::contains(streamed.out, "data: [DONE]")) << streamed.out;
  // Plain HTTP to this port gets nothing, and hurts nobody.
  EXPECT_EQ(ask(server.port, get("/health")).status, 0);
  EXPECT_NE(cli::shell("curl -sS --max-time 5 --tls-max 1.1 -k " + url + "/health 2>&1").status, 0);
  EXPECT_TRUE(cli::contains(cli::shell(curl + named + "/health").out, "ok"));
}

TEST(ServeProgram, Fault30LabelsOfMetricsAreFew) {
  RealServer server;
  const auto lines = [&] {
    const std::string text = server.ask(get("/metrics")).body;
    return std::count(text.begin(), text.end(), '\n');
  };
  server.ask(get("/first"));
  const auto before = lines();
  for (int i = 0; i < 200; ++i) {
    server.ask(get("/path" + std::to_string(i), "X-Request-Id: id" + std::to_string(i) + "\r\n"));
    server.complete(fourfold::format(R"({"prompt":"a","max_tokens":1,"model":"m{}"})", i));
    server.complete(fourfold::format(R"({"prompt":"a","max_tokens":1,"strange{}":1})", i));
  }
  EXPECT_LE(lines() - before, 4);
}

// docs/faults.md has no gap in its numbers, and every test it names is there.
TEST(FaultList, NamesATestForEveryNumber) {
  std::ifstream file(std::string(FOURFOLD_SOURCE_DIR) + "/docs/faults.md");
  ASSERT_TRUE(file);
  std::set<int> numbers;
  std::map<std::string, std::string> sources;
  const std::regex row(R"(^\| *([0-9]+) *\|)"), test("`(tests/[a-z_/0-9]+\\.cpp): ([A-Za-z0-9]+)`");
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (!std::regex_search(line, found, row)) continue;
    const int number = std::stoi(found[1]);
    EXPECT_TRUE(numbers.insert(number).second) << "twice: " << number;
    std::sregex_iterator at(line.begin(), line.end(), test);
    EXPECT_NE(at, std::sregex_iterator()) << "no test is named for " << number;
    for (; at != std::sregex_iterator(); ++at) {
      const std::string path = (*at)[1], name = (*at)[2];
      if (!sources.contains(path)) {
        std::ifstream source(std::string(FOURFOLD_SOURCE_DIR) + "/" + path);
        EXPECT_TRUE(source) << path;
        sources[path].assign(std::istreambuf_iterator<char>(source), {});
      }
      EXPECT_NE(sources[path].find(", " + name + ")"), std::string::npos) << path << ": " << name;
    }
  }
  EXPECT_GE(numbers.size(), 49u);
  EXPECT_EQ(std::ssize(numbers), *numbers.rbegin()) << "a number is missing";
}

}  // namespace
}  // namespace fourfold::server
