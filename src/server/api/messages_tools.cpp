#include "server/api/messages_tools.h"

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

void read_choice(Fields& fields, Tools& out) {
  auto choice = fields.object("tool_choice");
  if (!choice) return;
  const auto type = choice->one_of("type", {"auto", "any", "tool", "none"});
  if (!type) refuse("tool_choice.type", "tool_choice.type is missing");
  out.choice = *type == "none"   ? ToolChoice::none
               : *type == "any"  ? ToolChoice::required
               : *type == "tool" ? ToolChoice::named
                                 : ToolChoice::automatic;
  if (*type == "tool") out.named = choice->text("name").value_or("");
  out.parallel = !choice->boolean("disable_parallel_tool_use").value_or(false);
  choice->finish();
}

}  // namespace

MessageTools::MessageTools(Fields& fields) {
  const auto* items = fields.list("tools");
  if (items != nullptr) require_count(items->size());
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i)
    add((*items)[i], fourfold::format("tools[{}]", i), fields.notes());
  std::vector<Tool> tools;
  for (const Entry& entry : entries_) tools.push_back(entry.tool);
  require_distinct(tools, "tools");
  const auto* servers = fields.list("mcp_servers");
  for (std::size_t i = 0; servers != nullptr && i < servers->size(); ++i)
    fields.notes().add(NoteKind::tool, fourfold::format("mcp_servers[{}]", i), "mcp");
}

void MessageTools::add(const Json& value, const std::string& place, Notes& notes) {
  Fields tool(value, place, notes);
  const std::string type = tool.text("type").value_or("custom");
  if (type != "custom") {
    notes.add(NoteKind::tool, tool.name_of("type"), type);
    left_out_.push_back(tool.text("name").value_or(""));
    return;
  }
  Entry entry{read_tool(tool, tool.find("input_schema")), !tool.boolean("defer_loading").value_or(false)};
  tool.ignore({"cache_control", "strict", "input_examples", "eager_input_streaming", "allowed_callers"});
  tool.finish();
  entries_.push_back(std::move(entry));
}

void MessageTools::set(const std::string& name, bool offered) {
  for (Entry& entry : entries_)
    if (entry.tool.name == name) entry.offered = offered;
}

void MessageTools::load(const std::string& name) { set(name, true); }

void MessageTools::change(Fields& block, bool added) {
  auto tool = block.object("tool");
  if (!tool) refuse(block.name_of("tool"), "{} is missing", block.name_of("tool"));
  const std::string type = tool->text("type").value_or("");
  const Json* definition = tool->find("definition");
  if (type == "tool_reference") {
    set(tool->text("name").value_or(""), added);
  } else if (added && type == "tool_definition" && definition != nullptr) {
    const std::size_t before = entries_.size();
    add(*definition, tool->name_of("definition"), block.notes());
    if (entries_.size() == before) return;
    entries_.back().offered = true;
    // A definition of the same name takes the earlier one's place.
    for (std::size_t i = 0; i < before; ++i) {
      if (entries_[i].tool.name != entries_.back().tool.name) continue;
      entries_[i] = std::move(entries_.back());
      entries_.pop_back();
      return;
    }
  } else {
    block.notes().add(NoteKind::tool, tool->name_of("type"), type);
  }
}

Tools MessageTools::finish(Fields& fields, std::optional<Json>& for_template) {
  Tools out;
  read_choice(fields, out);
  if (out.choice == ToolChoice::named) load(out.named);
  std::vector<Json> shown_tools;
  for (const Entry& entry : entries_) {
    if (!entry.offered) continue;
    out.list.push_back(entry.tool);
    shown_tools.push_back(template_tool(entry.tool));
  }
  out.left_out = left_out_;
  require_named(out, "tool_choice");
  if (out.offered()) for_template = Json::list(std::move(shown_tools));
  return out;
}

}  // namespace fourfold::server::api
