// What a request may not ask, with what the protocols' error shapes say of it beside the message.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace fourfold::server::api {

class RequestError : public Error {
 public:
  RequestError(int status, std::string message, std::string param, std::string api_code = {})
      : Error(Code::invalid_request, std::move(message)),
        status_(status),
        param_(std::move(param)),
        api_code_(std::move(api_code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }        // the field: "messages[0].role"
  const std::string& api_code() const { return api_code_; }  // "context_length_exceeded"; empty: none

 private:
  int status_;
  std::string param_, api_code_;
};

// A 400 that names the field it is about.
template <class... Args>
[[noreturn]] void refuse(const std::string& param, std::string_view pattern, const Args&... args) {
  throw RequestError(400, fourfold::format(pattern, args...), param);
}

}  // namespace fourfold::server::api
