// The six questions every owner of such a machine asks, answered from facts and findings.
#pragma once

#include <string>
#include <vector>

#include "doctor/judge.h"

namespace fourfold::doctor {

// "4 x NVIDIA RTX PRO 6000 ..., AMD Ryzen ..., 515 GB, driver 595.58.03"
std::string machine_line(const Facts& facts);
std::vector<Question> six_questions(const Facts& facts, const Report& report);

}  // namespace fourfold::doctor
