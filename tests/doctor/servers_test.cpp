// --url against a small server in this process that speaks what OpenAI-compatible servers speak: chunked
// streams, usage at the end, or errors. Fourfold's own server takes its place when there is one.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "doctor/judge.h"
#include "doctor/live_server.h"
#include "doctor/probes.h"
#include "doctor/recording.h"
#include "http/client.h"

namespace fourfold::doctor {
namespace {

using std::chrono::milliseconds;

struct Manners {
  milliseconds pause{2};           // between pieces of an answer
  milliseconds pause_thinking{2};  // while it thinks
  bool usage = true;
  int refuse = 0;  // a status instead of an answer
  bool garbage = false;
  bool hangs = false;
};

// Answers one connection after another, as a server would that has one user.
class TestServer {
 public:
  explicit TestServer(Manners manners) : manners_(manners), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0)
      throw std::runtime_error("no port to listen on");
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return fourfold::format("http://127.0.0.1:{}", port_); }

 private:
  void serve() {
    while (!stop_) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      answer(client);
      close(client);
    }
  }

  static void send(int client, const std::string& text) {
    ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
  }
  static void chunk(int client, const std::string& text) {
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    send(client, size + text + "\r\n");
  }

  static std::string read_request(int client) {
    std::string text;
    char buffer[4096];
    // Requests here are small; their JSON ends with the last bracket.
    while (text.find("\r\n\r\n") == std::string::npos || (text.starts_with("POST") && !text.ends_with("}"))) {
      const ssize_t got = recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

  void answer(int client) {
    const std::string request = read_request(client);
    while (manners_.hangs && !stop_) std::this_thread::sleep_for(milliseconds(5));
    if (manners_.garbage) return send(client, "220 mail.example.org ready\r\n\r\n");
    if (request.starts_with("GET /v1/models ")) {
      const std::string body = R"({"object": "list", "data": [{"id": "test-model", "object": "model"}]})";
      return send(client,
                  fourfold::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    }
    if (manners_.refuse != 0)
      return send(client,
                  fourfold::format("HTTP/1.1 {} No\r\nContent-Length: 9\r\n\r\nno model!", manners_.refuse));
    stream(client, request.find("\"enable_thinking\":true") != std::string::npos);
  }

  void stream(int client, bool thinking) {
    constexpr int pieces = 20;
    send(client, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunk(client, "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\"}}]}\n\n");
    for (int i = 0; i < pieces; ++i) {
      std::this_thread::sleep_for(thinking ? manners_.pause_thinking : manners_.pause);
      chunk(client, fourfold::format("data: {\"choices\": [{\"delta\": {\"{}\": \"word \"}}]}\n\n",
                                     thinking ? "reasoning_content" : "content"));
    }
    // Two tokens a piece, as with drafts.
    if (manners_.usage)
      chunk(client, fourfold::format("data: {\"choices\": [], \"usage\": {\"completion_tokens\": {}}}\n\n",
                                     2 * pieces));
    chunk(client, "data: [DONE]\n\n");
    send(client, "0\r\n\r\n");
  }

  Manners manners_;
  int listener_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

Facts measured(const std::vector<std::string>& urls, LiveOptions options = {}) {
  Facts facts;
  gather(*recorded_source({}), facts);
  measure_servers(urls, options, facts);
  return facts;
}

bool finds(const Facts& facts, std::string_view rule) {
  for (const Finding& finding : judge(facts).findings)
    if (finding.rule->id == rule) return true;
  return false;
}

TEST(LiveServer, IsTimedByTokensNotByPieces) {
  const TestServer server({});
  const Facts facts = measured({server.url() + "/v1/"});
  EXPECT_EQ(facts.get("url.0.ok"), Value(true)) << facts.text_or("url.0.error", "");
  EXPECT_EQ(facts.get("url.0.model"), Value(std::string("test-model")));
  EXPECT_EQ(facts.get("url.0.counted"), Value(std::string("tokens")));
  // 39 tokens in 19 pauses of at least 2 ms: at most 1,026 a second, less on a busy machine.
  EXPECT_GT(facts.number_or("url.0.tok_per_s", 0), 10);
  EXPECT_LT(facts.number_or("url.0.tok_per_s", 0), 1'027);
  EXPECT_GT(facts.number_or("url.0.first_token_ms", 0), 2);
}

TEST(LiveServer, WithoutUsagePiecesAreCountedAndItSaysSo) {
  Manners silent;
  silent.usage = false;
  const TestServer server(silent);
  EXPECT_TRUE(measured({server.url()}).text_or("url.0.counted", "").starts_with("chunks"));
}

TEST(LiveServer, TwoAreComparedAndThinkingIsSeen) {
  Manners slow, thinker;
  slow.pause = milliseconds(20);
  slow.pause_thinking = milliseconds(20);
  thinker.pause = milliseconds(8);
  const TestServer first(slow), second(thinker);
  const Facts facts = measured({first.url(), second.url()});
  const Report report = judge(facts);
  ASSERT_EQ(facts.get("url.0.other_tok_per_s"), facts.get("url.1.tok_per_s"));
  EXPECT_TRUE(finds(facts, "server-behind-other"));
  EXPECT_TRUE(finds(facts, "server-thinking-inflates"));
  EXPECT_EQ(exit_code(report), 1);
  EXPECT_NE(report.questions.back().answer.find(second.url()), std::string::npos);
}

TEST(LiveServer, TroubleIsAFinding) {
  Manners refusing, foreign, hanging;
  refusing.refuse = 503;
  foreign.garbage = true;
  hanging.hangs = true;
  const TestServer one(refusing), two(foreign), three(hanging);
  const auto error = [](const std::string& url) {
    Facts facts;
    gather(*recorded_source({}), facts);
    measure_servers({url}, {.limit = milliseconds(100)}, facts);
    EXPECT_TRUE(finds(facts, "server-dead"));
    return facts.text_or("url.0.error", "");
  };
  EXPECT_NE(error(one.url()).find("status 503: no model!"), std::string::npos);
  EXPECT_NE(error(two.url()).find("not HTTP"), std::string::npos);
  // A port nobody listens on: that of a server that has gone.
  std::string gone;
  { gone = TestServer({}).url(); }
  EXPECT_NE(error(gone).find("cannot be reached"), std::string::npos);
  EXPECT_THROW(http::ask(http::parse_url(three.url()), {.limit = milliseconds(50)}), Error);
}

}  // namespace
}  // namespace fourfold::doctor
