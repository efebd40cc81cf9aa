#include "server/routes.h"

#include <array>

#include "server/page/static_files.h"

namespace fourfold::server {
namespace {

constexpr std::array kRoutes{
    Route{"/health", "GET", RouteKind::health, false},
    Route{"/ready", "GET", RouteKind::ready},
    Route{"/version", "GET", RouteKind::version},
    Route{"/metrics", "GET", RouteKind::metrics, true, true},
    Route{"/status.json", "GET", RouteKind::status, true, true},
    Route{"/server_info", "GET", RouteKind::server_info},
    Route{"/get_server_info", "GET", RouteKind::server_info},
    Route{"/get_load", "GET", RouteKind::load, true, true},
    Route{"/v1/models", "GET", RouteKind::models},
    Route{"/v1/models/", "GET", RouteKind::model},
    Route{"/tokenize", "POST", RouteKind::tokenize},
    Route{"/detokenize", "POST", RouteKind::detokenize},
    Route{"/tokenizer_info", "GET", RouteKind::tokenizer_info},
    Route{"/v1/chat/completions", "POST", RouteKind::exchange},
    Route{"/v1/completions", "POST", RouteKind::exchange},
    Route{"/v1/responses", "POST", RouteKind::exchange},
    Route{"/v1/responses/input_tokens", "POST", RouteKind::exchange},
    Route{"/v1/responses/", "GET", RouteKind::response, true, false, "DELETE"},
    Route{"/v1/messages", "POST", RouteKind::exchange},
    Route{"/v1/messages/count_tokens", "POST", RouteKind::exchange},
};
constexpr Route kPage{"page", "GET", RouteKind::page, false};

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.kind == RouteKind::model || route.kind == RouteKind::response) {
      if (path.starts_with(route.path) && path.size() > route.path.size()) return &route;
    } else if (route.path == path) {
      return &route;
    }
  }
  return static_file(path) ? &kPage : nullptr;
}

}  // namespace fourfold::server
