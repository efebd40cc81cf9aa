#include "nodes/handshake.h"

#include "tests/checkpoint/support.h"
#include "tests/nodes/support.h"

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

struct Outcome {
  std::string leader, rank;  // what each was told; empty: well
};

// Both sides' words, each in its own thread.
Outcome meet(const std::function<void(Socket&)>& leader, const std::function<void(Socket&)>& rank) {
  ListeningSocket listening(kAnyPort);
  Outcome out;
  const auto run = [](Socket socket, const std::function<void(Socket&)>& side, std::string& told) {
    try {
      side(socket);
    } catch (const Error& error) {
      told = error.what();
    }
  };
  std::jthread other([&] { run(Socket::connect({"127.0.0.1", listening.port()}, 5s), rank, out.rank); });
  run(listening.accept(5s).value(), leader, out.leader);
  other.join();
  return out;
}

std::function<void(Socket&)> leading(const Token& token, const std::string& version,
                                     Settings* given = nullptr) {
  return [&token, version, given](Socket& socket) {
    const Settings settings = welcome_rank(
        socket, {.token = token, .version = version, .place = [](int wanted) {
                   if (wanted == 9) throw Refused(true, "rank 9 is there already");
                   return Settings{.rank = wanted == -1 ? 1 : wanted, .rank_count = 4, .model = "m"};
                 }});
    if (given != nullptr) *given = settings;
  };
}

std::function<void(Socket&)> joining(const Token& token, const std::string& version, int wanted = -1,
                                     Settings* got = nullptr) {
  return [&token, version, wanted, got](Socket& socket) {
    const Settings settings = join_leader(socket, {.token = token, .version = version, .wanted = wanted});
    if (got != nullptr) *got = settings;
  };
}

const Token kOther("another secret, as long");

// As a web server, which waits, and one that says something.
TEST(Handshake, WhoeverIsNoLeaderIsCalledThat) {
  for (const bool speaks : {false, true}) {
    const Outcome out = meet(
        [&](Socket& socket) {
          if (speaks) send_frame(socket, Frame::beat, {}, {}, 5s);
          socket.shut();
        },
        joining(kToken, "1.0"));
    EXPECT_NE(out.rank.find("is no leader of ranks"), std::string::npos) << out.rank;
    EXPECT_NE(out.rank.find("the port of --rank-listen"), std::string::npos) << out.rank;
  }
}

TEST(Handshake, GivesARankItsPlace) {
  Settings given, got;
  const Outcome out = meet(leading(kToken, "1.0", &given), joining(kToken, "1.0", 3, &got));
  EXPECT_EQ(out.leader + out.rank, "");
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.bytes(), given.bytes());
}

TEST(Handshake, AnotherTokenIsRefused) {
  const Outcome out = meet(leading(kToken, "1.0"), joining(kOther, "1.0"));
  EXPECT_EQ(out.leader, "the token is not the leader's");
  EXPECT_EQ(out.rank, out.leader);
}

TEST(Handshake, AnotherVersionIsRefused) {
  const Outcome out = meet(leading(kToken, "1.1"), joining(kToken, "1.0"));
  EXPECT_EQ(out.rank,
            "this is fourfold 1.0, the leader is fourfold 1.1: run the same program on all machines");
  EXPECT_EQ(out.leader, out.rank);
}

TEST(Handshake, APlaceThatIsTakenIsSaidTo) {
  const Outcome out = meet(leading(kToken, "1.0"), joining(kToken, "1.0", 9));
  EXPECT_EQ(out.rank, "rank 9 is there already");
}

// Whoever only looks like a leader gets nothing done by a rank.
TEST(Handshake, ARankAsksItsLeaderForAProof) {
  const auto impostor = [](Socket& socket) {
    const Nonce nonce = draw_nonce();
    send_frame(socket, Frame::hello, ByteWriter().put(kProtocol).put(nonce).take(), {}, 5s);
    receive_frame(socket, kStrangerBytes, {});
    send_frame(socket, Frame::welcome, ByteWriter().put(Proof{}).raw(Settings{}.bytes()).take(), {}, 5s);
  };
  EXPECT_EQ(meet(impostor, joining(kToken, "1.0")).rank, "whoever leads there does not know the token");
}

TEST(Handshake, AnotherProtocolIsRefusedByBothNumbers) {
  const auto future = [](Socket& socket) {
    receive_frame(socket, kStrangerBytes, {});
    send_frame(socket, Frame::join, ByteWriter().put(kProtocol + 1).put_text("all is otherwise").take(), {},
               5s);
    receive_frame(socket, kStrangerBytes, {});
  };
  const Outcome out = meet(leading(kToken, "1.0"), future);
  EXPECT_EQ(out.leader, format("the protocol of ranks is version {} there and {} at the leader: run the same "
                               "program on all machines",
                               kProtocol + 1, kProtocol));
}

TEST(Handshake, ARepeatedProofIsWorthNothing) {
  Message heard;
  const auto recording = [&](Socket& socket) {
    // Stands between: takes the join of one connection to another.
    heard = receive_frame(socket, kStrangerBytes, {});
  };
  meet(
      [&](Socket& socket) {
        send_frame(socket, Frame::hello, ByteWriter().put(kProtocol).put(draw_nonce()).take(), {}, 5s);
        recording(socket);
      },
      joining(kToken, "1.0"));
  ASSERT_EQ(heard.kind, Frame::join);
  const auto repeating = [&](Socket& socket) {
    receive_frame(socket, kStrangerBytes, {});
    send_frame(socket, Frame::join, heard.bytes, {}, 5s);
    receive_frame(socket, kStrangerBytes, {});
  };
  EXPECT_EQ(meet(leading(kToken, "1.0"), repeating).leader, "the token is not the leader's");
}

// Stands between a rank and its leader, and changes a byte of the join or of the welcome, counted from its
// end where it is negative.
Outcome meet_with_changed(Frame what, std::ptrdiff_t place) {
  std::string rank_told;
  const auto between = [&](Socket& leader) {
    ListeningSocket listening(kAnyPort);
    std::jthread rank([&] {
      Socket socket = Socket::connect({"127.0.0.1", listening.port()}, 5s);
      try {
        join_leader(socket, {.token = kToken, .version = "1.0", .wanted = 1});
      } catch (const Error& error) {
        rank_told = error.what();
      }
    });
    Socket other = listening.accept(5s).value();
    const auto pass = [&](Socket& from, Socket& to) {
      Message message = receive_frame(from, kStrangerBytes, {});
      if (message.kind == what)
        message.bytes[static_cast<std::size_t>(place < 0 ? std::ssize(message.bytes) + place : place)] ^=
            std::byte{2};
      send_frame(to, message.kind, message.bytes, {}, 5s);
    };
    pass(leader, other), pass(other, leader), pass(leader, other);
  };
  Outcome out = meet(leading(kToken, "1.0"), between);
  out.rank = rank_told;
  return out;
}

// The rank it wants, its version, and what it is to be.
TEST(Handshake, AWordChangedOnTheWayIsFoundOut) {
  EXPECT_EQ(meet_with_changed(Frame::join, 4).leader, "the token is not the leader's") << "another rank";
  EXPECT_EQ(meet_with_changed(Frame::join, -1).leader, "the token is not the leader's") << "another version";
  EXPECT_EQ(meet_with_changed(Frame::welcome, -1).rank, "whoever leads there does not know the token");
  EXPECT_EQ(meet_with_changed(Frame::beat, 0).rank, "") << "nothing was changed";
}

TEST(Handshake, GarbageEndsIt) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{10}, std::size_t{100}, kStrangerBytes}) {
    const auto garbage = [&](Socket& socket) {
      receive_frame(socket, kStrangerBytes, {});
      send_frame(socket, Frame::join, ByteWriter().put(kProtocol).raw(Bytes(size, std::byte{0xff})).take(),
                 {}, 5s);
      receive_frame(socket, kStrangerBytes, {});
    };
    EXPECT_NE(meet(leading(kToken, "1.0"), garbage).leader, "") << size;
  }
  const auto no_leader = [](Socket& socket) {
    send_frame(socket, Frame::hello, {}, {}, 5s);
    receive_frame(socket, kStrangerBytes, {});
  };
  EXPECT_NE(meet(no_leader, joining(kToken, "1.0")).rank, "");
}

}  // namespace
}  // namespace fourfold::nodes
