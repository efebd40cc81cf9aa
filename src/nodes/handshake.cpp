#include "nodes/handshake.h"

namespace fourfold::nodes {
namespace {

// All that is said before the proofs, which are over it: who changes a word on the way is found out.
struct Hello {
  std::uint32_t protocol = kProtocol;
  Nonce nonce{};
};

struct Join {
  std::uint32_t protocol = kProtocol;
  std::int32_t wanted = -1;
  Nonce nonce{};
  Proof proof{};
  std::string version;

  Bytes said() const { return ByteWriter().put(protocol).put(wanted).put_text(version).take(); }
};

Join read_join(const Message& message) {
  ByteReader in(message.bytes);
  Join join;
  join.protocol = in.get<std::uint32_t>();
  // What is behind it may look otherwise in another version.
  if (join.protocol != kProtocol) return join;
  join.wanted = in.get<std::int32_t>();
  join.nonce = in.get<Nonce>();
  join.proof = in.get<Proof>();
  join.version = in.get_text();
  in.require_end();
  return join;
}

class Talk {
 public:
  explicit Talk(Socket& socket) : socket_(socket) {}
  void send(Frame kind, const Bytes& bytes) { send_frame(socket_, kind, bytes, {}, kHandshakeTime); }
  Message receive() {
    return receive_frame(socket_, kStrangerBytes, {.silence = kHandshakeTime, .until = until_});
  }

 private:
  Socket& socket_;
  const Clock::time_point until_ = Clock::now() + kHandshakeTime;
};

[[noreturn]] void refuse(Talk& talk, bool later, const std::string& why) {
  try {
    talk.send(Frame::refuse, ByteWriter().put(static_cast<std::uint8_t>(later)).put_text(why).take());
  } catch (const LinkLost&) {  // told or not
  }
  throw Refused(later, why);
}

Settings place_or_refuse(Talk& talk, const LeaderWords& words, int wanted) {
  try {
    return words.place(wanted);
  } catch (const Refused& refused) {
    refuse(talk, refused.later(), refused.what());
  }
}

}  // namespace

Settings welcome_rank(Socket& socket, const LeaderWords& words) {
  Talk talk(socket);
  const Hello hello{.nonce = draw_nonce()};
  talk.send(Frame::hello, ByteWriter().put(hello.protocol).put(hello.nonce).take());
  const Message message = talk.receive();
  if (message.kind != Frame::join) throw LinkLost("it did not answer the challenge");
  Join join;
  try {
    join = read_join(message);
  } catch (const Error& error) {
    throw LinkLost(error.what());
  }
  if (join.protocol != kProtocol)
    refuse(talk, false,
           format("the protocol of ranks is version {} there and {} at the leader: run the same "
                  "program on all machines",
                  join.protocol, kProtocol));
  if (!same_proof(join.proof, words.token.prove("rank", hello.nonce, join.nonce, join.said())))
    refuse(talk, false, "the token is not the leader's");
  if (join.version != words.version)
    refuse(talk, false,
           format("this is fourfold {}, the leader is fourfold {}: run the same program on all "
                  "machines",
                  join.version, words.version));
  const Settings settings = place_or_refuse(talk, words, join.wanted);
  const Bytes said = settings.bytes();
  talk.send(Frame::welcome,
            ByteWriter().put(words.token.prove("leader", hello.nonce, join.nonce, said)).raw(said).take());
  return settings;
}

namespace {

// A leader speaks first; a web server waits to be asked.
Message first_word(Talk& talk) {
  std::string why = "it says something else";
  try {
    Message first = talk.receive();
    if (first.kind == Frame::hello) return first;
  } catch (const LinkLost& lost) {
    why = lost.what();
  }
  throw LinkLost(
      format("whoever is there is no leader of ranks ({}): join the port of --rank-listen, which is "
             "not that of HTTP",
             why));
}

Settings join(Socket& socket, const RankWords& words) {
  Talk talk(socket);
  const Message first = first_word(talk);
  ByteReader hello_bytes(first.bytes);
  Hello hello;
  hello.protocol = hello_bytes.get<std::uint32_t>();
  Join join{.wanted = words.wanted, .nonce = draw_nonce(), .version = words.version};
  if (hello.protocol == kProtocol) hello.nonce = hello_bytes.get<Nonce>();
  join.proof = words.token.prove("rank", hello.nonce, join.nonce, join.said());
  talk.send(Frame::join, ByteWriter()
                             .put(join.protocol)
                             .put(join.wanted)
                             .put(join.nonce)
                             .put(join.proof)
                             .put_text(join.version)
                             .take());
  const Message answer = talk.receive();
  ByteReader in(answer.bytes);
  if (answer.kind == Frame::refuse) {
    const bool later = in.get<std::uint8_t>() != 0;
    throw Refused(later, in.get_text());
  }
  if (answer.kind != Frame::welcome) throw LinkLost("the leader neither took this rank nor refused it");
  const Proof proof = in.get<Proof>();
  if (!same_proof(proof, words.token.prove("leader", hello.nonce, join.nonce, in.left())))
    throw Refused(false, "whoever leads there does not know the token");
  return Settings::read(in.left());
}

}  // namespace

Settings join_leader(Socket& socket, const RankWords& words) {
  try {
    return join(socket, words);
  } catch (const Error& error) {
    if (error.code() == Code::io) throw LinkLost(error.what());
    throw;
  }
}

}  // namespace fourfold::nodes
