// Any bytes as an answer with tool calls, in every format: calls that end have the text of a JSON object, and
// what is read is the same however the text is cut.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "json/parse.h"
#include "tests/text/tool_events.h"
#include "text/detokenizer.h"
#include "text/harmony.h"
#include "text/jinja/json_value.h"
#include "text/tool_calls.h"

namespace {

namespace text = fourfold::text;
using Events = std::vector<text::ToolEvent>;

constexpr std::size_t kHarmonyBytesMax = 4096;  // more would be a test of the tokenizer

void append(Events&& more, Events& to) {
  for (text::ToolEvent& event : more) to.push_back(std::move(event));
}

void check_calls(const Events& events) {
  std::string arguments;
  for (const text::ToolEvent& event : events) {
    if (event.kind == text::ToolEvent::Kind::begin) arguments.clear();
    if (event.kind == text::ToolEvent::Kind::arguments) arguments += event.text;
    // Two members of one name are the model's affair.
    if (event.kind == text::ToolEvent::Kind::end && !text::is_json_object(arguments)) std::abort();
  }
}

void read(text::CallFormat format, const text::ToolSchemas& schemas, std::string_view answer) {
  const auto whole = text::make_tool_call_parser(format, schemas),
             pieces = text::make_tool_call_parser(format, schemas);
  Events events = whole->push(answer), cut;
  append(whole->finish(false), events);
  const std::size_t step = 1 + answer.size() % 5;
  for (std::size_t i = 0; i < answer.size(); i += step) append(pieces->push(answer.substr(i, step)), cut);
  append(pieces->finish(false), cut);
  check_calls(events);
  if (text::shown(events) != text::shown(cut)) std::abort();
}

// The small o200k vocabulary with Harmony's control tokens.
text::Tokenizer harmony_tokenizer() {
  namespace bj = boost::json;
  // tests/fuzz/fuzz.cmake says where the folder is.
  const std::string golden = std::getenv("FOURFOLD_FUZZ_TEXT");
  bj::value file =
      fourfold::json::parse_file(golden + "/o200k.tokenizer.json", {.text_bytes_max = std::size_t{1} << 24});
  bj::array& added = file.as_object().at("added_tokens").as_array();
  std::int64_t id = added.back().as_object().at("id").as_int64();
  for (const char* content :
       {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"})
    added.push_back(bj::object{{"id", ++id},
                               {"content", content},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", true}});
  return text::Tokenizer::parse(bj::serialize(file), "tokenizer.json");
}

void read_harmony(std::string_view answer) {
  static const text::Tokenizer tokenizer = harmony_tokenizer();
  static const std::vector<text::TokenId> prompt =
      tokenizer.encode("<|start|>user<|message|>Hi<|end|><|start|>assistant");
  text::HarmonyReader reader(tokenizer, prompt, true);
  text::Detokenizer words(tokenizer, {.skip_special = true});
  Events events;
  for (const text::TokenId id : tokenizer.encode(answer))
    append(reader.push(id, words.push(id)).calls, events);
  append(reader.finish(false).calls, events);
  check_calls(events);
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
       {text::CallFormat::tagged, text::CallFormat::glm, text::CallFormat::glm_compact,
        text::CallFormat::minimax, text::CallFormat::deepseek, text::CallFormat::deepseek_plain,
        text::CallFormat::kimi, text::CallFormat::mistral})
    read(format, schemas, answer);  // JSON in <tool_call> is read by the one of tags
  read_harmony(std::string_view(answer).substr(0, kHarmonyBytesMax));
  return 0;
}
