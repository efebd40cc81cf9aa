// Every route there is. A path is looked up as it was sent; whoever authorises and whoever answers ask the
// same function about the same bytes.
#pragma once

#include <span>
#include <string_view>

namespace fourfold::server {

enum class RouteKind {
  health,
  ready,
  version,
  metrics,
  status,
  server_info,
  load,
  models,
  model,
  tokenize,
  detokenize,
  tokenizer_info,
  page,
  response,
  exchange
};

struct Route {
  std::string_view path;  // of RouteKind::model and response: what the path begins with
  std::string_view method;
  RouteKind kind;
  bool needs_key = true;
  bool for_operators = false;  // shows what all clients do together: an operator's key where there are such
  std::string_view other_method = {};  // that it takes as well

  bool takes(std::string_view wanted) const {
    return wanted == method || (wanted == "HEAD" && method == "GET") ||
           (!other_method.empty() && wanted == other_method);
  }
};

std::span<const Route> all_routes();
// Null: there is none.
const Route* find_route(std::string_view path);

}  // namespace fourfold::server
