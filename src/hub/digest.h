// The hash by which the hub knows a file, over bytes as they come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fourfold::hub {

class Digest {
 public:
  // SHA-256 of the bytes for a large file; else git's: SHA-1 of "blob SIZE", a zero byte, and the bytes.
  Digest(bool large, std::uint64_t size);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void take(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fourfold::hub
