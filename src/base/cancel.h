// Whether what this thread works on is still wanted. Whoever begins the work says how that is known;
// long loops over what came from outside ask now and then, whichever room they are in.
#pragma once

#include <functional>
#include <utility>

#include "base/error.h"

namespace fourfold {

class CancelScope {
 public:
  // Until its end; `cancelled` must outlive it. Empty: it is always wanted.
  explicit CancelScope(const std::function<bool()>& cancelled)
      : before_(std::exchange(asked_, cancelled ? &cancelled : nullptr)) {}
  ~CancelScope() { asked_ = before_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  // Throws Code::cancelled when it is not.
  static void look() {
    if (asked_ != nullptr && (*asked_)()) fail(Code::cancelled, "nobody waits for it any more");
  }

 private:
  static inline thread_local const std::function<bool()>* asked_ = nullptr;
  const std::function<bool()>* before_;
};

}  // namespace fourfold
