// Bytes and times to timelines, exactly: the times are numbers of the test's own.
#include "loadgen/stream_reader.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "base/random.h"

namespace fourfold::loadgen {
namespace {

const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }
std::string delta(const std::string& field, const std::string& text) {
  return event(R"({"choices": [{"delta": {")" + field + R"(": ")" + text + R"("}, "finish_reason": null}]})");
}
const std::string kFinish = event(R"({"choices": [{"delta": {}, "finish_reason": "stop"}]})");

std::string failure_of(const std::string& bytes) {
  StreamReader reader(0);
  try {
    reader.take(bytes, 1);
    if (!reader.done()) reader.close(2);
  } catch (const Error& error) {
    return error.what();
  }
  return reader.finish(3).failure;
}

TEST(StreamReader, KeepsTheTimesOfChunksWithText) {
  StreamReader reader(10);
  reader.take(kHead + event(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}]})"), 11);
  EXPECT_EQ(reader.chunk_count(), 0u);
  reader.take(delta("reasoning_content", "hm"), 12);
  reader.take(delta("reasoning", "hm"), 13);
  reader.take(delta("content", "Yes"), 14.5);
  reader.take(kFinish, 15);
  reader.take(
      event(R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, )"
            R"("prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": )"
            R"({"reasoning_tokens": 5, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2}}})"),
      16);
  EXPECT_FALSE(reader.done());
  reader.take(event("[DONE]"), 17);
  ASSERT_TRUE(reader.done());
  const Timeline line = reader.finish(18);
  EXPECT_EQ(line.failure, "");
  EXPECT_EQ(line.sent, 10);
  EXPECT_EQ(line.chunks, (std::vector<double>{12, 13, 14.5}));
  EXPECT_EQ(line.first_answer, 14.5);
  EXPECT_EQ(line.last, 15);
  EXPECT_EQ(line.over, 18);
  EXPECT_EQ(line.finish_reason, "stop");
  EXPECT_EQ(line.prompt_tokens, 7);
  EXPECT_EQ(line.cached_tokens, 4);
  EXPECT_EQ(line.output_tokens, 9);
  EXPECT_EQ(line.reasoning_tokens, 5);
  EXPECT_EQ(line.accepted_tokens, 3);
  EXPECT_EQ(line.drafted_tokens, 5);
}

TEST(StreamReader, ReadsCompletionsAndLlamaCppsDrafts) {
  StreamReader reader(0);
  reader.take(kHead + event(R"({"choices": [{"text": "a", "finish_reason": null}]})"), 1);
  reader.take(event(R"({"choices": [{"text": "", "finish_reason": "length"}], )"
                    R"("timings": {"draft_n": 8, "draft_n_accepted": 6}})") +
                  event("[DONE]"),
              2);
  const Timeline line = reader.finish(2);
  EXPECT_EQ(line.failure, "");
  EXPECT_EQ(line.first_answer, 1.0);
  EXPECT_EQ(line.drafted_tokens, 8);
  EXPECT_EQ(line.accepted_tokens, 6);
}

// However the bytes are cut, with CR LF or LF, chunked or not, the timeline is the same.
TEST(StreamReader, DoesNotMindWhereBytesAreCut) {
  const std::string events = ": ping\n\nevent: x\n" + delta("content", "a") + "\r\n" + delta("content", "b") +
                             kFinish + event("[DONE]");
  std::string crlf;
  for (const char letter : events) crlf += letter == '\n' ? std::string("\r\n") : std::string(1, letter);
  std::string chunked = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding:  Chunked\r\n\r\n";
  for (std::size_t at = 0; at < events.size(); at += 13) {
    const std::string part = events.substr(at, 13);
    char size[24];
    std::snprintf(size, sizeof size, "%zx;x=1\r\n", part.size());
    chunked += size + part + "\r\n";
  }
  chunked += "0\r\nTrailer: x\r\n\r\n";
  Random random(3);
  for (const std::string& all : {kHead + events, kHead + crlf, chunked})
    for (int round = 0; round < 50; ++round) {
      StreamReader reader(0);
      for (std::size_t at = 0; at < all.size() && !reader.done();) {
        const std::size_t size = 1 + random.below(round == 0 ? 1 : 40);
        reader.take(std::string_view(all).substr(at, size), 1);
        at += size;
      }
      ASSERT_TRUE(reader.done());
      const Timeline line = reader.finish(2);
      ASSERT_EQ(line.failure, "");
      ASSERT_EQ(line.chunks.size(), 2u);
    }
}

TEST(StreamReader, NamesWhatWentWrong) {
  EXPECT_EQ(failure_of("220 mail.example.org ready\r\n"), "the answer is not HTTP/1.1");
  EXPECT_EQ(failure_of(""), "the server closed the connection without an answer");
  EXPECT_EQ(
      failure_of("HTTP/1.1 429 X\r\nContent-Length: 39\r\n\r\n{\"error\": {\"message\": \"queue is full\"}}"),
      "status 429: queue is full");
  EXPECT_EQ(failure_of("HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\noops"), "status 500: oops");
  EXPECT_EQ(failure_of(kHead + event("{\"choices\": [")), "a chunk of the stream is no JSON");
  EXPECT_EQ(failure_of(kHead + event("7")), "a chunk of the stream is no JSON object");
  EXPECT_EQ(failure_of(kHead + event(R"({"error": {"message": "lost the GPU"}})")),
            "the server failed in mid-stream: lost the GPU");
  EXPECT_EQ(failure_of(kHead + delta("content", "a")), "the stream ended without a finish reason");
  EXPECT_EQ(failure_of(kHead + kFinish), "the stream ended without any text");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
            "the answer is no stream of chunks");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + delta("content", "a")),
            "the server closed the connection in the middle of its answer");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "a chunk of the answer has no length");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
            "a chunk of the answer is longer than it said");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n"),
            "a chunk of the answer has no length");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
            "the answer's Content-Length is no number");
  EXPECT_EQ(failure_of("HTTP/1.1 OK\r\n\r\n"), "the answer is not HTTP/1.1: it has no status");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "the answer is not HTTP/1.1: bad Transfer-Encoding");
  EXPECT_EQ(failure_of("HTTP/1.1 204 No Content\r\n\r\n"), "status 204: ");
  // What never ends is not kept.
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nX: " + std::string(70'000, 'x')),
            "the answer's head is over 65536 bytes");
  std::string fields = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 5000; ++i) fields += "X-Filler: 0123456789\r\n";
  EXPECT_EQ(failure_of(fields), "the answer's head is over 65536 bytes");
  EXPECT_EQ(failure_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=" + std::string(5000, 'y')),
            "a chunk of the answer has a line over 4096 bytes");
}

// A length is believed when the bytes come, not before.
TEST(StreamReader, KeepsNoRoomForWhatAServerClaims) {
  EXPECT_EQ(failure_of("HTTP/1.1 500 X\r\nContent-Length: 9000000000000000000\r\n\r\noops"),
            "the server closed the connection in the middle of its answer");
}

// The parser below ends the process where this comes byte by byte (base/beast_chunk.h).
TEST(StreamReader, ReadsAnEmptyBodyByteByByte) {
  StreamReader reader(0);
  for (const char byte : std::string_view("HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")) {
    ASSERT_FALSE(reader.done());
    reader.take({&byte, 1}, 1);
  }
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.finish(2).failure, "status 503: ");
}

TEST(Events, AreTheStandards) {
  http::EventReader reader;
  std::vector<std::string> seen;
  reader.take("data\ndata: a\rdata:b\r\n\r\n\n\ndatax: no\nid: 7\n\ndata:  two\n\ndata: unfinished",
              [&](std::string_view data) { seen.emplace_back(data); });
  EXPECT_EQ(seen, (std::vector<std::string>{"\na\nb", " two"}));
}

}  // namespace
}  // namespace fourfold::loadgen
