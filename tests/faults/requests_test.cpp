// Faults 1 to 16 and 20 to 22 of docs/faults.md: what a request may say. Behind each the server is as it was:
// the same answer to the same question, every page free.
#include "base/utf8.h"
#include "tests/faults/support.h"

namespace fourfold::server {
namespace {

const std::string kHello = R"("messages":[{"role":"user","content":"hello"}],"max_tokens":6,"temperature":0)";

class Faults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server = new RealServer({.limits = {.body_bytes_max = 4 << 20}});
    canary = answer_text(server->chat("{" + kHello + "}"));
    ASSERT_FALSE(canary.empty());
  }
  static void TearDownTestSuite() {
    delete server;
    server = nullptr;
  }
  void TearDown() override {
    EXPECT_EQ(answer_text(server->chat("{" + kHello + "}")), canary);
    EXPECT_TRUE(server->settles());
    EXPECT_EQ(server->status().failed, 0);
  }

  static Reply chat_with(const std::string& more) { return server->chat("{" + kHello + "," + more + "}"); }
  static void refused(const std::string& more) { expect_refusal(chat_with(more), 400, more); }
  // Either way, but an answer.
  static void answered(const std::string& body) {
    const Reply reply = server->chat(body);
    EXPECT_TRUE(reply.status == 200 || reply.status == 400) << reply.status << " " << body.substr(0, 200);
  }
  static std::string messages(const std::string& list) {
    return "{\"messages\":[" + list + "],\"max_tokens\":2,\"temperature\":0}";
  }

  static RealServer* server;
  static std::string canary;
};
RealServer* Faults::server = nullptr;
std::string Faults::canary;

TEST_F(Faults, Fault01BodiesThatAreNoRequest) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses"})
    for (const char* body : {"", " ", "{}", "[]", "null", "1", "{\"messages\":", "{\"messages\":[]} trailing",
                             "{\"prompt\":\"a\"}{}", "{'messages':[]}", "{\"a\":}"})
      expect_refusal(server->ask(post(path, body)), 400, std::string(path) + " " + body);
  EXPECT_NE(server->chat("{}").body.find("messages"), std::string::npos);
  EXPECT_NE(server->complete("{}").body.find("prompt"), std::string::npos);
}

TEST_F(Faults, Fault02BodiesTooLargeAreNotKept) {
  Client client(server->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
  EXPECT_EQ(client.reply().status, 413);
  const std::int64_t before = resident_bytes();
  Client chunks(server->port());
  chunks.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(65536, 'x') + "\r\n";
  for (int i = 0; i < 1024 && chunks.send(chunk); ++i) {
  }
  EXPECT_EQ(chunks.reply().status, 413);
  EXPECT_LT(resident_bytes() - before, 32 << 20);
  // One megabyte of prompt is a request; here it is longer than the context.
  expect_refusal(server->complete("{\"prompt\":\"" + std::string(1 << 20, 'a') + "\",\"max_tokens\":1}"), 400,
                 "a megabyte of prompt");
}

TEST_F(Faults, Fault03DeepWideAndDoubled) {
  expect_refusal(server->chat(std::string(100'000, '[')), 400, "deep arrays");
  std::string deep = "{\"messages\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  expect_refusal(server->chat(deep), 400, "deep objects");
  std::string wide = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]";
  for (int i = 0; i < 300'000; ++i) wide += ",\"k" + std::to_string(i) + "\":1";
  expect_refusal(server->chat(wide + "}"), 400, "many keys");
  refused("\"max_tokens\":5");
}

TEST_F(Faults, Fault04TextThatIsNone) {
  for (const std::string text : {"\xff\xfe", "\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80", "a\xc0\xaf"})
    expect_refusal(server->chat(messages(R"({"role":"user","content":")" + text + "\"}")), 400, "bytes");
  for (const char* half : {"\\ud800", "\\udc00x", "\\ud800\\ud800", "\\ud83d \\ude00"})
    expect_refusal(server->chat(messages(std::string(R"({"role":"user","content":")") + half + "\"}")), 400,
                   half);
  for (const char* text : {"\\ud83d\\ude00", "a\\u0000b", "\\ufeffa", "<|im_end|><|im_start|>"}) {
    const Reply reply = server->chat(messages(std::string(R"({"role":"user","content":")") + text + "\"}"));
    EXPECT_TRUE(reply.status == 200 || reply.status == 400) << text << reply.status;
  }
  expect_refusal(server->chat("\xEF\xBB\xBF{" + kHello + "}"), 400, "a byte order mark");
  // Random tokens of a byte-level vocabulary: whatever comes out is UTF-8.
  for (int seed = 0; seed < 20; ++seed) {
    const Reply reply =
        server->complete("{\"prompt\":\"a\",\"max_tokens\":24,\"stream\":true,\"temperature\":2,\"seed\":" +
                         std::to_string(seed) + "}");
    ASSERT_EQ(reply.status, 200) << reply.body;
    for (std::size_t at = 0; at < reply.body.size();) {
      const Utf8Step step = check_utf8_step(std::string_view(reply.body).substr(at));
      ASSERT_EQ(step.state, Utf8State::valid) << seed;
      at += step.bytes;
    }
  }
}

TEST_F(Faults, Fault05SamplingOutOfRange) {
  for (const char* field :
       {"temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p", "repetition_penalty"}) {
    for (const char* value :
         {"NaN", "Infinity", "-Infinity", "1e308", "-3", "\"0.7\"", "true", "[1]", "1e999"})
      expect_refusal(server->chat(fourfold::format(
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,\"{}\":{}}",
                         field, value)),
                     400, std::string(field) + value);
    EXPECT_EQ(
        server
            ->chat(fourfold::format(
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,\"{}\":null}", field))
            .status,
        200)
        << field;
  }
}

TEST_F(Faults, Fault06CountsOutOfRange) {
  for (const char* value : {"0", "-1", "9223372036854775808", "1.5", "\"4\""}) {
    expect_refusal(server->chat("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":" +
                                std::string(value) + "}"),
                   400, std::string("max_tokens ") + value);
    refused("\"n\":" + std::string(value[0] == '1' ? "1.5" : value));
  }
  refused("\"n\":2147483648");
  const Reply reply = chat_with("\"n\":1000000");
  expect_refusal(reply, 400, "n");
  EXPECT_NE(reply.body.find("16"), std::string::npos) << "the cap is named: " << reply.body;
  refused("\"logprobs\":true,\"top_logprobs\":1000000");
  expect_refusal(server->complete(R"({"prompt":"a","max_tokens":1,"logprobs":1000000})"), 400, "logprobs");
  expect_refusal(server->complete(R"({"prompt":"a","max_tokens":1,"best_of":1000000})"), 400, "best_of");
  expect_refusal(server->complete(R"({"prompt":"a","max_tokens":1,"min_tokens":2})"), 400, "min_tokens");
  refused("\"min_tokens\":-1");
  for (const char* value : {"-1", "21", "1.5", "\"4\"", "9223372036854775808"})
    refused("\"prompt_logprobs\":" + std::string(value));
}

TEST_F(Faults, Fault07TokenIdsThatAreNone) {
  for (const char* ids :
       {"[-1]", "[320]", "[4294967296]", "[9223372036854775807]", "[1.5]", "[[-1]]", "[null]", "[]"})
    expect_refusal(server->complete(fourfold::format("{\"prompt\":{},\"max_tokens\":1}", ids)), 400, ids);
  std::string many = "1";
  for (int i = 0; i < 1'000'000; ++i) many += ",1";
  expect_refusal(server->complete("{\"prompt\":[" + many + "],\"max_tokens\":1}"), 400, "a million ids");
  EXPECT_EQ(server->complete(R"({"prompt":[5,6,7],"max_tokens":1})").status, 200);
}

TEST_F(Faults, Fault08BiasesThatAreNone) {
  for (const char* bias : {"{\"-1\":1}", "{\"320\":1}", "{\"x\":1}", "{\"1\":NaN}", "{\"1\":101}",
                           "{\"1\":\"a\"}", "[1]", "{\"99999999999\":1}", "{\"1.5\":1}"})
    refused(std::string("\"logit_bias\":") + bias);
  std::string many = "\"0\":1";
  for (int i = 1; i < 200'000; ++i) many += ",\"" + std::to_string(i) + "\":1";
  refused("\"logit_bias\":{" + many + "}");
}

TEST_F(Faults, Fault09TheContextIsNeverCutSilently) {
  const auto ids = [](int count) {
    std::string list = "1";
    for (int i = 1; i < count; ++i) list += ",1";
    return list;
  };
  const auto ask = [&](int prompt, const char* more) {
    return server->complete("{\"prompt\":[" + ids(prompt) + "]" + more + "}");
  };
  const Reply fits = ask(500, R"(,"max_tokens":12,"ignore_eos":true)");
  EXPECT_EQ(fits.status, 200);
  EXPECT_EQ(fits.header("X-Fourfold-Changed"), "");
  // An answer that asks for more than is left gets what is left, and it is said.
  for (const char* more : {"13", "4096", "9223372036854775807"}) {
    const Reply cut =
        ask(500, fourfold::format(R"(,"max_tokens":{},"ignore_eos":true)", std::string(more)).c_str());
    EXPECT_EQ(cut.status, 200) << cut.body;
    EXPECT_EQ(cut.header("X-Fourfold-Changed"), "max_tokens=12");
    const auto answer = json::parse(cut.body, "answer");
    EXPECT_EQ(answer.at("choices").at(0).at("finish_reason").as_string(), "length");
    EXPECT_EQ(answer.at("usage").at("completion_tokens").to_number<int>(), 12);
  }
  for (const Reply& reply : {ask(513, ",\"max_tokens\":1"), ask(512, ""), ask(512, ",\"max_tokens\":1")}) {
    expect_refusal(reply, 400, "beyond the context");
    EXPECT_NE(reply.body.find("context_length_exceeded"), std::string::npos) << reply.body;
    EXPECT_NE(reply.body.find("512"), std::string::npos) << reply.body;
  }
}

TEST_F(Faults, Fault10MessagesOfEveryKind) {
  expect_refusal(server->chat(messages("")), 400, "no messages");
  expect_refusal(server->chat(messages(R"({"role":"wizard","content":"a"})")), 400, "a role nobody knows");
  for (const char* list :
       {R"({"role":"user","content":null})", R"({"role":"user"})", R"({"content":"a"})",
        R"({"role":"user","content":1})", R"({"role":"user","content":[]})",
        R"({"role":"user","content":[{"type":"text"}]})", R"("a")", "null",
        R"({"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"})",
        R"({"role":"user","content":"a"},{"role":"assistant","content":"b"})",
        R"({"role":"assistant","content":"b"})", R"({"role":"user","content":""})"})
    answered(messages(list));
  std::string many = R"({"role":"user","content":"a"})";
  for (int i = 0; i < 10'000; ++i)
    many += R"(,{"role":"assistant","content":"b"},{"role":"user","content":"a"})";
  answered(messages(many));
}

TEST_F(Faults, Fault11ToolHistoriesThatDoNotFit) {
  const auto history = [](const std::string& calls, const std::string& results) {
    return messages(R"({"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":)" +
                    calls + "}" + results);
  };
  const std::string call = R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}])";
  for (const char* calls :
       {R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"not json"}}])",
        R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"[1,2"}}])",
        R"([{"type":"function","function":{"name":"f","arguments":"{}"}}])",
        R"([{"id":"c1","type":"function"}])", R"([{"id":1}])", "[]", "{}", "null",
        R"([{"id":"c1","type":"function","function":{"name":"","arguments":null}}])"})
    answered(history(calls, ""));
  for (const char* results :
       {R"(,{"role":"tool","content":"r"})", R"(,{"role":"tool","tool_call_id":"other","content":"r"})",
        R"(,{"role":"tool","tool_call_id":"c1","content":null})"})
    answered(history(call, results));
}

TEST_F(Faults, Fault12ToolsAndSchemasThatExplode) {
  const auto begin = std::chrono::steady_clock::now();
  std::string names = "\"a0\"";
  for (int i = 1; i < 10'000; ++i) names += ",\"a" + std::to_string(i) + "\"";
  const std::string start = R"({"messages":[{"role":"user","content":"a"}],"max_tokens":2,)";
  const auto as_tool = [&](const std::string& schema) {
    return start + R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + schema + "}}]}";
  };
  const auto as_format = [&](const std::string& schema) {
    return start + R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" + schema +
           "}}}";
  };
  const std::vector<std::string> schemas{
      R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})",
      R"({"$ref":"http://169.254.169.254/schema.json"})",
      R"({"$ref":"file:///etc/passwd"})",
      R"({"type":"string","pattern":"(a+)+$"})",
      R"x({"type":"string","pattern":"((((a{1,99}){1,99}){1,99}){1,99})"})x",
      R"({"type":"string","pattern":"(((("})",
      R"({"type":"object","dependentSchemas":{}})",
      R"({"type":"nothing"})",
      R"({"type":"array","minItems":1000000000})",
      "{\"enum\":[" + names + "]}"};
  for (const std::string& schema : schemas) {
    answered(as_tool(schema));
    answered(as_format(schema));
  }
  const std::string unknown = R"({"type":"object","patternProperties":{"a":{"contains":{}}}})";
  expect_refusal(server->chat(as_format(unknown)), 400, "keywords nobody enforces");
  // Expressions that held a worker for good, or long: all at once, so that each worker gets some, and goes
  // on.
  std::string groups;
  for (int i = 0; i < 16'000; ++i) groups += "(?<[>a)|";
  std::vector<Client> clients;
  for (const std::string& regex :
       {std::string("a((((){9999}){9999}){9999}){9999}"), groups, std::string(".*a.{30}")}) {
    for (int i = 0; i < 2 * ServiceOptions{}.worker_count; ++i) {
      clients.emplace_back(server->port());
      clients.back().send(post("/v1/chat/completions", start + R"("guided_regex":")" + regex + "\"}"));
    }
  }
  for (Client& client : clients) {
    const Reply reply = client.reply(60'000);
    EXPECT_TRUE(reply.status == 200 || reply.status == 400) << reply.status << " " << reply.body;
  }
  answered(start + R"("stream":false})");
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::chrono::seconds most{300};  // sanitizers take some ten times as long
#else
  constexpr std::chrono::seconds most{30};
#endif
  EXPECT_LT(std::chrono::steady_clock::now() - begin, most);
}

TEST_F(Faults, Fault13FormsThatNeverEnd) {
  for (const char* regex : {"a*", "(a|b)*c", "[^a]+", "(a*)*", "a{1000}"}) {
    const Reply reply = chat_with(std::string("\"guided_regex\":\"") + regex + "\"");
    EXPECT_TRUE(reply.status == 200 || reply.status == 400) << regex << reply.status;
    if (reply.status != 200) continue;
    const std::string why(
        json::parse(reply.body, "answer").at("choices").at(0).at("finish_reason").as_string());
    EXPECT_TRUE(why == "length" || why == "stop") << why;
  }
  refused(R"("guided_grammar":"root ::= root \"a\"")");
  refused(R"("grammar":"root ::= root")");
}

TEST_F(Faults, Fault14TemplatesFromRequests) {
  refused(R"("chat_template":"{{ 1 }}")");
  std::string deep = "1";
  for (int i = 0; i < 50; ++i) deep = "[" + deep + "]";
  answered("{" + kHello + ",\"chat_template_kwargs\":{\"a\":" + deep + "}}");
  answered("{" + kHello + ",\"chat_template_kwargs\":{\"a\":\"" + std::string(1'000'000, 'a') + "\"}}");
  answered("{" + kHello + R"(,"chat_template_kwargs":{"messages":[],"tools":1,"enable_thinking":"maybe"}})");
  refused(R"("chat_template_kwargs":[1])");
}

TEST_F(Faults, Fault15TemplatesOfModelsHaveBudgets) {
  for (const char* source :
       {"{% for i in range(10**9) %}x{% endfor %}", "{{ 'a' * 10**9 }}", "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}", "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"})
    EXPECT_THROW(text::ChatTemplate::parse(source, "a template")
                     .render({.messages = text::parse_chat_json("[]", "messages")}),
                 Error)
        << source;
}

TEST_F(Faults, Fault16StopStrings) {
  std::string many = "\"a\"";
  for (int i = 0; i < 65'536; ++i) many += ",\"a\"";
  refused("\"stop\":[" + many + "]");
  const Reply none = chat_with(R"("stop":["",""])");
  EXPECT_EQ(none.status, 200) << none.body;
  EXPECT_EQ(none.header("X-Fourfold-Ignored"), "stop[]=empty");
  refused(R"("stop":[1])");
  EXPECT_EQ(chat_with("\"stop\":null").status, 200);
  // Cut exactly: with every piece of an answer as the stop string, with drafts and across pieces.
  const std::string whole =
      answer_text(server->complete(R"({"prompt":"hello","max_tokens":24,"temperature":0})"));
  int tried = 0;
  for (std::size_t at = 1; at + 2 < whole.size(); ++at) {
    const std::string stop = whole.substr(at, 2);
    if (std::any_of(stop.begin(), stop.end(),
                    [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; }))
      continue;
    const Reply reply =
        server->complete(R"({"prompt":"hello","max_tokens":24,"temperature":0,"stop":")" + stop + "\"}");
    EXPECT_EQ(answer_text(reply), whole.substr(0, whole.find(stop))) << stop;
    ++tried;
  }
  EXPECT_GE(tried, 5) << whole;
}

TEST_F(Faults, Fault20HealthDoesNotWaitForPrompts) {
  std::vector<Client> clients;
  std::string ids = "1";
  for (int i = 1; i < 480; ++i) ids += "," + std::to_string(i % 300);
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back(server->port());
    clients.back().send(post("/v1/completions", "{\"prompt\":[" + ids + "],\"max_tokens\":20,\"seed\":" +
                                                    std::to_string(i) + "}"));
  }
  double slowest = 0;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(server->ask(get("/health")).status, 200);
    slowest =
        std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  // 100 ms on a machine of its own; the machines that run tests are shared.
  EXPECT_LT(slowest, 1.0);
  for (Client& client : clients) EXPECT_EQ(client.reply(60'000).status, 200);
}

TEST(FaultsOfMany, Fault20AFullQueueIsSaidAndPasses) {
  RealServer server({.max_sequences = 2, .max_queue = 3});
  std::vector<Client> clients;
  for (int i = 0; i < 40; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(post("/v1/completions", R"({"prompt":"a","max_tokens":200,"ignore_eos":true})"));
  }
  int served = 0, refused = 0;
  for (Client& client : clients) {
    const Reply reply = client.reply(60'000);
    served += reply.status == 200 ? 1 : 0;
    if (reply.status != 503 && reply.status != 429) continue;
    ++refused;
    EXPECT_FALSE(reply.header("Retry-After").empty());
  }
  EXPECT_EQ(served + refused, 40);
  EXPECT_GE(served, 5);
  EXPECT_GE(refused, 1);
  EXPECT_TRUE(server.settles());
  EXPECT_EQ(server.complete(R"({"prompt":"a","max_tokens":2})").status, 200);
}

TEST(FaultsOfMany, Fault21TenantsShareNoPrefix) {
  RealServer server({.keys = {"one", "two"}});
  std::string ids = "1";
  for (int i = 1; i < 300; ++i) ids += "," + std::to_string(i % 300);
  const auto cached = [&](const char* key, const char* more) {
    const Reply reply =
        server.ask(post("/v1/completions", "{\"prompt\":[" + ids + "],\"max_tokens\":1" + more + "}",
                        "Authorization: Bearer " + std::string(key) + "\r\n"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return json::parse(reply.body, "answer")
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .to_number<int>();
  };
  EXPECT_EQ(cached("one", ""), 0);
  EXPECT_GT(cached("one", ""), 0);
  EXPECT_EQ(cached("two", ""), 0);
  EXPECT_GT(cached("two", ""), 0);
}

TEST_F(Faults, Fault22MediaIsRefused) {
  for (const char* url : {"http://169.254.169.254/latest", "file:///etc/passwd", "https://example.com/a.png",
                          "data:image/png;base64,AAAA"})
    expect_refusal(
        server->chat(messages(fourfold::format(
            R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"{}"}}]})",
            url))),
        400, url);
}

}  // namespace
}  // namespace fourfold::server
