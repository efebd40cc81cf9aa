// A hash for tables whose keys strangers choose. With a known function (std::hash, FNV) an attacker can send
// tens of thousands of keys that fall into one bucket, and every insertion walks over all of them. This one
// is a polynomial over the integers modulo 2^61 - 1, taken at a point that is drawn at random when the
// process starts: two given texts collide for about one point in 2^61 for each seven bytes of them, and no
// one outside knows the point.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace fourfold {

class SeededHash {
 public:
  using is_transparent = void;

  SeededHash() : point_(process_point()) {}
  explicit SeededHash(std::uint64_t point) : point_(point) {}

  std::size_t operator()(std::string_view text) const {
    std::uint64_t hash = text.size() + 1;
    for (std::size_t at = 0; at < text.size(); at += kChunk) {
      std::uint64_t chunk = 0;
      std::memcpy(&chunk, text.data() + at, text.size() - at < kChunk ? text.size() - at : kChunk);
      hash = reduced(static_cast<Wide>(hash) * point_ + chunk);
    }
    return reduced(static_cast<Wide>(hash) * point_);
  }

  // An odd number that is another in every process.
  static std::uint64_t random_odd() { return drawn() | 1; }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::size_t kChunk = 7;  // below 2^56, so below the modulus
  static constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61) - 1;

  static std::uint64_t reduced(Wide value) {
    const auto folded =
        static_cast<std::uint64_t>(value & kModulus) + static_cast<std::uint64_t>(value >> 61);
    const std::uint64_t again = (folded & kModulus) + (folded >> 61);
    return again >= kModulus ? again - kModulus : again;
  }
  static std::uint64_t drawn() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
  }
  static std::uint64_t process_point() {
    static const std::uint64_t point = 2 + drawn() % (kModulus - 3);
    return point;
  }

  std::uint64_t point_;
};

}  // namespace fourfold
