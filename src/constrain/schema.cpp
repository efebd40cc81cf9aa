// JSON answers: any object, or what a schema says.
#include "base/error.h"
#include "constrain/guide.h"
#include "constrain/schema_compiler.h"
#include "constrain/schema_text.h"
#include "json/parse.h"

namespace fourfold::constrain {

std::shared_ptr<const Grammar> compile_json_object(const Limits& limits, const JsonOptions& options) {
  GrammarBuilder builder(limits);
  JsonText json(builder, options.blanks);
  return builder.finish(json.any_object());
}

bj::value parse_schema_text(std::string_view text, std::string_view what, const Limits& limits) {
  try {
    return json::parse(text, what, {.text_bytes_max = limits.text_bytes_max, .depth_max = 100});
  } catch (const Error& error) {
    throw Error(Code::invalid_request, error.what(), error.hint());
  }
}

std::shared_ptr<const Grammar> compile_json_schema(std::string_view schema_json, const Limits& limits,
                                                   const JsonOptions& options) {
  const bj::value schema = parse_schema_text(schema_json, "the schema", limits);
  GrammarBuilder builder(limits);
  JsonText json(builder, options.blanks);
  SchemaDocument document(schema, "the schema", builder.budget());
  SchemaCompiler compiler(builder, json, document, options.closed_objects);
  const ExprId answer = compiler.value({&schema});
  compiler.define_rules();
  for (const std::string& note : document.notes()) builder.note(note);
  return builder.finish(answer);
}

}  // namespace fourfold::constrain
