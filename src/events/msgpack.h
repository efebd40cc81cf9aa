// MessagePack out: the few types that event batches have, appended to a string.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace fourfold::events {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void nil() { byte(0xc0); }
  void real(double value) {
    byte(0xcb);
    big_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void natural(std::uint64_t value) {
    if (value < 0x80) return byte(value);
    const int bytes = value <= 0xff ? 1 : value <= 0xffff ? 2 : value <= 0xffffffff ? 4 : 8;
    byte(bytes == 1 ? 0xcc : bytes == 2 ? 0xcd : bytes == 4 ? 0xce : 0xcf);
    big_endian(value, bytes);
  }
  // UTF-8, below 64 KiB.
  void text(std::string_view value) {
    if (value.size() < 32) {
      byte(0xa0 | value.size());
    } else {
      byte(0xda);
      big_endian(value.size(), 2);
    }
    out_ += value;
  }
  // So many values follow.
  void array(std::size_t count) { group(0x90, 0xdc, count); }
  // So many pairs follow.
  void map(std::size_t count) { group(0x80, 0xde, count); }

 private:
  void byte(std::uint64_t value) { out_ += static_cast<char>(value); }
  void big_endian(std::uint64_t value, int bytes) {
    char digits[8];
    for (int i = bytes; i > 0; --i, value >>= 8) digits[i - 1] = static_cast<char>(value & 0xff);
    out_.append(digits, static_cast<std::size_t>(bytes));
  }
  // The forms with 16 and with 32 bits follow each other.
  void group(std::uint64_t small, std::uint64_t wide, std::size_t count) {
    if (count < 16) return byte(small | count);
    const bool fits = count <= 0xffff;
    byte(fits ? wide : wide + 1);
    big_endian(count, fits ? 2 : 4);
  }

  std::string& out_;
};

}  // namespace fourfold::events
