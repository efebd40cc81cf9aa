#include "nodes/link.h"

#include <future>

#include "tests/checkpoint/support.h"
#include "tests/nodes/support.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

struct Pair {
  ListeningSocket listening{kAnyPort};
  Socket near = Socket::connect({"127.0.0.1", listening.port()}, 5s);
  Socket far = std::move(*listening.accept(5s));
};

constexpr LinkTiming kHasty{.beat = 50ms, .silence = 400ms};

TEST(Address, IsAHostAndAPort) {
  EXPECT_EQ(parse_address("spark-1:4450", "--join").text(), "spark-1:4450");
  EXPECT_EQ(parse_address("[fd00::1]:80", "--join").host, "fd00::1");
  EXPECT_EQ(parse_address("[fd00::1]:80", "--join").text(), "[fd00::1]:80");
  EXPECT_EQ(parse_address("fd00::1:80", "--join").host, "fd00::1");  // as ssh names it
  for (const char* wrong : {"", "host", "host:", ":80", "host:80x", "host:65536", "host:-1"})
    checkpoint::expect_error(Code::invalid_request, {"--join", wrong},
                             [&] { parse_address(wrong, "--join"); });
}

TEST(Socket, SaysWhyNobodyCanBeReached) {
  std::uint16_t port = 0;
  {
    const ListeningSocket gone(kAnyPort);
    port = gone.port();
  }
  checkpoint::expect_error(Code::device_lost, {"127.0.0.1:", "refused"}, [&] {
    Socket::connect({"127.0.0.1", port}, 5s);
  });
  const ListeningSocket taken(kAnyPort);
  checkpoint::expect_error(Code::io, {"ranks cannot join at 127.0.0.1"}, [&] {
    ListeningSocket({"127.0.0.1", taken.port()});
  });
}

TEST(Frames, AreWhatWasSent) {
  Pair pair;
  Bytes body(3'000'000);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 7);
  std::jthread sender([&] { send_frame(pair.near, Frame::part, std::span(body).first(5), body, 5s); });
  const Message message = receive_frame(pair.far, kMemberBytes, {});
  EXPECT_EQ(message.kind, Frame::part);
  ASSERT_EQ(message.bytes.size(), body.size() + 5);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), message.bytes.begin() + 5));
}

TEST(Frames, BadOnesAreRefusedWithASentence) {
  const auto refused = [](std::span<const std::byte> bytes, const std::string& words) {
    Pair pair;
    pair.near.send(bytes, {}, 5s);
    checkpoint::expect_error(Code::device_lost, {words},
                             [&] { receive_frame(pair.far, kStrangerBytes, {.silence = 200ms}); });
  };
  const std::string_view http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  refused(std::as_bytes(std::span(http)), "not the protocol of ranks");
  const auto head = [](std::uint32_t kind, std::uint64_t bytes) {
    return ByteWriter().put(std::uint32_t{0x5234'4646}).put(kind).put(bytes).take();
  };
  refused(head(0, 0), "not the protocol of ranks");
  refused(head(99, 0), "not the protocol of ranks");
  refused(head(2, kStrangerBytes + 1), "a message of 4097 bytes; at most 4096 are taken");
  refused(head(2, ~std::uint64_t{0}), "at most 4096");
  refused(head(2, 100), "nothing was heard for too long");
  const Bytes half = head(2, 100);
  refused(std::span(half).first(3), "nothing was heard for too long");
}

// A byte now and then does not keep a stranger here for ever.
TEST(Frames, SlowOnesHaveAnEnd) {
  Pair pair;
  std::atomic<bool> ends = false;
  std::jthread sender([&] {
    const Bytes bytes(1);
    while (!ends) {
      try {
        pair.near.send(bytes, {}, 1s);
      } catch (const LinkLost&) {
      }
      std::this_thread::sleep_for(50ms);
    }
  });
  const auto begin = Clock::now();
  EXPECT_THROW(receive_frame(pair.far, kStrangerBytes, {.silence = 400ms, .until = Clock::now() + 500ms}),
               LinkLost);
  EXPECT_LT(Clock::now() - begin, 3s);
  ends = true;
}

TEST(Link, IsQuietForLongWhileBothSidesLive) {
  Pair pair;
  constexpr LinkTiming kCalm{.beat = 50ms, .silence = 2s};  // a busy machine may hold a beat back for long
  Link a(std::move(pair.near), kCalm), b(std::move(pair.far), kCalm);
  a.start(), b.start();
  std::this_thread::sleep_for(2 * kCalm.silence);  // nobody says a word
  a.send(Frame::call, std::as_bytes(std::span("hello", 5)));
  const Message message = b.receive();
  EXPECT_EQ(message.kind, Frame::call);
  EXPECT_EQ(message.bytes.size(), 5u);
}

TEST(Link, WhoIsSilentIsLost) {
  Pair pair;
  std::promise<std::string> told;
  Link a(std::move(pair.near), kHasty, [&](const std::string& text) { told.set_value(text); });
  a.start();  // the other side holds its end, and says nothing
  const auto begin = Clock::now();
  EXPECT_THROW(a.receive(), LinkLost);
  EXPECT_GE(Clock::now() - begin, kHasty.silence - 50ms);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(told.get_future().get(), "nothing was heard for too long");
  EXPECT_THROW(a.send(Frame::call), LinkLost);
}

TEST(Link, WhatCameBeforeTheEndIsRead) {
  Pair pair;
  Link a(std::move(pair.near), kHasty);
  a.start();
  send_frame(pair.far, Frame::answer, {}, {}, 5s);
  pair.far.shut();
  EXPECT_EQ(a.receive().kind, Frame::answer);
  checkpoint::expect_error(Code::device_lost, {"the connection was closed"}, [&] { a.receive(); });
}

TEST(Link, WhoDoesNotTakeWhatIsSentIsLost) {
  Pair pair;
  Link a(std::move(pair.near), kHasty);
  a.start();
  std::atomic<bool> ends = false;
  std::jthread beats([&] {  // it is heard, but does not read
    while (!ends) {
      try {
        send_frame(pair.far, Frame::beat, {}, {}, 1s);
      } catch (const LinkLost&) {
        return;
      }
      std::this_thread::sleep_for(50ms);
    }
  });
  const Bytes body(1 << 26);
  EXPECT_THROW(a.send(Frame::call, {}, body), LinkLost);
  ends = true;
}

TEST(Link, WhoFloodsIsLost) {
  Pair pair;
  Link a(std::move(pair.near), {});
  a.start();
  try {
    for (int i = 0; i < 1000; ++i) send_frame(pair.far, Frame::answer, {}, {}, 1s);
  } catch (const LinkLost&) {  // it was hung up on
  }
  a.wait_for_end(1min);  // whoever takes frames meanwhile makes room for more
  std::string why;
  try {
    for (;;) a.receive();
  } catch (const LinkLost& lost) {
    why = lost.what();
  }
  EXPECT_EQ(why, "it sends what nobody asked for");
}

}  // namespace
}  // namespace fourfold::nodes
