#include "hub/digest.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace fourfold::hub {

struct Digest::Body {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

Digest::Digest(bool large, std::uint64_t size) : body_(std::make_unique<Body>()) {
  check(body_->context != nullptr, "OpenSSL has memory for a digest");
  const int begun = EVP_DigestInit_ex(body_->context.get(), large ? EVP_sha256() : EVP_sha1(), nullptr);
  check(begun == 1, "OpenSSL has SHA-1 and SHA-256");
  if (large) return;
  const std::string head = "blob " + std::to_string(size);
  take({head.c_str(), head.size() + 1});
}

Digest::~Digest() = default;

void Digest::take(std::string_view bytes) {
  check(EVP_DigestUpdate(body_->context.get(), bytes.data(), bytes.size()) == 1, "a digest takes bytes");
}

std::string Digest::hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check(EVP_DigestFinal_ex(body_->context.get(), bytes, &size) == 1, "a digest ends");
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

}  // namespace fourfold::hub
