#include "server/api/guides.h"

#include "server/api/form_cache.h"
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
  fields.refuse_any({"guided_grammar", "grammar", "ebnf"});
  if (auto options = fields.object("structured_outputs")) read_structured(*options, out);
  return out;
}

namespace {

std::string tools_json(const Tools& tools) {
  std::vector<Json> list;
  for (const Tool& tool : tools.list) list.push_back(template_tool(tool));
  return text::jinja::to_json(Json::list(std::move(list)));
}

std::shared_ptr<const constrain::Masks> calls_form(const Tools& tools, FormCache& forms,
                                                   const constrain::Limits& limits) {
  const std::string list = tools_json(tools);
  constrain::ToolCallsOptions options;
  if (tools.choice == ToolChoice::named) options.name = tools.named;
  options.several = tools.parallel;
  const std::string key = fourfold::format("calls {} {} {}", options.several, tools.named, list);
  return forms.get(key, [&] { return constrain::compile_tool_calls(list, options, limits); });
}

std::shared_ptr<const constrain::Masks> answer_form(const AnswerForm& form, FormCache& forms,
                                                    const constrain::Limits& limits) {
  switch (form.kind) {
    case AnswerForm::Kind::json_object:
      return forms.get("object", [&] { return constrain::compile_json_object(limits); });
    case AnswerForm::Kind::json_schema:
      return forms.get("schema " + form.text,
                       [&] { return constrain::compile_json_schema(form.text, limits); });
    default:
      return forms.get("regex " + form.text, [&] { return constrain::compile_regex(form.text, limits); });
  }
}

}  // namespace

MakeGuide make_guide(const AnswerForm& form, const Tools& tools, const Generation& generation,
                     const ServedModel& model, const RequestContext& context) {
  const bool free = form.kind == AnswerForm::Kind::free;
  if (free && !tools.forced()) return {};
  const std::string field = tools.forced() ? "tool_choice" : form.field;
  if (!free && tools.forced())
    refuse(field, "tool_choice asks for a call and {} for another form", form.field);
  if (!model.forms) refuse(field, "{} asks for a form; this server only writes free text", field);
  // Its end is the model's own; an answer that may not end would go on behind its form.
  if (generation.stop_ids != model.stop_ids)
    refuse(field, "{} asks for a form, which goes with neither ignore_eos nor stop_token_ids", field);
  std::shared_ptr<const constrain::Masks> masks;
  try {
    constrain::Limits limits;
    limits.cancelled = context.cancelled;
    masks =
        tools.forced() ? calls_form(tools, *model.forms, limits) : answer_form(form, *model.forms, limits);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request) throw;
    const std::string hint = error.hint().empty() ? "" : ". " + error.hint();
    refuse(field, "{}: {}{}", field, error.what(), hint);
  }
  return [masks, &model](const Prompt& prompt) {
    constrain::GuideStart start;
    if (prompt.starts_thinking) {
      start.after = model.tokenizer.added_token("</think>");
      if (const auto call = model.tokenizer.added_token("<tool_call>")) start.not_before.push_back(*call);
      start.newlines = true;
    }
    return constrain::make_guide(masks, std::move(start));
  };
}

}  // namespace fourfold::server::api
