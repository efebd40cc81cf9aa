#include "server/request_log.h"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "base/utc_time.h"

namespace fourfold::server {
namespace {

// "2026-11-16T18:57:20.123Z"
std::string utc_now() {
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  std::string text = utc_time(std::chrono::system_clock::to_time_t(now));
  text.pop_back();
  char part[8];
  std::snprintf(part, sizeof part, ".%03dZ", static_cast<int>(now.time_since_epoch().count() % 1000));
  return text + part;
}

}  // namespace

std::string request_line(const HttpRequest& request, std::string_view route, int status,
                         const Pump::End* tokens) {
  const double took_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - request.begun).count();
  const std::string counts =
      tokens == nullptr ? ""
                        : fourfold::format(" prompt_tokens={} answer_tokens={}{}", tokens->prompt_tokens,
                                           tokens->answer_tokens, tokens->left ? " left" : "");
  return fourfold::format("{} server request id={} route={} status={} ms={}{} tenant={} peer={}", utc_now(),
                          request.id, route, status, std::llround(took_ms), counts, request.tenant,
                          request.peer);
}

}  // namespace fourfold::server
