// `bench serve` and `bench diff` as a user runs them, against a server in this process.
#include <gtest/gtest.h>

#include <atomic>

#include "json/parse.h"
#include "tests/cli_model/support.h"
#include "tests/loadgen/scripted_server.h"

namespace fourfold::cli {
namespace {

using loadgen::Asked;
using loadgen::Connection;
using loadgen::ScriptedServer;

class BenchServe : public testing::Test {
 protected:
  BenchServe()
      : server_([this](Connection& connection, const Asked& asked) {
          if (asked.line.starts_with("GET /v1/models "))
            return connection.answer(200, R"({"data": [{"id": "m"}]})");
          if (asked.line.starts_with("GET ")) return connection.answer(404, "{}");
          if (!asked.line.starts_with("POST /v1/")) return connection.answer(404, "{}");
          if (refuses_) return connection.answer(503, R"({"error": {"message": "out of order"}})");
          connection.begin_stream();
          for (int i = 0; i < 4; ++i) {
            Connection::pause(pause_ms_);
            connection.word("content");
          }
          connection.end_stream(12, 8);
        }) {}

  Outcome bench(const std::string& options) {
    return shell("PROGRAM bench serve " + server_.address() + " --output 8 " + options + " 2>&1");
  }
  std::string file(const char* name) const { return (folder_.path() / name).string(); }

  std::atomic<int> pause_ms_ = 1;
  std::atomic<bool> refuses_ = false;
  checkpoint::TempFolder folder_;
  ScriptedServer server_;
};

TEST_F(BenchServe, WritesItsResultsAndKeepsTheKeyToItself) {
  if (std::string(FOURFOLD_PROGRAM).empty()) GTEST_SKIP() << "the program was not built";
  const TalkingModel model;
  const Outcome ran =
      bench("--users 1,2 --repeat 2 --api-key sesame --goodput ttft:60000 --cost --power 100 --json " +
            file("a.json") + " --csv " + file("a.csv") + " --html " + file("a.html") + " --model " +
            model.path() + " --bandwidth 100");
  ASSERT_EQ(ran.status, 0) << ran.out;
  for (const char* head : {"TTFT p50", "TPOT p50", "ITL p50", "E2EL p50", "good/s", "floor", "J/token", "CV"})
    EXPECT_NE(ran.out.find(head), std::string::npos) << head;
  const Json result = read_json(json::read_text_file(file("a.json"), 1 << 20));
  ASSERT_EQ(result.at("rows").items.size(), 2u);
  const Json& row = result.at("rows").items[1];
  EXPECT_EQ(row.at("requests").number, 8);  // two users, two rounds, twice
  EXPECT_EQ(row.at("failed").number, 0);
  EXPECT_EQ(row.at("output_tokens").number, 64);
  EXPECT_EQ(row.at("tokens_per_chunk").number, 2);
  EXPECT_GT(row.at("floor_share").number, 0);
  // Three pauses between the first chunk and the last, over seven tokens; half of that, since a busy machine
  // may show the client the first chunk late.
  EXPECT_GE(row.at("tpot_ms").at("p50").number, 3.0 * pause_ms_ / 7 * 0.5);
  EXPECT_EQ((ran.out + json::read_text_file(file("a.json"), 1 << 20) +
             json::read_text_file(file("a.csv"), 1 << 20) + json::read_text_file(file("a.html"), 1 << 20))
                .find("sesame"),
            std::string::npos);

  // Forty times slower is slower whatever else the machine does; the same file is not.
  pause_ms_ = 40;
  ASSERT_EQ(bench("--users 1 --repeat 2 --json " + file("b.json")).status, 0);
  const Outcome worse = shell("PROGRAM bench diff " + file("a.json") + " " + file("b.json") + " 2>&1");
  EXPECT_EQ(worse.status, 1) << worse.out;
  EXPECT_NE(worse.out.find("slower"), std::string::npos);
  EXPECT_EQ(shell("PROGRAM bench diff " + file("a.json") + " " + file("a.json")).status, 0);
  EXPECT_EQ(shell("PROGRAM bench diff " + file("a.json") + " " + file("a.csv") + " 2>&1").status, 2);
}

TEST_F(BenchServe, RefusesWhatItCannotMeasure) {
  if (std::string(FOURFOLD_PROGRAM).empty()) GTEST_SKIP() << "the program was not built";
  const auto refused = [&](const std::string& options, const char* says) {
    const Outcome ran = bench(options);
    EXPECT_EQ(ran.status, 2) << options;
    EXPECT_NE(ran.out.find(says), std::string::npos) << options << ": " << ran.out;
  };
  refused("--users 0", "--users");
  refused("--prompts many", "random, natural and short");
  refused("--thinking maybe", "on and off");
  refused("--preset fields", "field is possible");
  refused("--request-rate fast", "is no rate");
  refused("--concurrency 4", "--request-rate");
  refused("--goodput speed:1", "is no limit");
  refused("--bandwidth 100", "one is missing");
  refused("--cost", "--power");
  refused("--served-model other", "it lists m");
  EXPECT_NE(shell("PROGRAM bench serve https://x 2>&1").out.find("is https"), std::string::npos);
  refuses_ = true;
  refused("", "the first request failed: status 503: out of order");
}

}  // namespace
}  // namespace fourfold::cli
