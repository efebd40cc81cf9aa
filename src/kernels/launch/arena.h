// Device memory that goes back when a proof or a bench ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/launch/machine.h"

namespace fourfold::kernels {

class Arena {
 public:
  explicit Arena(Memory& memory) : memory_(memory) {}
  ~Arena() {
    try {
      for (void* pointer : pointers_) memory_.release(pointer);
    } catch (const Error&) {  // of a device that is lost: what lost it is already on its way
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T>
  T* take(std::size_t count, const char* name) {
    pointers_.push_back(memory_.allocate(std::max<std::size_t>(count * sizeof(T), 256), name));
    return static_cast<T*>(pointers_.back());
  }
  template <class T>
  T* upload(const std::vector<T>& values, const char* name) {
    T* to = take<T>(values.size(), name);
    if (!values.empty()) memory_.write(to, values.data(), values.size() * sizeof(T));
    return to;
  }

 private:
  Memory& memory_;
  std::vector<void*> pointers_;
};

}  // namespace fourfold::kernels
