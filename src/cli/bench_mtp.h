// Where drafts pay: a step with k of them against the acceptance they need. Shared by `bench model` and its
// tests.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/console.h"
#include "plan/draft_tokens.h"

namespace fourfold::cli {

// Chances that a draft stands when all before it do.
inline constexpr double kAcceptances[] = {0.5, 0.6, 0.7, 0.8, 0.9};

// The acceptance at which a step of so many drafts gives `tokens`; above 1: none does.
double acceptance_for(double tokens, int drafts);

struct MtpLine {
  int users = 0;
  std::int64_t context = 0;
  int drafts = 0;
  double verify_ms = 0;
  double draft_ms = 0;
  double floor_share = 0;  // of the bytes both must read
  double plain_ms = 0;     // a step without drafts; 0: not measured
  double step_ms() const { return verify_ms + draft_ms; }
  double tokens_per_second(double acceptance) const {
    return users * plan::tokens_of_step(acceptance, drafts) / step_ms() * 1e3;
  }
};

struct MtpPlan {
  std::vector<int> users, drafts;
  std::vector<int> contexts;
  int tokens = 0;          // steps that are timed
  std::int64_t room = 0;   // positions of a sequence
  double bytes_per_s = 0;  // the memory's ceiling
};

// "0..5", or "0,1,3".
std::vector<int> parse_drafts(const std::string& text);

// Prints the table as it grows; writes it to `csv` where that is not empty.
void bench_mtp(backend::Prepared& prepared, const MtpPlan& plan, const std::string& csv,
               const std::string& comment, const Console& console);

}  // namespace fourfold::cli
