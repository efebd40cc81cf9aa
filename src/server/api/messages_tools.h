// The tools of a request to Anthropic's /v1/messages. Some are in the list and wait until the conversation
// loads them (defer_loading), some come and go in its middle (tool_addition, tool_removal); the model's
// template shows what is there at the end, at its head.
#pragma once

#include <optional>
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
  void add(const Json& value, const std::string& place, Notes& notes);
  void set(const std::string& name, bool offered);

  std::vector<Entry> entries_;
  std::vector<std::string> left_out_;
};

}  // namespace fourfold::server::api
