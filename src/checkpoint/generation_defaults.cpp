// generation_config.json: what a model's makers suggest for sampling, and the tokens that end an answer.
#include "base/error.h"
#include "base/sampling_limits.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/hf_config.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

constexpr json::Limits kLimits{.text_bytes_max = std::size_t{1} << 20, .depth_max = 16};

}  // namespace

GenerationDefaults parse_generation_defaults(std::string_view text, std::string_view what) {
  const boost::json::value document = json::parse(text, what, kLimits);
  if (!document.is_object()) fail(Code::bad_checkpoint, "{}: is not a JSON object", what);
  ProblemList problems;
  FieldReader fields(document.get_object(), what, "", problems);
  GenerationDefaults defaults;
  defaults.stop_ids = fields.optional_int_or_ints("eos_token_id", kTokenId);
  defaults.bos_id = fields.optional_int("bos_token_id", kTokenId);
  defaults.do_sample = fields.optional_bool("do_sample");
  // Zero is a value people write for "off".
  defaults.temperature = fields.optional_real("temperature", {0, kTemperatureMost, true});
  defaults.top_p = fields.optional_real("top_p", {0, 1, true});
  defaults.top_k = fields.optional_int("top_k", {-1, 1 << 26});
  defaults.min_p = fields.optional_real("min_p", {0, 1, true});
  defaults.repetition_penalty =
      fields.optional_real("repetition_penalty", {kRepetitionPenaltyLeast, kRepetitionPenaltyMost, true});
  problems.fail_if_any(what);
  return defaults;
}

std::optional<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return parse_generation_defaults(json::read_text_file(path, kLimits.text_bytes_max), path.string());
}

}  // namespace fourfold::checkpoint
