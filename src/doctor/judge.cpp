#include "doctor/judge.h"

#include <algorithm>

#include "base/format.h"
#include "doctor/expression.h"
#include "doctor/questions.h"

namespace fourfold::doctor {
namespace {

enum class Outcome { fine, fault, unknown, beside };

Outcome outcome_of(const Rule& rule, const Scope& scope) {
  if (!rule.applies.empty()) {
    const Value applies = evaluate(rule.applies, scope);
    if (applies == Value(false)) return Outcome::beside;
    if (applies != Value(true)) return Outcome::unknown;
  }
  const Value fault = evaluate(rule.fault, scope);
  if (fault == Value(true)) return Outcome::fault;
  return fault == Value(false) ? Outcome::fine : Outcome::unknown;
}

std::string subject_of(const Rule& rule, int index) {
  if (rule.each.empty()) return {};
  return rule.each == "gpu" ? fourfold::format("GPU {}", index) : fourfold::format("server {}", index + 1);
}

// A rule about each is judged once for every one there is.
int count_of(const Rule& rule, const Facts& facts) {
  if (rule.each.empty()) return 1;
  return static_cast<int>(facts.number_or(rule.each == "gpu" ? "gpus" : "urls", 0));
}

// "rule (GPU 0, 1, 3)" for several of one rule.
void add_unknown(std::vector<std::string>& list, const Rule& rule, const std::string& subject) {
  const std::string start = std::string(rule.id) + " (";
  if (subject.empty()) {
    list.emplace_back(rule.id);
  } else if (!list.empty() && list.back().starts_with(start)) {
    list.back().pop_back();
    list.back() += ", " + subject.substr(subject.rfind(' ') + 1) + ")";
  } else {
    list.push_back(start + subject + ")");
  }
}

// Within a level, in the order of the rules.
std::vector<Finding> worst_first(const std::vector<Finding>& findings) {
  std::vector<Finding> sorted;
  for (const Level level : {Level::broken, Level::slow, Level::note})
    for (const Finding& finding : findings)
      if (finding.rule->level == level) sorted.push_back(finding);
  return sorted;
}

}  // namespace

Report judge(const Facts& facts, const std::set<std::string_view>& off) {
  Report report;
  for (const Rule& rule : rules()) {
    if (off.contains(rule.id)) continue;
    for (int index = 0; index < count_of(rule, facts); ++index) {
      const Scope scope{facts, rule.each, index};
      const Outcome outcome = outcome_of(rule, scope);
      if (outcome == Outcome::beside) continue;
      const std::string subject = subject_of(rule, index);
      if (outcome == Outcome::unknown) {
        add_unknown(report.unknown, rule, subject);
        continue;
      }
      ++report.checks;
      if (outcome == Outcome::fine) continue;
      report.findings.push_back({&rule, subject, fill(rule.found, scope), fill(rule.expected, scope),
                                 fill(rule.cost, scope), fill(rule.advice, scope)});
      report.worst = std::max(report.worst, rule.level);
    }
  }
  report.findings = worst_first(report.findings);
  report.machine = machine_line(facts);
  report.questions = six_questions(facts, report);
  return report;
}

int exit_code(const Report& report) { return static_cast<int>(report.worst); }

std::string_view verdict_word(const Report& report) {
  return report.is_fine() ? "fine" : level_name(report.worst);
}

}  // namespace fourfold::doctor
