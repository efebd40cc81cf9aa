// Keys that a known hash function cannot tell apart: what strangers send to make a table slow.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fourfold::test {

// Printable keys of 32 bytes with one value of libstdc++'s std::hash<std::string> (MurmurHash64A with its
// fixed seed). Every step of that function can be undone: of two blocks the first is chosen, and the second
// is the one that leads to the state we want. All halves that lead from the start to one state, before all
// that lead from there to another.
inline std::vector<std::string> murmur_collisions(std::size_t count) {
  constexpr std::uint64_t kMul = 0xC6A4A7935BD1E995u, kSeed = 0xC70F6907u, kLength = 32;
  std::uint64_t inverse = kMul;  // modulo 2^64, by Newton's steps
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto mixed = [](std::uint64_t v) { return v ^ (v >> 47); };  // it undoes itself
  const auto printable = [](std::uint64_t v) {
    for (int i = 0; i < 8; ++i, v >>= 8) {
      const auto byte = static_cast<unsigned char>(v);
      if (byte < 0x20 || byte > 0x7E || byte == '"' || byte == '\\') return false;
    }
    return true;
  };
  const auto halves = [&](std::uint64_t from, std::uint64_t to, std::size_t wanted) {
    std::vector<std::string> out;
    for (std::uint64_t number = 0; out.size() < wanted; ++number) {
      std::uint64_t first = 0;
      for (int i = 0; i < 8; ++i) first |= (0x61 + ((number >> (4 * i)) & 15)) << (8 * i);
      const std::uint64_t state = (from ^ (mixed(first * kMul) * kMul)) * kMul;
      const std::uint64_t second = mixed((state ^ (to * inverse)) * inverse) * inverse;
      if (!printable(second)) continue;
      std::string half(16, '\0');
      std::memcpy(half.data(), &first, 8);
      std::memcpy(half.data() + 8, &second, 8);
      out.push_back(std::move(half));
    }
    return out;
  };
  constexpr std::uint64_t kMiddle = 0x0123456789ABCDEFu, kEnd = 0xFEDCBA9876543210u;  // any two
  constexpr std::size_t kEach = 200;
  const auto before = halves(kSeed ^ (kLength * kMul), kMiddle, kEach);
  const auto behind = halves(kMiddle, kEnd, (count + kEach - 1) / kEach);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(before[i % kEach] + behind[i / kEach]);
  return out;
}

// An object with these as names, each with the number 1.
inline std::string object_of(const std::vector<std::string>& names) {
  std::string out = "{";
  for (const std::string& name : names) out += (out.size() > 1 ? ",\"" : "\"") + name + "\":1";
  return out + "}";
}

}  // namespace fourfold::test
