// libzmq itself is the peer in tests/clients/kv_events.py; here are the peers it never is.
#include "events/zmtp.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace fourfold::events {
namespace {

using Role = ZmtpPeer::Role;

std::string frame(int flags, const std::string& body) {
  return std::string(1, static_cast<char>(flags)) + static_cast<char>(body.size()) + body;
}

std::string ready(const std::string& type) {
  return frame(4, std::string("\5READY\13Socket-Type") + std::string("\0\0\0", 3) +
                      static_cast<char>(type.size()) + type);
}

ZmtpPeer connected(Role role, const std::string& type) {
  ZmtpPeer peer(role);
  std::string out;
  peer.take(ZmtpPeer::greeting() + ready(type), out);
  return peer;
}

TEST(Zmtp, AHandshakeByteByByteIsTheSame) {
  ZmtpPeer peer(Role::publisher);
  std::string whole;
  for (const char byte : ZmtpPeer::greeting() + ready("SUB") + frame(0, "\1kv@")) {
    EXPECT_FALSE(peer.wants("kv@pod"));
    peer.take({&byte, 1}, whole);
  }
  EXPECT_TRUE(peer.is_ready());
  EXPECT_EQ(whole, ready("PUB"));
  EXPECT_TRUE(peer.wants("kv@pod"));
  EXPECT_FALSE(peer.wants("kv"));
}

TEST(Zmtp, SubscriptionsComeAsMessagesOrAsCommands) {
  ZmtpPeer peer = connected(Role::publisher, "SUB");
  std::string out;
  EXPECT_FALSE(peer.wants("a"));
  peer.take(frame(0, "\1"), out);
  EXPECT_TRUE(peer.wants("a")) << "everything";
  peer.take(frame(0, std::string(1, '\0')), out);
  EXPECT_FALSE(peer.wants("a"));
  peer.take(frame(4, "\11SUBSCRIBEa"), out);
  peer.take(frame(4, "\11SUBSCRIBEa"), out);
  peer.take(frame(4, "\6CANCELa"), out);
  EXPECT_TRUE(peer.wants("a")) << "twice there, once gone";
  peer.take(frame(4, "\6CANCELa"), out);
  EXPECT_FALSE(peer.wants("a"));
  EXPECT_EQ(out, "");
  peer.take(frame(4, std::string("\4PING\0\1xyz", 10)), out);
  EXPECT_EQ(out, frame(4, "\4PONGxyz"));
  EXPECT_THROW(peer.take(frame(4, std::string("\4PING\0\1", 7) + std::string(17, 'x')), out), Error);
}

TEST(Zmtp, QuestionsAreWholeMessages) {
  ZmtpPeer peer = connected(Role::router, "DEALER");
  std::string out;
  peer.take(frame(1, "") + frame(0, "12345678") + frame(1, ""), out);
  EXPECT_EQ(peer.take_messages(), (std::vector<ZmtpPeer::Message>{{"", "12345678"}}));
  peer.take(frame(0, "x"), out);
  EXPECT_EQ(peer.take_messages(), (std::vector<ZmtpPeer::Message>{{"", "x"}}));
}

TEST(Zmtp, LongFramesHaveEightBytesOfSize) {
  std::string out;
  append_frame(out, std::string(255, 'x'), false);
  EXPECT_EQ(out.substr(0, 2), std::string("\0\377", 2));
  out.clear();
  append_frame(out, std::string(256, 'x'), true);
  EXPECT_EQ(out.substr(0, 9), std::string("\3\0\0\0\0\0\0\1\0", 9));
}

void expect_refused(Role role, const std::string& bytes) {
  ZmtpPeer peer(role);
  std::string out;
  try {
    peer.take(bytes, out);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
  }
}

TEST(Zmtp, WhoeverIsNoPeerIsRefused) {
  const std::string hello = ZmtpPeer::greeting();
  expect_refused(Role::publisher, "GET / HTTP/1.1\r\n");
  std::string other = hello;
  other[10] = 2;
  expect_refused(Role::publisher, other);
  other = hello;
  other.replace(12, 5, "CURVE");
  expect_refused(Role::publisher, other);
  expect_refused(Role::publisher, hello + ready("PUB"));
  expect_refused(Role::router, hello + ready("SUB"));
  expect_refused(Role::publisher, hello + frame(0, "\1a"));                    // before READY
  expect_refused(Role::publisher, hello + frame(4, "\5ERROR"));                // it refuses us
  expect_refused(Role::publisher, hello + frame(4, "\5READY\13Socket-Type"));  // cut short
  expect_refused(Role::publisher, hello + frame(4, ""));
  const std::string in = hello + ready("SUB");
  expect_refused(Role::publisher, in + frame(8, ""));
  expect_refused(Role::publisher, in + std::string("\2\0\0\0\0\0\1\0\1", 9));  // 65,537 bytes
  std::string many = in;
  for (std::size_t i = 0; i <= ZmtpPeer::kTopicsMax; ++i) many += frame(0, "\1a");
  expect_refused(Role::publisher, many);
  many = hello + ready("DEALER");
  for (std::size_t i = 0; i <= ZmtpPeer::kFramesMax; ++i) many += frame(1, "");
  expect_refused(Role::router, many);
}

// A talk with bytes changed, in random pieces: it is taken or refused, and nothing else.
TEST(Zmtp, ChangedBytesAreTakenOrRefused) {
  Random random(1);
  std::int64_t refused = 0, taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    const bool publisher = random.below(2) == 0;
    std::string talk = ZmtpPeer::greeting() + ready(publisher ? "SUB" : "DEALER");
    for (int i = 0; i < 3; ++i) talk += publisher ? frame(0, "\1topic") : frame(1, "") + frame(0, "12345678");
    const std::size_t from = random.below(3) == 0 ? 0 : ZmtpPeer::greeting().size();
    for (std::uint64_t i = random.below(4); i > 0; --i)
      talk[from + random.below(talk.size() - from)] = static_cast<char>(random.below(256));
    ZmtpPeer peer(publisher ? Role::publisher : Role::router);
    std::string out;
    try {
      for (std::size_t at = 0; at < talk.size();) {
        const std::size_t count = 1 + random.below(talk.size() - at);
        peer.take(std::string_view(talk).substr(at, count), out);
        at += count;
      }
      ++taken;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      ++refused;
    }
    EXPECT_LE(peer.take_messages().size(), 3u);
  }
  EXPECT_GT(taken, 1'000);
  EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace fourfold::events
