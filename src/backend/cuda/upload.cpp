#include "backend/cuda/upload.h"

#include <algorithm>

namespace fourfold::backend::cuda {

Upload::~Upload() {
  for (void* buffer : buffer_)
    if (buffer != nullptr) memory_.release_host(buffer);
}

void Upload::send(void* to, std::size_t bytes, const Fill& fill) {
  for (std::size_t offset = 0; offset < bytes; offset += kBufferBytes) {
    const std::size_t count = std::min(kBufferBytes, bytes - offset);
    void*& buffer = buffer_[next_];
    if (buffer == nullptr) buffer = memory_.allocate_host(kBufferBytes);
    if (in_flight_[next_]) finish();
    fill({static_cast<std::byte*>(buffer), count}, offset);
    memory_.send(static_cast<std::byte*>(to) + offset, buffer, count);
    in_flight_[next_] = true;
    next_ ^= 1;
  }
}

void Upload::finish() {
  memory_.wait();
  in_flight_[0] = in_flight_[1] = false;
}

}  // namespace fourfold::backend::cuda
