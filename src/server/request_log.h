// The line of --log-requests: what a request came to, when and how fast.
#pragma once

#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/pump.h"

namespace fourfold::server {

// "2026-11-16T18:57:20.123Z server request id=req-1 route=/v1/messages status=200 ms=532 prompt_tokens=18
// answer_tokens=40 tenant=0 peer=127.0.0.1". Of the request only what cannot forge a line: the route by its
// own name, the id by its alphabet. tokens: of a request that ran the model.
std::string request_line(const HttpRequest& request, std::string_view route, int status,
                         const Pump::End* tokens = nullptr);

}  // namespace fourfold::server
