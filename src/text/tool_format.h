// How models write calls of tools: the words a template shows them, which answers are read by
// (ToolCallParser) and held to (constrain::compile_tool_calls).
#pragma once

#include <string_view>

namespace fourfold::text {

enum class CallFormat {
  tagged,  // <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
  json,    // <tool_call>\n{"name": "NAME", "arguments": {...}}\n</tool_call>
};

inline constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";
inline constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
inline constexpr std::string_view kParameterOpen = "<parameter=", kParameterClose = "</parameter>";
inline constexpr std::string_view kCallName = "name", kCallArguments = "arguments";

}  // namespace fourfold::text
