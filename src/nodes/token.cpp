#include "nodes/token.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <vector>

#include "base/check.h"
#include "base/error.h"

#if defined(FOURFOLD_HAS_OPENSSL)
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#endif

namespace fourfold::nodes {
namespace {

constexpr std::size_t kSecretBytesMin = 16, kSecretBytesMax = 4096;

#if !defined(FOURFOLD_HAS_OPENSSL)
[[noreturn]] void refuse() {
  fail_with_hint(Code::unsupported_device, "Build with OpenSSL's headers (Debian: libssl-dev).",
                 "this program was built without OpenSSL, which ranks on several machines need");
}
#endif

}  // namespace

Token::Token(std::string secret) : secret_(std::move(secret)) {
#if !defined(FOURFOLD_HAS_OPENSSL)
  refuse();
#endif
  if (secret_.size() < kSecretBytesMin || secret_.size() > kSecretBytesMax)
    fail_with_hint(Code::invalid_request, "One is made by: openssl rand -hex 32 > FILE",
                   "a token of {} bytes; it must have {} to {}", secret_.size(), kSecretBytesMin,
                   kSecretBytesMax);
}

Token Token::from_file(const std::string& path) {
  std::string line;
  if (path == "-") {
    std::getline(std::cin, line);
  } else {
    struct stat facts {};
    std::ifstream file(path);
    if (!file || ::stat(path.c_str(), &facts) != 0)
      fail(Code::io, "--token-file {}: cannot be read: {}", path, std::strerror(errno));
    if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
      fail_with_hint(Code::invalid_request, "chmod 600 " + path,
                     "--token-file {}: others than its owner may read or write it", path);
    std::getline(file, line);
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
  return Token(std::move(line));
}

Nonce draw_nonce() {
  Nonce nonce{};
#if defined(FOURFOLD_HAS_OPENSSL)
  check(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) == 1,
        "OpenSSL has random numbers");
#else
  refuse();
#endif
  return nonce;
}

Token Token::draw() {
  std::string text;
  for (const std::byte byte : draw_nonce()) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return Token(std::move(text));
}

Proof Token::prove([[maybe_unused]] std::string_view who, [[maybe_unused]] const Nonce& leader,
                   [[maybe_unused]] const Nonce& rank,
                   [[maybe_unused]] std::span<const std::byte> said) const {
  Proof proof{};
#if defined(FOURFOLD_HAS_OPENSSL)
  // Every part but the last has a fixed length, or ends with a byte that is in no other.
  std::vector<std::byte> text;
  const auto add = [&](std::span<const std::byte> part) {
    text.insert(text.end(), part.begin(), part.end());
  };
  add(std::as_bytes(std::span(who)));
  text.push_back(std::byte{0});
  add(leader), add(rank), add(said);
  unsigned size = 0;
  const unsigned char* made = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(proof.data()), &size);
  check(made != nullptr && size == proof.size(), "OpenSSL has HMAC-SHA256", size);
#else
  refuse();
#endif
  return proof;
}

bool same_proof([[maybe_unused]] const Proof& a, [[maybe_unused]] const Proof& b) {
#if defined(FOURFOLD_HAS_OPENSSL)
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
#else
  refuse();
#endif
}

}  // namespace fourfold::nodes
