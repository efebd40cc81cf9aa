#include "text/tool_calls.h"

#include "text/marked_calls.h"
#include "text/qwen_calls.h"

namespace fourfold::text {

std::unique_ptr<ToolCallParser> make_tool_call_parser(CallFormat format, const ToolSchemas& schemas) {
  if (format == CallFormat::tagged || format == CallFormat::json)
    return std::make_unique<QwenCallParser>(schemas);
  return std::make_unique<MarkedCallParser>(format, schemas);
}

}  // namespace fourfold::text
