#include "server/api/tools.h"

#include <set>

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kToolCountMax = 512;
constexpr std::size_t kNameBytesMax = 256;

std::vector<Tool> read_list(const std::vector<Json>& items, Notes& notes) {
  if (items.size() > kToolCountMax)
    refuse("tools", "tools has {} entries; at most {}", items.size(), kToolCountMax);
  std::vector<Tool> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Fields tool(items[i], fourfold::format("tools[{}]", i), notes);
    if (tool.one_of("type", {"function"}).value_or("").empty())
      refuse(tool.name_of("type"), "{} is missing; it must be \"function\"", tool.name_of("type"));
    auto function = tool.object("function");
    if (!function) refuse(tool.name_of("function"), "{} is missing", tool.name_of("function"));
    out.push_back(read_tool(*function, function->find("parameters")));
    function->ignore({"strict"});
    function->finish();
    tool.ignore({"cache_control"});
    tool.finish();
  }
  return out;
}

void read_choice(Fields& fields, Tools& out) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_text()) {
    const std::string word = *fields.one_of("tool_choice", {"auto", "none", "required"});
    out.choice = word == "none"       ? ToolChoice::none
                 : word == "required" ? ToolChoice::required
                                      : ToolChoice::automatic;
  } else {
    Fields named(*choice, "tool_choice", fields.notes());
    named.one_of("type", {"function"});
    auto function = named.object("function");
    const auto name = function ? function->text("name") : std::nullopt;
    if (!name) refuse("tool_choice.function.name", "tool_choice.function.name is missing");
    function->finish();
    named.finish();
    out.choice = ToolChoice::named;
    out.named = *name;
  }
  require_named(out, "tool_choice");
}

}  // namespace

text::ToolSchemas Tools::schemas() const {
  text::ToolSchemas out;
  for (const Tool& tool : list) out.add(tool.name, tool.parameters);
  return out;
}

Tool read_tool(Fields& function, const Json* parameters) {
  Tool out;
  const std::string field = function.name_of("name");
  out.name = function.text("name").value_or("");
  if (out.name.empty() || out.name.size() > kNameBytesMax)
    refuse(field, "{} has {} bytes; it must have at least 1 and at most {}", field, out.name.size(),
           kNameBytesMax);
  for (const char c : out.name) {
    const auto code = static_cast<unsigned char>(c);
    if (code <= 0x20 || code == 0x7F || c == '<' || c == '>' || c == '"')
      refuse(field, "{} is {}; spaces, quotes, angle brackets and control characters cannot stand in a name",
             field, shown(Json(std::string_view(out.name))));
  }
  out.description = function.text("description").value_or("");
  text::jinja::Dict none;
  none.set("type", "object");
  none.set("properties", text::jinja::Dict());
  out.parameters = parameters == nullptr ? Json(std::move(none)) : *parameters;
  if (!out.parameters.is_dict())
    refuse(field, "the parameters of {} are {}; they must be a JSON schema, an object", field,
           kind_of(out.parameters));
  return out;
}

void require_distinct(const std::vector<Tool>& tools, const std::string& name) {
  std::set<std::string> names;
  for (const Tool& tool : tools)
    if (!names.insert(tool.name).second)
      refuse(name, "{} has two tools named {}", name, shown(Json(std::string_view(tool.name))));
}

void require_named(const Tools& tools, const std::string& field) {
  if (tools.forced() && tools.list.empty())
    refuse(field, "{} asks for a call, but there are no tools", field);
  if (tools.choice != ToolChoice::named) return;
  for (const Tool& tool : tools.list)
    if (tool.name == tools.named) return;
  for (const std::string& name : tools.left_out)
    if (name == tools.named)
      refuse(field, "{} names {}, a tool of a kind this server does not run; it was left out", field,
             shown(Json(std::string_view(name))));
  refuse(field, "{} names {}, which is not among the tools", field,
         shown(Json(std::string_view(tools.named))));
}

Tools read_chat_tools(Fields& fields, std::optional<Json>& as_given) {
  Tools out;
  if (const auto* items = fields.list("tools")) {
    out.list = read_list(*items, fields.notes());
    require_distinct(out.list, "tools");
    if (!items->empty()) as_given = *fields.find("tools");
  }
  read_choice(fields, out);
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (out.choice == ToolChoice::none) as_given.reset();
  return out;
}

Json template_tool(const Tool& tool) {
  text::jinja::Dict function, out;
  function.set("name", std::string_view(tool.name));
  if (!tool.description.empty()) function.set("description", std::string_view(tool.description));
  function.set("parameters", tool.parameters);
  out.set("type", "function");
  out.set("function", std::move(function));
  return out;
}

}  // namespace fourfold::server::api
