// What the environment says about the hub: where it is, who asks, and whether it may be asked. The variables
// and their meaning are those of the hub's own tools.
#pragma once

#include <filesystem>
#include <string>

#include "http/proxy.h"

namespace fourfold::hub {

struct Settings {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT, without a slash at the end
  std::string token;                                // HF_TOKEN, or the token file's; empty: nobody
  std::string token_from;                           // for messages: "HF_TOKEN" or the file
  bool token_is_kept = false;                       // there is one, and the endpoint is not encrypted
  bool offline = false;                             // HF_HUB_OFFLINE
  http::Proxies proxies;                            // HTTPS_PROXY, NO_PROXY
  std::filesystem::path cache;
  std::string user_agent = "fourfold";
};

// Throws invalid_request for an endpoint that is no address, and for a token that no request can carry.
Settings settings_from_environment();

}  // namespace fourfold::hub
