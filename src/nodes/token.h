// The secret that the ranks of a group share, and proofs of knowing it. It never goes over the wire: each
// side sends a random number, and gets back a code (HMAC-SHA256) of both numbers and of all that was said.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace fourfold::nodes {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

class Token {
 public:
  // Throws invalid_request for one that is shorter than 16 bytes, unsupported_device where the program was
  // built without OpenSSL.
  explicit Token(std::string secret);
  // The file's first line; "-": that of stdin. Throws io, and invalid_request as above, or for a file that
  // others than its owner may read.
  static Token from_file(const std::string& path);
  // A new one.
  static Token draw();

  // who: "leader" or "rank", so that nobody is answered with its own words.
  Proof prove(std::string_view who, const Nonce& leader, const Nonce& rank,
              std::span<const std::byte> said) const;
  // For a process that is started here: on its stdin.
  const std::string& secret() const { return secret_; }

 private:
  std::string secret_;
};

Nonce draw_nonce();
// In a time that does not depend on where they differ.
bool same_proof(const Proof& a, const Proof& b);

}  // namespace fourfold::nodes
