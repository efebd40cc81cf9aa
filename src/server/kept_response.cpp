#include "server/kept_response.h"

#include "base/json_writer.h"
#include "server/api/response_store.h"

namespace fourfold::server {

HttpResponse kept_response(const HttpRequest& request, std::string_view prefix, const ServedModel& model) {
  const std::string id = request.path.substr(prefix.size());
  const bool erase = request.method == "DELETE";
  const auto entry = model.responses ? model.responses->find(request.tenant, id) : nullptr;
  if (!entry || (erase && !model.responses->erase(request.tenant, id)))
    return refusal(request.path, 404, "response_not_found", "no such response is kept here, or no longer");
  if (!erase) return {.body = entry->body};
  JsonWriter json;
  json.begin_object().member("id", id).member("object", "response").member("deleted", true).end_object();
  return {.body = json.finish()};
}

}  // namespace fourfold::server
