#include "server/api/guides.h"

#include "server/api/form_cache.h"
#include "server/api/request_error.h"
#include "text/jinja/python_text.h"
#include "text/think_tags.h"

namespace fourfold::server::api {
namespace {

AnswerForm form_of_schema(const Json* schema, const std::string& field) {
  if (schema == nullptr) refuse_missing(field, "{} is missing; it must be a JSON schema", field);
  AnswerForm out{.kind = AnswerForm::Kind::json_schema, .field = field};
  // vLLM's guided_json may be the text of a schema.
  out.text = schema->is_text() ? schema->text() : text::jinja::to_json(*schema);
  return out;
}

AnswerForm form_of_regex(const Json& pattern, const std::string& field) {
  if (!pattern.is_text()) refuse(field, "{} is {}; it must be a string", field, shown(pattern));
  return {.kind = AnswerForm::Kind::regex, .text = pattern.text(), .field = field};
}

AnswerForm form_of_choice(const Json& list, const std::string& field) {
  AnswerForm out{.kind = AnswerForm::Kind::choice, .field = field};
  const bool is_list = list.is_sequence() && !list.sequence()->items.empty();
  if (is_list)
    for (const Json& item : list.sequence()->items)
      if (item.is_text()) out.choices.push_back(item.text());
  if (!is_list || out.choices.size() != list.sequence()->items.size())
    refuse(field, "{} must be a list of strings to choose from", field);
  return out;
}

// Known, and not built: a schema or an expression says as much in most cases.
void refuse_grammar(Fields& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const Json* grammar = fields.find(name);
        grammar != nullptr && !(grammar->is_text() && grammar->text().empty()))
      refuse(fields.name_of(name),
             "{} asks for a grammar, which this server does not read; say it as a JSON schema, a regular "
             "expression or a list of choices",
             fields.name_of(name));
}

// One form at most.
void take(AnswerForm& out, AnswerForm form) {
  if (form.kind == AnswerForm::Kind::free) return;
  if (out.kind != AnswerForm::Kind::free)
    refuse(form.field, "{} and {} both say what form the answer has", out.field, form.field);
  out = std::move(form);
}

// Options that mean backends or blanks of other servers.
void read_structured(Fields& options, AnswerForm& out) {
  if (const Json* schema = options.find("json")) take(out, form_of_schema(schema, options.name_of("json")));
  if (const Json* pattern = options.find("regex"))
    take(out, form_of_regex(*pattern, options.name_of("regex")));
  if (const Json* list = options.find("choice")) take(out, form_of_choice(*list, options.name_of("choice")));
  if (options.boolean("json_object").value_or(false))
    take(out, {.kind = AnswerForm::Kind::json_object, .field = options.name_of("json_object")});
  refuse_grammar(options, {"grammar", "structural_tag"});
  out.json.blanks = !options.boolean("disable_any_whitespace").value_or(false);
  out.json.closed_objects = options.boolean("disable_additional_properties").value_or(false);
  options.ignore({"disable_fallback", "whitespace_pattern", "backend", "_backend", "_backend_was_auto"});
  options.finish();
}

}  // namespace

AnswerForm read_format(Fields& format) {
  const std::string field = format.name_of("type");
  const auto type = format.one_of("type", {"text", "json_object", "json_schema", "regex"});
  if (!type) refuse_missing(field, "{} is missing", field);
  AnswerForm out;
  if (*type == "json_object") out = {.kind = AnswerForm::Kind::json_object, .field = field};
  if (*type == "regex") {
    const Json* pattern = format.find("pattern");
    if (pattern == nullptr)
      refuse_missing(format.name_of("pattern"), "{} is missing", format.name_of("pattern"));
    out = form_of_regex(*pattern, format.name_of("pattern"));
  }
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
  if (const Json* list = fields.find("guided_choice")) take(out, form_of_choice(*list, "guided_choice"));
  if (const Json* schema = fields.find("json_schema")) take(out, form_of_schema(schema, "json_schema"));
  if (const Json* pattern = fields.find("regex")) take(out, form_of_regex(*pattern, "regex"));
  refuse_grammar(fields, {"guided_grammar", "grammar", "ebnf", "structural_tag"});
  fields.ignore({"guided_decoding_backend", "guided_whitespace_pattern"});
  if (auto options = fields.object("structured_outputs")) read_structured(*options, out);
  return out;
}

namespace {

std::string tools_json(const Tools& tools) {
  std::vector<Json> list;
  for (const Tool& tool : tools.list) list.push_back(template_tool(tool));
  return text::jinja::to_json(Json::list(std::move(list)));
}

using Compiled = std::shared_ptr<const constrain::Masks>;

Compiled calls_form(const Tools& tools, const FormCache::Asked& asked, const ServedModel& model) {
  const std::string list = tools_json(tools);
  constrain::ToolCallsOptions options;
  if (model.chat_template) options.format = model.chat_template->call_format();
  if (tools.choice == ToolChoice::named) options.name = tools.named;
  options.several = tools.parallel;
  const std::string key = fourfold::format("calls {} {} {} {}", static_cast<int>(options.format),
                                           options.several, tools.named, list);
  return model.forms->get(asked, key,
                          [&] { return constrain::compile_tool_calls(list, options, asked.limits); });
}

Compiled answer_form(const AnswerForm& form, const FormCache::Asked& asked, FormCache& forms) {
  const constrain::Limits& limits = asked.limits;
  const std::string options =
      fourfold::format("{} {} ", form.json.blanks ? 1 : 0, form.json.closed_objects ? 1 : 0);
  switch (form.kind) {
    case AnswerForm::Kind::json_object:
      return forms.get(asked, "object " + options,
                       [&] { return constrain::compile_json_object(limits, form.json); });
    case AnswerForm::Kind::json_schema:
      return forms.get(asked, "schema " + options + form.text,
                       [&] { return constrain::compile_json_schema(form.text, limits, form.json); });
    case AnswerForm::Kind::choice: {
      std::string key = "choice ";
      for (const std::string& choice : form.choices) key += fourfold::format("{}:{}", choice.size(), choice);
      return forms.get(asked, key, [&] { return constrain::compile_choice(form.choices, limits); });
    }
    default:
      return forms.get(asked, "regex " + form.text,
                       [&] { return constrain::compile_regex(form.text, limits); });
  }
}

// The form stands in a message of its own: one to a tool, or the final one. An answer that goes on with a
// message has its header already.
constrain::GuideStart harmony_start(const text::Tokenizer& tokenizer, const Prompt& prompt, bool call) {
  constrain::GuideStart start;
  if (prompt.in_message) return start;
  const std::string header = call ? "<|channel|>commentary" : "<|channel|>final<|message|>";
  start.after = tokenizer.added_token("<|end|>");
  start.thought = tokenizer.encode("<|channel|>analysis<|message|>");
  start.header = tokenizer.encode(header);
  start.header_again = tokenizer.encode("<|start|>assistant" + header);
  return start;
}

}  // namespace

MakeGuide make_guide(const AnswerForm& form, const Tools& tools, const Generation& generation,
                     const ServedModel& model, const RequestContext& context, Notes& notes) {
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
    FormCache::Asked asked{.tenant = context.tenant, .client = context.client};
    asked.limits.cancelled = context.cancelled;
    masks = tools.forced() ? calls_form(tools, asked, model) : answer_form(form, asked, *model.forms);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_request) throw;
    const std::string hint = error.hint().empty() ? "" : ". " + error.hint();
    refuse(field, "{}: {}{}", field, error.what(), hint);
  }
  for (const std::string& note : masks->grammar().notes()) notes.add(NoteKind::schema, field, note);
  const auto format = model.chat_template ? model.chat_template->call_format() : text::CallFormat::tagged;
  const bool call = tools.forced();
  return [masks, &model, format, call](const Prompt& prompt) {
    constrain::GuideStart start;
    if (format == text::CallFormat::harmony) {
      start = harmony_start(model.tokenizer, prompt, call);
    } else if (prompt.starts_thinking) {
      start.after = model.tokenizer.added_token(text::think_tags(model.tokenizer).end);
      if (const auto opening = model.tokenizer.added_token(text::marks_of(format).opening()))
        start.not_before.push_back(*opening);
      start.newlines = true;
    }
    return constrain::make_guide(masks, std::move(start));
  };
}

}  // namespace fourfold::server::api
