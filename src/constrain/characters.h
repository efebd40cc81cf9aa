// Sets of characters and how they are written in bytes: as plain UTF-8, or inside a JSON string in the one
// canonical form (themselves where JSON allows it, else the short escape, else \u00XX).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/expression.h"

namespace fourfold::constrain {

struct CodeRange {
  char32_t low, high;  // both included
  bool operator==(const CodeRange&) const = default;
};

// Ranges ascend, do not touch and leave out the surrogates.
class CodeSet {
 public:
  CodeSet() = default;
  explicit CodeSet(std::vector<CodeRange> ranges);
  static CodeSet all();
  static CodeSet of_classes(int classes);  // any of these bits of text::CharClass

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool is_empty() const { return ranges_.empty(); }
  bool contains(char32_t code) const;
  CodeSet with(const CodeSet& other) const;
  CodeSet without(const CodeSet& other) const;
  CodeSet complement() const { return all().without(*this); }

 private:
  std::vector<CodeRange> ranges_;
};

// What JSON does not let stand for itself in a string.
const CodeSet& must_be_escaped();

enum class Writing { plain, json_string };

// One character of the set.
ExprId one_of(ExpressionPool& pool, const CodeSet& set, Writing writing);
// A text, which must be valid UTF-8, as one_of would write its characters.
std::string written(std::string_view text, Writing writing);

}  // namespace fourfold::constrain
