// What a test can ask of the library that stands in for NCCL, and tell it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace fourfold::all_reduce {

class FakeNccl {
 public:
  FakeNccl() : library_(dlopen(FOURFOLD_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  ~FakeNccl() {
    tell(0);
    dlclose(library_);
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  // That is how every communicator is from now on; 0: as it really is.
  void tell(int status) const { find<void(int)>("fake_nccl_tell")(status); }
  // Calls of a communicator that was freed, or that another thread was calling.
  int misuses() const { return find<int()>("fake_nccl_misuses")(); }

 private:
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace fourfold::all_reduce
