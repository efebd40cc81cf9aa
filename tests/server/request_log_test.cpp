#include "server/request_log.h"

#include <map>
#include <mutex>
#include <sstream>

#include "tests/server/fakes.h"

namespace fourfold::server {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

// The fields of a line of the log, by name; "" is what stands before them, "left" a word by itself.
std::map<std::string, std::string> fields_of(const std::string& line) {
  std::map<std::string, std::string> fields;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos)
      fields[word.substr(0, equals)] = word.substr(equals + 1);
    else
      fields[word == "left" ? "left" : ""] += word + " ";
  }
  return fields;
}

// One line a request when it has ended: when, how long, how many tokens.
TEST(RequestLog, HasTimeDurationAndTokens) {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, std::string>> lines;
  std::size_t count = 0;
  FakeServer server({}, {.log_request = [&](const std::string& line) {
                      const std::lock_guard lock(mutex);
                      auto fields = fields_of(line);
                      lines[fields["id"]] = fields;
                      ++count;
                    }});
  const auto logged = [&](const std::string& id) {
    const std::lock_guard lock(mutex);
    return lines.contains(id);
  };
  server.ask(post(kChat, "5", "X-Request-Id: whole\r\n"));
  server.ask(post(kChat, "stream 2 x3", "X-Request-Id: streamed\r\n"));
  server.ask(get("/health", "X-Request-Id: well\r\n"));
  server.ask(get("/nothing", "X-Request-Id: lost\r\n"));
  {
    Client client(server.http.port());
    client.send(post(kChat, "stream 1000000", "X-Request-Id: gone\r\n"));
    ASSERT_TRUE(eventually([&] { return server.runner.status().running > 0; }));
    EXPECT_FALSE(logged("gone")) << "it runs";
  }
  for (const char* id : {"whole", "streamed", "well", "lost", "gone"})
    ASSERT_TRUE(eventually([&] { return logged(id); })) << id;
  const std::lock_guard lock(mutex);
  EXPECT_EQ(count, 5u) << "one line a request";
  for (const auto& [id, fields] : lines) {
    const std::string& head = fields.at("");  // "2026-11-16T18:57:20.123Z server request "
    ASSERT_EQ(head.size(), 40u) << head;
    EXPECT_EQ(head.substr(10, 1) + head.substr(19, 1) + head.substr(23), "T.Z server request ");
    EXPECT_LT(std::stoi(fields.at("ms")), 60'000);
    EXPECT_EQ(fields.at("peer"), "127.0.0.1");
    EXPECT_EQ(fields.contains("answer_tokens"), id == "whole" || id == "streamed" || id == "gone") << id;
    EXPECT_EQ(fields.contains("left"), id == "gone") << id;
    EXPECT_EQ(fields.at("status"), id == "lost" ? "404" : "200") << id;
  }
  EXPECT_EQ(lines["whole"]["answer_tokens"], "5");
  EXPECT_EQ(lines["whole"]["route"], kChat);
  EXPECT_EQ(lines["streamed"]["answer_tokens"], "6");
}

}  // namespace
}  // namespace fourfold::server
