// Whole benches against a scripted server that counts words as tokens, and what becomes of their results.
#include "loadgen/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "loadgen/diff.h"
#include "loadgen/svg_plot.h"
#include "tests/loadgen/scripted_server.h"

namespace fourfold::loadgen {
namespace {

struct Manners {
  std::set<std::string> refuses = {};  // fields of a request
  bool tokenize = true;
  bool usage = true;
  bool needs_key = false;
  int pause = 0;
  int full_after = 1 << 30;  // then 429
  bool metrics = false;      // half of its tokens were drafts
};

int words(const std::string& text) { return 1 + static_cast<int>(std::count(text.begin(), text.end(), ' ')); }

std::string field(const std::string& body, const std::string& name) {
  const auto at = body.find("\"" + name + "\":");
  if (at == std::string::npos) return "";
  const auto start = at + name.size() + 3;
  if (body[start] != '"') return body.substr(start, body.find_first_of(",}", start) - start);
  return body.substr(start + 1, body.find('"', start + 1) - start - 1);
}

class WordServer {
 public:
  explicit WordServer(Manners manners)
      : manners_(std::move(manners)),
        server_([this](Connection& c, const Asked& asked) { serve(c, asked); }) {}

  http::Url url() const { return server_.url(); }
  std::vector<std::string> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  void serve(Connection& connection, const Asked& asked) {
    if (manners_.needs_key && asked.head.find("Authorization: Bearer secret") == std::string::npos)
      return connection.answer(401, "{}");
    if (asked.line.starts_with("GET /v1/models "))
      return connection.answer(200, R"({"data": [{"id": "small", "max_model_len": 500}]})");
    if (asked.line.starts_with("GET /metrics ") && manners_.metrics) {
      const std::lock_guard lock(mutex_);
      return connection.answer(
          200,
          fourfold::format("# HELP x y\nvllm:generation_tokens_total{model=\"a\"} {}\n"
                           "vllm:generation_tokens_totals 7\nvllm:spec_decode_num_accepted_tokens_total {}\n",
                           given_, given_ / 2));
    }
    if (asked.line.starts_with("GET /version ")) return connection.answer(200, R"({"version": "7.1"})");
    if (asked.line.starts_with("POST /tokenize ") && manners_.tokenize &&
        asked.body.find("prompt") != std::string::npos)
      return connection.answer(200, fourfold::format(R"({"count": {}})", words(field(asked.body, "prompt"))));
    if (!asked.line.starts_with("POST /v1/chat/completions ")) return connection.answer(404, "{}");
    for (const std::string& name : manners_.refuses)
      if (!field(asked.body, name).empty())
        return connection.answer(400, fourfold::format(R"({"error": {"message": "{} is unknown"}})", name));
    {
      const std::lock_guard lock(mutex_);
      bodies_.push_back(asked.body);
      if (static_cast<int>(bodies_.size()) > manners_.full_after)
        return connection.answer(429, R"({"error": {"message": "queue is full"}})");
    }
    const bool thinks = field(asked.body, "enable_thinking") == "true";
    const int tokens = std::atoi(field(asked.body, "max_tokens").c_str());
    {
      const std::lock_guard lock(mutex_);
      given_ += tokens;
    }
    connection.begin_stream();
    for (int i = 0; i < tokens; i += 2) {  // two tokens a chunk
      if (manners_.pause > 0) Connection::pause(manners_.pause);
      connection.word(thinks && i < tokens / 2 ? "reasoning_content" : "content");
    }
    if (manners_.usage) return connection.end_stream(5 + words(field(asked.body, "content")), tokens);
    connection.event(R"({"choices": [{"delta": {}, "finish_reason": "length"}]})");
    connection.event("[DONE]");
    connection.send("0\r\n\r\n");
  }

  Manners manners_;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  int given_ = 0;  // tokens
  ScriptedServer server_;
};

bool has(const std::vector<std::string>& lines, const std::string& words) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

Report bench(const Target& target, std::vector<Cell> cells, std::int64_t repeat = 1) {
  BenchOptions options;
  options.cells = std::move(cells);
  options.repeat = repeat;
  return run_bench(target, options, {});
}

TEST(Bench, PromptsHaveExactlyTheTokensAskedFor) {
  WordServer server({});
  const Target target({.url = server.url()});
  EXPECT_EQ(target.model(), "small");
  EXPECT_EQ(target.version(), "7.1");
  EXPECT_EQ(target.context_limit(), 500);
  for (const PromptKind kind : {PromptKind::random, PromptKind::natural}) {
    const Report report =
        bench(target, {{"grid", 3, 200, 20, false, kind, 6}, {"grid", 3, 450, 200, false, kind, 6}});
    ASSERT_EQ(report.rows.size(), 1u);
    const Measures& m = report.rows.front().measures;
    EXPECT_EQ(m.prompt_least, 200);
    EXPECT_EQ(m.prompt_most, 200);
    EXPECT_EQ(m.requests, 6);
    EXPECT_EQ(m.output_tokens, 120);
    EXPECT_DOUBLE_EQ(m.tokens_per_chunk, 2.0);
    ASSERT_EQ(report.skipped.size(), 1u);
    EXPECT_NE(report.skipped.front().find("650 is over the limit of 500"), std::string::npos)
        << report.skipped.front();
  }
  // No two prompts are equal from the start on: no prefix cache helps.
  std::set<std::string> beginnings;
  const auto bodies = server.bodies();
  for (std::size_t i = 1; i < bodies.size(); ++i)
    beginnings.insert(field(bodies[i], "content").substr(0, 24));
  EXPECT_GE(beginnings.size(), bodies.size() - 3);  // two kinds start their count anew
}

TEST(Bench, ThinkingIsAskedForAndItsFirstAnswerTimed) {
  WordServer server({.pause = 2});
  const Target target({.url = server.url()});
  const Report report = bench(target, {{"t", 1, 0, 20, true, PromptKind::natural, 2}});
  const Measures& m = report.rows.front().measures;
  // Five chunks of thinking later. Not than the first was read: a busy machine may read that one late.
  EXPECT_GE(m.answer_ms.p50, 5 * 2);
  EXPECT_GE(m.answer_ms.p50, m.ttft_ms.p50);
  EXPECT_TRUE(has(report.notes, "MTP drafts easily"));
  EXPECT_NE(server.bodies().back().find(R"("enable_thinking":true)"), std::string::npos);
}

TEST(Bench, AcceptanceIsReadFromTheServersCounters) {
  WordServer server({.metrics = true});
  const Target target({.url = server.url()});
  const Report report = bench(target, {{"t", 2, 0, 20, false, PromptKind::natural, 4}});
  ASSERT_TRUE(report.rows.front().measures.acceptance_length.has_value());
  EXPECT_DOUBLE_EQ(*report.rows.front().measures.acceptance_length, 2.0);  // 80 tokens in 40 steps
}

TEST(Bench, FieldsAServerRefusesAreLeftOutAndSaid) {
  WordServer server({.refuses = {"ignore_eos", "seed"}, .tokenize = false});
  const Target target({.url = server.url()});
  EXPECT_TRUE(has(target.notes(), "refuses ignore_eos"));
  EXPECT_TRUE(has(target.notes(), "refuses seed"));
  EXPECT_FALSE(has(target.notes(), "stream_options"));
  EXPECT_FALSE(target.knows_ignore_eos());
  const Report report = bench(target, {{"grid", 1, 100, 10, false, PromptKind::random, 1}});
  EXPECT_EQ(report.rows.front().measures.failed, 0);
  EXPECT_TRUE(has(report.notes, "prompt lengths are estimated"));
  WordServer hostile({.refuses = {"model"}});
  EXPECT_THROW(Target({.url = hostile.url()}), Error);
}

TEST(Bench, KeysAreSentAndNeverCut) {
  WordServer server({.needs_key = true});
  EXPECT_THROW(Target({.url = server.url()}), Error);
  EXPECT_THROW(Target({.url = server.url(), .key = "secret\r\nX: y"}), Error);
  EXPECT_EQ(Target({.url = server.url(), .key = "secret"}).model(), "small");
  EXPECT_THROW(Target({.url = server.url(), .key = "secret", .model = "large"}), Error);
}

TEST(Bench, RefusedRequestsAreCountedAndNamed) {
  WordServer server({.usage = false, .full_after = 4});  // one to try out, one to warm up
  const Target target({.url = server.url()});
  const Report report = bench(target, {{"grid", 2, 0, 10, false, PromptKind::natural, 8}});
  const Measures& m = report.rows.front().measures;
  EXPECT_EQ(m.failed, 6);
  EXPECT_EQ(m.failures.at("status 429: queue is full"), 6);
  EXPECT_TRUE(m.counted_by_chunks);
  EXPECT_EQ(m.output_tokens, 10);  // two answers of five chunks
  EXPECT_NE(text_table(report).find("failed: 6 x status 429: queue is full"), std::string::npos);
}

TEST(Bench, ResultsAreWrittenAndCompared) {
  WordServer server({.pause = 1});
  const Target target({.url = server.url()});
  Report report = bench(target,
                        {{"grid", 1, 0, 20, false, PromptKind::natural, 2},
                         {"grid", 1, 0, 20, false, PromptKind::natural, 2, 200.0},
                         {"grid", 2, 0, 20, false, PromptKind::natural, 2}},
                        3);
  report.header = {{"server", "a <b>"}, {"model", "small"}};
  ASSERT_TRUE(report.rows.front().spread.output_per_s.has_value());
  EXPECT_EQ(report.rows.front().measures.requests, 6);
  const Comparison same = compare(to_json(report), to_json(report));
  EXPECT_EQ(same.differences.size(), 9u);
  EXPECT_FALSE(same.any_slower());

  // Twice as slow, with a variation of a twentieth: beyond twice its deviation.
  Report slower = report;
  for (Report* one : {&report, &slower})
    for (Row& row : one->rows) row.spread = {0.05, 0.05, 0.05};
  for (Row& row : slower.rows) row.measures.output_per_s /= 2, row.measures.ttft_ms.p50 *= 1.1;
  slower.rows[1].measures.failed = 1;
  slower.header[0].second = "another";
  const Comparison other = compare(to_json(report), to_json(slower));
  ASSERT_EQ(other.differences.size(), 6u);
  EXPECT_EQ(other.differences[0].verdict, Verdict::slower);
  EXPECT_NEAR(other.differences[0].band, 2 * 0.05 * std::sqrt(2.0), 1e-12);
  EXPECT_EQ(other.differences[1].verdict, Verdict::within_noise);  // 10 % of a band of 14 %
  EXPECT_EQ(compare(to_json(slower), to_json(report)).differences[0].verdict, Verdict::faster);
  EXPECT_EQ(other.failed.size(), 1u);
  EXPECT_TRUE(has(other.header, "server: a <b> -> another"));
  EXPECT_NE(to_text(other).find("slower"), std::string::npos);
  slower.rows[0].spread = {};
  EXPECT_FALSE(compare(to_json(report), to_json(slower)).differences[0].band_is_measured);
  for (const char* wrong :
       {"", "{}", "[1]", R"({"format": "fourfold-bench-serve-1", "header": {}, "rows": [{}]})"})
    EXPECT_THROW(compare(wrong, to_json(report)), Error) << wrong;

  const std::string csv = to_csv(report);
  const auto head = csv.find("table,");
  EXPECT_EQ(std::count(csv.begin() + head, csv.begin() + csv.find('\n', head), ','),
            std::count(csv.begin() + csv.rfind('\n', csv.size() - 2), csv.end(), ','));
  const std::string html = to_html(report);
  EXPECT_NE(html.find("a &lt;b&gt;"), std::string::npos);
  EXPECT_NE(html.find("<polyline"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos);  // nothing is fetched
  EXPECT_EQ(html.find("<script"), std::string::npos);
}

TEST(Grid, FieldHasTheTablesOwnersCompare) {
  const std::vector<Cell> cells = field_grid(1);
  const auto count = [&](const char* table) {
    return std::count_if(cells.begin(), cells.end(), [&](const Cell& cell) { return cell.table == table; });
  };
  EXPECT_EQ(count("users"), 5);
  EXPECT_EQ(count("output"), 18);
  EXPECT_EQ(count("context"), 5);
  EXPECT_EQ(count("thinking"), 4);
  for (const Cell& cell : field_grid(1e-6)) EXPECT_EQ(cell.output, 16);
  EXPECT_THROW(field_grid(0), Error);
  for (const Cell& one : cells)
    if (one.table == "users") {
      EXPECT_EQ(one.requests, 2 * one.users);
    }
  const auto by_rate = plain_grid(
      {.users = {1}, .contexts = {0, 64}, .outputs = {9}, .thinking = {}, .rates = {1, 2}, .requests = 7});
  ASSERT_EQ(by_rate.size(), 4u);
  EXPECT_EQ(by_rate[1].rate, 2.0);
  EXPECT_EQ(by_rate[1].requests, 7);
  EXPECT_EQ(by_rate[1].users, 7);
  const Cell cell{"x", 4, 1000, 100, false, PromptKind::random, 1};
  EXPECT_EQ(why_skipped(cell, {}), "");
  EXPECT_EQ(why_skipped(cell, {.users = 4, .context = 1000, .output = 100, .positions = 1100}), "");
  EXPECT_EQ(why_skipped(cell, {.users = 3, .context = {}, .output = {}, .positions = {}}),
            "users 4 is over the limit of 3");
  // A prompt is as long as it is, however short the answer.
  Cell natural, brief;
  natural.output = brief.output = 16;
  brief.prompts = PromptKind::brief;
  const Bounds few{.users = {}, .context = {}, .output = {}, .positions = 128};
  EXPECT_NE(why_skipped(natural, few), "");
  EXPECT_EQ(why_skipped(brief, few), "");
  EXPECT_NE(why_skipped(cell, {.users = {}, .context = {}, .output = {}, .positions = 1099}), "");
}

TEST(Prompts, AreManyAndOfFourKinds) {
  std::set<std::string_view> texts, kinds;
  for (const NaturalPrompt& prompt : natural_prompts()) texts.insert(prompt.text), kinds.insert(prompt.kind);
  EXPECT_EQ(texts.size(), natural_prompts().size());
  EXPECT_EQ(kinds, (std::set<std::string_view>{"code", "json", "prose", "translation"}));
  EXPECT_EQ(prompt_text(PromptKind::random, 1, 2, 50), prompt_text(PromptKind::random, 1, 2, 50));
  EXPECT_NE(prompt_text(PromptKind::random, 1, 2, 50), prompt_text(PromptKind::random, 2, 2, 50));
}

// A tokenizer of two and three tokens a word cannot make every length: the nearest below is taken.
TEST(Prompts, ThatCannotBeExactAreTheNearestBelow) {
  const CountTokens coarse = [](std::string_view text) -> std::optional<std::int64_t> {
    return 7 * words(std::string(text));
  };
  const SizedPrompt sized = sized_prompt(PromptKind::random, 1, 0, 100, 1.0, coarse);
  EXPECT_EQ(sized.tokens, 98);
  EXPECT_EQ(words(sized.text), 14);
  EXPECT_EQ(sized_prompt(PromptKind::random, 1, 0, 3, 1.0, coarse).tokens, 7);  // one word is the least
}

TEST(Plot, TicksAreRoundAndReachTheTop) {
  EXPECT_DOUBLE_EQ(tick_step(6, 6), 1);
  EXPECT_DOUBLE_EQ(tick_step(6.5, 6), 2);
  EXPECT_DOUBLE_EQ(tick_step(2900, 6), 500);
  EXPECT_DOUBLE_EQ(tick_step(0.29, 6), 0.05);
  const Plot plot{"t <1>", "x", "y", true, {{"a&b", {{1, 10}, {2, 20}, {16, 40}}}}};
  const std::string text = svg(plot);
  EXPECT_NE(text.find("t &lt;1&gt;"), std::string::npos);
  EXPECT_NE(text.find("a&amp;b"), std::string::npos);
  // 1, 2 and 16 on a scale of powers of two: at 0, 1/4 and all of the width from 70 to 540.
  EXPECT_NE(text.find("points=\"70,199.5 187.5,145 540,36 "), std::string::npos) << text;
  EXPECT_EQ(svg({"none", "x", "y", true, {}}), "");
}

}  // namespace
}  // namespace fourfold::loadgen
