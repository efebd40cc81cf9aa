// What a request may not ask, with what the protocols' error shapes say of it beside the message.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "engine/request.h"

namespace fourfold::server::api {

class RequestError : public Error {
 public:
  RequestError(int status, std::string message, std::string param, std::string api_code)
      : Error(Code::invalid_request, std::move(message)),
        status_(status),
        param_(std::move(param)),
        api_code_(std::move(api_code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }        // the field: "messages[0].role"
  const std::string& api_code() const { return api_code_; }  // "context_length_exceeded"

 private:
  int status_;
  std::string param_, api_code_;
};

// A 400 that names the field it is about. The codes are OpenAI's own words.
template <class... Args>
[[noreturn]] void refuse(const std::string& param, std::string_view pattern, const Args&... args) {
  throw RequestError(400, fourfold::format(pattern, args...), param, "invalid_value");
}
template <class... Args>
[[noreturn]] void refuse_missing(const std::string& param, std::string_view pattern, const Args&... args) {
  throw RequestError(400, fourfold::format(pattern, args...), param, "missing_required_parameter");
}
// It is of another kind than it must be.
template <class... Args>
[[noreturn]] void refuse_type(const std::string& param, std::string_view pattern, const Args&... args) {
  throw RequestError(400, fourfold::format(pattern, args...), param, "invalid_type");
}
// Others serve it.
template <class... Args>
[[noreturn]] void refuse_unsupported(const std::string& param, std::string_view pattern,
                                     const Args&... args) {
  throw RequestError(400, fourfold::format(pattern, args...), param, "unsupported_value");
}

// What stands behind a request that was not taken, or failed: as /ready and /health have it.
std::string_view code_of(engine::Trouble trouble);

}  // namespace fourfold::server::api
