#include "nodes/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/checkpoint/support.h"

namespace fourfold::nodes {
namespace {

std::string hex(const Proof& proof) {
  std::string text;
  for (const std::byte byte : proof) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

const std::span<const std::byte> kSaid = std::as_bytes(std::span("said", 4));

// By Python: hmac.new(b"0123456789abcdef", b"rank\0" + bytes(32) + b"\1" * 32 + b"said", "sha256")
TEST(Token, ProvesByHmacSha256) {
  Nonce ones;
  ones.fill(std::byte{1});
  EXPECT_EQ(hex(Token("0123456789abcdef").prove("rank", Nonce{}, ones, kSaid)),
            "aacd57e8adfa2949c779109bd00ca7c7538d1b8ade7866c6308be2ce337388c1");
}

TEST(Token, EveryWordCounts) {
  const Token token("0123456789abcdef");
  const Nonce a = draw_nonce(), b = draw_nonce();
  EXPECT_NE(a, b);
  const Proof proof = token.prove("rank", a, b, kSaid);
  EXPECT_TRUE(same_proof(proof, token.prove("rank", a, b, kSaid)));
  EXPECT_FALSE(same_proof(proof, token.prove("leader", a, b, kSaid)));
  EXPECT_FALSE(same_proof(proof, token.prove("rank", b, a, kSaid)));
  EXPECT_FALSE(same_proof(proof, token.prove("rank", a, b, kSaid.first(3))));
  EXPECT_FALSE(same_proof(proof, Token("0123456789abcdeg").prove("rank", a, b, kSaid)));
}

TEST(Token, DrawsAnotherEachTime) {
  EXPECT_EQ(Token::draw().secret().size(), 64u);
  EXPECT_NE(Token::draw().secret(), Token::draw().secret());
}

TEST(Token, OfAFileThatItsOwnerAloneReads) {
  const std::string path = testing::TempDir() + "/fourfold_token";
  std::ofstream(path) << "0123456789abcdef \r\nanother line\n";
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(Token::from_file(path).secret(), "0123456789abcdef");
  for (const mode_t mode : {0640u, 0620u, 0604u, 0602u}) {
    ::chmod(path.c_str(), mode);
    EXPECT_EQ(checkpoint::expect_error(Code::invalid_request, {path, "others than its owner"},
                                       [&] { Token::from_file(path); }),
              "chmod 600 " + path)
        << mode;
  }
  ::chmod(path.c_str(), 0600);
  std::ofstream(path) << "short\n";
  checkpoint::expect_error(Code::invalid_request, {"a token of 5 bytes", "16"},
                           [&] { Token::from_file(path); });
  std::remove(path.c_str());
  checkpoint::expect_error(Code::io, {path, "cannot be read"}, [&] { Token::from_file(path); });
}

}  // namespace
}  // namespace fourfold::nodes
