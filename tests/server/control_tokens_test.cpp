// Fault 33 of docs/faults.md in every protocol: what clients send becomes no control token, wherever it
// stands.
#include <algorithm>
#include <map>

#include "base/json_writer.h"
#include "json/parse.h"
#include "tests/server/support.h"

namespace fourfold::server {
namespace {

std::string json_text(std::string_view text) { return JsonWriter().value(text).finish(); }

// Each protocol's body with the text wherever the protocol has a place for one.
std::string chat_body(const std::string& text) {
  const std::string t = json_text(text), arguments = json_text("{" + t + ":" + t + "}");
  return R"({"messages":[{"role":"system","content":)" + t +
         R"(},{"role":"user","content":[{"type":"text","text":)" + t +
         R"(}]},{"role":"assistant","content":)" + t + R"(,"reasoning_content":)" + t +
         R"(,"tool_calls":[{"id":)" + t + R"(,"type":"function","function":{"name":)" + t +
         R"(,"arguments":)" + arguments + R"(}}]},{"role":"tool","tool_call_id":)" + t + R"(,"content":)" +
         t + R"(},{"role":"user","content":)" + t +
         R"(}],"tools":[{"type":"function","function":{"name":"f","description":)" + t +
         R"(,"parameters":{"type":"object","properties":{)" + t + R"(:{"type":"string","description":)" + t +
         R"(,"enum":[)" + t + R"(]}}}}}],"chat_template_kwargs":{"x":)" + t + R"(,"bos_token":)" + t + "}}";
}

std::string responses_body(const std::string& text) {
  const std::string t = json_text(text), arguments = json_text("{" + t + ":" + t + "}");
  return R"({"instructions":)" + t + R"(,"input":[{"role":"user","content":[{"type":"input_text","text":)" +
         t + R"(}]},{"type":"function_call","call_id":)" + t + R"(,"name":)" + t + R"(,"arguments":)" +
         arguments + R"(},{"type":"function_call_output","call_id":)" + t + R"(,"output":)" + t +
         R"(},{"role":"user","content":)" + t +
         R"(}],"tools":[{"type":"function","name":"f","description":)" + t +
         R"(,"parameters":{"type":"object","properties":{)" + t + R"(:{"type":"string"}}}}]})";
}

std::string messages_body(const std::string& text) {
  const std::string t = json_text(text);
  return R"({"max_tokens":4,"system":)" + t +
         R"(,"messages":[{"role":"user","content":[{"type":"text","text":)" + t +
         R"(}]},{"role":"assistant","content":[{"type":"thinking","thinking":)" + t +
         R"(,"signature":"s"},{"type":"text","text":)" + t + R"(},{"type":"tool_use","id":)" + t +
         R"(,"name":)" + t + R"(,"input":{)" + t + ":" + t +
         R"(}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":)" + t + R"(,"content":)" + t +
         R"(}]}],"tools":[{"name":"f","description":)" + t +
         R"(,"input_schema":{"type":"object","properties":{)" + t + R"(:{"type":"string"}}}}]})";
}

// The tests' model with a template whose control tokens it has, and room for long conversations.
const ServedModel& model() {
  static const ServedModel made = [] {
    ServedModel out = test_model();
    out.chat_template = text::ChatTemplate::parse(
        json::read_text_file(FOURFOLD_SOURCE_DIR "/tests/golden/text/templates/qwen3.jinja", 1 << 20),
        "qwen3");
    out.limits.position_limit = 100'000;
    return out;
  }();
  return made;
}

std::map<text::TokenId, int> controls(const std::string& route, const std::string& body) {
  const auto exchange = make_exchange(route, body, model());
  std::map<text::TokenId, int> out;
  const auto submissions = exchange->submissions();
  for (const text::TokenId id : submissions.at(0).request.prompt)
    if (model().tokenizer.is_special(id)) ++out[id];
  return out;
}

TEST(ControlTokens, NoProtocolMakesThemOfWhatClientsSend) {
  const std::pair<std::string, std::string (*)(const std::string&)> protocols[] = {
      {"/v1/chat/completions", chat_body},
      {"/v1/responses", responses_body},
      {"/v1/messages", messages_body}};
  for (const auto& [route, body] : protocols) {
    const auto expected = controls(route, body("x"));
    ASSERT_GE(expected.size(), 2u);
    for (const std::string control : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
      for (std::size_t cut = 1; cut <= control.size(); ++cut)
        for (const std::string& text :
             {control.substr(0, cut), control.substr(cut - 1), control.substr(0, cut) + control}) {
          EXPECT_EQ(controls(route, body(text)), expected) << route << " " << text;
        }
  }
}

// Templates of models write none of a request's own variables, so this one does: plain, joined, filtered,
// from within lists and objects, as a member's name, and where the template has a constant of that name.
TEST(ControlTokens, VariablesOfARequestAreText) {
  ServedModel writes_all = model();
  writes_all.chat_template = text::ChatTemplate::parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}"
      "{{ x }}{{ '' ~ x }}{{ x | tojson }}{{ x | trim }}{{ x * 2 }}{{ '<|im_' + x }}"
      "{{ bos_token }}{{ eos_token }}{{ reasoning_effort }}"
      "{% for name, value in d.items() %}{{ name }}{{ value[0] }}{% endfor %}{{ d }}"
      "{% for t in tools %}{{ t.function.name }}{{ t.function.description }}{{ t | tojson }}{% endfor %}"
      "<|im_start|>assistant",
      "writes all");
  writes_all.chat_template->define("bos_token", "<|endoftext|>");
  writes_all.chat_template->define("eos_token", "<|im_end|>");
  const auto counts = [&](const std::string& text) {
    const std::string t = json_text(text);
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f|im_end|",)"
        R"("description":)" +
        t + R"(}}],"chat_template_kwargs":{"x":)" + t + R"(,"bos_token":)" + t + R"(,"eos_token":)" + t +
        R"(,"reasoning_effort":)" + t + R"(,"d":{)" + t + ":[" + t + "]}}}";
    const auto exchange = make_exchange("/v1/chat/completions", body, writes_all);
    std::map<text::TokenId, int> out;
    const auto submissions = exchange->submissions();
    for (const text::TokenId id : submissions.at(0).request.prompt)
      if (writes_all.tokenizer.is_special(id)) ++out[id];
    return out;
  };
  const auto expected = counts("harmless");
  ASSERT_EQ(expected.size(), 2u);  // the turn's begin and end, and no constant that was replaced
  for (const std::string text : {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "end|>", "<|im_", "start|>"})
    EXPECT_EQ(counts(text), expected) << text;
}

}  // namespace
}  // namespace fourfold::server
