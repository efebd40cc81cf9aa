// Values to bytes and back, little-endian as every machine is that the program runs on. Whatever does not add
// up is an Error (io), never read past its end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace fourfold::nodes {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::vector<std::byte>;

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> ByteWriter& put(const T& value) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>,
                  "no padding goes over the wire");
    return raw(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  ByteWriter& put_list(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) put(value);
    return *this;
  }
  ByteWriter& put_text(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    return raw(std::as_bytes(std::span(text)));
  }
  ByteWriter& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Bytes take() { return std::move(bytes_); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> get_list() {
    const std::span<const std::byte> bytes = raw(count(sizeof(T)) * sizeof(T));
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string get_text() {
    const std::span<const std::byte> bytes = raw(count(1));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> raw(std::size_t size) {
    if (size > left_.size()) fail(Code::io, "a message ends {} bytes too early", size - left_.size());
    const std::span<const std::byte> out = left_.first(size);
    left_ = left_.subspan(size);
    return out;
  }
  // Of elements that are announced, as many as there can be.
  std::size_t count(std::size_t element_bytes) {
    const auto announced = get<std::uint64_t>();
    if (announced > left_.size() / element_bytes)
      fail(Code::io, "a message announces {} values and has bytes for {}", announced,
           left_.size() / element_bytes);
    return static_cast<std::size_t>(announced);
  }
  std::span<const std::byte> left() const { return left_; }
  void require_end() const {
    if (!left_.empty()) fail(Code::io, "a message has {} bytes too many", left_.size());
  }

 private:
  std::span<const std::byte> left_;
};

}  // namespace fourfold::nodes
