// The transport with a handler that says what it was asked, over raw sockets.
#include "server/http_server.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/server/echo_server.h"

namespace fourfold::server {
namespace {

using std::chrono::milliseconds;

TEST(HttpServer, AnswersRequestsOneAfterAnotherOnAConnection) {
  Running server;
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo?a=b", "hello"));
    const Reply reply = client.reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "POST /echo a=b 5 hello");
    EXPECT_EQ(reply.header("Connection"), "keep-alive");
  }
  client.send("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.reply(10'000, true).header("Content-Length"), "14");
  client.send(get("/echo"));
  EXPECT_EQ(client.reply().body, "GET /echo  0 ");
}

// Python's clients send them so.
TEST(HttpServer, HeadAndBodyMayComeApart) {
  Running server;
  Client client(server.port());
  const std::string request = post("/echo?a=b", "hello");
  for (int i = 0; i < 6; ++i) {
    client.send(std::string_view(request).substr(0, request.size() - 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    client.send("hello");
    EXPECT_EQ(client.reply().body, "POST /echo a=b 5 hello") << i;
  }
}

TEST(HttpServer, KeepsTheOrderOfPipelinedRequests) {
  Running server;
  Client client(server.port());
  std::string all;
  for (int i = 0; i < 200; ++i) all += post("/echo", std::to_string(i));
  client.send(all);
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_EQ(client.reply().body, "POST /echo  " + std::to_string(number.size()) + " " + number);
  }
}

// Some clients end a body with an empty line of their own.
TEST(HttpServer, EmptyLinesBeforeARequestAreNone) {
  Running server;
  Client client(server.port());
  for (const std::string line : {"\r\n", "\r\n\r\n"}) {
    client.send(post("/echo", "hello") + line + get("/echo"));
    EXPECT_EQ(client.reply().body, "POST /echo  5 hello");
    EXPECT_EQ(client.reply().body, "GET /echo  0 ");
  }
  client.send("\r");
  client.send("\n" + get("/echo"));
  EXPECT_EQ(client.reply().body, "GET /echo  0 ");
}

TEST(HttpServer, StreamsInChunksOrToTheEndForOldClients) {
  Running server;
  Client client(server.port());
  client.send(get("/stream") + get("/echo"));
  Reply reply = client.reply();
  EXPECT_EQ(reply.header("Transfer-Encoding"), "chunked");
  EXPECT_EQ(reply.body, "onetwothree");
  EXPECT_TRUE(reply.whole);
  EXPECT_EQ(client.reply().body, "GET /echo  0 ");
  reply = server.ask("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_EQ(reply.header("Transfer-Encoding"), "");
  EXPECT_EQ(reply.header("Connection"), "close");
  EXPECT_EQ(reply.body, "onetwothree");
}

TEST(HttpServer, ReadsABodyInChunksAndSaysWhenToGoOn) {
  Running server;
  EXPECT_EQ(server
                .ask("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: no\r\n\r\n")
                .body,
            "POST /echo  5 abcde");
  Client client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("100 Continue\r\n\r\n"));
  client.send("hi");
  EXPECT_EQ(client.reply().body, "POST /echo  2 hi");
}

// Each byte in a read of its own: Beast's parser ends the process where an empty body comes so
// (base/beast_chunk.h).
TEST(HttpServer, Fault53ReadsChunksByteByByte) {
  Running server;
  Client client(server.port());
  for (const std::string chunks : {"0\r\n\r\n", "4\r\n0\r\n\r\r\n0\r\n\r\n", "00\r\nTrailer: no\r\n\r\n"}) {
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char byte : chunks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      client.send({&byte, 1});
    }
    EXPECT_EQ(client.reply().body, chunks[0] == '4' ? "POST /echo  4 0\r\n\r" : "POST /echo  0 ");
  }
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n0\r\n\r");
  EXPECT_EQ(client.reply().body, "POST /echo  4 0\r\n\r");
}

TEST(HttpServer, RefusesWhatTwoReadersCouldReadDifferently) {
  Running server;
  const std::string smuggled[] = {
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /echo HTTP/1.1\nHost: a\n\n",
      "GET /echo HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a b\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost: a/v1\r\n\r\n",
      "GET http://b/echo HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET echo HTTP/1.1\r\nHost: a\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
      "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /echo HTTP/3.0\r\nHost: a\r\n\r\n",
      "\x16\x03\x01\x02hello of TLS to a port without it, and some more bytes\r\n\r\n",
  };
  for (const std::string& request : smuggled) {
    const Reply reply = server.ask(request);
    EXPECT_TRUE(reply.status == 400 || reply.status == 505 || reply.status == 413) << request << reply.status;
    EXPECT_EQ(reply.header("Connection"), "close") << request;
    EXPECT_NE(reply.body.find("\"error\""), std::string::npos) << request;
  }
  EXPECT_EQ(server.ask("GET http://a:1/echo?x HTTP/1.1\r\nHost: a:1\r\n\r\n").body, "GET /echo x 0 ");
  EXPECT_EQ(server.ask("GET //v1//models/%2e%2e HTTP/1.1\r\nHost: a\r\n\r\n").body,
            "GET //v1//models/%2e%2e  0 ");
}

TEST(HttpServer, LimitsHeadsAndBodiesAndSaysSo) {
  Running server({.header_bytes_max = 2000, .body_bytes_max = 1000, .bodies_bytes_max = 1500});
  Reply reply = server.ask("GET /echo HTTP/1.1\r\nHost: a\r\nX: " + std::string(3000, 'x') + "\r\n\r\n");
  EXPECT_EQ(reply.status, 431);
  reply = server.ask(post("/echo", std::string(1001, 'x')));
  EXPECT_EQ(reply.status, 413);
  EXPECT_NE(reply.body.find("1000 bytes"), std::string::npos) << reply.body;
  std::string chunks;
  for (int i = 0; i < 64; ++i) chunks += "100\r\n" + std::string(256, 'y') + "\r\n";
  EXPECT_EQ(
      server.ask("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).status,
      413);
  EXPECT_EQ(server.ask(post("/echo", std::string(1000, 'x'))).status, 200);
  // The bytes of all bodies together; an unfinished one holds its own until it goes.
  Client first(server.port());
  first.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n" + std::string(800, 'z'));
  EXPECT_TRUE(eventually([&] { return server.ask(post("/echo", std::string(900, 'x'))).status == 503; }));
  first.close();
  EXPECT_TRUE(eventually([&] { return server.ask(post("/echo", std::string(900, 'x'))).status == 200; }));
}

TEST(HttpServer, ReadsNoBodyOfWhatItRefusesByItsHead) {
  Running server;
  Client client(server.port());
  client.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.reply().status, 401);
  client.send(std::string(100'000, 'x'));
  EXPECT_TRUE(client.sees_end());
  // Without a body the connection goes on.
  Client other(server.port());
  other.send(get("/refused") + get("/echo"));
  EXPECT_EQ(other.reply().status, 401);
  EXPECT_EQ(other.reply().status, 200);
}

TEST(HttpServer, WaitsForNobodyForever) {
  Running server(
      {.header_time = milliseconds(200), .body_time = milliseconds(200), .idle_time = milliseconds(200)});
  Client silent(server.port()), head(server.port()), body(server.port());
  head.send("GET /echo HT");
  body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(head.reply(3000).status, 408);
  EXPECT_EQ(body.reply(3000).status, 408);
  EXPECT_TRUE(silent.sees_end(3000));
  EXPECT_TRUE(silent.buffer().empty());
  EXPECT_TRUE(eventually([&] { return server.handler.counts == 0; }));
}

TEST(HttpServer, NoticesWhoLeavesAndAnswersWhoWaits) {
  Running server;
  {
    Client leaves(server.port());
    leaves.send(get("/wait"));
    EXPECT_TRUE(eventually([&] { return server.handler.waiting_count == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server.handler.gone == 1; }));
  Client waits(server.port());
  waits.send(get("/wait") + get("/echo"));
  EXPECT_TRUE(eventually([&] { return server.handler.waiting_count == 2; }));
  server.handler.answer_now = true;
  EXPECT_EQ(waits.reply().body, "late");
  EXPECT_EQ(waits.reply().body, "GET /echo  0 ");
  EXPECT_EQ(server.handler.gone, 1);
}

TEST(HttpServer, CutsOffAClientThatDoesNotRead) {
  Running server({.pending_bytes_max = 1 << 20});
  Client client(server.port(), 4096);
  client.send(get("/flood"));
  EXPECT_TRUE(eventually([&] { return server.handler.gone == 1; }, 20'000));
  EXPECT_EQ(server.ask(get("/echo")).status, 200);
  EXPECT_TRUE(eventually([&] { return server.handler.slow_readers == 1; }));
}

TEST(HttpServer, ALargePieceOfAStreamReachesWhoReads) {
  Running server({.pending_bytes_max = 1 << 16});
  const Reply reply = server.ask(get("/large"));
  EXPECT_TRUE(reply.whole);
  EXPECT_EQ(reply.body.size(), 6'000'008u);
  EXPECT_EQ(server.handler.slow_readers, 0);
}

std::string head_of_body(std::size_t length) {
  return "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
}

// Thirty-two who announce as much as they may and send a byte hold thirty-two bytes.
TEST(HttpServer, ChargesBodiesByWhatHasCome) {
  Running server({.body_bytes_max = 1 << 20, .bodies_bytes_max = 4 << 20});
  std::vector<Client> announcing;
  for (int i = 0; i < 32; ++i) {
    announcing.emplace_back(server.port(), 0, "127.0.0.2");
    announcing.back().send(head_of_body(1 << 20) + "x");
  }
  const std::string large(1 << 20, 'y');
  EXPECT_EQ(server.ask(head_of_body(large.size()) + large).status, 200);
  for (Client& client : announcing) EXPECT_FALSE(client.receive(0)) << "nobody was refused";
}

// One client may have most of the room for bodies; another still finds enough for one.
TEST(HttpServer, OneClientLeavesRoomForBodiesOfOthers) {
  Running server({.body_bytes_max = 1 << 20, .bodies_bytes_max = 8 << 20});
  std::vector<Client> greedy;
  const std::string part(1'000'000, 'x');
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    greedy.emplace_back(server.port(), 0, "127.0.0.2");
    greedy.back().send(head_of_body(1 << 20));
    greedy.back().send(part);
    if (!greedy.back().receive(200)) continue;
    const Reply reply = greedy.back().reply();
    EXPECT_EQ(reply.status, 429) << reply.body;
    EXPECT_EQ(reply.header("Retry-After"), "1");
    ++refused;
  }
  EXPECT_GE(refused, 3);
  const std::string large(1 << 20, 'y');
  Client other(server.port(), 0, "127.0.0.3");
  other.send(head_of_body(large.size()) + large);
  EXPECT_EQ(other.reply().status, 200);
  greedy.clear();
  EXPECT_TRUE(eventually([&] {
    Client again(server.port(), 0, "127.0.0.2");
    again.send(head_of_body(large.size()) + large);
    return again.reply().status == 200;
  }));
}

// Slower than the slowest rate is not waited for, however long a body may take in all.
TEST(HttpServer, DropsBodiesThatCrawl) {
  Running server(
      {.body_time = milliseconds(60'000), .body_start_time = milliseconds(300), .body_rate_min = 10'000});
  Client crawls(server.port()), walks(server.port());
  crawls.send(head_of_body(1000));
  walks.send(head_of_body(20'000));
  for (int i = 0; i < 20; ++i) {
    crawls.send("x");
    walks.send(std::string(1000, 'y'));
    usleep(40'000);
  }
  EXPECT_EQ(crawls.reply(5'000).status, 408);
  EXPECT_EQ(walks.reply(5'000).status, 200);
}

// Whoever sends much ahead and leaves is noticed like anybody else; who stays gets the answer, and the end.
TEST(HttpServer, NoticesWhoLeavesBehindMuchThatWasSentAhead) {
  Running server;
  for (const bool stays : {false, true}) {
    Client client(server.port());
    const int before = server.handler.waiting_count;
    client.send(get("/wait"));
    ASSERT_TRUE(eventually([&] { return server.handler.waiting_count == before + 1; }));
    // More than any buffer of the kernel holds: where reading stops, so does the news of the end.
    std::thread sending([&] {
      for (int i = 0; i < 400; ++i)
        if (!client.send(std::string(65536, 'G'))) break;
    });
    sending.join();
    if (!stays) {
      client.close();
      EXPECT_TRUE(eventually([&] { return server.handler.gone == 1; }));
      continue;
    }
    server.handler.answer_now = true;
    EXPECT_EQ(client.reply().body, "late");
    EXPECT_TRUE(client.sees_end());
    EXPECT_EQ(server.handler.gone, 1);
  }
}

TEST(HttpServer, LongAnswersAreMadeAsTheyAreRead) {
  Running server({.send_buffer_bytes = 65536});
  for (const std::string& request : {get("/pieces"), std::string("GET /pieces HTTP/1.0\r\n\r\n")}) {
    server.handler.pieces = 0;
    Client client(server.port(), 4096);
    client.send(request);
    ASSERT_TRUE(client.receive_until("\r\n\r\n"));
    usleep(300'000);
    EXPECT_LT(server.handler.pieces, 50) << "nobody has read them yet";
    const Reply reply = client.reply(20'000);
    EXPECT_TRUE(reply.whole);
    ASSERT_EQ(reply.body.size(), 200u * 65536);
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(reply.body[static_cast<std::size_t>(i) * 65536], 'a' + (200 - i) % 26);
    EXPECT_EQ(server.handler.pieces, 200);
  }
  Client both(server.port());
  both.send(get("/pieces") + get("/echo") + "HEAD /pieces HTTP/1.1\r\nHost: a\r\n\r\n" + get("/long"));
  EXPECT_EQ(both.reply(20'000).body.size(), 200u * 65536);
  EXPECT_EQ(both.reply().body, "GET /echo  0 ");
  EXPECT_EQ(both.reply(10'000, true).status, 200);
  EXPECT_EQ(both.reply(20'000).body.size(), 20'000'000u);
}

// A byte now and then is no reading.
TEST(HttpServer, CutsOffWhoeverReadsAByteNowAndThen) {
  Running server({.send_buffer_bytes = 4096, .write_time = milliseconds(500)});
  Client client(server.port(), 2048);
  client.send(get("/long"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool ended = false;
  while (!ended && std::chrono::steady_clock::now() < end) {
    ended = !client.receive_bytes(64);
    usleep(50'000);
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(eventually([&] { return server.handler.slow_readers == 1; }));
}

// A full house has room for whoever has the fewest: those who only keep connections open make it, and so do
// those who never end their head or their body, or never read the answer.
TEST(HttpServer, ManyIdleConnectionsOfOneClientShutNobodyOut) {
  for (const std::string& sent : {std::string(), std::string("GET /ec"), head_of_body(999'999) + "{",
                                  std::string("no http at all\r\n\r\n"), get("/long")}) {
    Running server({.send_buffer_bytes = 65536,
                    .connections_max = 32,
                    .write_time = milliseconds(8'000),
                    .linger_time = milliseconds(60'000)});
    std::vector<Client> crowd;
    for (int i = 0; i < 32; ++i) {
      crowd.emplace_back(server.port(), 4096, "127.0.0.2");
      crowd.back().send(sent);
    }
    EXPECT_TRUE(eventually([&] { return server.handler.counts == 32; })) << sent;
    int served = 0;
    const auto is_served = [&] {
      Client other(server.port(), 0, "127.0.0.3");
      other.send(get("/echo"));
      served += other.reply().status == 200 ? 1 : 0;
      return served == 8;
    };
    EXPECT_TRUE(eventually(is_served, 6'000)) << sent;
    EXPECT_EQ(server.handler.slow_readers, 0) << "they made room, and were not timed out";
    std::vector<Client> more;
    for (int i = 0; i < 40; ++i) more.emplace_back(server.port(), 0, "127.0.0.2");
    EXPECT_TRUE(eventually([&] {
      Client another(server.port(), 0, "127.0.0.4");
      another.send(get("/echo"));
      return another.reply().status == 200;
    }));
  }
}

TEST(HttpServer, HasALargestNumberOfConnections) {
  Running server({.connections_max = 3});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(get("/echo"));
    EXPECT_EQ(clients.back().reply().status, 200);
  }
  EXPECT_EQ(server.ask(get("/echo")).status, 503);
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return server.ask(get("/echo")).status == 200; }));
}

TEST(HttpServer, Drains) {
  Running server;
  Client idle(server.port()), busy(server.port());
  busy.send(get("/wait"));
  EXPECT_TRUE(eventually([&] { return server.handler.waiting_count == 1; }));
  server.handler.drain_now = true;
  EXPECT_TRUE(idle.sees_end());
  EXPECT_FALSE(Client(server.port()).connected());
  server.handler.answer_now = true;
  const Reply reply = busy.reply();
  EXPECT_EQ(reply.body, "late");
  EXPECT_EQ(reply.header("Connection"), "close");
}

TEST(HttpServer, SaysWhyItCannotListen) {
  HttpServer first({.port = 0});
  Running running;
  try {
    HttpServer second({.port = running.port()});
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("is in use"), std::string::npos) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid", .port = 0}), Error);
  EXPECT_THROW(HttpServer({.port = 0, .tls_certificate = "only-one-of-two"}), Error);
  EXPECT_TRUE(first.is_loopback());
}

}  // namespace
}  // namespace fourfold::server
