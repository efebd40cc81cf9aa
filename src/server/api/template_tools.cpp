#include "server/api/template_tools.h"

#include <utility>
#include <vector>

#include "server/api/tools.h"

namespace fourfold::server::api {
namespace {

// With this member of its function, where it has none that is as it should be: null is as good as nothing.
Json with_member(const Json& tool, const char* name, bool (Json::*is_right)() const, const Json& otherwise) {
  const Json* function = tool.is_dict() ? tool.dict()->find("function") : nullptr;
  if (function == nullptr || !function->is_dict()) return tool;
  const Json* member = function->dict()->find(name);
  if (member != nullptr && (member->*is_right)()) return tool;
  text::jinja::Dict inner = *function->dict(), outer = *tool.dict();
  inner.set(name, otherwise);
  outer.set("function", std::move(inner));
  return outer;
}

void change_tools(text::ChatRequest& request, Json (*change)(const Json&)) {
  if (!request.tools || !request.tools->is_sequence()) return;
  std::vector<Json> tools;
  for (const Json& tool : request.tools->sequence()->items) tools.push_back(change(tool));
  request.tools = Json::list(std::move(tools));
}

Json with_description(const Json& tool) { return with_member(tool, "description", &Json::is_text, ""); }
Json with_parameters(const Json& tool) {
  return with_member(tool, "parameters", &Json::is_dict, no_parameters());
}

}  // namespace

void describe_tools(text::ChatRequest& request) { change_tools(request, with_description); }

void complete_tools(text::ChatRequest& request) {
  describe_tools(request);
  change_tools(request, with_parameters);
}

}  // namespace fourfold::server::api
