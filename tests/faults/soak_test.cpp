// Many mixed requests, some of them cancelled, from several clients at once: answers are those of single
// runs, and nothing is left over. FOURFOLD_SOAK says how many (1,000; ./dev test --long asks for 10,000).
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <atomic>
#include <random>

#include "server/few_heaps.h"
#include "tests/faults/support.h"

namespace fourfold::server {
namespace {

int request_count() {
  const char* text = std::getenv("FOURFOLD_SOAK");
  return text == nullptr ? 1'000 : std::atoi(text);
}

// What malloc has given out and not got back, by its own books: without the holes that a resident size has.
// 0 where malloc is a sanitizer's or another's.
std::int64_t bytes_in_use() {
#if defined(__GLIBC__)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
#else
  return 0;
#endif
}

struct Question {
  const char* route;
  std::string body;
  std::string answer;  // alone
};

// The text of a whole answer: choices of OpenAI's, content of Anthropic's, output of responses.
std::string whole_text(const Reply& reply) {
  if (reply.status != 200) return {};
  const auto answer = json::parse(reply.body, "answer");
  const auto& body = answer.as_object();
  if (body.contains("choices")) return answer_text(reply);
  std::string text;
  const auto add = [&](const boost::json::value& part) {
    for (const char* name : {"thinking", "text"})
      if (const auto* found = part.as_object().if_contains(name); found != nullptr && found->is_string())
        text += std::string_view(found->as_string());
  };
  if (const auto* content = body.if_contains("content"))
    for (const auto& part : content->as_array()) add(part);
  if (const auto* output = body.if_contains("output"))
    for (const auto& item : output->as_array())
      for (const auto& part : item.as_object().at("content").as_array()) add(part);
  return text;
}

// And of a streamed one, from its events.
std::string streamed_text(const Reply& reply) {
  std::string text;
  for (std::size_t at = 0; (at = reply.body.find("data: {", at)) != std::string::npos;) {
    const std::size_t end = reply.body.find("\n\n", at);
    const auto event = json::parse(reply.body.substr(at + 6, end - at - 6), "event");
    at = end;
    const auto& body = event.as_object();
    if (const auto* choices = body.if_contains("choices")) {
      if (!choices->as_array().empty()) text += choice_text(choices->as_array()[0].as_object());
      continue;
    }
    const auto* delta = body.if_contains("delta");
    if (delta == nullptr) continue;
    if (delta->is_string()) text += std::string_view(delta->as_string());  // response.output_text.delta
    if (!delta->is_object()) continue;
    for (const char* name : {"thinking", "text"})
      if (const auto* part = delta->as_object().if_contains(name))
        text += std::string_view(part->as_string());
  }
  return text;
}

std::string text_of(const Reply& reply, bool streamed) {
  return streamed ? streamed_text(reply) : whole_text(reply);
}

std::vector<Question> questions(const RealServer& server) {
  std::vector<Question> out;
  std::string shared;
  for (int i = 0; i < 130; ++i) shared += "1,";
  for (int i = 0; i < 6; ++i) {
    // Some of them grow over a page or two: with few pages the youngest has to yield.
    out.push_back({"/v1/completions",
                   fourfold::format(R"("prompt":[{}{}],"max_tokens":{},"temperature":0,"ignore_eos":true)",
                                    i % 2 == 0 ? shared : "", 20 + i, i % 3 == 0 ? 3 + 2 * i : 180 + 10 * i),
                   {}});
    const std::string asked = fourfold::format(R"("messages":[{"role":"user","content":"question {}"}])", i);
    const std::string drawn = fourfold::format(R"("temperature":1,"seed":{})", i);
    out.push_back({"/v1/chat/completions",
                   asked + fourfold::format(R"(,"max_tokens":{},"ignore_eos":true,)", 2 + i) + drawn,
                   {}});
    out.push_back(
        {"/v1/messages", asked + fourfold::format(R"(,"max_tokens":{},"temperature":0)", 4 + i), {}});
    out.push_back(
        {"/v1/responses",
         fourfold::format(R"("input":"question {}","max_output_tokens":{},"ignore_eos":true,)", i, 3 + i) +
             drawn,
         {}});
  }
  for (Question& question : out) {
    const Reply reply = server.ask(post(question.route, "{" + question.body + "}"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    question.answer = whole_text(reply);
    if (std::string_view(question.route) != "/v1/messages") {  // it may end with its first token
      EXPECT_FALSE(question.answer.empty()) << reply.body;
    }
  }
  return out;
}

struct Tally {
  std::atomic<int> right{0}, cancelled{0};
};

// So many requests from six clients at once, every fourth of which leaves before its answer is there.
void ask_many(const RealServer& server, const std::vector<Question>& asked, int count, unsigned seed,
              Tally& tally) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 dice(seed + static_cast<unsigned>(t));
      for (int i; (i = next++) < count;) {
        const Question& question = asked[dice() % asked.size()];
        const bool streamed = dice() % 2 == 0;
        Client client(server.port());
        client.send(post(question.route, "{" + question.body + (streamed ? R"(,"stream":true})" : "}")));
        if (dice() % 4 == 0) {
          if (dice() % 2 == 0) client.receive(static_cast<int>(dice() % 4));
          ++tally.cancelled;
          continue;
        }
        const Reply reply = client.reply(60'000);
        const std::string text = text_of(reply, streamed);
        EXPECT_EQ(text, question.answer)
            << i << " " << question.body << " " << streamed << " " << reply.status;
        tally.right += text == question.answer ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Soak, ManyMixedRequestsWithCancelsLeaveNothing) {
  use_few_heaps();  // as the program does
  // Pages for three long ones: six cannot all go on, and those that are set aside answer the same.
  // Kept responses fill their room, a megabyte, before memory is first looked at.
  RealServer server(
      {.max_context = 512, .kv_tokens = 512, .max_sequences = 6, .max_queue = 1000, .store_responses_mb = 1});
  const std::vector<Question> asked = questions(server);
  const int count = request_count();
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ASSERT_TRUE(server.settles());
  const auto descriptors = open_descriptors();
  Tally tally;
  // What the first requests allocate stays: threads' caches, buffers, kept responses. Both times are without
  // a request.
  const int early = 2 * count / 5;
  ask_many(server, asked, early, seed, tally);
  EXPECT_TRUE(server.settles(5'000));
  const auto memory_early = static_cast<double>(resident_bytes());
  const std::int64_t in_use_early = bytes_in_use();
  ask_many(server, asked, count - early, seed + 6, tally);
  EXPECT_TRUE(server.settles(5'000));
  const auto memory_late = static_cast<double>(resident_bytes());
  const std::int64_t in_use_late = bytes_in_use();
  EXPECT_EQ(tally.right + tally.cancelled, count);
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= descriptors; }));
  EXPECT_EQ(server.status().failed, 0);
  EXPECT_GE(server.status().preempted, count / 100)
      << "nothing was ever set aside: this soak shows less than it says";
  std::printf(
      "soak: %d requests, %d cancelled, %d preemptions, seed %u; resident %.2f MB after two fifths, %.2f MB "
      "at the end; in use %.3f MB, %.3f MB\n",
      count, tally.cancelled.load(), static_cast<int>(server.status().preempted), seed, 1e-6 * memory_early,
      1e-6 * memory_late, 1e-6 * static_cast<double>(in_use_early), 1e-6 * static_cast<double>(in_use_late));
  // A soak of a thousand is too short to tell a leak from a warm-up; ten thousand are not.
  if (count >= 10'000) {
    EXPECT_LT(memory_late, 1.02 * memory_early);
  }
}

}  // namespace
}  // namespace fourfold::server
