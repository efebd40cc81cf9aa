// How JSON is written in answers: the rules every schema shares. White space is what pretty-printers write:
// one space or one line break with its indent, after {, [, comma and colon and before } and ]; so an answer
// cannot lose itself in blanks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "constrain/characters.h"
#include "constrain/grammar.h"

namespace fourfold::constrain {

class JsonText {
 public:
  // Without blanks nothing stands between the tokens of JSON.
  explicit JsonText(GrammarBuilder& builder, bool blanks = true)
      : builder_(builder), pool_(builder.pool()), blanks_(blanks) {}

  ExprId space();      // or nothing
  ExprId separator();  // between two members or items
  ExprId any_value();
  ExprId any_object();
  ExprId any_array();
  ExprId any_string();
  ExprId any_number();
  // A string of so many characters, each written in any way JSON knows.
  ExprId string_of_length(std::int64_t min, std::optional<std::int64_t> max);
  ExprId quoted(ExprId inside) { return pool_.sequence({pool_.text("\""), inside, pool_.text("\"")}); }
  // Canonically written strings without their quotes.
  ExprId canonical_text();

 private:
  ExprId one_character();  // one state a character, so that long counts stay small

  GrammarBuilder& builder_;
  ExpressionPool& pool_;
  bool blanks_;
  std::optional<RuleId> space_, value_, string_, number_, object_, array_, long_character_;
};

}  // namespace fourfold::constrain
