#include "doctor/questions.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/format.h"
#include "doctor/expression.h"

namespace fourfold::doctor {
namespace {

bool has_finding(const Report& report, std::initializer_list<std::string_view> ids) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    return std::find(ids.begin(), ids.end(), finding.rule->id) != ids.end();
  });
}

bool is_unknown(const Facts& facts, const char* name) {
  return std::holds_alternative<Unknown>(facts.get(name));
}

std::string chip_answer(const Facts& facts, const Report& report) {
  if (facts.number_or("gpus", 0) == 0) return "no GPU that could be asked";
  const Scope scope{facts};
  return fill("{first.cc} ({first.name}); a block may use {first.smem} bytes of shared memory", scope) +
         (is_unknown(facts, "first.smem") ? ""
          : has_finding(report, {"gpu-shared-memory", "gpu-not-planned"})
              ? ", NOT what our planner's table says"
              : ", as our planner's table says");
}

std::string log_answer(const Facts& facts, const Report& report) {
  if (!facts.is_true("log.given"))
    return "no log given; --log FILE reads vLLM, SGLang, FlashInfer, llama.cpp";
  const Scope scope{facts};
  std::string answer = is_unknown(facts, "log.kernel") ? "the log names no MoE backend"
                                                       : fill("the experts ran on {log.kernel}", scope);
  const bool fallback = has_finding(report, {"log-marlin", "log-false-fp4-warning", "log-no-backend",
                                             "log-no-valid-tactics", "log-arch-conditional"});
  answer += fallback ? "; yes, see the findings" : "; no fallback";
  if (has_finding(report, {"log-skipped-tactics"})) answer += "; skipped tactics are harmless";
  return answer;
}

std::string speed_answer(const Facts& facts) {
  if (!facts.is_true("model.given"))
    return "no model given; --model DIR, and --measured TOK_S for your own number";
  const Scope scope{facts};
  if (is_unknown(facts, "model.floor"))
    return fill("{model.token_gb} GB a token; this machine's bandwidth is unknown", scope);
  if (is_unknown(facts, "model.measured"))
    return fill(
        "the floor is {model.floor} tok/s ({model.token_gb} GB a token); --measured TOK_S places yours",
        scope);
  return fill("{model.measured} of {model.floor} tok/s: {model.measured / model.floor * 100} %", scope);
}

std::string driver_answer(const Facts& facts, const Report& report) {
  if (is_unknown(facts, "driver.version")) return "no driver found";
  const bool bad = has_finding(report, {"driver-old", "driver-too-old", "driver-mismatch", "driver-closed",
                                        "toolkit-newer-than-driver"});
  const Scope scope{facts};
  std::string answer = fill("{driver.version}", scope);
  if (!is_unknown(facts, "driver.cuda")) answer += fill(" (CUDA {driver.cuda})", scope);
  if (is_unknown(facts, "gpu.0.cc_number")) return answer + (bad ? ": no" : ": unknown, no GPU answers");
  return answer + (bad ? ": no" : ": yes");
}

std::string wsl_answer(const Facts& facts) {
  if (is_unknown(facts, "wsl")) return "unknown";
  if (facts.is_true("wsl")) return "yes, and it costs up to half the speed";
  return facts.is_true("virtual") ? "no, but a virtual machine" : "no, native Linux";
}

std::string server_answer(const Facts& facts) {
  const int count = static_cast<int>(facts.number_or("urls", 0));
  if (count == 0) return "not measured; --url http://HOST:PORT, twice to compare two";
  std::string answer;
  for (int i = 0; i < count; ++i)
    answer +=
        (answer.empty() ? "" : "; ") +
        fill("{url.name} {url.tok_per_s} tok/s (thinking: {url.tok_per_s_thinking})", Scope{facts, "url", i});
  return answer;
}

}  // namespace

std::string machine_line(const Facts& facts) {
  const Scope scope{facts};
  const int count = static_cast<int>(facts.number_or("gpus", 0));
  std::string line = count == 0   ? "no usable GPU"
                     : count == 1 ? fill("{first.name}", scope)
                                  : fill("{gpus} x {first.name}", scope);
  if (!is_unknown(facts, "cpu")) line += fill(", {cpu}", scope);
  if (!is_unknown(facts, "ram_gb")) line += fill(", {ram_gb} GB", scope);
  return line;
}

std::vector<Question> six_questions(const Facts& facts, const Report& report) {
  return {{"Which chip, how much shared memory", chip_answer(facts, report)},
          {"Does a log show failures or a fallback", log_answer(facts, report)},
          {"How far from the theoretical speed", speed_answer(facts)},
          {"Is the driver new enough", driver_answer(facts, report)},
          {"Is it WSL2", wsl_answer(facts)},
          {"How do other servers compare", server_answer(facts)}};
}

}  // namespace fourfold::doctor
