#include "server/api/messages_tools.h"

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

void read_choice(Fields& fields, Tools& out) {
  auto choice = fields.object("tool_choice");
  if (!choice) return;
  const auto type = choice->one_of("type", {"auto", "any", "tool", "none"});
  if (!type) refuse_missing("tool_choice.type", "tool_choice.type is missing");
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
    if (auto entry = read((*items)[i], fourfold::format("tools[{}]", i), fields.notes()))
      entries_.push_back(std::move(*entry));
  std::vector<Tool> tools;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    tools.push_back(entries_[i].tool);
    places_.emplace(entries_[i].tool.name, i);
  }
  require_distinct(tools, "tools");
  const auto* servers = fields.list("mcp_servers");
  for (std::size_t i = 0; servers != nullptr && i < servers->size(); ++i)
    fields.notes().add(NoteKind::tool, fourfold::format("mcp_servers[{}]", i), "mcp");
}

std::optional<MessageTools::Entry> MessageTools::read(const Json& value, const std::string& place,
                                                      Notes& notes) {
  Fields tool(value, place, notes);
  const std::string type = tool.text("type").value_or("custom");
  if (type != "custom") {
    notes.add(NoteKind::tool, tool.name_of("type"), type);
    left_out_.insert(tool.text("name").value_or(""));
    require_count(left_out_.size());
    return {};
  }
  Entry entry{read_tool(tool, tool.find("input_schema")), !tool.boolean("defer_loading").value_or(false)};
  tool.ignore({"cache_control", "strict", "input_examples", "eager_input_streaming", "allowed_callers"});
  tool.finish();
  return entry;
}

void MessageTools::set(const std::string& name, bool offered) {
  if (const auto found = places_.find(name); found != places_.end())
    entries_[found->second].offered = offered;
}

void MessageTools::load(const std::string& name) { set(name, true); }

void MessageTools::change(Fields& block, bool added) {
  auto tool = block.object("tool");
  if (!tool) refuse_missing(block.name_of("tool"), "{} is missing", block.name_of("tool"));
  const std::string type = tool->text("type").value_or("");
  const Json* definition = tool->find("definition");
  if (type == "tool_reference") {
    set(tool->text("name").value_or(""), added);
  } else if (added && type == "tool_definition" && definition != nullptr) {
    auto entry = read(*definition, tool->name_of("definition"), block.notes());
    if (!entry) return;
    entry->offered = true;
    // A definition of the same name replaces the earlier one.
    const auto [found, is_new] = places_.emplace(entry->tool.name, entries_.size());
    if (is_new) {
      require_count(entries_.size() + 1);
      entries_.push_back(std::move(*entry));
    } else {
      entries_[found->second] = std::move(*entry);
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
  out.left_out.assign(left_out_.begin(), left_out_.end());
  require_named(out, "tool_choice");
  if (out.offered()) for_template = Json::list(std::move(shown_tools));
  return out;
}

}  // namespace fourfold::server::api
