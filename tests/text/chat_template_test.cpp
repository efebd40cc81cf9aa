// Rendered prompts against golden files written by Python's jinja2 (tools/text/make_golden_text.py), and
// loading.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "tests/text/fuzz_strings.h"
#include "text/jinja/json_value.h"
#include "text/tool_calls.h"

namespace fourfold::text {
namespace {

const std::string kTemplates = std::string(FOURFOLD_TEXT_GOLDEN) + "/templates/";

const std::string kFamilies = std::string(FOURFOLD_TEXT_GOLDEN) + "/families/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::tm fixed_now() {  // 2025-03-04 05:06:07, the moment of the golden files
  std::tm now{};
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 4;
  now.tm_hour = 5;
  now.tm_min = 6;
  now.tm_sec = 7;
  now.tm_wday = 2;
  now.tm_yday = 62;
  return now;
}

std::optional<std::string> rendered(const std::string& source, const jinja::Value& variables) {
  const jinja::Body body = jinja::parse_template(source, "template");
  try {
    return jinja::Evaluator("template", {}, fixed_now()).render(body, *variables.dict()).bytes();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request);
    return std::nullopt;
  }
}

TEST(ChatTemplateGolden, TemplatesTimesConversations) {
  const jinja::Value conversations =
      jinja::parse_json(read_file(FOURFOLD_TEXT_UNPACKED "/template_conversations.json"), "golden");
  const jinja::Value outputs =
      jinja::parse_json(read_file(FOURFOLD_TEXT_UNPACKED "/template_outputs.json"), "golden");
  int compared = 0, failures = 0;
  for (const auto& [name, expected] : outputs.dict()->items()) {
    const std::string source = read_file(kTemplates + name.text());
    ASSERT_EQ(expected.sequence()->items.size(), conversations.sequence()->items.size());
    for (std::size_t i = 0; i < expected.sequence()->items.size(); ++i) {
      SCOPED_TRACE(name.text() + " conversation " + std::to_string(i));
      const auto ours = rendered(source, conversations.sequence()->items[i]);
      const jinja::Value& theirs = expected.sequence()->items[i];
      ASSERT_EQ(ours.has_value(), theirs.is_text());
      EXPECT_EQ(ours.value_or(""), theirs.is_text() ? theirs.text() : "");
      ++compared;
      failures += !ours;
    }
  }
  EXPECT_EQ(compared, 360);
  EXPECT_LT(failures, compared / 2);
  std::printf("templates x conversations: %d compared, %d of them fail in both, 0 differ\n", compared,
              failures);
}

// The families' own templates, as transformers renders them.
TEST(ChatTemplateGolden, FamiliesTimesConversations) {
  const jinja::Value golden = jinja::parse_json(read_file(kFamilies + "expected.json"), "golden");
  const auto& cases = golden.dict()->find("cases")->sequence()->items;
  int compared = 0, failures = 0;
  for (const auto& [name, expected] : golden.dict()->find("outputs")->dict()->items()) {
    const std::string source = read_file(kFamilies + name.text());
    ASSERT_EQ(expected.sequence()->items.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(name.text() + " conversation " + std::to_string(i));
      const auto ours = rendered(source, cases[i]);
      const jinja::Value& theirs = expected.sequence()->items[i];
      ASSERT_EQ(ours.has_value(), theirs.is_text());
      EXPECT_EQ(ours.value_or(""), theirs.is_text() ? theirs.text() : "");
      ++compared;
      failures += !ours;
    }
  }
  EXPECT_EQ(compared, 15 * 27);
  EXPECT_LT(failures, compared / 4);
}

TEST(ChatTemplateGolden, GeneratedTemplates) {
  const jinja::Value golden =
      jinja::parse_json(read_file(FOURFOLD_TEXT_UNPACKED "/template_cases.json"), "golden");
  const jinja::Value& variables = *golden.dict()->find("variables");
  int compared = 0, failures = 0;
  for (const jinja::Value& row : golden.dict()->find("cases")->sequence()->items) {
    const std::string& source = row.sequence()->items[0].text();
    const jinja::Value& theirs = row.sequence()->items[1];
    std::optional<std::string> ours;
    try {
      ours = rendered(source, variables);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_checkpoint);  // a syntax error
    }
    ASSERT_EQ(ours.has_value(), theirs.is_text()) << source;
    ASSERT_EQ(ours.value_or(""), theirs.is_text() ? theirs.text() : "") << source;
    ++compared;
    failures += !ours;
  }
  EXPECT_GT(compared, 3'900);
  EXPECT_LT(failures, compared / 2);
  std::printf("generated templates: %d compared, %d of them fail in both, 0 differ\n", compared, failures);
}

ChatRequest hello() {
  ChatRequest request;
  request.messages = parse_chat_json(R"([{"role": "user", "content": "Hi"}])", "messages");
  return request;
}

TEST(ChatTemplate, RendersQwen3) {
  const ChatTemplate chat = ChatTemplate::parse(read_file(kTemplates + "qwen3.jinja"), "qwen3.jinja");
  ChatRequest request = hello();
  EXPECT_EQ(chat.render(request), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  request.enable_thinking = false;
  EXPECT_EQ(chat.render(request),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  request.add_generation_prompt = false;
  EXPECT_EQ(chat.render(request), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, HandsOverToolArgumentsInTheFormTheTemplateTakes) {
  ChatRequest request;
  request.messages = parse_chat_json(
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls":
      [{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.50, \"b\": null}"}}]}])",
      "messages");
  const ChatTemplate objects =
      ChatTemplate::parse(read_file(kTemplates + "tool_xml.jinja"), "tool_xml.jinja");
  EXPECT_FALSE(objects.wants_arguments_as_text());
  EXPECT_NE(objects.render(request).find("<parameter=a>\n1.5\n</parameter>\n<parameter=b>\nNone\n"),
            std::string::npos);
  const ChatTemplate text = ChatTemplate::parse(read_file(kTemplates + "one_line.jinja"), "one_line.jinja");
  EXPECT_TRUE(text.wants_arguments_as_text());
  request.extra.set("bos_token", "");
  EXPECT_NE(text.render(request).find("{\"a\": 1.50, \"b\": null}"), std::string::npos);
}

TEST(ChatTemplate, KnowsHowItWritesCalls) {
  const auto format = [](std::string_view source) {
    return ChatTemplate::parse(source, "t.jinja").call_format();
  };
  EXPECT_EQ(format(read_file(kTemplates + "qwen3.jinja")), CallFormat::json);
  EXPECT_EQ(format(read_file(kTemplates + "tool_xml.jinja")), CallFormat::tagged);
  for (const char* other : {"blocks", "brackets", "headers", "one_line"})
    EXPECT_EQ(format(read_file(kTemplates + other + ".jinja")), CallFormat::tagged) << "another, or none";
  EXPECT_EQ(format(read_file(FOURFOLD_SOURCE_DIR "/models/storyteller/chat_template.jinja")),
            CallFormat::tagged);
  // What it tells the model of calls is no call.
  EXPECT_EQ(format("Write <tool_call>{}</tool_call>{% for m in messages %}{% for c in m.tool_calls or [] %}"
                   "<tool_call>\n<function={{ c.function.name }}>{% endfor %}{% endfor %}"),
            CallFormat::tagged);
}

// A family's calls: known by its template, and read back from what the template writes.
TEST(ChatTemplate, ReadsTheCallsItWrites) {
  const std::pair<const char*, CallFormat> families[] = {{"glm-4.5", CallFormat::glm},
                                                         {"glm-4.6", CallFormat::glm},
                                                         {"glm-4.7-flash", CallFormat::glm_compact},
                                                         {"minimax-m2", CallFormat::minimax},
                                                         {"deepseek-v3", CallFormat::deepseek},
                                                         {"deepseek-r1", CallFormat::deepseek},
                                                         {"deepseek-r1-tools", CallFormat::deepseek},
                                                         {"deepseek-v3-tools", CallFormat::deepseek},
                                                         {"deepseek-v3.1", CallFormat::deepseek_plain},
                                                         {"deepseek-v3.1-tools", CallFormat::deepseek_plain},
                                                         {"kimi-k2", CallFormat::kimi},
                                                         {"ministral-3", CallFormat::mistral},
                                                         {"mistral-small-4", CallFormat::mistral}};
  ToolSchemas schemas;
  schemas.add(
      "find",
      parse_chat_json(R"({"properties": {"text": {"type": "string"}, "count": {"type": "integer"}}})", "s"));
  schemas.add("now", parse_chat_json("{}", "s"));
  for (const auto& [name, format] : families) {
    SCOPED_TRACE(name);
    ChatTemplate chat = ChatTemplate::parse(read_file(kFamilies + name + ".jinja"), "t.jinja");
    for (const char* token : {"bos_token", "eos_token"}) chat.define(token, "");
    EXPECT_EQ(chat.call_format(), format);
    ChatRequest request;
    request.messages = parse_chat_json(
        R"([{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Look:", "tool_calls": [
          {"id": "functions.find:0", "type": "function", "function": {"name": "find",
            "arguments": "{\"text\": \"雪 <b> \\\"x\\\"\", \"count\": 3}"}},
          {"id": "functions.now:1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}])",
        "messages");
    request.add_generation_prompt = false;
    const std::string text = chat.render(request);
    const auto parser = make_tool_call_parser(format, schemas);
    std::string calls;
    for (const ToolEvent& event : parser->push(text.substr(text.find("Look:")))) {
      if (event.kind == ToolEvent::Kind::begin) calls += "[" + event.text + " ";
      if (event.kind == ToolEvent::Kind::arguments) calls += event.text;
      if (event.kind == ToolEvent::Kind::end) calls += "]";
    }
    EXPECT_EQ(calls, R"([find {"text": "雪 <b> \"x\"", "count": 3}][now {}])") << text;
  }
}

TEST(ChatTemplate, KnowsWhetherSystemTurnsMayStandLater) {
  const auto takes = [](std::string_view source) {
    return ChatTemplate::parse(source, "t.jinja").takes_later_system_turns();
  };
  EXPECT_TRUE(takes(read_file(kTemplates + "qwen3.jinja")));
  EXPECT_FALSE(takes(read_file(kTemplates + "tool_xml.jinja"))) << "refuses them";
  EXPECT_FALSE(takes(read_file(kTemplates + "blocks.jinja"))) << "passes over them";
  EXPECT_TRUE(takes("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"));
  EXPECT_FALSE(
      takes("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
            "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"))
      << "moves them";
  EXPECT_FALSE(takes(read_file(kFamilies + "mistral-small-4.jinja"))) << "refuses them behind the model's";
}

// The effort a template sees for what a request asks: an effort, and whether thinking is switched.
std::string effort_seen(const ChatTemplate& chat, std::string_view asked, std::optional<bool> thinking) {
  ChatRequest request = hello();
  if (!asked.empty()) request.extra.set("reasoning_effort", asked);
  request.enable_thinking = thinking;
  const std::string text = chat.render(request);
  for (const std::string_view before : {"\"reasoning_effort\": \"", "Reasoning: ", "effort="})
    if (const std::size_t at = text.find(before); at != std::string::npos) {
      const std::size_t begin = at + before.size();
      return text.substr(begin, text.find_first_of("\"\n", begin) - begin);
    }
  return "-";
}

TEST(ChatTemplate, AsksForAnEffortItTakes) {
  struct Row {
    std::string_view asked;
    std::optional<bool> thinking;
    std::string_view mistral, gpt_oss, three, any;
  };
  const Row rows[] = {{"", {}, "none", "medium", "-", "-"},
                      {"none", {}, "none", "low", "none", "none"},
                      {"minimal", {}, "none", "low", "minimal", "minimal"},
                      {"low", {}, "high", "low", "max", "low"},
                      {"medium", {}, "high", "medium", "max", "medium"},
                      {"high", {}, "high", "high", "max", "high"},
                      {"xhigh", {}, "high", "high", "max", "xhigh"},
                      {"max", {}, "high", "high", "max", "max"},
                      {"", true, "high", "medium", "max", "-"},
                      {"", false, "none", "low", "none", "-"},
                      {"none", true, "high", "low", "max", "none"},
                      {"minimal", true, "high", "low", "minimal", "minimal"},
                      {"high", false, "none", "high", "none", "high"}};
  const auto parse = [](const std::string& source) {
    ChatTemplate chat = ChatTemplate::parse(source, "t.jinja");
    for (const char* token : {"bos_token", "eos_token"}) chat.define(token, "");
    return chat;
  };
  const std::string shown = "{% if reasoning_effort is defined %}effort={{ reasoning_effort }}\n{% endif %}";
  const ChatTemplate mistral = parse(read_file(kFamilies + "mistral-small-4.jinja")),
                     gpt_oss = parse(read_file(kFamilies + "gpt-oss.jinja")), any = parse(shown),
                     three = parse(shown +
                                   "{% if reasoning_effort is defined and reasoning_effort not in "
                                   "['none', 'minimal', 'max'] %}{{ raise_exception('no') }}{% endif %}");
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.asked) + (row.thinking ? *row.thinking ? " on" : " off" : ""));
    EXPECT_EQ(effort_seen(mistral, row.asked, row.thinking), row.mistral);
    EXPECT_EQ(effort_seen(gpt_oss, row.asked, row.thinking), row.gpt_oss);
    EXPECT_EQ(effort_seen(three, row.asked, row.thinking), row.three);
    EXPECT_EQ(effort_seen(any, row.asked, row.thinking), row.any);
  }
  EXPECT_THROW(effort_seen(mistral, "utmost", true), Error)
      << "a word nobody knows is the template's to refuse";
  for (const char* name : {"glm-4.6", "deepseek-v3.1", "kimi-k2", "ministral-3"})
    EXPECT_TRUE(parse(read_file(kFamilies + name + ".jinja")).efforts().empty()) << name;
}

TEST(ChatTemplate, NamesLineAndCause) {
  const ChatTemplate chat = ChatTemplate::parse(
      "{{ 'a' }}\n{% if true %}\n{{ raise_exception('only one system message') }}{% endif %}", "t.jinja");
  try {
    chat.render(hello());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "t.jinja line 3: only one system message");
  }
  try {
    ChatTemplate::parse("ok\n{% for x in %}{% endfor %}", "t.jinja");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_checkpoint);
    EXPECT_NE(std::string(error.what()).find("t.jinja line 2"), std::string::npos) << error.what();
  }
}

TEST(ChatTemplate, RefusesMessagesThatAreNone) {
  const ChatTemplate chat = ChatTemplate::parse("x", "t.jinja");
  ChatRequest request;
  request.messages = parse_chat_json(R"(["text"])", "messages");
  EXPECT_THROW(chat.render(request), Error);
  request.messages = parse_chat_json("{}", "messages");
  EXPECT_THROW(chat.render(request), Error);
}

class TemplateFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() / ("fourfold_chat_template_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder / name) << text; }
  std::filesystem::path folder;
};

TEST_F(TemplateFolder, PrefersTheFileOverTheConfig) {
  EXPECT_FALSE(ChatTemplate::load(folder).has_value());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
          "chat_template": "config{{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(ChatTemplate::load(folder)->render(hello()), "config<s></s>");
  write("chat_template.jinja", "file{{ bos_token }}");
  EXPECT_EQ(ChatTemplate::load(folder)->render(hello()), "file<s>");
}

TEST_F(TemplateFolder, TakesTheNamedTemplateOfAList) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
            {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(ChatTemplate::load(folder)->render(hello()), "plain");
  EXPECT_EQ(ChatTemplate::load(folder, "tool_use")->render(hello()), "tools");
  EXPECT_EQ(ChatTemplate::load(folder, "rag")->render(hello()), "plain");
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THROW(ChatTemplate::load(folder), Error);
}

}  // namespace
}  // namespace fourfold::text
