// Bytes on their way to the machine: two page-locked buffers in turn, so that the host fills one while the
// other is copied.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

class Upload {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{32} << 20;

  explicit Upload(kernels::Memory& memory) : memory_(memory) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // fill(bytes, offset) writes bytes [offset, offset + bytes.size()) of what goes to `to`.
  using Fill = std::function<void(std::span<std::byte> bytes, std::size_t offset)>;
  void send(void* to, std::size_t bytes, const Fill& fill);
  // Everything sent has arrived.
  void finish();

 private:
  kernels::Memory& memory_;
  void* buffer_[2] = {nullptr, nullptr};
  bool in_flight_[2] = {false, false};
  int next_ = 0;
};

}  // namespace fourfold::backend::cuda
