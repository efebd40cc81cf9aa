// The language of the rules, the rules themselves, and their verdicts on recorded machines.
#include "doctor/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "base/format.h"
#include "doctor/env_advice.h"
#include "doctor/expression.h"
#include "doctor/judge.h"
#include "doctor/model_facts.h"
#include "doctor/probes.h"
#include "doctor/recording.h"
#include "doctor/show.h"
#include "doctor/source.h"

namespace fourfold::doctor {
namespace {

const std::filesystem::path kSource = FOURFOLD_SOURCE_DIR;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Facts facts_of(const Recording& recording) {
  Facts facts;
  gather(*recorded_source(recording), facts);
  for (const auto& [name, value] : recording.facts.all()) facts.set_value(name, value);
  return facts;
}

struct Machine {
  std::string name;
  Facts facts;
  std::string verdict;  // as committed
};

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = [] {
    std::vector<Machine> list;
    for (const auto& entry : std::filesystem::directory_iterator(kSource / "tests/doctor/machines"))
      if (entry.is_directory())
        list.push_back({entry.path().filename().string(), facts_of(read_recording(entry.path())),
                        read_file(entry.path() / "verdict.json")});
    return list;
  }();
  return all;
}

const Facts& machine(const std::string& name) {
  for (const Machine& one : machines())
    if (one.name == name) return one.facts;
  throw std::runtime_error("no machine " + name);
}

Value eval(std::string_view text, const Facts& facts = {}) { return evaluate(text, Scope{facts}); }

TEST(Expression, ReadsAsPeopleWriteIt) {
  EXPECT_EQ(eval("1 + 2 * 3 == 7 and not (2 > 3)"), Value(true));
  EXPECT_EQ(eval("8 / 16 - 0.5"), Value(0.0));
  EXPECT_EQ(eval("'power_brake' contains 'brake'"), Value(true));
  EXPECT_EQ(eval("'12.0' != '12.1' or false"), Value(true));
  EXPECT_EQ(eval("1 <= 1 and 2 >= 3"), Value(false));
}

TEST(Expression, UnknownIsAThirdAnswer) {
  Facts facts;
  facts.set("lanes", 8);
  facts.set("text", "many");
  EXPECT_EQ(eval("missing", facts), Value(Unknown{}));
  EXPECT_EQ(eval("lanes < missing", facts), Value(Unknown{}));
  EXPECT_EQ(eval("lanes < 4 and missing", facts), Value(false));
  EXPECT_EQ(eval("missing or lanes == 8", facts), Value(true));
  EXPECT_EQ(eval("not missing", facts), Value(Unknown{}));
  EXPECT_EQ(eval("missing or lanes == 9", facts), Value(Unknown{}));
  EXPECT_EQ(eval("known(missing)", facts), Value(false));
  EXPECT_EQ(eval("lanes / 0", facts), Value(Unknown{}));
  // A variable that should hold a number and does not.
  EXPECT_EQ(eval("text * 4 > 8", facts), Value(Unknown{}));
}

TEST(Expression, EachGpuHasItsOwnNames) {
  Facts facts;
  facts.set("gpu.0.lanes", 16);
  facts.set("gpu.1.lanes", 8);
  facts.set("gpus", 2);
  const Scope second{facts, "gpu", 1};
  EXPECT_EQ(evaluate("gpu.lanes", second), Value(8.0));
  EXPECT_EQ(evaluate("gpus", second), Value(2.0));
  EXPECT_EQ(fill("{gpu.lanes} of {gpu.lanes * 2} lanes, {missing}", second), "8 of 16 lanes, unknown");
}

TEST(Expression, NumbersAsTextAndBack) {
  EXPECT_EQ(text_of(101376.0), "101,376");
  EXPECT_EQ(text_of(12.1), "12.1");
  EXPECT_EQ(text_of(0.1279), "0.13");
  EXPECT_EQ(text_of(1792.4), "1792");
  EXPECT_EQ(text_of(true), "yes");
  // Logs and variables hold any number.
  EXPECT_EQ(text_of(999'999'999'999'999.0), "999,999,999,999,999");
  EXPECT_EQ(text_of(1e20), "1e+20");
  EXPECT_EQ(text_of(-1e300), "-1e+300");
  EXPECT_EQ(text_of(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(text_of(std::numeric_limits<double>::quiet_NaN()), "nan");
  for (const Value& value : {Value(true), Value(0.1), Value(101376.0), Value(std::string("DMA-FQ"))})
    EXPECT_EQ(parse_value(exact_text(value)), value);
}

// Every fact a rule names is one that something sets; a misspelt name would be unknown for ever.
TEST(Rules, NameOnlyKnownFacts) {
  const std::set<std::string, std::less<>> known(known_facts().begin(), known_facts().end());
  const auto check_names = [&](const Rule& rule, const std::vector<std::string>& names) {
    for (std::string name : names) {
      if (name.starts_with("gpu.0.")) name.erase(4, 2);
      if (name.starts_with("env."))
        EXPECT_TRUE(is_known_variable(name.substr(4))) << rule.id << ": " << name;
      else
        EXPECT_TRUE(known.contains(name)) << rule.id << ": " << name;
    }
  };
  for (const Rule& rule : rules()) {
    if (!rule.applies.empty()) check_names(rule, names_in(rule.applies));
    check_names(rule, names_in(rule.fault));
    for (const std::string_view text : {rule.found, rule.expected, rule.cost, rule.advice})
      check_names(rule, names_in_text(text));
  }
}

// And what the machines' probes set is in the list, so that the list cannot fall behind.
TEST(Rules, ProbesSetOnlyKnownFacts) {
  const std::set<std::string, std::less<>> known(known_facts().begin(), known_facts().end());
  for (const Machine& one : machines())
    for (const auto& [name, value] : one.facts.all()) {
      std::string plain = name;
      if ((plain.starts_with("gpu.") || plain.starts_with("url.")) && plain[5] == '.') plain.erase(4, 2);
      EXPECT_TRUE(plain.starts_with("env.") || known.contains(plain)) << one.name << ": " << name;
    }
}

TEST(Rules, AreCompleteAndHaveOneNameEach) {
  std::set<std::string_view> ids;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " stands twice";
    for (const std::string_view text :
         {rule.fault, rule.found, rule.expected, rule.cost, rule.advice, rule.evidence})
      EXPECT_FALSE(text.empty()) << rule.id;
    EXPECT_TRUE(rule.link.empty() || rule.link.starts_with("https://")) << rule.id;
    EXPECT_TRUE(rule.each.empty() || rule.each == "gpu" || rule.each == "url") << rule.id;
  }
}

// A link shows the sentence it stands for: a thread, or a file at the commit that was read. The front page of
// a repository or a model says nothing.
TEST(Rules, LinksPointToThePageThatSaysIt) {
  std::vector<std::string_view> links;
  for (const Rule& rule : rules()) links.push_back(rule.link);
  for (const Published& result : published_results()) links.push_back(result.source);
  int code = 0;
  for (const std::string_view link : links) {
    const bool is_code =
        link.starts_with("https://github.com/") || link.starts_with("https://huggingface.co/");
    if (!is_code) continue;
    ++code;
    static const std::regex thread(R"(https://[^/]+/[^/]+/[^/]+/(issues|pull|discussions)/[0-9]+)");
    static const std::regex file(R"(https://github\.com/[^/]+/[^/]+/blob/[0-9a-f]{40}/[^/].*)");
    const std::string text(link);
    EXPECT_TRUE(std::regex_match(text, thread) || std::regex_match(text, file)) << text;
  }
  EXPECT_GT(code, 30);
}

TEST(Rules, ThePageIsWrittenFromThem) {
  EXPECT_EQ(read_file(kSource / "docs/doctor.md"), rules_page())
      << "write it anew: build/fourfold doctor --rules > docs/doctor.md";
}

// Where a rule draws a line at a number: the last value on the good side, the first on the bad, and nothing
// between them.
TEST(Rules, ThresholdsAreWhereTheyStand) {
  struct Border {
    std::string_view rule;
    std::vector<std::pair<std::string, double>> facts;
    std::string name;
    double good, bad;
  };
  const Border borders[] = {
      {"power-cap", {{"gpu.0.power_default_w", 600}}, "gpu.0.power_limit_w", 480, 479.9},
      {"peers-power", {{"peers.power_most_w", 600}}, "peers.power_least_w", 540, 539.9},
      {"gpu-memory-taken", {{"gpu.0.memory_mb", 8192}}, "gpu.0.memory_used_mb", 1024, 1025},
      {"gpu-memory-taken", {{"gpu.0.memory_mb", 32760}}, "gpu.0.memory_used_mb", 3276, 3277},
      {"gpu-busy", {}, "gpu.0.utilization", 20, 21},
      {"resizable-bar", {{"gpu.0.memory_mb", 32768}}, "gpu.0.bar1_mb", 16384, 16383},
      {"bandwidth", {{"gpu.0.gb_per_s", 1000}}, "gpu.0.measured_gb_per_s", 850, 849.9},
      {"driver-too-old", {{"gpu.0.cc_number", 12}}, "driver.major", 570, 569},
      {"driver-old", {{"gpu.0.cc_number", 12}}, "driver.major", 595, 594},
      {"driver-old", {{"gpu.0.cc_number", 12}}, "driver.major", 569, 570},
      {"toolkit-old", {{"gpu.0.cc_number", 12}}, "toolkit.code", 1209, 1208},
      {"omp-threads", {{"gpus", 4}, {"cores", 32}}, "env.OMP_NUM_THREADS", 8, 9},
      {"shm-small", {}, "shm_mb", 1024, 1023},
      {"shm-small-one-gpu", {}, "shm_mb", 1024, 1023},
      {"memlock", {}, "memlock_mb", 1024, 1023},
      {"disk-slow", {}, "model.disk_gb_per_s", 1, 0.99},
      {"log-drafts-do-not-pay", {}, "log.accept_length", 1.32, 1.31},
      {"model-too-large", {{"model.gpu_memory_gb", 100}}, "model.matrix_gb", 92, 92.1},
      {"speed-far-from-floor", {{"model.floor", 100}}, "model.measured", 20, 19.9},
      {"speed-below-published", {{"model.published", 100}}, "model.measured", 70, 69.9},
      {"speed-above-floor", {{"model.floor", 100}}, "model.measured", 100, 100.1},
      {"server-far-from-floor", {{"model.floor", 100}}, "url.0.tok_per_s", 20, 19.9},
      {"server-thinking-inflates", {{"url.0.tok_per_s", 20}}, "url.0.tok_per_s_thinking", 23, 23.1},
      {"server-behind-other", {{"url.0.other_tok_per_s", 100}}, "url.0.tok_per_s", 80, 79.9},
  };
  for (const Border& border : borders) {
    const auto rule =
        std::find_if(rules().begin(), rules().end(), [&](const Rule& one) { return one.id == border.rule; });
    ASSERT_NE(rule, rules().end()) << border.rule;
    for (const bool is_fault : {false, true}) {
      Facts facts;
      for (const auto& [name, value] : border.facts) facts.set(name, value);
      facts.set(border.name, is_fault ? border.bad : border.good);
      EXPECT_EQ(evaluate(rule->fault, Scope{facts, rule->each, 0}), Value(is_fault)) << border.rule;
    }
  }
}

TEST(Machines, HaveTheVerdictsCommitted) {
  ASSERT_GE(machines().size(), 12u);
  for (const Machine& one : machines()) {
    const std::string verdict = as_json(judge(one.facts)) + "\n";
    if (std::getenv("FOURFOLD_WRITE_VERDICTS") != nullptr)
      std::ofstream(kSource / "tests/doctor/machines" / one.name / "verdict.json") << verdict;
    else
      EXPECT_EQ(verdict, one.verdict) << one.name;
  }
}

// A recording is sent without PCI addresses; what was numbered instead leads to the same verdict.
TEST(Machines, JudgedTheSameWithoutPciAddresses) {
  int numbered = 0;
  for (const Machine& one : machines()) {
    const std::string text = read_file(kSource / "tests/doctor/machines" / one.name / kRecordingFile);
    const std::string sent = with_numbered_pci(text);
    numbered += sent != text;
    EXPECT_EQ(sent.find("0000:"), std::string::npos) << one.name;
    EXPECT_EQ(as_json(judge(facts_of(parse_recording(sent, one.name)))) + "\n", one.verdict) << one.name;
  }
  EXPECT_GT(numbered, 5);
}

// On any GPU's way to the others, the first and the last alike.
TEST(Machines, OneBridgeThatRedirectsIsEnough) {
  const Recording plain = read_recording(kSource / "tests/doctor/machines/four-pro-6000");
  EXPECT_EQ(facts_of(plain).get("peers.acs"), Value(false));
  for (const char* gpu : {"0000:11:00.0", "0000:21:00.0", "0000:31:00.0", "0000:41:00.0"}) {
    Recording recording = plain;
    recording.answers.at(std::string("bridges ") + gpu) = "0000:10:01.1 0000:99:00.0";
    recording.answers["acs 0000:99:00.0"] = "0004";
    EXPECT_EQ(facts_of(recording).get("peers.acs"), Value(true)) << gpu;
  }
}

// Missed as a finding: to vanish from the list of the unknown would be too little.
TEST(Machines, EveryRuleSwitchedOffIsMissed) {
  for (const Rule& rule : rules())
    EXPECT_TRUE(std::any_of(machines().begin(), machines().end(),
                            [&](const Machine& one) {
                              const bool is_reason = one.verdict.find(fourfold::format(
                                                         "\"rule\": \"{}\"", rule.id)) != std::string::npos;
                              return is_reason && as_json(judge(one.facts, {rule.id})) + "\n" != one.verdict;
                            }))
        << rule.id << " is the reason of no verdict; record a machine that needs it";
}

TEST(Machines, ExitCodesFollowTheWorstFinding) {
  EXPECT_EQ(exit_code(judge(machine("rtx-5090"))), 0);
  EXPECT_EQ(exit_code(judge(machine("four-pro-6000"))), 0);
  EXPECT_EQ(exit_code(judge(machine("h200"))), 0);
  EXPECT_EQ(exit_code(judge(machine("skipped-tactics"))), 0);
  EXPECT_EQ(exit_code(judge(machine("wsl2-5090"))), 1);
  EXPECT_EQ(exit_code(judge(machine("x8-slot"))), 1);
  EXPECT_EQ(exit_code(judge(machine("container-64mb"))), 2);
  EXPECT_EQ(exit_code(judge(machine("older-driver"))), 2);
}

TEST(Machines, WithoutAGpuTheReportIsShort) {
  const std::string text = as_text(judge(machine("no-gpu")));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 25) << text;
  EXPECT_TRUE(judge({}).findings.empty());  // nothing known, nothing claimed
}

TEST(Show, TextAndMarkdownSayTheSame) {
  const Report report = judge(machine("power-capped"));
  const std::string text = as_text(report), page = as_markdown(report);
  for (const char* part : {"power-cap", "300 W", "nvidia-smi -i 0 -pl 600"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(page.find(part), std::string::npos) << page;
  }
  EXPECT_EQ(text.rfind("doctor: slow\n", 0), 0u);
  EXPECT_EQ(report.questions.size(), 6u);
}

TEST(EnvAdvice, SplitsTheCoresAndNamesTheReason) {
  const auto lines = env_advice(machine("four-pro-6000"), Purpose::vllm, 4);
  const auto has = [&](const std::vector<AdviceLine>& all, const std::string& text) {
    return std::any_of(all.begin(), all.end(), [&](const AdviceLine& line) {
      EXPECT_FALSE(line.reason.empty());
      return line.text.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(has(lines, "export OMP_NUM_THREADS=6"));
  EXPECT_TRUE(has(lines, "--tensor-parallel-size 4 --moe-backend flashinfer_b12x"));
  EXPECT_FALSE(has(lines, "NCCL_P2P_DISABLE"));
  EXPECT_FALSE(has(lines, "CUDA_VISIBLE_DEVICES"));
  EXPECT_TRUE(has(env_advice(machine("four-pro-6000"), Purpose::vllm, 2), "CUDA_VISIBLE_DEVICES=0,1"));
  EXPECT_TRUE(has(env_advice(machine("threadripper-iommu"), Purpose::vllm, 4), "export NCCL_P2P_DISABLE=1"));
  EXPECT_TRUE(has(env_advice(machine("p2p-disabled"), Purpose::vllm, 4), "unset NCCL_P2P_DISABLE"));
  EXPECT_TRUE(has(env_advice(machine("container-64mb"), Purpose::docker, 2), "--ipc=host"));
  EXPECT_TRUE(has(env_advice(machine("dgx-spark"), Purpose::vllm, 1), "TORCH_CUDA_ARCH_LIST=12.1f"));
  EXPECT_TRUE(has(env_advice(machine("no-gpu"), Purpose::fourfold, 0), "--backend cpu"));
  EXPECT_TRUE(has(env_advice(machine("rtx-5090"), Purpose::fourfold, 1), "--backend cuda"));
}

// 397B as NVIDIA ships it: 22.2 GB a token, 323 tok/s on four cards of 1,792 GB/s.
TEST(ModelFacts, FloorsAndBreakEven) {
  ModelBytes bytes;
  bytes.name = "397b";
  bytes.size = "397B";
  bytes.matrix_bytes = 250.2e9;
  bytes.token_bytes = 22.2e9;
  bytes.routed_bytes = 4.25e9;
  bytes.wide_bytes = 17.6e9;
  bytes.step_bytes = {22.2e9, 29.4e9, 36.5e9, 43.5e9, 50.4e9, 57.3e9};
  Facts facts = machine("four-pro-6000");
  facts.set("log.drafts", 3);
  set_model_facts(bytes, 50.5, facts);
  EXPECT_EQ(facts.get("model.floor"), Value(323.0));
  EXPECT_EQ(facts.get("model.floor_1"), Value(81.0));
  EXPECT_EQ(facts.get("model.published"), Value(108.1));
  EXPECT_NEAR(facts.number_or("model.mtp_even", 0), 1.96, 0.005);
  const auto lines = about_model(bytes, facts);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find("1 x 81 tok/s (does not fit), 2 x 161 tok/s (does not fit), 4 x 323 tok/s"),
            std::string::npos)
      << lines[1];
  EXPECT_NE(lines[2].find("1.32 tokens a step with 1"), std::string::npos) << lines[2];
  // A card whose bandwidth is not known gives no floor, not a guess.
  Facts laptop = machine("laptop");
  set_model_facts(bytes, std::nullopt, laptop);
  EXPECT_EQ(laptop.get("model.floor"), Value(Unknown{}));
}

}  // namespace
}  // namespace fourfold::doctor
