// How models write calls of tools: the words a template shows them, which answers are read by
// (ToolCallParser) and held to (constrain::compile_tool_calls).
#pragma once

#include <cstddef>
#include <string_view>

namespace fourfold::text {

enum class CallFormat {
  tagged,  // <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
  json,    // <tool_call>\n{"name": "NAME", "arguments": {...}}\n</tool_call>
  glm,     // <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>
  glm_compact,     // the same without line breaks, from GLM-4.7 on
  minimax,         // in <minimax:tool_call>: <invoke name="NAME">\n<parameter
                   // name="KEY">VALUE</parameter>\n</invoke>
  deepseek,        // V3, R1: begin function sep NAME\n```json\n{...}\n``` end, all in a section
  deepseek_plain,  // V3.1: begin NAME sep {...} end, in a section
  kimi,            // begin functions.NAME:0 argument_begin {...} end, in a section
  mistral,         // [TOOL_CALLS]NAME[ARGS]{...}
  harmony,         // gpt-oss: a message to functions.NAME (harmony.h)
};

// For people.
constexpr std::string_view name_of(CallFormat format) {
  switch (format) {
    case CallFormat::tagged: return "Qwen3.5's tags";
    case CallFormat::json: return "JSON in <tool_call>";
    case CallFormat::glm: return "GLM's tags";
    case CallFormat::glm_compact: return "GLM's tags on one line";
    case CallFormat::minimax: return "MiniMax's tags";
    case CallFormat::deepseek: return "DeepSeek's tokens with fenced JSON";
    case CallFormat::deepseek_plain: return "DeepSeek's tokens";
    case CallFormat::kimi: return "Kimi's tokens";
    case CallFormat::mistral: return "Mistral's tokens";
    case CallFormat::harmony: return "messages of gpt-oss's channels (Harmony)";
  }
  return {};
}

inline constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";
inline constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
inline constexpr std::string_view kParameterOpen = "<parameter=", kParameterClose = "</parameter>";
inline constexpr std::string_view kCallName = "name", kCallArguments = "arguments";

// The marks of a format; one that it does not have is empty.
struct CallMarks {
  std::string_view section_open = {}, section_close = {};  // around all calls of an answer
  std::string_view call_open = {}, call_close = {};
  std::string_view before_name = {}, name_close = {};
  // Of arguments between tags; without them the arguments are JSON.
  std::string_view key_open = {}, key_close = {}, value_open = {}, value_close = {};
  bool has_values() const { return !key_open.empty(); }
  // What a call begins with.
  std::string_view opening() const { return section_open.empty() ? call_open : section_open; }
};

constexpr CallMarks marks_of(CallFormat format) {
  switch (format) {
    case CallFormat::tagged:
    case CallFormat::json: return {.call_open = kCallOpen, .call_close = kCallClose};
    case CallFormat::glm:
    case CallFormat::glm_compact:
      return {.call_open = kCallOpen,
              .call_close = kCallClose,
              .key_open = "<arg_key>",
              .key_close = "</arg_key>",
              .value_open = "<arg_value>",
              .value_close = "</arg_value>"};
    case CallFormat::minimax:
      return {.section_open = "<minimax:tool_call>",
              .section_close = "</minimax:tool_call>",
              .call_open = "<invoke name=\"",
              .call_close = "</invoke>",
              .name_close = "\">",
              .key_open = "<parameter name=\"",
              .key_close = "\">",
              .value_close = kParameterClose};
    case CallFormat::deepseek:
    case CallFormat::deepseek_plain:
      return {.section_open = "<｜tool▁calls▁begin｜>",
              .section_close = "<｜tool▁calls▁end｜>",
              .call_open = "<｜tool▁call▁begin｜>",
              .call_close = "<｜tool▁call▁end｜>",
              .name_close = "<｜tool▁sep｜>"};
    case CallFormat::kimi:
      return {.section_open = "<|tool_calls_section_begin|>",
              .section_close = "<|tool_calls_section_end|>",
              .call_open = "<|tool_call_begin|>",
              .call_close = "<|tool_call_end|>",
              .before_name = "functions.",
              .name_close = "<|tool_call_argument_begin|>"};
    case CallFormat::mistral: return {.call_open = "[TOOL_CALLS]", .name_close = "[ARGS]"};
    case CallFormat::harmony: return {.before_name = "functions."};
  }
  return {};
}

// A name of a tool or a parameter between marks is one word, so that no text is taken for one.
inline constexpr std::size_t kCallNameBytesMax = 512;
constexpr bool is_call_name(std::string_view text) {
  return !text.empty() && text.size() <= kCallNameBytesMax &&
         text.find_first_of(" \t\r\n<>{}\"'`") == std::string_view::npos;
}

// A parameter's name may have more: schemas call them as they like.
constexpr bool is_key_name(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  return !text.empty() && text.size() <= kCallNameBytesMax &&
         text.find_first_of("\r\n<>\"") == std::string_view::npos &&
         blanks.find(text.front()) == blanks.npos && blanks.find(text.back()) == blanks.npos;
}

// DeepSeek-V3 and R1 write what a call is before its name, and fence the JSON.
inline constexpr std::string_view kDeepSeekKind = "function";
inline constexpr std::string_view kFenceOpen = "```json", kFence = "```";

}  // namespace fourfold::text
