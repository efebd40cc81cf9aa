// What tests/clients/kv_events.py cannot bring about with libzmq: a thread that is behind, and bad addresses.
#include "events/publisher.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "events/zmtp.h"

namespace fourfold::events {
namespace {

using schedule::BlockEvent;

std::vector<BlockEvent> some() {
  return {{.kind = BlockEvent::Kind::stored, .blocks = {7}, .tokens = {1, 2}}};
}

int port_of(const std::string& endpoint) { return std::stoi(endpoint.substr(endpoint.rfind(':') + 1)); }

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 500 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return holds();
}

struct Client {
  explicit Client(int port) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};  // what never comes must not hang a test
    EXPECT_EQ(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  ~Client() { ::close(socket); }
  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // All that comes until it is closed, or so many bytes.
  std::string hear(std::size_t count) const {
    std::string out;
    char bytes[4096];
    while (out.size() < count) {
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
      if (got <= 0) break;
      out.append(bytes, static_cast<std::size_t>(got));
    }
    return out;
  }
  int socket;
};

// The numbers of the batches that are kept, from one on.
std::vector<std::uint64_t> replayed(const Publisher& publisher, std::uint64_t first) {
  const Client client(port_of(publisher.replay_endpoint()));
  const std::string ready("\5READY\xBSocket-Type\0\0\0\6DEALER", 28);
  std::string number;
  for (int shift = 56; shift >= 0; shift -= 8) number += static_cast<char>(first >> shift & 0xff);
  client.say(ZmtpPeer::greeting() + '\4' + static_cast<char>(ready.size()) + ready +
             std::string("\1\0\0\10", 4) + number);
  const std::string end = std::string("\1\0\1\0\1\10", 6) + std::string(8, '\xff') + std::string(2, '\0');
  std::string heard;
  while (!heard.ends_with(end)) {
    const std::string more = client.hear(1);
    if (more.empty()) break;
    heard += more;
  }
  std::vector<std::uint64_t> numbers;
  for (std::size_t at = ZmtpPeer::greeting().size(); at < heard.size();) {
    const std::size_t head = (heard[at] & 2) != 0 ? 9 : 2;
    std::uint64_t size = 0, value = 0;
    for (std::size_t i = 1; i < head; ++i) size = size << 8 | static_cast<std::uint8_t>(heard[at + i]);
    for (std::size_t i = 0; i < 8 && size == 8; ++i)
      value = value << 8 | static_cast<std::uint8_t>(heard[at + head + i]);
    if (size == 8 && ~value != 0) numbers.push_back(value);
    at += head + size;
  }
  return numbers;
}

TEST(Publisher, ReplaysWhatIsKeptFromANumberOn) {
  Publisher publisher({.endpoint = "tcp://*:0", .replay_endpoint = "@tcp://127.0.0.1:0", .buffer_steps = 3});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(publisher.publish(some(), 2));
  ASSERT_TRUE(soon([&] { return publisher.counts().batches == 5; }));
  EXPECT_EQ(replayed(publisher, 0), (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(replayed(publisher, 3), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(replayed(publisher, 5), std::vector<std::uint64_t>{});
  EXPECT_EQ(publisher.counts().replays, 3);
}

// A peer that has everything sent back to it, and reads none of it.
TEST(Publisher, LetsGoOfWhoAsksAndDoesNotRead) {
  Publisher publisher({.endpoint = "tcp://*:0"});
  const Client client(port_of(publisher.endpoint()));
  std::string hello = ZmtpPeer::greeting();
  const std::string ready("\5READY\xBSocket-Type\0\0\0\3SUB", 25);
  hello += std::string("\4") + static_cast<char>(ready.size()) + ready;
  client.say(hello);
  const std::string ping = std::string("\4\x17\4PING\0\1", 9) + std::string(16, 'x');
  std::string many;
  for (int i = 0; i < 4000; ++i) many += ping;
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(client.socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  std::size_t sent = 0;
  constexpr std::size_t kFarTooMuch = std::size_t{200} << 20;
  while (sent < kFarTooMuch) {
    const ssize_t count =
        ::send(client.socket, many.data() + sent % ping.size(), many.size() - ping.size(), MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<std::size_t>(count);
  }
  EXPECT_LT(sent, kFarTooMuch) << "nobody ended it";
  EXPECT_GT(sent, std::size_t{1} << 20) << "it was ended for something else";
}

TEST(Publisher, ListensOnAFreePortAndCounts) {
  Publisher publisher({.endpoint = "tcp://*:0", .replay_endpoint = "@tcp://127.0.0.1:0"});
  EXPECT_GT(port_of(publisher.endpoint()), 0);
  EXPECT_NE(port_of(publisher.endpoint()), port_of(publisher.replay_endpoint()));
  EXPECT_TRUE(publisher.publish(some(), 2));
  EXPECT_TRUE(soon([&] { return publisher.counts().batches == 1; }));
  const Client client(port_of(publisher.endpoint()));
  EXPECT_TRUE(soon([&] { return publisher.counts().subscribers == 1; }));
  EXPECT_EQ(client.hear(64), ZmtpPeer::greeting());
}

TEST(Publisher, WhoeverSpeaksSomethingElseIsLetGo) {
  Publisher publisher({.endpoint = "tcp://*:0"});
  const Client client(port_of(publisher.endpoint()));
  client.say("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.hear(1000).size(), 64u) << "the greeting, and the end";
  EXPECT_TRUE(soon([&] { return publisher.counts().subscribers == 0; }));
}

// A batch that takes the thread a while to write.
std::vector<BlockEvent> large() {
  BlockEvent event{.kind = BlockEvent::Kind::stored, .blocks = {1}, .tokens = {}};
  event.tokens.resize(200'000, 70'000);  // five bytes each
  return {event};
}

TEST(Publisher, ManyEventsAtOnceAreDroppedAndNeverWaitedFor) {
  Publisher publisher({.endpoint = "tcp://*:0", .queue_max = 2});
  std::int64_t kept = 0, lost = 0;
  EXPECT_TRUE(soon([&] {
    for (int i = 0; i < 20; ++i) ++(publisher.publish(large(), 64) ? kept : lost);
    return lost > 0;
  }));
  EXPECT_EQ(publisher.counts().dropped, lost);
  EXPECT_TRUE(soon([&] { return publisher.counts().batches == kept; }));
}

TEST(Publisher, WhatWasDroppedIsAGapInTheNumbers) {
  Publisher publisher({.endpoint = "tcp://*:0", .replay_endpoint = "@tcp://127.0.0.1:0", .queue_max = 1});
  std::vector<std::uint64_t> kept;
  std::uint64_t next = 0;
  const auto publish = [&](std::vector<BlockEvent>&& events) {
    const bool is_kept = publisher.publish(std::move(events), 64);
    if (is_kept) kept.push_back(next);
    ++next;
    return is_kept;
  };
  for (int i = 0; i < 5000 && publish(large()); ++i) {
  }
  ASSERT_LT(kept.size(), next) << "none was dropped";
  ASSERT_TRUE(soon([&] { return publisher.counts().batches == std::ssize(kept); }));
  EXPECT_TRUE(publish(some())) << "there is room again";
  ASSERT_TRUE(soon([&] { return publisher.counts().batches == std::ssize(kept); }));
  // Those whose bytes are too many are forgotten, the oldest first.
  const std::vector<std::uint64_t> numbers = replayed(publisher, 0);
  ASSERT_FALSE(numbers.empty());
  ASSERT_LE(numbers.size(), kept.size());
  kept.erase(kept.begin(), kept.end() - std::ssize(numbers));
  EXPECT_EQ(numbers, kept);
  EXPECT_EQ(numbers.back() + 1, next);
}

TEST(Publisher, ASubscriberThatDoesNotReadLosesMessagesAndHoldsUpNobody) {
  Publisher publisher({.endpoint = "tcp://*:0", .subscriber_bytes_max = 1 << 20});
  const Client client(port_of(publisher.endpoint()));
  const std::string type("\0\0\0\3SUB", 7);
  const std::string ready = "\5READY\13Socket-Type" + type;
  client.say(ZmtpPeer::greeting() + '\4' + static_cast<char>(ready.size()) + ready +
             std::string("\0\1\1", 3));
  ASSERT_TRUE(soon([&] { return publisher.counts().subscribers == 1; }));
  // More than a socket's buffers hold.
  std::int64_t sent = 0;
  EXPECT_TRUE(soon([&] {
    EXPECT_TRUE(publisher.publish(large(), 64));
    return ++sent, publisher.counts().subscriber_dropped > 0;
  }));
  EXPECT_TRUE(soon([&] { return publisher.counts().batches == sent; }));
  EXPECT_EQ(publisher.counts().dropped, 0);
}

TEST(Publisher, RefusesWhatItCannotHave) {
  const auto refused = [](const PublisherOptions& options) {
    try {
      Publisher publisher(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Publisher first({.endpoint = "tcp://*:0"});
  EXPECT_NE(refused({.endpoint = first.endpoint()}).find("--kv-events"), std::string::npos) << "it is in use";
  EXPECT_NE(refused({.endpoint = "tcp://*:0", .replay_endpoint = first.endpoint()}).find("replay"),
            std::string::npos);
  EXPECT_NE(refused({.endpoint = "@tcp://nowhere.invalid:0"}), "");
  EXPECT_NE(refused({.endpoint = "tcp://*:0", .buffer_steps = -1}), "");
  EXPECT_NE(refused({.endpoint = "tcp://*:0", .topic = std::string(256, 'x')}), "");
  EXPECT_EQ(refused({.endpoint = "tcp://127.0.0.1:9"}), "") << "nobody listens there yet";
}

}  // namespace
}  // namespace fourfold::events
