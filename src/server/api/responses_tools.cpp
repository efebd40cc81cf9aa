#include "server/api/responses_tools.h"

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

class Reader {
 public:
  Reader(Tools& out, Notes& notes) : out_(out), notes_(notes) {}

  void add_list(const Json& list, const std::string& place, const std::string& space) {
    if (!list.is_sequence()) refuse(place, "{} is {}; it must be an array", place, shown(list));
    const auto& items = list.sequence()->items;
    require_count(out_.list.size() + items.size());
    for (std::size_t i = 0; i < items.size(); ++i) add(items[i], fourfold::format("{}[{}]", place, i), space);
  }

 private:
  void add(const Json& value, const std::string& place, const std::string& space) {
    Fields tool(value, place, notes_);
    const std::string type = tool.text("type").value_or("");
    if (type.empty())
      refuse_missing(tool.name_of("type"), "{} is missing; it must be \"function\"", tool.name_of("type"));
    if (type == "function") {
      add_function(tool, space);
    } else if (const Json* inside = type == "namespace" && space.empty() ? tool.find("tools") : nullptr) {
      const std::string name = tool.text("name").value_or("");
      if (name.empty()) refuse_missing(tool.name_of("name"), "{} is missing", tool.name_of("name"));
      tool.ignore({"description"});
      tool.finish();
      add_list(*inside, tool.name_of("tools"), name);
    } else {
      notes_.add(NoteKind::tool, tool.name_of("type"), type);
      out_.left_out.push_back(name_in_space(space, tool.text("name").value_or("")));
    }
  }

  void add_function(Fields& function, const std::string& space) {
    Tool tool = read_tool(function, function.find("parameters"));
    tool.name = name_in_space(space, tool.name);
    tool.space = space;
    function.ignore({"strict", "defer_loading", "allowed_callers", "output_schema", "async"});
    function.finish();
    out_.list.push_back(std::move(tool));
  }

  Tools& out_;
  Notes& notes_;
};

void read_choice(Fields& fields, Tools& out) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_text()) {
    out.choice = read_choice_word(fields);
  } else {
    Fields named(*choice, "tool_choice", fields.notes());
    const std::string type = named.text("type").value_or("");
    if (type.empty())
      refuse_missing("tool_choice.type", "tool_choice.type is missing; it must be \"function\"");
    if (type == "allowed_tools") {
      read_allowed(named, out);
    } else if (type == "function") {
      out.choice = ToolChoice::named;
      out.named = name_in_space(named.text("namespace").value_or(""), named.text("name").value_or(""));
    } else {
      refuse_choice(type);
    }
    named.finish();
  }
  require_named(out, "tool_choice");
}

}  // namespace

std::pair<std::string, std::string> split_name(const std::string& name, const Tools& tools) {
  for (const Tool& tool : tools.list)
    if (tool.name == name && !tool.space.empty()) return {tool.space, name.substr(tool.space.size() + 1)};
  return {{}, name};
}

Tools read_response_tools(Fields& fields, const std::vector<const Json*>& more,
                          std::optional<Json>& for_template) {
  Tools out;
  Reader reader(out, fields.notes());
  if (const Json* items = fields.find("tools")) reader.add_list(*items, "tools", "");
  for (const Json* items : more) reader.add_list(*items, "input[].tools", "");
  require_distinct(out.list, "tools");
  read_choice(fields, out);
  out.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (!out.offered()) return out;
  std::vector<Json> shown_tools;
  for (const Tool& tool : out.list) shown_tools.push_back(template_tool(tool));
  for_template = Json::list(std::move(shown_tools));
  return out;
}

}  // namespace fourfold::server::api
