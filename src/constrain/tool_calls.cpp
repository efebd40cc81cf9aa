// Answers that are calls of tools, in the format the model's template shows (text/tool_format.h). In JSON the
// arguments are an object of the tool's schema. Between tags a value is JSON of the parameter's schema, but a
// string stands as it is, without quotes and escapes; it ends at the closing tag, so it cannot hold one.
#include <boost/json/serialize.hpp>
#include <iterator>
#include <map>
#include <optional>

#include "base/utf8.h"
#include "constrain/guide.h"
#include "constrain/schema_compiler.h"
#include "constrain/schema_text.h"

namespace fourfold::constrain {
namespace {

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

// Control tokens: only the token itself is one, letters are not.
const std::string kHarmonyMarks[] = {control_mark("<|constrain|>"), control_mark("<|message|>")};

// How the calls of a format are laid out: its marks with the blanks between them.
struct Layout {
  bool in_json = false;                               // the arguments; else they are values between tags
  std::string section_open = {}, section_close = {};  // around all calls
  std::string between = {};                           // two calls
  std::string call_open = {}, name_close = {};        // around the name
  std::string key_open = {}, key_close = {}, value_close = {};
  std::string call_close = {};
  bool numbered = false;  // a number follows the name: ":0"
};

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

Layout layout_of(text::CallFormat format) {
  using text::CallFormat;
  const text::CallMarks marks = text::marks_of(format);
  const std::string section_open(marks.section_open), section_close(marks.section_close);
  const std::string_view line = format == CallFormat::glm ? "\n" : "";
  switch (format) {
    case CallFormat::tagged:
      return {.in_json = false,
              .between = "\n",
              .call_open = joined({text::kCallOpen, "\n", text::kFunctionOpen}),
              .name_close = ">\n",
              .key_open = std::string(text::kParameterOpen),
              .key_close = ">\n",
              .value_close = joined({"\n", text::kParameterClose, "\n"}),
              .call_close = joined({text::kFunctionClose, "\n", text::kCallClose})};
    case CallFormat::json:
      return {.in_json = true,
              .between = "\n",
              .call_open = joined({text::kCallOpen, "\n{\"", text::kCallName, "\": \""}),
              .name_close = joined({"\", \"", text::kCallArguments, "\": "}),
              .call_close = joined({"}\n", text::kCallClose})};
    case CallFormat::glm:
    case CallFormat::glm_compact:
      return {.in_json = false,
              .between = std::string(line),
              .call_open = std::string(marks.call_open),
              .name_close = std::string(line),
              .key_open = std::string(marks.key_open),
              .key_close = joined({marks.key_close, line, marks.value_open}),
              .value_close = joined({marks.value_close, line}),
              .call_close = std::string(marks.call_close)};
    case CallFormat::minimax:
      return {.in_json = false,
              .section_open = section_open + "\n",
              .section_close = section_close,
              .call_open = std::string(marks.call_open),
              .name_close = joined({marks.name_close, "\n"}),
              .key_open = std::string(marks.key_open),
              .key_close = std::string(marks.key_close),
              .value_close = joined({marks.value_close, "\n"}),
              .call_close = joined({marks.call_close, "\n"})};
    case CallFormat::deepseek:
      return {.in_json = true,
              .section_open = section_open,
              .section_close = section_close,
              .between = "\n",
              .call_open = joined({marks.call_open, text::kDeepSeekKind, marks.name_close}),
              .name_close = joined({"\n", text::kFenceOpen, "\n"}),
              .call_close = joined({"\n", text::kFence, marks.call_close})};
    case CallFormat::deepseek_plain:
    case CallFormat::mistral:
    case CallFormat::kimi:
      return {.in_json = true,
              .section_open = section_open,
              .section_close = section_close,
              .call_open = joined({marks.call_open, marks.before_name}),
              .name_close = std::string(marks.name_close),
              .call_close = std::string(marks.call_close),
              .numbered = format == CallFormat::kimi};
    case CallFormat::harmony:  // behind the channel's name (GuideStart::header)
      return {.in_json = true,
              .call_open = joined({" to=", marks.before_name}),
              .name_close = joined({" ", kHarmonyMarks[0], "json", kHarmonyMarks[1]})};
  }
  return {};
}

// What the parser of the format looks for.
std::vector<std::string> marks_in(text::CallFormat format) {
  if (format == text::CallFormat::json) return {std::string(text::kCallOpen), std::string(text::kCallClose)};
  if (format == text::CallFormat::harmony) return {std::begin(kHarmonyMarks), std::end(kHarmonyMarks)};
  if (format == text::CallFormat::tagged)
    return {std::string(text::kCallOpen),      std::string(text::kCallClose),
            std::string(text::kParameterOpen), std::string(text::kParameterClose),
            std::string(text::kFunctionOpen),  std::string(text::kFunctionClose)};
  const text::CallMarks marks = text::marks_of(format);
  std::vector<std::string> out;
  for (const std::string_view mark : {marks.section_open, marks.section_close, marks.call_open,
                                      marks.call_close, marks.key_open, marks.value_open, marks.value_close})
    if (!mark.empty()) out.emplace_back(mark);
  // Those that also stand in ordinary text end nothing.
  for (const std::string_view mark : {marks.name_close, marks.key_close})
    if (mark.starts_with('<') || mark.starts_with('[')) out.emplace_back(mark);
  return out;
}

// Text in which no parser can see the end of the value.
Dfa value_text(ExpressionPool& pool, text::CallFormat format) {
  const ExprId anything = pool.repeat(one_of(pool, CodeSet::all(), Writing::plain), 0, std::nullopt);
  std::vector<ExprId> marks;
  for (const std::string& mark : marks_in(format)) marks.push_back(pool.text(mark));
  return subtract(pool.compile(anything),
                  pool.compile(pool.sequence({anything, pool.either(marks), anything})), pool.budget());
}

class ToolCompiler {
 public:
  ToolCompiler(GrammarBuilder& builder, JsonText& json, text::CallFormat format)
      : builder_(builder), pool_(builder.pool()), json_(json), format_(format), layout_(layout_of(format)) {
    if (!layout_.in_json) text_ = value_text(pool_, format);
  }

  // Rules of their own for arguments and for values: a request may bring a hundred tools.
  ExprId call_of(std::string_view name, const bj::value* parameters) {
    const ExprId given = parameters ? arguments(name, *parameters) : no_arguments();
    const ExprId rest = rule(pool_.sequence({given, pool_.text(layout_.call_close)}));
    const bool quoted = format_ == text::CallFormat::json;
    std::vector<ExprId> parts{pool_.text(quoted ? written(name, Writing::json_string) : std::string(name))};
    if (layout_.numbered) {
      parts.push_back(pool_.text(":"));
      parts.push_back(pool_.repeat(one_of(pool_, CodeSet({{'0', '9'}}), Writing::plain), 1, 3));
    }
    parts.push_back(pool_.text(layout_.name_close));
    parts.push_back(rest);
    return pool_.sequence(parts);
  }

  ExprId answer(const std::vector<ExprId>& calls, bool several) {
    const ExprId call = pool_.sequence({pool_.text(layout_.call_open), pool_.either(calls)});
    const ExprId more = pool_.repeat(pool_.sequence({pool_.text(layout_.between), call}), 0, std::nullopt);
    std::vector<ExprId> parts{pool_.text(layout_.section_open), call};
    if (several) parts.push_back(more);
    parts.push_back(pool_.text(layout_.section_close));
    return pool_.sequence(parts);
  }

 private:
  ExprId no_arguments() { return layout_.in_json ? pool_.text("{}") : pool_.empty(); }

  ExprId arguments(std::string_view name, const bj::value& parameters) {
    SchemaDocument document(parameters, "the parameters of tool " + std::string(name), builder_.budget());
    SchemaCompiler compiler(builder_, json_, document);
    const bj::value* const schemas[] = {&parameters};
    std::vector<ExprId> ways;
    for (const Conjunction& parts : document.alternatives(schemas)) {
      const MergedSchema merged = merge(document, parts, false, builder_.budget());
      if (!(merged.types & kObjectType) || merged.values)
        document.refuse(merged.place, "", "the parameters of a tool are an object");
      ways.push_back(layout_.in_json ? in_json(compiler, merged) : tagged(document, compiler, merged));
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
      const bool fits =
          format_ == text::CallFormat::tagged
              ? !property.name.empty() && property.name.find_first_of(">\r\n") == std::string::npos
              : text::is_key_name(property.name);
      if (!fits)
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
      value = rule(pool_.sequence({compiler.plain_value(schemas, *text_), pool_.text(layout_.value_close)}));
      if (!key.empty()) values_.emplace(key, value);
    }
    return pool_.sequence({pool_.text(layout_.key_open), name, pool_.text(layout_.key_close), value});
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
  Layout layout_;
  std::optional<Dfa> text_;  // between tags: what a string may be
  std::map<std::string, ExprId> values_;
};

std::string_view name_of(const bj::object& function, std::size_t index, text::CallFormat format) {
  const bj::value* name = function.if_contains("name");
  if (!name || !name->is_string() || name->get_string().empty())
    fail(Code::invalid_request, "tools: number {} has no name", index + 1);
  const std::string_view text = view(name->get_string());
  const bool free_names = format == text::CallFormat::tagged || format == text::CallFormat::json;
  if (free_names ? text.find_first_of("<>\r\n") != std::string_view::npos : !text::is_call_name(text))
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
    const std::string_view name = name_of(*function, i, options.format);
    if (options.name && *options.name != name) continue;
    const bj::value* parameters = function->if_contains("parameters");
    calls.push_back(compiler.call_of(name, parameters && !parameters->is_null() ? parameters : nullptr));
  }
  if (calls.empty() && options.name)
    fail(Code::invalid_request, "tool_choice names {}, which is not among the tools", *options.name);
  if (calls.empty()) fail(Code::invalid_request, "a tool must be called, and there are no tools");
  // A message of Harmony's is one call, and ends the answer.
  const bool several = options.several && options.format != text::CallFormat::harmony;
  return builder.finish(compiler.answer(calls, several), marks_in(options.format));
}

}  // namespace fourfold::constrain
