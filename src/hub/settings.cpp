#include "hub/settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/hub_cache.h"
#include "http/url.h"
#include "json/parse.h"

namespace fourfold::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  return text;
}

bool is_loopback(const std::string& host) {
  const bool is_number = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (is_number && host.starts_with("127."));
}

// HF_TOKEN_PATH, or `token` beside the cache's default place.
fs::path token_file() {
  const std::string home = variable("HOME");
  const auto expanded = [&](const std::string& path) {
    return path.starts_with("~/") ? fs::path(home + path.substr(1)) : fs::path(path);
  };
  if (const std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return expanded(path);
  if (const std::string path = variable("HF_HOME"); !path.empty()) return expanded(path) / "token";
  if (const std::string path = variable("XDG_CACHE_HOME"); !path.empty())
    return expanded(path) / "huggingface" / "token";
  return fs::path(home) / ".cache" / "huggingface" / "token";
}

void take_token(Settings& settings) {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    settings.token = trimmed(variable(name));
    settings.token_from = name;
    if (!settings.token.empty()) break;
  }
  if (settings.token.empty()) {
    const fs::path file = token_file();
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) {
      settings.token_from.clear();
      return;
    }
    settings.token = trimmed(json::read_text_file(file, 64 << 10));
    settings.token_from = file.string();
  }
  const auto unfit = [](unsigned char c) { return c <= ' ' || c >= 0x7f; };
  if (std::ranges::any_of(settings.token, unfit))
    fail(Code::invalid_request, "the token of {} has characters that no request can carry",
         settings.token_from);
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  if (std::string endpoint = trimmed(variable("HF_ENDPOINT")); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (endpoint.find('@') != std::string::npos)  // and not shown: it may be a password
      fail_with_hint(Code::invalid_request, "For example: HF_ENDPOINT=https://huggingface.co",
                     "HF_ENDPOINT has an '@' in it; names and passwords are not part of an endpoint");
    try {
      http::parse_link(endpoint);
    } catch (const Error& error) {
      fail_with_hint(Code::invalid_request, "For example: HF_ENDPOINT=https://huggingface.co",
                     "HF_ENDPOINT: {}", error.what());
    }
    settings.endpoint = endpoint;
  }
  take_token(settings);
  // Others on the way could read it.
  if (const http::Url at = http::parse_link(settings.endpoint); !at.tls && !is_loopback(at.host)) {
    settings.token_is_kept = !settings.token.empty();
    settings.token.clear();
  }
  const std::string offline = variable("HF_HUB_OFFLINE");
  settings.offline = is_true(offline.empty() ? variable("TRANSFORMERS_OFFLINE") : offline);
  settings.proxies = http::proxies_from_environment();
  settings.cache = checkpoint::hub_cache_folder(checkpoint::hub_environment());
  return settings;
}

}  // namespace fourfold::hub
