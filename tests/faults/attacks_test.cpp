// Attacks of docs/faults.md on the whole server, or on the program: what strangers do on purpose. The parts
// that withstand them have tests of their own, which the list names.
#include "tests/faults/serve_process.h"
#include "tests/support/hash_collisions.h"

namespace fourfold::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kSmall = R"({"prompt":"a","max_tokens":2,"temperature":0})";

// By announcing what never comes nobody takes room from others, and by sending it no more than a share.
TEST(Attacks, Fault32BodiesThatAreAnnouncedAndNeverCome) {
  RealServer server;
  std::vector<Client> crawling;
  for (int i = 0; i < 64; ++i) {
    crawling.emplace_back(server.port(), 0, "127.0.0.2");
    crawling.back().send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33554432\r\n\r\n{");
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(server.complete(kSmall).status, 200) << i;
  const std::string large =
      R"({"prompt":"a","user":")" + std::string(4'000'000, 'u') + R"(","max_tokens":1})";
  EXPECT_EQ(server.complete(large).status, 200) << "large ones too";
}

// 40,000 names that std::hash cannot tell apart, wherever a request has names of its own.
TEST(Attacks, Fault34NamesThatCollide) {
  RealServer server;
  const std::string names = test::object_of(test::murmur_collisions(40'000));
  const auto begin = steady_clock::now();
  for (const std::string& field :
       {"\"metadata\":" + names, "\"chat_template_kwargs\":" + names, "\"logit_bias\":" + names,
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"properties":)" + names +
            "}}}]"}) {
    const Reply reply =
        server.chat(R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,)" + field + "}");
    EXPECT_TRUE(reply.status == 200 || reply.status == 400) << reply.status << " " << field.substr(0, 40);
  }
  EXPECT_LT(steady_clock::now() - begin, seconds(20));
  EXPECT_EQ(server.complete(kSmall).status, 200);
}

// Whoever reads the log has stopped: everybody is served, the lines that are missing are counted, and the
// process ends when it is told.
TEST(Attacks, Fault40ALogNobodyReads) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  ServeProcess server(model.path(), "--log-requests");
  ASSERT_NE(server.port, 0) << server.text;
  server.narrow_output();
  const auto ask_many = [&] {
    Client client(server.port);
    for (int i = 0; i < 2'000; ++i) {
      client.send(get("/v1/models"));
      ASSERT_EQ(client.reply().status, 200) << i;
    }
  };
  ask_many();
  if (HasFatalFailure()) return;
  EXPECT_EQ(ask(server.port, post("/v1/completions", kSmall)).status, 200);
  while (!cli::contains(server.text, "log lines were dropped") && server.read_more()) {
  }
  EXPECT_TRUE(std::regex_search(server.text, std::regex("[0-9]+ log lines were dropped")))
      << "nothing was said";
  ask_many();
  server.signal(SIGTERM);
  ASSERT_TRUE(server.ends(20'000));
  EXPECT_EQ(server.wait(), 0);
}

// Without descriptors whoever comes is told so at once, and those who are in are served.
TEST(Attacks, Fault42NoDescriptorsAreLeft) {
  if (!cli::program_exists()) GTEST_SKIP() << "the program was not built";
  const cli::TalkingModel model;
  ServeProcess server(model.path(), "");
  ASSERT_NE(server.port, 0) << server.text;
  const auto crowd = [&](int count) {
    int refused = 0, served = 0;
    std::vector<Client> clients;
    for (int i = 0; i < count; ++i) clients.emplace_back(server.port);
    for (Client& client : clients) {
      client.send(get("/health"));
      const int status = client.reply().status;
      served += status == 200 ? 1 : 0;
      refused += status == 503 ? 1 : 0;
    }
    EXPECT_EQ(served + refused, count) << served << " were served, " << refused << " refused";
    EXPECT_GT(served, 0);
    EXPECT_GT(refused, 0);
  };
  crowd(300);  // it was started with 256
  EXPECT_TRUE(eventually([&] { return ask(server.port, get("/health")).status == 200; }));
  server.limit_descriptors(40);  // and now has fewer than it knows of
  crowd(100);
  EXPECT_TRUE(eventually([&] { return ask(server.port, get("/health")).status == 200; }));
  EXPECT_EQ(ask(server.port, post("/v1/completions", kSmall)).status, 200);
}

// Forms of answers that wait or are being written take room, and one key takes no more than half of it. Who
// finds none is told to come again, and may when those before have ended.
TEST(Attacks, Fault50FormsInUseAreBounded) {
  RealServer server({.keys = {"first", "second"}, .max_sequences = 1, .form_bytes = 1'000'000});
  const auto asked = [](const std::string& key, int number) {
    return post("/v1/completions",
                R"({"prompt":"a","max_tokens":300,"guided_regex":"([a-z ]{)" + std::to_string(1500 + number) +
                    "}x)+\"}",
                "Authorization: Bearer " + key + "\r\n");
  };
  std::vector<Client> clients;
  for (int i = 0; i < 24; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(asked("first", i));
  }
  Client other(server.port());
  other.send(asked("second", 0));
  int served = 0, refused = 0;
  for (Client& client : clients) {
    const Reply reply = client.reply(60'000);
    served += reply.status == 200 ? 1 : 0;
    if (reply.status != 503) continue;
    ++refused;
    EXPECT_NE(reply.header("Retry-After"), "");
    EXPECT_TRUE(cli::contains(reply.body, "forms of all answers")) << reply.body;
  }
  EXPECT_EQ(served + refused, 24);
  EXPECT_GE(served, 2);
  EXPECT_GE(refused, 1) << server.served->forms->live_bytes() << " bytes of forms are kept";
  EXPECT_EQ(other.reply(60'000).status, 200) << "another key has its own half";
  EXPECT_LE(server.served->forms->live_bytes(), 1'000'000u);
  EXPECT_EQ(server.ask(asked("first", 100)).status, 200);
  EXPECT_TRUE(server.settles(10'000));
}

TEST(Attacks, Fault45TlsEndsAsItShouldAndPipesAreNoCertificates) {
  if (!cli::program_exists() || !has_tls()) GTEST_SKIP() << "no program, or one without TLS";
  const cli::TalkingModel model;
  const checkpoint::TempFolder folder;
  const std::string pem = folder.path().string() + "/";
  const auto files = [&](const char* certificate, const char* key) {
    return " --tls-cert " + pem + certificate + " --tls-key " + pem + key;
  };
  if (cli::shell("mkfifo " + pem +
                 "pipe && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
                 "-nodes -days 2 -subj /CN=localhost -keyout " +
                 pem + "key.pem -out " + pem + "cert.pem 2>/dev/null && command -v python3")
          .status != 0)
    GTEST_SKIP() << "no openssl program or no python3 here";
  for (const std::string& option : {files("pipe", "key.pem"), files("cert.pem", "pipe")}) {
    const auto refused =
        cli::shell("timeout 20 PROGRAM serve '" + model.path() + "' --port 0" + option + " 2>&1");
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_TRUE(cli::contains(refused.out, "regular file")) << refused.out;
  }
  ServeProcess server(model.path(), files("cert.pem", "key.pem"));
  ASSERT_NE(server.port, 0) << server.text;
  // curl takes a cut for an end; Python can be asked not to.
  folder.write("ends.py", R"(import socket, ssl, sys
context = ssl._create_unverified_context()
for request in ('GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n', 'GET /health HTTP/1.0\r\n\r\n'):
    plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=20)
    with context.wrap_socket(plain, suppress_ragged_eofs=False) as connection:
        connection.sendall(request.encode())
        while connection.recv(65536):
            pass
print('whole')
)");
  const auto ended = cli::shell("python3 " + pem + "ends.py " + std::to_string(server.port) + " 2>&1");
  EXPECT_EQ(ended.out, "whole\n") << "no close_notify";
}

// Values in the texts of a request are values too; and what the server would keep is short.
TEST(Attacks, Fault48ValuesInTextsAndLongSalts) {
  RealServer server;
  std::string zeros;
  for (int i = 0; i < 10'000; ++i) zeros += "0,";
  const auto chat = [&](int count, const std::string& more) {
    std::string calls;
    for (int i = 0; i < count; ++i)
      calls += (i > 0 ? "," : "") +
               fourfold::format(
                   R"({"id":"c{}","type":"function","function":{"name":"f","arguments":"{\"a\":[)", i) +
               zeros + R"(0]}"}})";
    return server.chat(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[)" +
                       calls + R"(]},{"role":"user","content":"b"}],"max_tokens":1)" + more + "}");
  };
  const Reply many = chat(60, "");
  expect_refusal(many, 400, "600,000 values");
  EXPECT_TRUE(cli::contains(many.body, "at most 524288")) << many.body.substr(0, 300);
  EXPECT_FALSE(cli::contains(chat(40, "").body, "at most 524288")) << "400,000 are some";
  const auto salted = [&](std::size_t bytes) {
    return server.complete(R"({"prompt":"a","max_tokens":1,"cache_salt":")" + std::string(bytes, 's') +
                           "\"}");
  };
  EXPECT_EQ(salted(1024).status, 200);
  expect_refusal(salted(1025), 400, "a salt that would be kept");
}

TEST(Attacks, Fault49CompressedBodies) {
  RealServer server;
  for (const char* coding : {"gzip", "deflate", "br", "zstd", "gzip, gzip", "x"})
    expect_refusal(
        server.ask(post("/v1/completions", kSmall, std::string("Content-Encoding: ") + coding + "\r\n")), 415,
        coding);
  EXPECT_EQ(server.ask(post("/v1/completions", kSmall, "Content-Encoding: Identity\r\n")).status, 200);
}

// The list of tools is bounded; so is what a conversation adds to it, and what it costs to look there.
TEST(Attacks, Fault52ToolsThatComeInTheConversation) {
  RealServer server;
  const auto count = [&](int tools, const auto& name) {
    std::string blocks;
    for (int i = 0; i < tools; ++i)
      blocks +=
          (i > 0 ? "," : "") +
          fourfold::format(
              R"({"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"{}"}}})",
              name(i));
    return server.ask(
        post("/v1/messages/count_tokens",
             R"({"messages":[{"role":"user","content":"a"},{"role":"system","content":[)" + blocks + "]}]}"));
  };
  const auto begin = steady_clock::now();
  const Reply many = count(60'000, [](int i) { return "tool" + std::to_string(i); });
  EXPECT_EQ(many.status, 400);
  EXPECT_TRUE(cli::contains(many.body, "513 entries; at most 512")) << many.body.substr(0, 300);
  EXPECT_EQ(count(60'000, [](int i) { return "tool" + std::to_string(i % 9); }).status, 200) << "nine tools";
  EXPECT_LT(steady_clock::now() - begin, seconds(20));
}

}  // namespace
}  // namespace fourfold::server
