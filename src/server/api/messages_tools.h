// The tools of a request to Anthropic's /v1/messages. Some are in the list and wait until the conversation
// loads them (defer_loading), some come and go in its middle (tool_addition, tool_removal); the model's
// template shows what is there at the end, at its head.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/api/tools.h"

namespace fourfold::server::api {

class MessageTools {
 public:
  // "tools" and "mcp_servers". What this server does not run is left out, with a note.
  explicit MessageTools(Fields& fields);

  // A block of the conversation that offers or takes back a tool.
  void change(Fields& block, bool added);
  // A deferred tool that a search has found.
  void load(const std::string& name);

  // With "tool_choice". for_template: the list for the template, if any is offered.
  Tools finish(Fields& fields, std::optional<Json>& for_template);

 private:
  struct Entry {
    Tool tool;
    bool offered;
  };
  // Nothing for a tool of a kind this server does not run.
  std::optional<Entry> read(const Json& value, const std::string& place, Notes& notes);
  void set(const std::string& name, bool offered);

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> places_;  // of names, among the entries
  std::set<std::string> left_out_;
};

}  // namespace fourfold::server::api
