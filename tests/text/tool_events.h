// What a parser of tool calls says, on one line.
#pragma once

#include <string>
#include <vector>

#include "text/tool_calls.h"

namespace fourfold::text {

// text, [name arguments] and no closing bracket for calls that have no end.
inline std::string shown(const std::vector<ToolEvent>& events) {
  std::string out;
  for (const ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::begin) out += "[" + event.text + " ";
    if (event.kind == ToolEvent::Kind::end) out += "]";
    if (event.kind == ToolEvent::Kind::text || event.kind == ToolEvent::Kind::arguments) out += event.text;
  }
  return out;
}

}  // namespace fourfold::text
