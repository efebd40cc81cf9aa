// The language of the rules' conditions: facts, numbers, 'text', + - * /, comparisons, contains, and, or,
// not, known(fact). Three-valued: what hangs on an unknown fact is unknown, unless the rest decides it alone
// (false and unknown is false). One language in text means that a rule can be printed as it is judged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace fourfold::doctor {

// Where names are looked up. A rule about each GPU says gpu.name and means gpu.<index>.name.
struct Scope {
  const Facts& facts;
  std::string_view each = {};
  int index = 0;

  Value get(std::string_view name) const;
};

// Our own rules only: a mistake in the text is our bug, and check() says where.
Value evaluate(std::string_view expression, const Scope& scope);

// Text with {expression} holes.
std::string fill(std::string_view pattern, const Scope& scope);

// Every fact an expression, or a text with holes, asks for. For the test that no rule misspells one.
std::vector<std::string> names_in(std::string_view expression);
std::vector<std::string> names_in_text(std::string_view pattern);

}  // namespace fourfold::doctor
