#include "events/endpoint.h"

#include <charconv>

#include "base/error.h"

namespace fourfold::events {

Endpoint Endpoint::parse(std::string_view text, std::string_view option) {
  constexpr std::string_view kTcp = "tcp://";
  const std::string_view whole = text;
  Endpoint out;
  if (text.starts_with('@')) {
    out.listens = true;
    text.remove_prefix(1);
  }
  const auto refuse = [&] {
    fail_with_hint(Code::invalid_request,
                   "tcp://*:5557 listens on all addresses, @tcp://127.0.0.1:5557 on one; tcp://HOST:5557 "
                   "connects to a subscriber that listens.",
                   "{} {}: it must be tcp://HOST:PORT", option, whole);
  };
  if (!text.starts_with(kTcp)) refuse();
  text.remove_prefix(kTcp.size());
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) refuse();
  out.host = text.substr(0, colon);
  out.port = text.substr(colon + 1);
  int number = -1;
  const auto [end, problem] = std::from_chars(out.port.data(), out.port.data() + out.port.size(), number);
  if (problem != std::errc{} || end != out.port.data() + out.port.size() || number < 0 || number > 65535)
    refuse();
  if (out.host == "*" || out.host.find("::") != std::string::npos) out.listens = true;
  if (out.host == "*") out.host = "0.0.0.0";
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  if (number == 0 && !out.listens) refuse();
  return out;
}

}  // namespace fourfold::events
