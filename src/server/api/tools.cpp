#include "server/api/tools.h"

#include <set>

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kToolCountMax = 512;
constexpr std::size_t kNameBytesMax = 256;

void read_list(const std::vector<Json>& items, Notes& notes, Tools& out) {
  require_count(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    Fields tool(items[i], fourfold::format("tools[{}]", i), notes);
    const std::string type = tool.text("type").value_or("");
    if (type.empty())
      refuse_missing(tool.name_of("type"), "{} is missing; it must be \"function\"", tool.name_of("type"));
    if (type != "function") {
      notes.add(NoteKind::tool, tool.name_of("type"), type);
      if (auto inside = tool.object(type)) out.left_out.push_back(inside->text("name").value_or(""));
      continue;
    }
    auto function = tool.object("function");
    if (!function) refuse_missing(tool.name_of("function"), "{} is missing", tool.name_of("function"));
    out.list.push_back(read_tool(*function, function->find("parameters")));
    function->ignore({"strict"});
    function->finish();
    tool.ignore({"cache_control"});
    tool.finish();
  }
}

void read_choice(Fields& fields, Tools& out) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_text()) {
    out.choice = read_choice_word(fields);
  } else {
    Fields named(*choice, "tool_choice", fields.notes());
    const std::string type = named.text("type").value_or("function");
    if (type == "allowed_tools") {
      auto allowed = named.object("allowed_tools");
      if (!allowed) refuse_missing("tool_choice.allowed_tools", "tool_choice.allowed_tools is missing");
      read_allowed(*allowed, out);
      allowed->finish();
    } else if (type == "function") {
      auto function = named.object("function");
      const auto name = function ? function->text("name") : std::nullopt;
      if (!name) refuse_missing("tool_choice.function.name", "tool_choice.function.name is missing");
      function->finish();
      out.choice = ToolChoice::named;
      out.named = *name;
    } else {
      refuse_choice(type);
    }
    named.finish();
  }
  require_named(out, "tool_choice");
}

// The entries of the list as they came, of those tools that are offered.
std::optional<Json> offered_as_given(const std::vector<Json>& items, const Tools& tools) {
  std::set<std::string> names;
  for (const Tool& tool : tools.list) names.insert(tool.name);
  std::vector<Json> out;
  for (const Json& item : items) {
    const Json* function = item.dict()->find("function");
    const Json* name = function != nullptr && function->is_dict() ? function->dict()->find("name") : nullptr;
    if (name != nullptr && name->is_text() && names.contains(name->text())) out.push_back(item);
  }
  if (out.empty()) return {};
  return Json::list(std::move(out));
}

}  // namespace

text::ToolSchemas Tools::schemas() const {
  text::ToolSchemas out;
  for (const Tool& tool : list) out.add(tool.name, tool.parameters);
  return out;
}

std::string name_in_space(const std::string& space, const std::string& name) {
  return space.empty() ? name : space + "." + name;
}

void require_count(std::size_t count) {
  if (count > kToolCountMax) refuse("tools", "tools has {} entries; at most {}", count, kToolCountMax);
}

ToolChoice read_choice_word(Fields& fields) {
  const std::string word = *fields.one_of("tool_choice", {"auto", "none", "required"});
  return word == "none"       ? ToolChoice::none
         : word == "required" ? ToolChoice::required
                              : ToolChoice::automatic;
}

void refuse_choice(const std::string& type) {
  refuse("tool_choice.type",
         "tool_choice.type is {}; this server runs tools of type function, others are left out",
         shown(Json(std::string_view(type))));
}

void read_allowed(Fields& allowed, Tools& out) {
  const auto mode = allowed.one_of("mode", {"auto", "required"});
  out.choice = mode == "required" ? ToolChoice::required : ToolChoice::automatic;
  std::set<std::string> there, names;
  for (const Tool& tool : out.list) there.insert(tool.name);
  const auto* entries = allowed.list("tools");
  if (entries == nullptr) refuse_missing(allowed.name_of("tools"), "{} is missing", allowed.name_of("tools"));
  require_count(entries->size());
  for (std::size_t i = 0; i < entries->size(); ++i) {
    Fields entry((*entries)[i], fourfold::format("{}[{}]", allowed.name_of("tools"), i), allowed.notes());
    const std::string type = entry.text("type").value_or("function");
    if (type != "function") {
      allowed.notes().add(NoteKind::tool, entry.name_of("type"), type);
      continue;
    }
    // Chat has the name inside, responses beside the type and perhaps in a namespace.
    auto function = entry.object("function");
    const std::string own = (function ? *function : entry).text("name").value_or("");
    const std::string name = name_in_space(entry.text("namespace").value_or(""), own);
    if (!there.contains(name))
      refuse(entry.name_of("name"), "{} is {}, which is not among the tools", entry.name_of("name"),
             shown(Json(std::string_view(name))));
    names.insert(name);
    entry.finish();
  }
  std::erase_if(out.list, [&](const Tool& tool) { return !names.contains(tool.name); });
}

Json no_parameters() {
  text::jinja::Dict out;
  out.set("type", "object");
  out.set("properties", text::jinja::Dict());
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
  out.parameters = parameters == nullptr ? no_parameters() : *parameters;
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
  const auto* items = fields.list("tools");
  if (items != nullptr) read_list(*items, fields.notes(), out);
  require_distinct(out.list, "tools");
  read_choice(fields, out);
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (items != nullptr && out.offered()) as_given = offered_as_given(*items, out);
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
