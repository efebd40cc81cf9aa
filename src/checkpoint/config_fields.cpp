#include "checkpoint/config_fields.h"

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error.h"

namespace fourfold::checkpoint {
namespace {

namespace bj = boost::json;

std::optional<YarnConfig> read_yarn(FieldReader& rope, std::string_view type) {
  if (type == "default" || type == "mrope") return std::nullopt;
  if (type != "yarn") rope.unsupported("rope_type", type, "default, mrope, yarn");
  YarnConfig yarn;
  yarn.factor = rope.required_real("factor", {0, 1e6});
  yarn.original_positions = rope.required_int("original_max_position_embeddings", kPositions);
  yarn.beta_fast = rope.optional_real("beta_fast", {0, 1e6}).value_or(yarn.beta_fast);
  yarn.beta_slow = rope.optional_real("beta_slow", {0, 1e6}).value_or(yarn.beta_slow);
  yarn.truncate = rope.optional_bool("truncate").value_or(yarn.truncate);
  yarn.attention_factor = rope.optional_real("attention_factor", {0, 1e6});
  yarn.mscale = rope.optional_real("mscale", {0, 1e6, true}).value_or(yarn.mscale);
  yarn.mscale_all_dim = rope.optional_real("mscale_all_dim", {0, 1e6, true}).value_or(yarn.mscale_all_dim);
  return yarn;
}

}  // namespace

void refuse_activations_but_silu(FieldReader& fields) { refuse_text_but(fields, "hidden_act", "silu"); }

void refuse_if_true(FieldReader& fields, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (fields.optional_bool(name).value_or(false)) fields.unsupported(name, "true", "false");
}

void refuse_text_but(FieldReader& fields, const char* name, std::string_view known) {
  if (const auto text = fields.optional_text(name); text && *text != known)
    fields.unsupported(name, *text, known);
}

void read_head_sizes(FieldReader& fields, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  attention.head_count = fields.required_int("num_attention_heads", kHeads);
  attention.kv_head_count = fields.required_int("num_key_value_heads", kHeads);
  attention.head_dim = fields.required_int("head_dim", kHeadDim);
  if (attention.head_count % attention.kv_head_count != 0)
    fields.problem("contradictory", "num_attention_heads",
                   fourfold::format("= {} is no multiple of num_key_value_heads = {}", attention.head_count,
                                    attention.kv_head_count));
}

void check_experts_per_token(FieldReader& fields, const char* expert_count_name, const MoeConfig& moe) {
  if (moe.experts_per_token > moe.expert_count)
    fields.problem(
        "contradictory", "num_experts_per_tok",
        fourfold::format("= {} exceeds {} = {}", moe.experts_per_token, expert_count_name, moe.expert_count));
}

void check_groups(FieldReader& fields, const MoeConfig& moe) {
  if (moe.expert_count % moe.group_count != 0)
    fields.problem("contradictory", "n_group",
                   fourfold::format("= {} does not divide {} experts", moe.group_count, moe.expert_count));
  else if (moe.group_count > 1 && moe.expert_count < 2 * moe.group_count)
    fields.problem("contradictory", "n_group",
                   fourfold::format("= {} leaves groups of one of {} experts; the rank of a group is the sum "
                                    "of its two best",
                                    moe.group_count, moe.expert_count));
  if (moe.groups_kept > moe.group_count)
    fields.problem("contradictory", "topk_group",
                   fourfold::format("= {} exceeds n_group = {}", moe.groups_kept, moe.group_count));
  else if (moe.groups_kept * (moe.expert_count / moe.group_count) < moe.experts_per_token)
    fields.problem(
        "contradictory", "topk_group",
        fourfold::format("= {} groups of {} experts are fewer than num_experts_per_tok = {}", moe.groups_kept,
                         moe.expert_count / moe.group_count, moe.experts_per_token));
}

MoeConfig read_routed_experts(FieldReader& fields) {
  MoeConfig moe;
  moe.expert_count = fields.required_int("n_routed_experts", kExperts);
  moe.experts_per_token = fields.required_int("num_experts_per_tok", kExperts);
  moe.intermediate_size = fields.required_int("moe_intermediate_size", kWidth);
  // Several shared experts are one that is as wide as all of them.
  const std::int64_t shared_count = fields.required_int("n_shared_experts", {0, kExperts.most});
  moe.shared_intermediate_size = shared_count * moe.intermediate_size;
  moe.normalize_weights = fields.optional_bool("norm_topk_prob").value_or(true);
  moe.group_count = fields.required_int("n_group", kExperts);
  moe.groups_kept = fields.required_int("topk_group", kExperts);
  moe.weight_scale = fields.required_real("routed_scaling_factor", {0, 1e6});
  check_experts_per_token(fields, "n_routed_experts", moe);
  check_groups(fields, moe);
  return moe;
}

void read_dense_then_experts(FieldReader& fields, MixerKind mixer, ModelConfig& config) {
  const std::int64_t layer_count = fields.required_int("num_hidden_layers", kLayers);
  const std::int64_t dense_count = fields.required_int("first_k_dense_replace", {0, kLayers.most});
  for (std::int64_t i = 0; i < layer_count; ++i)
    config.layers.push_back({mixer, i < dense_count ? MlpKind::dense : MlpKind::experts});
  const std::int64_t dense_size = fields.required_int("intermediate_size", kWidth);
  if (dense_count > 0) config.dense_intermediate_size = dense_size;
  config.mtp_layer_count = fields.optional_int("num_nextn_predict_layers", {0, 16}).value_or(0);
  // The MTP layer has experts even where no other has.
  if (dense_count < layer_count || config.mtp_layer_count > 0) config.moe = read_routed_experts(fields);
}

void read_rope(ConfigFields& from, double rotary_factor, ModelConfig& config, double* growth) {
  FieldReader& fields = from.fields;
  RopeConfig& rope = config.rope;
  const bj::object none;
  const char* name = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  fields.ignore({"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"});
  const bj::object* object = fields.optional_object(name);
  FieldReader inner(object == nullptr ? none : *object, from.what, std::string(name) + ".", from.problems);
  FieldReader& theta_place = inner.has("rope_theta") ? inner : fields;
  rope.theta = theta_place.required_real("rope_theta", {0, 1e12});
  FieldReader& factor_place = inner.has("partial_rotary_factor") ? inner : fields;
  const double factor = factor_place.optional_real("partial_rotary_factor", {0, 1}).value_or(rotary_factor);
  const char* type_name = inner.has("rope_type") ? "rope_type" : "type";
  inner.ignore({"rope_type", "type"});
  rope.yarn = read_yarn(inner, inner.optional_text(type_name).value_or("default"));
  rope.mrope_sections = inner.optional_ints("mrope_section", {0, kHeadDim.most});
  rope.mrope_interleaved = inner.optional_bool("mrope_interleaved").value_or(false);
  if (growth != nullptr) {
    *growth = inner.optional_real("llama_4_scaling_beta", {0, 1e6, true}).value_or(0);
    inner.ignore({"max_position_embeddings"});  // again, as beside the other fields
  }
  // An unknown field here would change the rotation, and the answer with it.
  for (const std::string& unknown : inner.unread()) fields.problem("unknown", unknown, "");

  const double dims = static_cast<double>(config.attention.head_dim) * factor;
  rope.rotary_dims = std::llround(dims);
  // The factor may have been a quotient of whole numbers.
  if (std::abs(static_cast<double>(rope.rotary_dims) - dims) > 1e-9 || rope.rotary_dims % 2 != 0 ||
      rope.rotary_dims == 0)
    fields.problem("contradictory", "head_dim",
                   fourfold::format("= {} times partial_rotary_factor = {} is no even number",
                                    config.attention.head_dim, factor));
  const auto sections =
      std::accumulate(rope.mrope_sections.begin(), rope.mrope_sections.end(), std::int64_t{0});
  if (!rope.mrope_sections.empty() && (rope.mrope_sections.size() != 3 || sections != rope.rotary_dims / 2))
    inner.problem("contradictory", "mrope_section",
                  fourfold::format("has {} entries of sum {}; three of sum {} are needed",
                                   rope.mrope_sections.size(), sections, rope.rotary_dims / 2));
}

}  // namespace fourfold::checkpoint
