// Any bytes as an answer with tool calls: those that end have the text of a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/jinja/json_value.h"
#include "text/tool_calls.h"

namespace {

namespace text = fourfold::text;

void read(text::CallFormat format, const text::ToolSchemas& schemas, const std::string& answer) {
  const auto parser = text::make_tool_call_parser(format, schemas);
  std::string arguments;
  std::vector<text::ToolEvent> events = parser->push(answer);
  for (text::ToolEvent& event : parser->finish(false)) events.push_back(std::move(event));
  for (const text::ToolEvent& event : events) {
    if (event.kind == text::ToolEvent::Kind::begin) arguments.clear();
    if (event.kind == text::ToolEvent::Kind::arguments) arguments += event.text;
    // Two members of one name are the model's affair.
    if (event.kind == text::ToolEvent::Kind::end && !text::is_json_object(arguments)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const text::ToolSchemas schemas = [] {
    text::ToolSchemas out;
    out.add("f",
            text::jinja::parse_json(
                R"({"properties": {"s": {"type": "string"}, "i": {"type": ["integer", "null"]}, "o": {}}})",
                "f"));
    return out;
  }();
  const std::string answer = fourfold::repaired({reinterpret_cast<const char*>(data), size});
  for (const text::CallFormat format :
       {text::CallFormat::tagged, text::CallFormat::glm, text::CallFormat::minimax,
        text::CallFormat::deepseek, text::CallFormat::kimi})
    read(format, schemas, answer);
  return 0;
}
