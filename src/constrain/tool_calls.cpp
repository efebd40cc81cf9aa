// Answers that are calls of tools, in the format the model's template shows (text/tool_format.h). In JSON the
// arguments are an object of the tool's schema. Between tags a value is JSON of the parameter's schema, but a
// string stands as it is, without quotes and escapes; it ends at the closing tag, so it cannot hold one.
#include <boost/json/serialize.hpp>
#include <map>
#include <optional>

#include "base/utf8.h"
#include "constrain/guide.h"
#include "constrain/schema_compiler.h"
#include "constrain/schema_text.h"

namespace fourfold::constrain {
namespace {

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

// Text in which no parser can see the end of the value.
Dfa value_text(ExpressionPool& pool) {
  const ExprId anything = pool.repeat(one_of(pool, CodeSet::all(), Writing::plain), 0, std::nullopt);
  const ExprId tag = pool.either({pool.text(text::kParameterClose), pool.text(text::kParameterOpen),
                                  pool.text(text::kFunctionClose), pool.text(text::kFunctionOpen),
                                  pool.text(text::kCallClose), pool.text(text::kCallOpen)});
  return subtract(pool.compile(anything), pool.compile(pool.sequence({anything, tag, anything})),
                  pool.budget());
}

class ToolCompiler {
 public:
  ToolCompiler(GrammarBuilder& builder, JsonText& json, text::CallFormat format)
      : builder_(builder), pool_(builder.pool()), json_(json), format_(format) {
    if (format == text::CallFormat::tagged) text_ = value_text(pool_);
  }

  // What all calls begin with, and what follows of one. Rules of their own for arguments and for values: a
  // request may bring a hundred tools.
  ExprId opening() {
    if (format_ == text::CallFormat::tagged) return words({text::kCallOpen, "\n", text::kFunctionOpen});
    return words({text::kCallOpen, "\n{\"", text::kCallName, "\": "});
  }
  ExprId call_of(std::string_view name, const bj::value* parameters) {
    const ExprId given = parameters ? arguments(name, *parameters) : no_arguments();
    if (format_ == text::CallFormat::tagged) {
      const ExprId rest =
          rule(pool_.sequence({given, words({text::kFunctionClose, "\n", text::kCallClose})}));
      return pool_.sequence({words({name, ">\n"}), rest});
    }
    const ExprId rest = rule(pool_.sequence({given, words({"}\n", text::kCallClose})}));
    const std::string spelling = written(name, Writing::json_string);
    return pool_.sequence({words({"\"", spelling, "\", \"", text::kCallArguments, "\": "}), rest});
  }

 private:
  ExprId words(std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return pool_.text(all);
  }

  ExprId no_arguments() { return format_ == text::CallFormat::tagged ? pool_.empty() : pool_.text("{}"); }

  ExprId arguments(std::string_view name, const bj::value& parameters) {
    SchemaDocument document(parameters, "the parameters of tool " + std::string(name), builder_.budget());
    SchemaCompiler compiler(builder_, json_, document);
    const bj::value* const schemas[] = {&parameters};
    std::vector<ExprId> ways;
    for (const Conjunction& parts : document.alternatives(schemas)) {
      const MergedSchema merged = merge(document, parts, false, builder_.budget());
      if (!(merged.types & kObjectType) || merged.values)
        document.refuse(merged.place, "", "the parameters of a tool are an object");
      ways.push_back(format_ == text::CallFormat::tagged ? tagged(document, compiler, merged)
                                                         : in_json(compiler, merged));
    }
    compiler.define_rules();
    for (const std::string& note : document.notes()) builder_.note(note);
    return pool_.either(ways);
  }

  // A tool that says nothing of its parameters has none.
  ExprId in_json(SchemaCompiler& compiler, const MergedSchema& merged) {
    return merged.is_free && !merged.is_opened ? no_arguments() : compiler.object_value(merged);
  }

  ExprId tagged(const SchemaDocument& document, SchemaCompiler& compiler, const MergedSchema& merged) {
    if (merged.members_min > 0 || merged.members_max)
      document.refuse(merged.place, "", "counts of parameters are not supported");
    if (!merged.names.empty())
      document.refuse(merged.place, "propertyNames", "is not supported for parameters of a tool");
    std::vector<ExprId> parts;
    std::vector<ExprId> taken;
    for (const MergedSchema::Property& property : merged.properties) {
      if (property.name.empty() || property.name.find_first_of(">\r\n") != std::string::npos)
        document.refuse(merged.place, "properties",
                        "the name of a parameter cannot be written in a tool call");
      const ExprId one = argument(pool_.text(property.name), compiler, property.schemas);
      parts.push_back(property.required ? one : pool_.optional(one));
      taken.push_back(pool_.text(property.name));
    }
    if (merged.others.size() > 1 || (merged.others.size() == 1 && !merged.others[0].patterns.empty()))
      document.refuse(merged.place, "patternProperties", "is not supported for parameters of a tool");
    if (merged.is_opened && !merged.others.empty()) {
      Dfa names = pool_.compile(name_text());
      if (!taken.empty()) names = subtract(names, pool_.compile(pool_.either(taken)), builder_.budget());
      parts.push_back(pool_.repeat(
          argument(pool_.automaton(std::move(names)), compiler, merged.others[0].schemas), 0, std::nullopt));
    }
    return parts.empty() ? pool_.empty() : pool_.sequence(parts);
  }

  // Schemas of parameters are mostly alike, and text up to its tag is not small: those of one meaning share
  // it.
  ExprId argument(ExprId name, SchemaCompiler& compiler, const Schemas& schemas) {
    const std::string key = key_of(schemas);
    const auto known = values_.find(key);
    ExprId value = 0;
    if (!key.empty() && known != values_.end()) {
      value = known->second;
    } else {
      value = rule(pool_.sequence(
          {compiler.plain_value(schemas, *text_), words({"\n", text::kParameterClose, "\n"})}));
      if (!key.empty()) values_.emplace(key, value);
    }
    return pool_.sequence({pool_.text(text::kParameterOpen), name, pool_.text(">\n"), value});
  }

  // As it is written, with the order of its members, in which they are written in the answer. Empty where it
  // cannot be told without following references.
  std::string key_of(const Schemas& schemas) {
    std::string key;
    for (const bj::value* schema : schemas) {
      bj::value said = *schema;
      if (bj::object* object = said.if_object())
        for (const std::string_view keyword : {"title", "description", "default", "examples"})
          object->erase({keyword.data(), keyword.size()});
      key += bj::serialize(said);
    }
    builder_.budget().hold(std::ssize(key));
    return key.find("$ref") == std::string::npos ? key + ";" : "";
  }

  ExprId rule(ExprId expression) {
    const RuleId made = builder_.declare();
    builder_.define(made, expression);
    return pool_.call(made);
  }

  ExprId name_text() {
    const CodeSet letters({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {'-', '.'}});
    return pool_.repeat(one_of(pool_, letters, Writing::plain), 1, 64);
  }

  GrammarBuilder& builder_;
  ExpressionPool& pool_;
  JsonText& json_;
  text::CallFormat format_;
  std::optional<Dfa> text_;  // tagged: what a string may be
  std::map<std::string, ExprId> values_;
};

std::string_view name_of(const bj::object& function, std::size_t index) {
  const bj::value* name = function.if_contains("name");
  if (!name || !name->is_string() || name->get_string().empty())
    fail(Code::invalid_request, "tools: number {} has no name", index + 1);
  const std::string_view text = view(name->get_string());
  if (text.find_first_of("<>\r\n") != std::string_view::npos)
    fail(Code::invalid_request, "tools: the name of number {} cannot be written in a tool call", index + 1);
  return text;
}

}  // namespace

std::shared_ptr<const Grammar> compile_tool_calls(std::string_view tools_json,
                                                  const ToolCallsOptions& options, const Limits& limits) {
  const bj::value tools = parse_schema_text(tools_json, "tools", limits);
  if (!tools.is_array()) fail(Code::invalid_request, "tools must be a list");
  GrammarBuilder builder(limits);
  JsonText json(builder);
  ToolCompiler compiler(builder, json, options.format);
  std::vector<ExprId> calls;
  for (std::size_t i = 0; i < tools.get_array().size(); ++i) {
    const bj::object* tool = tools.get_array()[i].if_object();
    const bj::value* inner = tool ? tool->if_contains("function") : nullptr;
    const bj::object* function = inner ? inner->if_object() : nullptr;
    if (!function) fail(Code::invalid_request, "tools: number {} is no function", i + 1);
    const std::string_view name = name_of(*function, i);
    if (options.name && *options.name != name) continue;
    const bj::value* parameters = function->if_contains("parameters");
    calls.push_back(compiler.call_of(name, parameters && !parameters->is_null() ? parameters : nullptr));
  }
  if (calls.empty() && options.name)
    fail(Code::invalid_request, "tool_choice names {}, which is not among the tools", *options.name);
  if (calls.empty()) fail(Code::invalid_request, "a tool must be called, and there are no tools");
  ExpressionPool& pool = builder.pool();
  const ExprId call = pool.sequence({compiler.opening(), pool.either(calls)});
  const ExprId more = pool.repeat(pool.sequence({pool.text("\n"), call}), 0, std::nullopt);
  return builder.finish(options.several ? pool.sequence({call, more}) : call,
                        {std::string(text::kCallOpen), std::string(text::kCallClose)});
}

}  // namespace fourfold::constrain
