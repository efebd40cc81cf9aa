#include "server/api/guides.h"

#include "server/api/request_error.h"
#include "text/jinja/python_text.h"

namespace fourfold::server::api {
namespace {

AnswerForm form_of_schema(const Json* schema, const std::string& field) {
  if (schema == nullptr) refuse(field, "{} is missing; it must be a JSON schema", field);
  AnswerForm out{AnswerForm::Kind::json_schema, {}, field};
  // vLLM's guided_json may be the text of a schema.
  out.text = schema->is_text() ? schema->text() : text::jinja::to_json(*schema);
  return out;
}

AnswerForm form_of_regex(const Json& pattern, const std::string& field) {
  if (!pattern.is_text()) refuse(field, "{} is {}; it must be a string", field, shown(pattern));
  return {AnswerForm::Kind::regex, pattern.text(), field};
}

// One form at most.
void take(AnswerForm& out, AnswerForm form) {
  if (form.kind == AnswerForm::Kind::free) return;
  if (out.kind != AnswerForm::Kind::free)
    refuse(form.field, "{} and {} both say what form the answer has", out.field, form.field);
  out = std::move(form);
}

void read_structured(Fields& options, AnswerForm& out) {
  if (const Json* schema = options.find("json")) take(out, form_of_schema(schema, options.name_of("json")));
  if (const Json* pattern = options.find("regex"))
    take(out, form_of_regex(*pattern, options.name_of("regex")));
  if (options.boolean("json_object").value_or(false))
    take(out, {AnswerForm::Kind::json_object, {}, options.name_of("json_object")});
  options.finish();
}

}  // namespace

AnswerForm read_format(Fields& format) {
  const std::string field = format.name_of("type");
  const auto type = format.one_of("type", {"text", "json_object", "json_schema"});
  if (!type) refuse(field, "{} is missing", field);
  AnswerForm out;
  if (*type == "json_object") out = {AnswerForm::Kind::json_object, {}, field};
  if (*type == "json_schema") {
    if (auto inside = format.object("json_schema")) {
      out = form_of_schema(inside->find("schema"), inside->name_of("schema"));
      inside->ignore({"name", "description", "strict"});
      inside->finish();
    } else {
      out = form_of_schema(format.find("schema"), format.name_of("schema"));
      format.ignore({"name", "description", "strict"});
    }
  }
  format.finish();
  return out;
}

AnswerForm read_form(Fields& fields) {
  AnswerForm out;
  if (auto format = fields.object("response_format")) take(out, read_format(*format));
  if (const Json* schema = fields.find("guided_json")) take(out, form_of_schema(schema, "guided_json"));
  if (const Json* pattern = fields.find("guided_regex")) take(out, form_of_regex(*pattern, "guided_regex"));
  if (auto options = fields.object("structured_outputs")) read_structured(*options, out);
  return out;
}

MakeGuide make_guide(const AnswerForm& form, const Tools& tools, const ServedModel&) {
  if (tools.forced())
    refuse("tool_choice", "tool_choice may only be auto or none; this build does not force calls");
  if (form.kind != AnswerForm::Kind::free)
    refuse(form.field, "{} asks for a form; this build only writes free text", form.field);
  return {};
}

}  // namespace fourfold::server::api
