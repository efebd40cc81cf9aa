#include "backend/cuda/tune/tuning_file.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/error.h"
#include "base/json_writer.h"
#include "checkpoint/field_reader.h"
#include "json/parse.h"

namespace fourfold::backend::cuda {
namespace {

using checkpoint::FieldReader;
using checkpoint::ProblemList;

constexpr json::Limits kLimits{.text_bytes_max = std::size_t{16} << 20, .depth_max = 8};
constexpr checkpoint::IntRange kTokenRange{1, 1 << 24};
constexpr checkpoint::RealRange kTimeRange{0, 1e12, true};

void write(JsonWriter& json, const TunedForm& form) {
  json.member("row", form.row);
  if (!form.second.empty()) json.member("second_row", form.second);
  if (form.blocks > 0) json.member("blocks", form.blocks);
}

std::string required_text(FieldReader& fields, std::string_view name) {
  const std::optional<std::string> text = fields.optional_text(name);
  if (!text) fields.problem("missing", name, "is missing");
  return text.value_or("");
}

void refuse_unread(FieldReader& fields) {
  for (const std::string& name : fields.unread()) fields.problem("unknown", name, "is not known");
}

TunedForm read_form(FieldReader& fields) {
  TunedForm form;
  form.row = required_text(fields, "row");
  form.second = fields.optional_text("second_row").value_or("");
  form.blocks = static_cast<int>(fields.optional_int("blocks", {1, 1 << 20}).value_or(0));
  return form;
}

TunedChoice read_choice(const boost::json::object& object, std::string_view what, const std::string& prefix,
                        ProblemList& problems) {
  FieldReader fields(object, what, prefix, problems);
  TunedChoice choice;
  choice.op = required_text(fields, "op");
  choice.shape = required_text(fields, "shape");
  choice.tokens_from = static_cast<int>(fields.required_int("tokens_from", kTokenRange));
  choice.tokens_to = static_cast<int>(fields.required_int("tokens_to", kTokenRange));
  if (choice.tokens_to < choice.tokens_from)
    fields.problem("range", "tokens_to", format("is {}, below tokens_from", choice.tokens_to));
  choice.form = read_form(fields);
  choice.microseconds = fields.required_real("us", kTimeRange);
  choice.default_microseconds = fields.required_real("default_us", kTimeRange);
  if (const boost::json::object* instead = fields.optional_object("default")) {
    FieldReader inner(*instead, what, prefix + "default.", problems);
    choice.default_form = read_form(inner);
    refuse_unread(inner);
  } else {
    fields.problem("missing", "default", "is missing");
  }
  refuse_unread(fields);
  return choice;
}

}  // namespace

std::string to_json(const TuningFile& file) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("fourfold_tuning", kTuningVersion).member("chip", file.chip);
  json.member("sm_count", file.sm_count).member("driver", file.driver).member("commit", file.commit);
  json.member("date", file.date).key("choices").begin_array();
  for (const TunedChoice& choice : file.tuning.choices()) {
    json.begin_object().member("op", choice.op).member("shape", choice.shape);
    json.member("tokens_from", choice.tokens_from).member("tokens_to", choice.tokens_to);
    write(json, choice.form);
    json.member("us", choice.microseconds).key("default").begin_object();
    write(json, choice.default_form);
    json.end_object().member("default_us", choice.default_microseconds).end_object();
  }
  return json.end_array().end_object().finish() + "\n";
}

TuningFile parse_tuning(std::string_view text, std::string_view what) {
  const boost::json::value document = json::parse(text, what, kLimits);
  if (!document.is_object()) fail(Code::bad_checkpoint, "{}: is not a JSON object", what);
  const boost::json::object& object = document.get_object();
  ProblemList problems;
  FieldReader fields(object, what, "", problems);
  if (fields.required_int("fourfold_tuning", {kTuningVersion, 1 << 20}) != kTuningVersion)
    fail_with_hint(Code::bad_checkpoint, "Run fourfold tune again with this program.",
                   "{}: a tuning file of another version; this program reads version {}", what,
                   kTuningVersion);
  TuningFile file;
  file.chip = required_text(fields, "chip");
  file.sm_count = static_cast<int>(fields.required_int("sm_count", {1, 1 << 16}));
  file.driver = required_text(fields, "driver");
  file.commit = required_text(fields, "commit");
  file.date = required_text(fields, "date");
  fields.ignore({"choices"});
  const boost::json::value* choices = object.if_contains("choices");
  if (choices == nullptr || !choices->is_array()) {
    fields.problem("missing", "choices", "is no list");
  } else {
    std::size_t index = 0;
    for (const boost::json::value& item : choices->get_array()) {
      const std::string prefix = format("choices[{}].", index++);
      if (item.is_object())
        file.tuning.add(read_choice(item.get_object(), what, prefix, problems));
      else
        problems.add("type", prefix + " is no object");
    }
  }
  refuse_unread(fields);
  problems.fail_if_any(what);
  return file;
}

TuningFile read_tuning(const std::filesystem::path& path) {
  return parse_tuning(json::read_text_file(path, kLimits.text_bytes_max), path.string());
}

bool is_for(const TuningFile& file, const kernels::Machine& machine) {
  return file.chip == machine.description() && file.sm_count == machine.sm_count();
}

void require_for(const TuningFile& file, const kernels::Machine& machine, std::string_view what) {
  if (!is_for(file, machine))
    fail_with_hint(Code::invalid_request, "Run fourfold tune on this chip.",
                   "{}: measured on {} with {} SMs; this is {} with {}", what, file.chip, file.sm_count,
                   machine.description(), machine.sm_count());
  const auto require_row = [&](const std::string& row) {
    for (const kernels::RowKind kind : kernels::kChosenKinds)
      if (machine.find(kind, row).found()) return;
    fail_with_hint(Code::invalid_request, "The file is of another version: run fourfold tune again.",
                   "{}: {}", what, machine.no_row(row));
  };
  for (const TunedChoice& choice : file.tuning.choices()) {
    require_row(choice.form.row);
    if (!choice.form.second.empty()) require_row(choice.form.second);
  }
}

}  // namespace fourfold::backend::cuda
