#include "http/proxy.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace fourfold::http {
namespace {

struct Variable {
  std::string name, value;
};

Variable first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return {name, value};
  return {};
}

std::string in_small_letters(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* begin = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(begin, begin + 2, code, 16).ptr == begin + 2) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Proxy parse_proxy(const Variable& variable) {
  std::string_view rest = variable.value;
  const auto refuse = [&](const std::string& why) {
    fail_with_hint(Code::invalid_request, "For example: HTTPS_PROXY=http://proxy.example:3128", "{} {}",
                   variable.name, why);
  };
  if (const auto scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (in_small_letters(rest.substr(0, scheme)) != "http")
      refuse(format("names a {} proxy; only http:// ones are spoken to", rest.substr(0, scheme)));
    rest.remove_prefix(scheme + 3);
  }
  Proxy proxy;
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    proxy.user = percent_decoded(rest.substr(0, at));
    rest.remove_prefix(at + 1);
  }
  rest = rest.substr(0, rest.find('/'));
  try {
    const Url url = parse_link("http://" + std::string(rest));
    proxy.host = url.host;
    proxy.port = rest.ends_with(":" + url.port) ? url.port : "1080";  // curl's
  } catch (const Error&) {                                            // which would show it
    refuse("is no address of a proxy (it is not shown: it may have a password)");
  }
  return proxy;
}

// "example.org" and ".example.org" are the host and all below it, as everywhere.
bool is_direct(const std::string& host, std::string_view rule) {
  if (rule == "*") return true;
  if (rule.starts_with("*.")) rule.remove_prefix(1);
  if (rule.starts_with('.')) rule.remove_prefix(1);
  if (rule.empty() || !host.ends_with(rule)) return false;
  return host.size() == rule.size() || host[host.size() - rule.size() - 1] == '.';
}

}  // namespace

const Proxy* Proxies::way_to(const Url& url) const {
  if (!url.tls || !https) return nullptr;
  const std::string host = in_small_letters(url.host);
  const bool direct_host =
      std::ranges::any_of(direct, [&](const std::string& rule) { return is_direct(host, rule); });
  return direct_host ? nullptr : &*https;
}

Proxies proxies_from_environment() {
  Proxies proxies;
  const Variable proxy = first_set({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  if (!proxy.value.empty()) proxies.https = parse_proxy(proxy);
  const std::string list = in_small_letters(first_set({"no_proxy", "NO_PROXY"}).value);
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find_first_of(", ", begin), list.size());
    if (end > begin) proxies.direct.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return proxies;
}

}  // namespace fourfold::http
