#include "server/api/guides.h"

#include "server/api/request_error.h"

namespace fourfold::server::api {

MakeGuide read_guide(Fields& fields, const Tools& tools, const Generation&, const ServedModel&) {
  if (tools.forced())
    refuse("tool_choice", "tool_choice may only be auto or none; this build does not force calls");
  if (auto format = fields.object("response_format")) {
    const auto type = format->one_of("type", {"text", "json_object", "json_schema"});
    if (type.value_or("text") != "text")
      refuse("response_format.type", "response_format.type is \"{}\"; this build only does text", *type);
    format->finish();
  }
  return {};
}

}  // namespace fourfold::server::api
