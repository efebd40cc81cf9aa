// One report, three forms: for people, for forums, for machines.
#pragma once

#include <string>

#include "doctor/judge.h"

namespace fourfold::doctor {

std::string as_text(const Report& report);
std::string as_markdown(const Report& report);
std::string as_json(const Report& report);

// docs/doctor.md: how to use doctor, and every rule, from the rules themselves.
std::string rules_page();

}  // namespace fourfold::doctor
