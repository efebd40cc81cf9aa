// Responses that are kept: by whom they may be read, how many, and what goes on from them.
#include "server/kept_response.h"

#include "server/api/response_store.h"
#include "tests/server/support.h"

namespace fourfold::server {
namespace {

using api::ResponseStore;

constexpr std::string_view kRoute = "/v1/responses";

ServedModel keeping(std::size_t bytes = 1 << 20) {
  ServedModel model = test_model();
  model.responses = bytes == 0 ? nullptr : std::make_shared<ResponseStore>(bytes);
  return model;
}

struct Asked {
  std::string id, body;
};

Asked ask(const ServedModel& model, const std::string& body, std::uint64_t tenant = 0) {
  const auto exchange = make_exchange(kRoute, body, model, {.tenant = tenant});
  const std::string out = run_script(*exchange, {.answer = "Hm</think>Red."});
  const std::size_t at = out.rfind("\"id\":\"resp_");
  return {out.substr(at + 6, 29), out};
}

std::string prompt_of(const ServedModel& model, const std::string& body, std::uint64_t tenant = 0) {
  const auto exchange = make_exchange(kRoute, body, model, {.tenant = tenant});
  return model.tokenizer.decode(exchange->submissions()[0].request.prompt);
}

int status_of(const ServedModel& model, const std::string& body, std::uint64_t tenant = 0) {
  try {
    make_exchange(kRoute, body, model, {.tenant = tenant});
    return 200;
  } catch (const Error& error) {
    return error_answer(kRoute, error).status;
  }
}

std::string next(const std::string& id, const std::string& more = "") {
  return R"({"input": "And?", "reasoning": {"effort": "none"}, "previous_response_id": ")" + id + "\"" +
         more + "}";
}

TEST(KeptResponse, TheNextRequestGoesOnFromIt) {
  const ServedModel model = keeping();
  for (const char* stream : {"false", "true"}) {
    const Asked first =
        ask(model, R"({"instructions": "Once.", "input": "Colour?", "stream": )" + std::string(stream) + "}");
    EXPECT_NE(first.body.find(R"("store":true)"), std::string::npos);
    // Instructions hold for one request; thoughts of an answered question are the template's to drop.
    EXPECT_EQ(prompt_of(model, next(first.id)),
              "<|turn|>user\nColour?<|end|>\n<|turn|>assistant\nRed.<|end|>\n<|turn|>user\nAnd?<|end|>\n"
              "<|turn|>assistant\n<think>\n\n</think>\n\n");
    const Asked second = ask(model, next(first.id));
    EXPECT_NE(second.body.find(R"("previous_response_id":")" + first.id), std::string::npos);
    EXPECT_NE(prompt_of(model, next(second.id)).find("Colour?"), std::string::npos) << "and so on";
  }
}

TEST(KeptResponse, CallsAreKeptWithTheirIds) {
  const ServedModel model = keeping();
  const std::string tools = R"("tools": [{"type": "function", "name": "f"}])";
  const auto exchange = make_exchange(kRoute, R"({"input": "Hi", )" + tools + "}", model);
  const auto answer = parsed(
      run_script(*exchange, {.answer = "</think><tool_call>\n<function=f>\n</function>\n</tool_call>"}));
  const std::string body = R"({"previous_response_id": ")" + text_at(answer, "id") +
                           R"(", "input": [{"type": "function_call_output", "output": "ok", "call_id": ")" +
                           text_at(answer, "output.0.call_id") + R"("}], )" + tools + "}";
  const std::string prompt = prompt_of(model, body);
  EXPECT_NE(prompt.find("<function=f>\n</function>"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("<tool_response>\nok\n"), std::string::npos);
}

TEST(KeptResponse, NobodyElsesKeyReadsIt) {
  const ServedModel model = keeping();
  const std::string id = ask(model, R"({"input": "Secret?"})", 7).id;
  EXPECT_EQ(status_of(model, next(id), 7), 200);
  EXPECT_EQ(status_of(model, next(id), 8), 400);
  // What is said of somebody else's response is what is said of one that never was, but for its name.
  const std::string never = "resp_" + std::string(24, '0');
  const auto said = [&](const std::string& asked, std::uint64_t tenant) {
    std::string out;
    try {
      make_exchange(kRoute, next(asked), model, {.tenant = tenant});
    } catch (const Error& error) {
      out = error_answer(kRoute, error).body;
    }
    for (const char* method : {"GET", "DELETE"}) {
      HttpRequest request;
      request.method = method;
      request.path = "/v1/responses/" + asked;
      request.tenant = tenant;
      const HttpResponse answer = kept_response(request, "/v1/responses/", model);
      out += std::to_string(answer.status) + answer.body;
    }
    return std::regex_replace(out, std::regex(asked), "ID");
  };
  EXPECT_EQ(said(id, 8), said(never, 8));
  EXPECT_NE(said(id, 8).find("previous_response_not_found"), std::string::npos);
  EXPECT_EQ(status_of(model, next(id)), 400);
  HttpRequest request;
  request.method = "GET";
  request.path = "/v1/responses/" + id;
  request.tenant = 8;
  EXPECT_EQ(kept_response(request, "/v1/responses/", model).status, 404);
  request.method = "DELETE";
  EXPECT_EQ(kept_response(request, "/v1/responses/", model).status, 404);
  request.tenant = 7;
  request.method = "GET";
  const HttpResponse shown = kept_response(request, "/v1/responses/", model);
  EXPECT_EQ(shown.status, 200);
  EXPECT_EQ(text_at(parsed(shown.body), "id"), id);
  EXPECT_EQ(text_at(parsed(shown.body), "status"), "completed");
  request.method = "DELETE";
  const HttpResponse gone = kept_response(request, "/v1/responses/", model);
  EXPECT_EQ(gone.body, R"({"id":")" + id + R"(","object":"response","deleted":true})");
  EXPECT_EQ(kept_response(request, "/v1/responses/", model).status, 404);
  EXPECT_EQ(status_of(model, next(id), 7), 400);
}

TEST(KeptResponse, OnlyWhatMayBeKept) {
  const ServedModel model = keeping();
  const Asked forgotten = ask(model, R"({"input": "Hi", "store": false})");
  EXPECT_NE(forgotten.body.find(R"("store":false)"), std::string::npos);
  EXPECT_EQ(status_of(model, next(forgotten.id)), 400);
  const ServedModel none = keeping(0);
  EXPECT_NE(ask(none, R"({"input": "Hi", "store": true})").body.find(R"("store":false)"), std::string::npos);
  EXPECT_EQ(status_of(none, next("resp_1")), 400);
  // An answer that failed is none to go on from.
  const auto exchange = make_exchange(kRoute, R"({"input": "Hi"})", model);
  run_script(*exchange, {.answer = "a", .finish = engine::Finish::failed});
  EXPECT_EQ(exchange->body().find("resp_"), std::string::npos);
}

TEST(KeptResponse, TooLargeIsNotKeptAndSaid) {
  const ServedModel model = keeping(1000);  // less than a response and what it costs to keep
  const Asked large = ask(model, R"({"input": "Hi"})");
  EXPECT_NE(large.body.find(R"("store":false)"), std::string::npos);
  EXPECT_EQ(status_of(model, next(large.id)), 400);
}

TEST(ResponseStore, TheOldestGoesFirst) {
  ResponseStore store(10'000);
  const auto put = [&](const char* id, std::size_t bytes) {
    return store.put(1, id, {.turns = {}, .body = std::string(bytes, 'x')});
  };
  EXPECT_TRUE(put("a", 3000));
  EXPECT_TRUE(put("b", 3000));
  EXPECT_TRUE(put("c", 3000));
  EXPECT_NE(store.find(1, "a"), nullptr);
  const auto held = store.find(1, "a");
  EXPECT_TRUE(put("d", 3000));
  EXPECT_EQ(store.find(1, "a"), nullptr);
  EXPECT_EQ(held->body.size(), 3000u) << "whoever has it keeps it";
  EXPECT_NE(store.find(1, "b"), nullptr);
  EXPECT_FALSE(put("e", 10'000)) << "with what it costs to keep";
  EXPECT_NE(store.find(1, "b"), nullptr) << "nothing is dropped for what does not fit";
  EXPECT_TRUE(put("f", 9000));
  for (const char* id : {"b", "c", "d"}) EXPECT_EQ(store.find(1, id), nullptr) << id;
  EXPECT_TRUE(store.erase(1, "f"));
  EXPECT_FALSE(store.erase(1, "f"));
  EXPECT_FALSE(store.erase(2, "f"));
}

TEST(ResponseStore, OneKeyPushesOutOnlyItsOwn) {
  ResponseStore store(10'000);
  const auto put = [&](std::uint64_t tenant, const std::string& id, std::size_t bytes) {
    return store.put(tenant, id, {.turns = {}, .body = std::string(bytes, 'x')});
  };
  EXPECT_TRUE(put(1, "first", 2000));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(put(2, "flood" + std::to_string(i), 1000));
  EXPECT_NE(store.find(1, "first"), nullptr);
  EXPECT_NE(store.find(2, "flood999"), nullptr);
  EXPECT_EQ(store.find(2, "flood0"), nullptr);
  // Whoever holds less gets room from whoever holds more, until both hold the same.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(put(1, "more" + std::to_string(i), 1000));
  EXPECT_NE(store.find(1, "first"), nullptr);
  // A large one does not push out those who hold less either, and costs its own key nothing when it has no
  // room.
  EXPECT_FALSE(put(2, "large", 6000));
  EXPECT_NE(store.find(2, "flood999"), nullptr);
  EXPECT_NE(store.find(1, "first"), nullptr);
  // Many keys: each keeps at least a share.
  for (std::uint64_t tenant = 3; tenant < 8; ++tenant) EXPECT_TRUE(put(tenant, "own", 1000));
  for (int i = 0; i < 1000; ++i) put(2, "again" + std::to_string(i), 300);
  for (std::uint64_t tenant = 3; tenant < 8; ++tenant)
    EXPECT_NE(store.find(tenant, "own"), nullptr) << tenant;
  EXPECT_NE(store.find(2, "again999"), nullptr);
}

}  // namespace
}  // namespace fourfold::server
