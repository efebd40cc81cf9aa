// Many streams at once against a scripted server: its pauses are lower bounds of what is measured, whatever
// else the machine does.
#include "loadgen/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "http/client.h"
#include "loadgen/measures.h"
#include "tests/loadgen/scripted_server.h"

namespace fourfold::loadgen {
namespace {

std::vector<std::string> requests(const http::Url& url, std::size_t count, const std::string& body = "{}") {
  return std::vector<std::string>(count,
                                  http::request_text(url, {.method = "POST", .path = "/x", .body = body}));
}

void five_words(Connection& connection, int first_pause, int pause) {
  Connection::pause(first_pause);
  connection.begin_stream();
  for (int i = 0; i < 5; ++i) {
    if (i > 0) Connection::pause(pause);
    connection.word("content");
  }
  connection.end_stream(3, 10);
}

TEST(Driver, MeasuresAServersPauses) {
  const ScriptedServer server([](Connection& connection, const Asked&) { five_words(connection, 40, 10); });
  const auto lines = drive({.url = server.url(), .concurrency = 4}, requests(server.url(), 16));
  const std::vector<std::vector<Timeline>> runs{lines};
  const Measures m = measure(runs, {});
  ASSERT_EQ(m.failed, 0) << m.failures.begin()->first;
  EXPECT_EQ(m.output_tokens, 160);
  // A sleep is never shorter than asked; how much longer is the machine's affair. Chunks may arrive together
  // when this thread was kept waiting, so single gaps have no bound, their sums have.
  for (const Timeline& line : lines) {
    ASSERT_EQ(line.chunks.size(), 5u);
    EXPECT_GE(line.chunks.front() - line.sent, 0.040);
    EXPECT_GE(line.last - line.sent, 0.080);
    EXPECT_TRUE(std::is_sorted(line.chunks.begin(), line.chunks.end()));
    EXPECT_LE(line.chunks.back(), line.last);
  }
  EXPECT_GE(m.seconds, 0.320);  // four rounds of four
  EXPECT_LE(m.output_per_s, 160 / 0.320);
  EXPECT_LT(m.ttft_ms.p50, 2'000) << "40 ms and a busy machine";
  // Four at once. A server that the machine keeps waiting sees each one's successor before it has closed it.
  EXPECT_LE(server.most_at_once(), 8);
  for (const Timeline& line : lines)
    EXPECT_LE(
        std::ranges::count_if(
            lines, [&](const Timeline& other) { return other.sent <= line.sent && line.sent < other.over; }),
        4);
}

TEST(Driver, KeepsHundredsOfStreamsApart) {
  const ScriptedServer server([](Connection& connection, const Asked& asked) {
    const int tokens = std::atoi(asked.body.c_str());
    connection.begin_stream();
    for (int i = 0; i < 3; ++i) connection.word("content");
    connection.end_stream(1, tokens);
  });
  std::vector<std::string> all;
  for (int i = 0; i < 300; ++i)
    all.push_back(
        http::request_text(server.url(), {.method = "POST", .path = "/x", .body = std::to_string(i)}));
  const auto lines = drive({.url = server.url(), .concurrency = 100}, all);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(lines[i].failure, "");
    EXPECT_EQ(lines[i].output_tokens, i);
  }
}

TEST(Driver, CountsEveryKindOfTrouble) {
  std::atomic<int> next = 0;
  const ScriptedServer server([&](Connection& connection, const Asked&) {
    switch (next++) {
      case 0: return connection.answer(429, R"({"error": {"message": "slow down"}})");
      case 1: return connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata");
      case 2: connection.begin_stream(); return connection.event("{oops");
      case 3:
        connection.begin_stream();
        connection.word("content");
        return connection.cut();
      case 4: return connection.send("SSH-2.0-OpenSSH\r\n");
      case 5: return Connection::pause(400);
      default: return five_words(connection, 0, 0);
    }
  });
  const auto lines = drive({.url = server.url(), .timeout_s = 0.2}, requests(server.url(), 7));
  EXPECT_EQ(lines[0].failure, "status 429: slow down");
  EXPECT_EQ(lines[1].failure, "the server closed the connection in the middle of its answer");
  EXPECT_EQ(lines[2].failure, "a chunk of the stream is no JSON");
  EXPECT_TRUE(lines[3].failure.starts_with("the connection broke") ||
              lines[3].failure == "the server closed the connection in the middle of its answer")
      << lines[3].failure;
  EXPECT_EQ(lines[4].failure, "the answer is not HTTP/1.1");
  EXPECT_EQ(lines[5].failure, "timed out after 0.2 s");
  EXPECT_EQ(lines[6].failure, "");
}

TEST(Driver, NamesAServerThatIsGone) {
  http::Url gone;
  {
    gone = ScriptedServer([](Connection&, const Asked&) {}).url();
  }
  const auto lines = drive({.url = gone, .concurrency = 2}, requests(gone, 3));
  for (const Timeline& line : lines) EXPECT_TRUE(line.failure.starts_with("no connection")) << line.failure;
  EXPECT_THROW(drive({.url = {"no-such-host.invalid", "80", ""}}, requests(gone, 1)), Error);
}

TEST(Driver, SendsByTheClock) {
  const ScriptedServer server([](Connection& connection, const Asked&) { five_words(connection, 0, 0); });
  const std::vector<double> arrivals{0, 0.03, 0.03, 0.09};
  const auto lines =
      drive({.url = server.url(), .concurrency = 100, .arrivals = arrivals}, requests(server.url(), 4));
  for (std::size_t i = 1; i < 4; ++i) {
    ASSERT_EQ(lines[i].failure, "");
    EXPECT_GE(lines[i].sent - lines[0].sent,
              arrivals[i] - arrivals[0] - 0.02);  // the first may be late itself
  }
  EXPECT_GE(lines[3].sent - lines[0].sent, 0.06);
}

TEST(Driver, StopsWhenToldAndSaysSo) {
  const ScriptedServer server([](Connection& connection, const Asked&) { five_words(connection, 300, 0); });
  int asked = 0;
  const auto lines = drive({.url = server.url(), .concurrency = 1, .stop = [&] { return ++asked > 3; }},
                           requests(server.url(), 5));
  for (const Timeline& line : lines) EXPECT_EQ(line.failure, "stopped by the user");
}

TEST(Url, IsReadAsPeoplePasteIt) {
  using http::parse_url;
  const http::Url plain = parse_url("http://localhost:8000/v1/");
  EXPECT_EQ(plain.host + "|" + plain.port + "|" + plain.path, "localhost|8000|");
  const http::Url base = parse_url("http://[::1]/gateway/v1");
  EXPECT_EQ(base.host + "|" + base.port + "|" + base.path, "::1|80|/gateway");
  for (const char* wrong : {"localhost:8000", "https://x", "http://", "http://x:", "http://x:99999999",
                            "http://x:80a", "http://a b", "http://x/a b"})
    EXPECT_THROW(parse_url(wrong), Error) << wrong;
}

}  // namespace
}  // namespace fourfold::loadgen
