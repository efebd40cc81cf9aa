// Schemas to expressions. A schema that is met inside another becomes a rule of its own, so that schemas may
// be recursive and each is compiled once.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "constrain/json_text.h"
#include "constrain/schema_merge.h"

namespace fourfold::constrain {

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarBuilder& builder, JsonText& json, SchemaDocument& document)
      : builder_(builder), pool_(builder.pool()), json_(json), document_(document) {}

  // A value that satisfies all of them. Plain: a string stands without quotes, as in the parameters of a tool
  // call; `text` is then what an unconstrained string may be.
  ExprId value(const Schemas& schemas);
  ExprId plain_value(const Schemas& schemas, const Dfa& text);
  // Rules that were met and are not defined yet; call once everything has been asked for.
  void define_rules();

 private:
  ExprId expression(const Schemas& schemas, const Dfa* text);
  ExprId one_way(const MergedSchema& merged, const Dfa* text);
  ExprId listed(const MergedSchema& merged, const Dfa* text);
  bool is_allowed(const MergedSchema& merged, const std::optional<Dfa>& form, const bj::value& value);
  ExprId constant(const bj::value& value);
  // What patterns and formats ask for; none where there are none.
  std::optional<Dfa> form_of(const MergedSchema& merged, Writing writing);
  ExprId string(const MergedSchema& merged);
  ExprId plain_string(const MergedSchema& merged, const Dfa& text);
  ExprId number(const MergedSchema& merged);
  ExprId object(const MergedSchema& merged);
  std::optional<ExprId> other_member(const MergedSchema& merged);
  void check_member_counts(const MergedSchema& merged);
  ExprId array(const MergedSchema& merged);
  Dfa pattern(const Pattern& pattern, Writing writing);
  Dfa format(const Pattern& format, Writing writing);

  GrammarBuilder& builder_;
  ExpressionPool& pool_;
  JsonText& json_;
  SchemaDocument& document_;
  std::map<Schemas, RuleId> rules_;
  std::vector<std::pair<Schemas, RuleId>> undefined_;
};

}  // namespace fourfold::constrain
