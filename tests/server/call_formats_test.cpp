// Each family's own template and the way its models think and call, through every protocol.
#include <gtest/gtest.h>

#include "tests/server/families.h"

namespace fourfold::server {
namespace {

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

  const ServedModel later = model_of({"glm-4.7-flash", special, plain, "<|observation|>"});
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
  expect_forced(deepseek("deepseek-v3"), "", fenced);
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
  // As Kimi-K2-Thinking's: calls by the ids they come with, which the model numbers through a conversation.
  ServedModel thinking = model_of({"kimi-k2", special, plain, "<|im_end|>"});
  thinking.chat_template = text::ChatTemplate::parse(
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if loop.first %}"
      "<|tool_calls_section_begin|>{% endif %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
      "{{ c.function.arguments | tojson }}<|tool_call_end|>{% if loop.last %}<|tool_calls_section_end|>"
      "{% endif %}{% endfor %}{{ '=' + m.tool_call_id if m.tool_call_id }}\n{% endfor %}",
      "chat_template.jinja");
  api::prepare_forms(thinking);
  expect_call(thinking, "<think>It rains?</think>I look." + call);
  expect_forced(thinking, "", call);
  const auto turns = [](std::string_view first, std::string_view second) {
    return fourfold::format(
        R"({"role": "assistant", "content": "", "tool_calls": [{"id": "{}", "function": {"name": "f",)"
        R"( "arguments": "{}"}}, {"id": "{}", "function": {"name": "g", "arguments": "{}"}}]},)"
        R"( {"role": "tool", "tool_call_id": "{}", "content": "r"})",
        first, "{}", second, "{}", second);
  };
  const std::string body = fourfold::format(R"({"messages": [{"role": "user", "content": "a"}, {}, {}]})",
                                            turns("x", "y"), turns("z", "w"));
  const std::string prompt =
      thinking.tokenizer.decode(make_exchange(kChat, body, thinking)->submissions()[0].request.prompt);
  for (const char* shown : {"<|tool_call_begin|>functions.f:0<", "r=functions.g:1\n",
                            "<|tool_call_begin|>functions.f:2<", "r=functions.g:3\n"})
    EXPECT_NE(prompt.find(shown), std::string::npos) << shown << "\n" << prompt;
}

ServedModel mistral(const std::string& name) {
  return model_of({name,
                   {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                    "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]",
                    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]", "</s>"},
                   {},
                   "</s>"},
                  {"<think>", "</think>"});
}

TEST(CallFormats, Mistral) {
  const std::string call = R"([TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 3})";
  for (const char* name : {"ministral-3", "mistral-small-4"}) {
    SCOPED_TRACE(name);
    const ServedModel model = mistral(name);
    expect_call(model, "[THINK]It rains?[/THINK]I look." + call);
    expect_forced(model, "", call);
    EXPECT_NE(
        history_prompt(model).find("[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\"}</s>[TOOL_RESULTS]rain"),
        std::string::npos);
  }
  EXPECT_NE(history_prompt(mistral("mistral-small-4")).find("[THINK]A thought.[/THINK][TOOL_CALLS]"),
            std::string::npos);
}

// Mistral-Small-4 thinks where its settings say "high", and its template refuses all but that and "none".
TEST(CallFormats, MistralEfforts) {
  const ServedModel model = mistral("mistral-small-4");
  const auto expect = [&](std::string_view route, const std::string& body, std::string_view effort) {
    const std::string prompt =
        model.tokenizer.decode(make_exchange(route, body, model)->submissions()[0].request.prompt);
    EXPECT_NE(prompt.find(fourfold::format(
                  R"([/AVAILABLE_TOOLS][MODEL_SETTINGS]{"reasoning_effort": "{}"}[/MODEL_SETTINGS][INST])",
                  effort)),
              std::string::npos)
        << body << "\n"
        << prompt;
  };
  for (const auto& [asked, shown] :
       {std::pair("none", "none"), std::pair("minimal", "none"), std::pair("low", "high"),
        std::pair("medium", "high"), std::pair("high", "high"), std::pair("max", "high")}) {
    expect(kChat, chat_body(fourfold::format(R"(, "reasoning_effort": "{}")", asked)), shown);
    expect(kResponses, responses_body(fourfold::format(R"(, "reasoning": {"effort": "{}"})", asked)), shown);
    const std::string effort = fourfold::format(R"(, "output_config": {"effort": "{}"})", asked);
    const auto message = [&](std::string_view type) {
      std::string body = messages_body(effort);
      return body.replace(body.find("enabled"), 7, type);
    };
    expect(kMessages, message("adaptive"), shown);
    expect(kMessages, message("disabled"), "none");
    expect(kMessages, message("enabled"), "high");
  }
  expect(kChat, chat_body(), "none");
  expect(kChat, chat_body(R"(, "enable_thinking": true)"), "high");
  expect(kChat, chat_body(R"(, "chat_template_kwargs": {"enable_thinking": true})"), "high");
  expect(kChat, chat_body(R"(, "reasoning_effort": "high", "enable_thinking": false)"), "none");
  expect(kChat, chat_body(R"(, "chat_template_kwargs": {"reasoning_effort": "low"})"), "high");
}

}  // namespace
}  // namespace fourfold::server
