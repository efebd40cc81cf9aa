// config.json -> ModelConfig: what every family has, and the way to the family's own reader.
#include "checkpoint/hf_config.h"

#include "base/error.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/family.h"
#include "json/parse.h"

namespace fourfold::checkpoint {
namespace {

namespace bj = boost::json;

// Mixed-precision configs list every module: 397B has some 40,000 bytes, per-expert lists would have
// millions.
constexpr json::Limits kConfigLimits{.text_bytes_max = std::size_t{64} << 20, .depth_max = 32};

const Family& family_of(std::string_view model_type, std::string_view what,
                        std::span<const Family* const> families) {
  std::string known;
  for (const Family* family : families)
    for (const std::string_view name : family->model_types) {
      if (name == model_type) return *family;
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  fail_with_hint(Code::unsupported_model, "supported model types: " + known, "{}: model_type is \"{}\"", what,
                 model_type.substr(0, 80));
}

// Fields that change nothing this program computes.
void ignore_without_effect(FieldReader& fields) {
  fields.ignore({"_name_or_path",
                 "architectures",
                 "attention_dropout",
                 "attn_implementation",
                 "auto_map",
                 "chunk_size_feed_forward",
                 "dtype",
                 "id2label",
                 "image_token_id",
                 "initializer_range",
                 "is_encoder_decoder",
                 "label2id",
                 "language_model_only",
                 "output_attentions",
                 "output_hidden_states",
                 "output_router_logits",
                 "pad_token_id",
                 "quantization_config",
                 "return_dict",
                 "router_aux_loss_coef",
                 "router_jitter_noise",
                 "torch_dtype",
                 "transformers_version",
                 "use_cache",
                 "video_token_id",
                 "vision_config",
                 "vision_end_token_id",
                 "vision_start_token_id"});
}

StoredDType read_dtype(FieldReader& fields, FieldReader& root) {
  for (FieldReader* place : {&fields, &root})
    for (const char* name : {"dtype", "torch_dtype"}) {
      const auto text = place->optional_text(name);
      if (!text) continue;
      if (*text == "bfloat16") return StoredDType::bf16;
      if (*text == "float16") return StoredDType::f16;
      if (*text == "float32") return StoredDType::f32;
      place->unsupported(name, *text, "bfloat16, float16, float32");
    }
  return StoredDType::bf16;
}

// Both places may say it; a file that contradicts itself is not guessed about.
bool read_tied(FieldReader& fields, FieldReader& root) {
  const auto inner = fields.optional_bool("tie_word_embeddings");
  const auto outer = root.optional_bool("tie_word_embeddings");
  if (inner && outer && *inner != *outer)
    root.problem("contradictory", "tie_word_embeddings",
                 fourfold::format("= {} here and {} in text_config", *outer, *inner));
  return outer.value_or(inner.value_or(false));
}

ModelConfig read_config(const bj::object& document, std::string_view what,
                        std::span<const Family* const> families) {
  ProblemList problems;
  FieldReader root(document, what, "", problems);
  const bj::object* nested = root.optional_object("text_config");
  FieldReader fields(nested == nullptr ? document : *nested, what, nested == nullptr ? "" : "text_config.",
                     problems);
  const auto model_type =
      fields.has("model_type") ? fields.optional_text("model_type") : root.optional_text("model_type");
  if (!model_type) problems.add("missing", "model_type");
  problems.fail_if_any(what);
  const Family& family = family_of(*model_type, what, families);

  ModelConfig config;
  config.family = &family;
  const auto architectures = root.optional_texts("architectures");
  config.architecture = architectures.empty() ? *model_type : architectures.front();
  config.hidden_size = fields.required_int("hidden_size", kWidth);
  config.vocab_size = fields.required_int("vocab_size", kVocabulary);
  config.position_limit = fields.required_int("max_position_embeddings", kPositions);
  config.norm_epsilon = fields.required_real("rms_norm_eps", {0, 0.1});
  ConfigFields from{*model_type, fields, what, problems};
  family.read_config(from, config);
  config.tie_word_embeddings = read_tied(fields, root);
  config.dtype = read_dtype(fields, root);
  config.eos_ids = fields.optional_int_or_ints("eos_token_id", kTokenId);
  config.bos_id = fields.optional_int("bos_token_id", kTokenId);
  problems.fail_if_any(what);

  ignore_without_effect(fields);
  config.unknown_fields = fields.unread();
  if (nested != nullptr) {
    root.ignore({"model_type", "text_config", "eos_token_id", "bos_token_id"});
    ignore_without_effect(root);
    for (std::string& name : root.unread()) config.unknown_fields.push_back(std::move(name));
  } else {
    std::erase(config.unknown_fields, "text_config");
  }
  return config;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view what,
                               std::span<const Family* const> families) {
  const bj::value document = json::parse(text, what, kConfigLimits);
  if (!document.is_object()) fail(Code::bad_checkpoint, "{}: is not a JSON object", what);
  return read_config(document.get_object(), what, families);
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_model_config(json::read_text_file(path, kConfigLimits.text_bytes_max), path.string());
}

}  // namespace fourfold::checkpoint
