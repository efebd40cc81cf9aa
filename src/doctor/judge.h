// Facts and rules to a report: what is wrong, how bad, and what could not be found out.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"
#include "doctor/rules.h"

namespace fourfold::doctor {

struct Finding {
  const Rule* rule;
  std::string subject;  // "GPU 1", or empty for the machine
  std::string found, expected, cost, advice;
};

// A question of the six that owners ask, with its answer.
struct Question {
  std::string asks;
  std::string answer;
};

struct Report {
  std::string machine;  // one line
  std::vector<Question> questions;
  std::vector<Finding> findings;     // broken first, then slow, then notes
  std::vector<std::string> unknown;  // "rule" or "rule (GPU 1)" that could not be judged
  std::vector<std::string> about;    // lines about the model, the servers, our kernels
  int checks = 0;                    // questions that were answered
  Level worst = Level::note;         // of the findings
  bool is_fine() const { return worst == Level::note; }
};

// Rules named in `off` are left out: for the test that every rule matters.
Report judge(const Facts& facts, const std::set<std::string_view>& off = {});

// 0 fine, 1 slow, 2 broken.
int exit_code(const Report& report);
std::string_view verdict_word(const Report& report);

}  // namespace fourfold::doctor
