// Each family's own template and the way its models think and call, through every protocol.
#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>

#include "json/parse.h"
#include "tests/server/support.h"

namespace fourfold::server {
namespace {

namespace bj = boost::json;

// The small vocabulary with a family's own tokens behind it.
text::Tokenizer tokenizer_with(const std::vector<std::string>& special, const std::vector<std::string>& plain,
                               const std::vector<std::string>& without) {
  bj::value file = json::parse_file(FOURFOLD_SOURCE_DIR "/tests/golden/text/qwen35.tokenizer.json",
                                    {.text_bytes_max = std::size_t{1} << 24});
  bj::array& added = file.as_object().at("added_tokens").as_array();
  for (bj::value& token : added)
    for (const std::string& content : without)
      if (token.as_object().at("content").as_string() == content)
        token.as_object()["content"] = "no " + content;
  std::int64_t id = added.back().as_object().at("id").as_int64();
  const auto add = [&](const std::string& content, bool is_special) {
    for (const bj::value& known : added)
      if (known.as_object().at("content").as_string() == content) return;
    added.push_back(bj::object{{"id", ++id},
                               {"content", content},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", is_special}});
  };
  for (const std::string& content : special) add(content, true);
  for (const std::string& content : plain) add(content, false);
  return text::Tokenizer::parse(bj::serialize(file), "tokenizer.json");
}

struct Family {
  std::string name;
  std::vector<std::string> special, plain;
  std::string stop;  // one of the special ones
};

// without: tokens of the small vocabulary that the family does not have.
ServedModel model_of(const Family& family, const std::vector<std::string>& without = {}) {
  ServedModel out{.names = {"tiny"},
                  .created = 1700000000,
                  .tokenizer = tokenizer_with(family.special, family.plain, without),
                  .chat_template = {},
                  .limits = {},
                  .defaults = {},
                  .stop_ids = {}};
  out.chat_template = text::ChatTemplate::parse(
      json::read_text_file(FOURFOLD_SOURCE_DIR "/tests/golden/text/families/" + family.name + ".jinja",
                           1 << 20),
      "chat_template.jinja");
  out.chat_template->define("bos_token", "");
  out.chat_template->define("eos_token", family.stop);
  out.limits = {.vocab_size = 2048, .position_limit = 8192, .can_draft = false};
  out.stop_ids = {*out.tokenizer.added_token(family.stop)};
  out.token_limit = out.tokenizer.id_limit();
  api::prepare_forms(out);
  out.responses = std::make_shared<api::ResponseStore>(1 << 20);
  return out;
}

// The answer of a model that says this, in steps of so many tokens.
std::string answer_of(const ServedModel& model, std::string_view route, const std::string& body,
                      const std::string& says, std::size_t step, bool ends = true) {
  const auto exchange = make_exchange(route, body, model);
  exchange->submissions();
  std::vector<text::TokenId> ids = model.tokenizer.encode(says);
  if (ends) ids.push_back(model.stop_ids.front());
  std::string out = exchange->begin();
  for (std::size_t at = 0; at < ids.size() && !exchange->satisfied(0); at += step) {
    engine::Delivery delivery;
    for (std::size_t i = at; i < std::min(ids.size(), at + step); ++i)
      delivery.tokens.push_back({.token = ids[i], .draft_accepted = false, .logprobs = {}});
    if (at + step >= ids.size())
      delivery.finish = ends ? engine::Finish::stop_id : engine::Finish::max_tokens;
    out += exchange->take(0, delivery);
  }
  EXPECT_TRUE(exchange->done());
  return settled(exchange->streams() ? out : exchange->body());
}

constexpr std::string_view kChat = "/v1/chat/completions", kResponses = "/v1/responses",
                           kMessages = "/v1/messages";
constexpr std::string_view kParameters =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]})";

std::string chat_body(const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "Rome?"}], "tools": [{"type": "function", "function":)"
         R"( {"name": "weather", "description": "d", "parameters": )" +
         std::string(kParameters) + "}}]" + more + "}";
}
std::string responses_body(const std::string& more = "") {
  return R"({"input": "Rome?", "tools": [{"type": "function", "name": "weather", "description": "d", "parameters": )" +
         std::string(kParameters) + "}]" + more + "}";
}
std::string messages_body(const std::string& more = "") {
  return R"({"max_tokens": 500, "thinking": {"type": "enabled"}, "messages": [{"role": "user", "content": "Rome?"}],)"
         R"( "tools": [{"name": "weather", "description": "d", "input_schema": )" +
         std::string(kParameters) + "}]" + more + "}";
}

// What one call of weather looks like in each protocol, behind a thought and a word.
void expect_call(const ServedModel& model, const std::string& says) {
  const std::string arguments = R"({"city": "Rome", "days": 3})";
  for (const std::size_t step : {1, 2, 5, 1000}) {
    SCOPED_TRACE(step);
    const auto chat = parsed(answer_of(model, kChat, chat_body(), says, step));
    EXPECT_EQ(text_at(chat, "choices.0.message.reasoning_content"), "It rains?");
    EXPECT_EQ(text_at(chat, "choices.0.message.content"), "I look.");
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.0.function.name"), "weather");
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.0.function.arguments"), arguments);
    EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.1"), "(missing)");
    EXPECT_EQ(text_at(chat, "choices.0.finish_reason"), "tool_calls");
    const auto response = parsed(answer_of(model, kResponses, responses_body(), says, step));
    EXPECT_EQ(text_at(response, "output.0.type"), "reasoning");
    EXPECT_EQ(text_at(response, "output.1.content.0.text"), "I look.");
    EXPECT_EQ(text_at(response, "output.2.name"), "weather");
    EXPECT_EQ(text_at(response, "output.2.arguments"), arguments);
    const auto message = parsed(answer_of(model, kMessages, messages_body(), says, step));
    EXPECT_EQ(text_at(message, "content.0.thinking"), "It rains?");
    EXPECT_EQ(text_at(message, "content.1.text"), "I look.");
    EXPECT_EQ(text_at(message, "content.2.name"), "weather");
    EXPECT_EQ(text_at(message, "content.2.input.city"), "Rome");
    EXPECT_EQ(text_at(message, "stop_reason"), "tool_use");
  }
}

// The prompt of a second question: a thought, a call, its result.
std::string history_prompt(const ServedModel& model) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Rome?"}, {"role": "assistant", "content": "",
    "reasoning_content": "A thought.", "tool_calls": [{"id": "call_1", "type": "function", "function":
    {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]}, {"role": "tool", "tool_call_id": "call_1",
    "content": "rain"}]})";
  return model.tokenizer.decode(make_exchange(kChat, body, model)->submissions()[0].request.prompt);
}

// A call that must come may be written, and nothing else at its beginning.
void expect_forced(const ServedModel& model, const std::string& before, const std::string& call) {
  const auto exchange = make_exchange(kChat, chat_body(R"(, "tool_choice": "required")"), model);
  auto submissions = exchange->submissions();
  auto& guide = submissions[0].guide;
  ASSERT_NE(guide, nullptr);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
  const auto allows = [&](text::TokenId id) {
    guide->allowed(bits);
    return (bits[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  };
  for (const text::TokenId id : model.tokenizer.encode(before)) {
    ASSERT_TRUE(allows(id)) << model.tokenizer.token_bytes(id);
    guide->accept(id);
  }
  EXPECT_FALSE(allows(model.tokenizer.encode("I")[0]));
  for (const text::TokenId id : model.tokenizer.encode(call)) {
    ASSERT_TRUE(allows(id)) << model.tokenizer.token_bytes(id);
    EXPECT_FALSE(allows(model.stop_ids[0]));
    guide->accept(id);
  }
  EXPECT_TRUE(allows(model.stop_ids[0]));
}

TEST(CallFormats, Glm) {
  const std::vector<std::string> plain{"<think>",   "</think>",   "<tool_call>", "</tool_call>",
                                       "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
  const std::string call =
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
      "<arg_value>3</arg_value>\n</tool_call>";
  const std::vector<std::string> special{"[gMASK]",  "<sop>",         "<|system|>",
                                         "<|user|>", "<|assistant|>", "<|observation|>"};
  const ServedModel glm = model_of({"glm-4.6", special, plain, "<|observation|>"});
  expect_call(glm, "\n<think>It rains?</think>\nI look." + call);
  EXPECT_NE(
      history_prompt(glm).find("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
                               "</tool_call><|observation|>"),
      std::string::npos)
      << history_prompt(glm);
  expect_forced(glm, "", call);
  const auto silent =
      make_exchange(kChat, chat_body(R"(, "chat_template_kwargs": {"enable_thinking": false})"), glm);
  EXPECT_TRUE(glm.tokenizer.decode(silent->submissions()[0].request.prompt)
                  .ends_with("/nothink<|assistant|>\n<think></think>"));

  const ServedModel later = model_of({"glm-4.7", special, plain, "<|observation|>"});
  const std::string compact =
      "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key>"
      "<arg_value>3</arg_value></tool_call>";
  expect_call(later, "It rains?</think>I look." + compact);
  expect_forced(later, "Hm.</think>", compact);
  // Tags in thoughts are thoughts where they are letters, and a call where they are the tokens.
  const auto rash = parsed(answer_of(later, kChat, chat_body(), "Now" + compact, 1));
  EXPECT_EQ(text_at(rash, "choices.0.message.reasoning_content"), "Now");
  EXPECT_EQ(text_at(rash, "choices.0.message.tool_calls.0.function.name"), "weather");
}

TEST(CallFormats, MiniMax) {
  // Whether the marks are control tokens or not makes no difference.
  for (const bool special_marks : {false, true}) {
    std::vector<std::string> special{"]~!b[", "]~b]", "[e~["}, plain{"<think>", "</think>"};
    auto& marks = special_marks ? special : plain;
    marks.insert(marks.end(), {"<minimax:tool_call>", "</minimax:tool_call>"});
    const ServedModel model = model_of({"minimax-m2", special, plain, "[e~["});
    const std::string call =
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Rome</parameter>\n"
        "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>";
    expect_call(model, "It rains?</think>\n\nI look." + call);
    // Thoughts of the turn that called stay in the prompt.
    EXPECT_NE(history_prompt(model).find("<think>\nA thought.\n</think>\n\n\n<minimax:tool_call>\n"),
              std::string::npos);
    expect_forced(model, "Hm.</think>\n\n", call);
  }
}

ServedModel deepseek(const std::string& name) {
  const std::string end = "<｜end▁of▁sentence｜>";
  return model_of({name,
                   {end},
                   {"<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>",
                    "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"},
                   end});
}

// A section of one call of weather, as V3.1 writes it.
std::string deepseek_call(const std::string& arguments) {
  return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + arguments +
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
}

TEST(CallFormats, DeepSeek) {
  const std::string json = R"({"city": "Rome", "days": 3})";
  const ServedModel r1 = deepseek("deepseek-r1");
  const std::string fenced =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + json +
      "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  expect_call(r1, "It rains?</think>\n\nI look." + fenced);
  expect_forced(r1, "Hm.</think>", fenced);
  const ServedModel v31 = deepseek("deepseek-v3.1-tools");
  const std::string call = deepseek_call(json);
  expect_forced(v31, "", call);
  // What a client leaves out of a tool, or calls null, the template writes all the same.
  for (const char* more : {"", R"(, "parameters": null)", R"(, "description": null, "parameters": null)"}) {
    const auto bare = make_exchange(
        kChat,
        fourfold::format(
            R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function":)"
            R"( {"name": "ping"{}}}]})",
            more),
        v31);
    const std::string prompt = v31.tokenizer.decode(bare->submissions()[0].request.prompt);
    EXPECT_NE(
        prompt.find("### ping\nDescription: \n\nParameters: {\"type\": \"object\", \"properties\": {}}"),
        std::string::npos)
        << more << "\n"
        << prompt;
  }
  const auto chat = parsed(answer_of(v31, kChat, chat_body(), "I look." + call, 1));
  EXPECT_EQ(text_at(chat, "choices.0.message.content"), "I look.");
  EXPECT_EQ(text_at(chat, "choices.0.message.tool_calls.0.function.arguments"), json);
  // Its switch has another name, which all ways of asking reach.
  for (const char* more :
       {R"(, "chat_template_kwargs": {"thinking": true})", R"(, "enable_thinking": true)"}) {
    const auto thinks = parsed(answer_of(v31, kChat, chat_body(more), "Hm.</think>Yes.", 1));
    EXPECT_EQ(text_at(thinks, "choices.0.message.reasoning_content"), "Hm.");
    EXPECT_EQ(text_at(thinks, "choices.0.message.content"), "Yes.");
  }
}

// A whole answer of messages has a call whose arguments are no JSON in words: nobody is told to run it.
TEST(CallFormats, BrokenCallsOfAWholeMessageAreWords) {
  const ServedModel v31 = deepseek("deepseek-v3.1-tools");
  const std::string call = deepseek_call(R"({"city": "Rome"})"), broken = deepseek_call(R"({"city": Rome})");
  const std::string words = R"([a call of weather that is not whole: {"city": Rome}])";
  const auto answer = [&](const std::string& says, const std::string& more = "", bool ends = true) {
    return parsed(answer_of(v31, kMessages, messages_body(more), "Hm.</think>" + says, 1, ends));
  };
  const auto message = answer(broken);
  EXPECT_EQ(text_at(message, "stop_reason"), "end_turn");
  EXPECT_EQ(text_at(message, "content.1.text"), words);
  const auto both = answer(broken + call);
  EXPECT_EQ(text_at(both, "stop_reason"), "tool_use");
  EXPECT_EQ(text_at(both, "content.1.text"), words);
  EXPECT_EQ(text_at(both, "content.2.input.city"), "Rome");
  // So is one that was cut off, and one that ended before the answer was cut off.
  const auto cut = answer(broken + call.substr(0, call.find("Rome")), "", false);
  EXPECT_EQ(text_at(cut, "stop_reason"), "max_tokens");
  EXPECT_EQ(text_at(cut, "content.1.text"), words);
  EXPECT_EQ(text_at(cut, "content.2.text"), R"([a call of weather that is not whole: {"city": "])");
  for (const char* more : {"And", ""}) {
    const auto said = answer(broken + more, "", false);
    EXPECT_EQ(text_at(said, "stop_reason"), "max_tokens");
    EXPECT_EQ(text_at(said, "content.1.text"), words) << more;
    EXPECT_EQ(*more ? text_at(said, "content.2.text") : "", more);
  }
  for (const char* more : {"And STOP", "STOP"}) {
    const auto stopped = answer(broken + more, R"(, "stop_sequences": ["STOP"])");
    EXPECT_EQ(text_at(stopped, "stop_reason"), "stop_sequence");
    EXPECT_EQ(text_at(stopped, "content.1.text"), words) << more;
  }
}

// In a stream arguments are on their way before it shows that they are no JSON: the block is a tool_use with
// what the model wrote, and stop_reason says that there is nothing to run.
TEST(CallFormats, BrokenCallsOfAStreamAreBlocksThatStopReasonDoesNotName) {
  const ServedModel v31 = deepseek("deepseek-v3.1-tools");
  const std::string call = deepseek_call(R"({"city": "Rome"})"), broken = deepseek_call(R"({"city": Rome})");
  const auto stream = [&](const std::string& says) {
    return answer_of(v31, kMessages, messages_body(R"(, "stream": true)"), "Hm.</think>" + says, 1000);
  };
  const std::string opened = R"("content_block":{"type":"tool_use","id":"toolu_ID","name":"weather")";
  const std::string alone = stream(broken);
  EXPECT_NE(alone.find(opened), std::string::npos) << alone;
  EXPECT_NE(alone.find(R"("delta":{"type":"input_json_delta","partial_json":"{\"city\": Rome}"}})"),
            std::string::npos)
      << alone;
  EXPECT_NE(alone.find(R"({"type":"content_block_stop","index":1})"), std::string::npos) << alone;
  EXPECT_NE(alone.find(R"("stop_reason":"end_turn")"), std::string::npos) << alone;
  const std::string both = stream(broken + call);
  EXPECT_NE(both.find(R"({"type":"content_block_stop","index":2})"), std::string::npos) << both;
  EXPECT_NE(both.find(R"("partial_json":"{\"city\": \"Rome\"}")"), std::string::npos) << both;
  EXPECT_NE(both.find(R"("stop_reason":"tool_use")"), std::string::npos) << both;
}

// In streams as in whole answers a broken call is incomplete, whatever follows, and a whole one completed.
TEST(CallFormats, StatusOfCallsOfResponses) {
  const ServedModel v31 = deepseek("deepseek-v3.1-tools");
  const std::string call = deepseek_call(R"({"city": "Rome"})"), broken = deepseek_call(R"({"city": Rome})");
  const std::string done = "event: response.output_item.done\n", key = R"("item":)";
  for (const bool ends : {true, false})
    for (const std::string& more : {std::string("And"), call, broken, std::string()}) {
      const auto said = [&](const std::string& fields) {
        return answer_of(v31, kResponses, responses_body(fields), broken + more, 1, ends);
      };
      const std::string whole = said(""), stream = said(R"(, "stream": true)");
      std::string output;
      for (std::size_t at = stream.find(done); at != std::string::npos; at = stream.find(done, at + 1)) {
        const std::size_t begin = stream.find(key, at) + key.size();
        output += (output.empty() ? "" : ",") + stream.substr(begin, stream.find("}\n\n", begin) - begin);
      }
      output = R"("output":[)" + output + "]";
      EXPECT_NE(whole.find(output), std::string::npos) << output << "\n" << whole;
      EXPECT_NE(stream.find(output), std::string::npos) << output << "\n" << stream;
      EXPECT_EQ(text_at(parsed(whole), "output.0.status"), "incomplete");
      EXPECT_TRUE(more != call || text_at(parsed(whole), "output.1.status") == "completed") << whole;
    }
}

TEST(CallFormats, Kimi) {
  const std::vector<std::string> special{"<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
                                         "<|im_end|>"};
  const std::vector<std::string> plain{"<think>",
                                       "</think>",
                                       "<|tool_calls_section_begin|>",
                                       "<|tool_calls_section_end|>",
                                       "<|tool_call_begin|>",
                                       "<|tool_call_end|>",
                                       "<|tool_call_argument_begin|>"};
  const ServedModel model = model_of({"kimi-k2", special, plain, "<|im_end|>"});
  const std::string call =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
      R"({"city": "Rome", "days": 3})"
      "<|tool_call_end|><|tool_calls_section_end|>";
  expect_call(model, "<think>It rains?</think>I look." + call);
  expect_forced(model, "", call);
  // Results are named by the id the template gives their call, whatever the client was told.
  EXPECT_NE(history_prompt(model).find("## Return of functions.weather:0"), std::string::npos)
      << history_prompt(model);
}

TEST(CallFormats, Mistral) {
  std::vector<std::string> special{"[SYSTEM_PROMPT]",
                                   "[/SYSTEM_PROMPT]",
                                   "[AVAILABLE_TOOLS]",
                                   "[/AVAILABLE_TOOLS]",
                                   "[INST]",
                                   "[/INST]",
                                   "[TOOL_CALLS]",
                                   "[ARGS]",
                                   "[TOOL_RESULTS]",
                                   "[/TOOL_RESULTS]",
                                   "[THINK]",
                                   "[/THINK]",
                                   "</s>"};
  const ServedModel model = model_of({"ministral-3", special, {}, "</s>"}, {"<think>", "</think>"});
  const std::string call = R"([TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3})";
  expect_call(model, "[THINK]It rains?[/THINK]I look." + call);
  expect_forced(model, "", call);
  EXPECT_NE(history_prompt(model).find("[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\"}</s>[TOOL_RESULTS]rain"),
            std::string::npos);
}

const std::vector<std::string> kHarmonyTokens{"<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                              "<|constrain|>", "<|return|>", "<|call|>"};

TEST(CallFormats, Harmony) {
  const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|call|>"});
  EXPECT_EQ(model.chat_template->call_format(), text::CallFormat::harmony);
  const std::string thought = "<|channel|>analysis<|message|>It rains?<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
      R"({"city": "Rome", "days": 3})";
  expect_call(model, thought + "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call);
  expect_forced(model, "", call);
  expect_forced(model, thought, call);
  const auto said =
      parsed(answer_of(model, kChat, chat_body(), thought + "<|channel|>final<|message|>Yes.", 1));
  EXPECT_EQ(text_at(said, "choices.0.message.content"), "Yes.");
  EXPECT_EQ(text_at(said, "choices.0.message.reasoning_content"), "It rains?");
  EXPECT_EQ(text_at(said, "choices.0.finish_reason"), "stop");
  // Cut off in the call: no whole arguments, and words for those that only take whole ones.
  const std::string half = call.substr(0, call.size() - 1);
  const auto cut = parsed(answer_of(model, kMessages, messages_body(), half, 1, false));
  EXPECT_EQ(text_at(cut, "content.0.text"),
            R"([a call of weather that is not whole: {"city": "Rome", "days": 3])");
  // A stop string ends the text, not the thoughts before it in one piece with it.
  const auto stopped = parsed(answer_of(model, kChat, chat_body(R"(, "stop": ["?<"])"),
                                        thought + "<|channel|>final<|message|><Yes?<No", 1));
  EXPECT_EQ(text_at(stopped, "choices.0.message.reasoning_content"), "It rains?");
  EXPECT_EQ(text_at(stopped, "choices.0.message.content"), "<Yes");
}

std::string harmony_prompt(const std::string& body) {
  static const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|call|>"});
  return model.tokenizer.decode(make_exchange(kChat, body, model)->submissions()[0].request.prompt);
}

TEST(CallFormats, HarmonyConversations) {
  for (const auto& [asked, shown] :
       {std::pair("none", "low"), std::pair("minimal", "low"), std::pair("low", "low"),
        std::pair("medium", "medium"), std::pair("high", "high"), std::pair("max", "high")})
    EXPECT_NE(harmony_prompt(chat_body(fourfold::format(R"(, "reasoning_effort": "{}")", asked)))
                  .find(fourfold::format("Reasoning: {}\n", shown)),
              std::string::npos)
        << asked;
  EXPECT_NE(harmony_prompt(chat_body(R"(, "chat_template_kwargs": {"enable_thinking": false})"))
                .find("Reasoning: low"),
            std::string::npos);
  // Two calls of one turn are two messages, each with its result behind it.
  const std::string prompt =
      harmony_prompt(R"({"messages": [{"role": "user", "content": "Go."}, {"role": "assistant",
    "content": "Words.", "reasoning_content": "A thought.", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{\"x\": 1}"}},
      {"id": "2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "2", "content": "second"}, {"role": "tool", "tool_call_id": "1", "content": "first"}],
    "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]})");
  const std::string tail =
      "<|start|>assistant<|channel|>analysis<|message|>A thought.\n\nWords.<|end|>"
      "<|start|>assistant to=functions.a<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
      "<|start|>functions.a to=assistant<|channel|>commentary<|message|>\"first\"<|end|>"
      "<|start|>assistant to=functions.b<|channel|>commentary json<|message|>{}<|call|>"
      "<|start|>functions.b to=assistant<|channel|>commentary<|message|>\"second\"<|end|><|start|>assistant";
  EXPECT_TRUE(prompt.ends_with(tail)) << prompt;
  // What says of no call that it answers it stands behind them all.
  const std::string unnamed = harmony_prompt(
      R"({"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}}]},
    {"role": "tool", "content": "of nobody"}, {"role": "tool", "tool_call_id": "1", "content": "first"}],
    "tools": [{"type": "function", "function": {"name": "a"}}]})");
  const std::size_t first = unnamed.find("\"first\"");
  EXPECT_NE(first, std::string::npos) << unnamed;
  EXPECT_NE(unnamed.find("\"of nobody\"", first), std::string::npos) << unnamed;
}

// A form stands in the final message, behind a thought or without one.
TEST(CallFormats, HarmonyForms) {
  const ServedModel model = model_of({"gpt-oss", kHarmonyTokens, {}, "<|return|>"});
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Go."}], "guided_choice": ["yes", "no"]})";
  for (const std::string thought :
       {"", "<|channel|>analysis<|message|>Perhaps no.<|end|><|start|>assistant"}) {
    auto submissions = make_exchange(kChat, body, model)->submissions();
    auto& guide = submissions[0].guide;
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
    for (const text::TokenId id :
         model.tokenizer.encode(thought + "<|channel|>final<|message|>yes<|return|>")) {
      guide->allowed(bits);
      ASSERT_TRUE(bits[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1)
          << model.tokenizer.token_bytes(id);
      guide->accept(id);
    }
  }
  auto submissions = make_exchange(kChat, body, model)->submissions();
  auto& guide = submissions[0].guide;
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(model.token_limit + 63) / 64);
  guide->allowed(bits);
  std::int64_t allowed = 0;
  for (const std::uint64_t word : bits) allowed += std::popcount(word);
  EXPECT_EQ(allowed, 1);  // <|channel|> alone
}

}  // namespace
}  // namespace fourfold::server
