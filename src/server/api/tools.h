// The tools of a request: what the template shows the model, how its calls are read, and whether it may or
// must make any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "text/tool_calls.h"

namespace fourfold::server::api {

struct Tool {
  std::string name, description;
  Json parameters;  // a JSON schema
  std::string space =
      {};  // of responses: the namespace it stands in, with which its name begins: "space.own"
};

enum class ToolChoice { automatic, none, required, named };

struct Tools {
  std::vector<Tool> list;
  ToolChoice choice = ToolChoice::automatic;
  std::string named;                       // ToolChoice::named
  bool parallel = true;                    // more than one call in one answer
  std::vector<std::string> left_out = {};  // names of tools of kinds this server does not run

  bool offered() const { return !list.empty() && choice != ToolChoice::none; }
  bool forced() const { return choice == ToolChoice::required || choice == ToolChoice::named; }
  text::ToolSchemas schemas() const;
};

// The schema of a tool that takes nothing, or does not say what.
Json no_parameters();
// Refuses names that are empty, repeated, or could not stand in a tag, and parameters that are no object.
Tool read_tool(Fields& function, const Json* parameters);
// What the model calls a function of a namespace.
std::string name_in_space(const std::string& space, const std::string& name);
// Not more of them than one request may have.
void require_count(std::size_t count);
void require_distinct(const std::vector<Tool>& tools, const std::string& name);
// A tool of the name in tool_choice is there.
void require_named(const Tools& tools, const std::string& field);

// "auto", "none" or "required" of tool_choice.
ToolChoice read_choice_word(Fields& fields);
// "mode" and "tools" of OpenAI's allowed_tools: only these of the list are offered from here on.
void read_allowed(Fields& allowed, Tools& out);
// tool_choice demands a tool of a kind that is not run here.
[[noreturn]] void refuse_choice(const std::string& type);

// OpenAI's "tools", "tool_choice" and "parallel_tool_calls" of chat completions. `as_given` gets the list for
// the template.
Tools read_chat_tools(Fields& fields, std::optional<Json>& as_given);

// What a template expects of a tool that came in another protocol's shape.
Json template_tool(const Tool& tool);

}  // namespace fourfold::server::api
