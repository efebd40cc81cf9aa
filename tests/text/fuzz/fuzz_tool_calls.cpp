// Any bytes as an answer with tool calls: those that end have the text of a JSON object.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "json/parse.h"
#include "text/jinja/json_value.h"
#include "text/tool_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace text = fourfold::text;
  static const text::ToolSchemas schemas = [] {
    text::ToolSchemas out;
    out.add("f",
            text::jinja::parse_json(
                R"({"properties": {"s": {"type": "string"}, "i": {"type": ["integer", "null"]}, "o": {}}})",
                "f"));
    return out;
  }();
  const std::string answer = fourfold::repaired({reinterpret_cast<const char*>(data), size});
  // The size says the format.
  constexpr text::CallFormat formats[] = {text::CallFormat::tagged,  text::CallFormat::glm,
                                          text::CallFormat::minimax, text::CallFormat::deepseek,
                                          text::CallFormat::tagged,  text::CallFormat::kimi};
  const auto parser = text::make_tool_call_parser(formats[size % std::size(formats)], schemas);
  std::string arguments;
  std::vector<text::ToolEvent> events = parser->push(answer);
  for (text::ToolEvent& event : parser->finish(false)) events.push_back(std::move(event));
  for (const text::ToolEvent& event : events) {
    if (event.kind == text::ToolEvent::Kind::begin) arguments.clear();
    if (event.kind == text::ToolEvent::Kind::arguments) arguments += event.text;
    // Throws, and so fails, when the arguments are no JSON. (A template's values know no integers beyond 64
    // bits, which a model may well write.)
    if (event.kind == text::ToolEvent::Kind::end &&
        !fourfold::json::parse(arguments, "arguments").is_object())
      std::abort();
  }
  return 0;
}
