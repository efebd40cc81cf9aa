// The one error class: the world is wrong (bad file, bad request, no such device). Thrown on the control
// plane only, caught at the doors (C ABI, main). The message holds the offending numbers, the hint the next
// step.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace fourfold {

enum class Code {
  invalid_request,
  bad_checkpoint,
  unsupported_model,
  unsupported_device,
  unsupported_op,
  out_of_memory,
  over_capacity,
  cancelled,
  device_lost,
  io,
  internal,
};

constexpr std::string_view code_name(Code code) {
  switch (code) {
    case Code::invalid_request: return "invalid_request";
    case Code::bad_checkpoint: return "bad_checkpoint";
    case Code::unsupported_model: return "unsupported_model";
    case Code::unsupported_device: return "unsupported_device";
    case Code::unsupported_op: return "unsupported_op";
    case Code::out_of_memory: return "out_of_memory";
    case Code::over_capacity: return "over_capacity";
    case Code::cancelled: return "cancelled";
    case Code::device_lost: return "device_lost";
    case Code::io: return "io";
    case Code::internal: return "internal";
  }
  return "unknown";
}

class Error : public std::runtime_error {
 public:
  Error(Code code, std::string message, std::string hint = {});
  Error(const Error&);
  Error& operator=(const Error&);
  ~Error() override;
  Code code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  Code code_;
  std::string hint_;
};

[[noreturn]] void throw_error(Code code, std::string hint, std::string_view pattern, FormatValues values);

template <class... Args>
[[noreturn]] void fail(Code code, std::string_view pattern, const Args&... args) {
  throw_error(code, {}, pattern, {FormatValue(args)...});
}

// As fail, with the next step for the user.
template <class... Args>
[[noreturn]] void fail_with_hint(Code code, std::string hint, std::string_view pattern, const Args&... args) {
  throw_error(code, std::move(hint), pattern, {FormatValue(args)...});
}

}  // namespace fourfold
