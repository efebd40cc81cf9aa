// Schemas to expressions. A schema that is met inside another becomes a rule of its own, so that schemas may
// be recursive and each is compiled once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "constrain/json_text.h"
#include "constrain/schema_merge.h"

namespace fourfold::constrain {

class SchemaCompiler {
 public:
  // closed: as for merge().
  SchemaCompiler(GrammarBuilder& builder, JsonText& json, SchemaDocument& document, bool closed = false)
      : builder_(builder), pool_(builder.pool()), json_(json), document_(document), closed_(closed) {}

  // A value that satisfies all of them. Plain: a string stands without quotes, as in the parameters of a tool
  // call; `text` is then what an unconstrained string may be.
  ExprId value(const Schemas& schemas);
  ExprId plain_value(const Schemas& schemas, const Dfa& text);
  // An object of what schemas say together; none of the other types they may allow.
  ExprId object_value(MergedSchema merged);
  // Rules that were met and are not defined yet; call once everything has been asked for.
  void define_rules();

 private:
  ExprId expression(const Schemas& schemas, const Dfa* text);
  ExprId one_way(const MergedSchema& merged, const Dfa* text);
  ExprId listed(const MergedSchema& merged, const Dfa* text);
  bool is_allowed(const MergedSchema& merged, const std::optional<Dfa>& form, const bj::value& value);
  ExprId constant(const bj::value& value);
  ExprId number(const MergedSchema& merged);

  // schema_strings.cpp
  // What patterns and formats ask for; none where there are none.
  std::optional<Dfa> form_of(const MergedSchema& merged, Writing writing);
  // The same with the length; none where any text will do.
  std::optional<Dfa> text_of(const MergedSchema& merged, Writing writing);
  ExprId string(const MergedSchema& merged);
  ExprId plain_string(const MergedSchema& merged, const Dfa& text);
  Dfa pattern(const Pattern& pattern, Writing writing);
  Dfa format(const Pattern& format, Writing writing);

  // schema_objects.cpp
  ExprId object(MergedSchema merged);
  std::optional<ExprId> other_member(const MergedSchema& merged, const std::optional<Dfa>& names);
  void check_member_counts(const MergedSchema& merged);
  struct Names {
    bool is_list = false;
    std::vector<std::string> list;
    std::optional<Dfa> text;  // none: any
  };
  Names names_of(const Schemas& schemas);
  // Leaves the members whose names will do; false: a required one does not.
  bool keep_names(MergedSchema& merged, const Names& names);

  // schema_arrays.cpp
  ExprId array(const MergedSchema& merged);
  ExprId distinct_items(const MergedSchema& merged, std::optional<std::int64_t> max);
  std::vector<ExprId> distinct_values(const MergedSchema& merged);

  GrammarBuilder& builder_;
  ExpressionPool& pool_;
  JsonText& json_;
  SchemaDocument& document_;
  bool closed_;
  std::map<Schemas, RuleId> rules_;
  std::map<std::string, RuleId> strings_;  // by what is asked of them: many members share a format
  std::vector<std::pair<Schemas, RuleId>> undefined_;
};

}  // namespace fourfold::constrain
