// config.json and generation_config.json as typed values. Required means required: every field that is
// missing, of the wrong type or out of range is named in one error, and nothing falls back to another model's
// number. Where the family itself defines a default for an absent field, the field's comment says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::checkpoint {

struct Family;  // family.h
std::span<const Family* const> known_families();

enum class MixerKind { full_attention, linear_attention, latent_attention };
enum class MlpKind { experts, dense };
struct LayerKind {
  MixerKind mixer;
  MlpKind mlp;
  std::int64_t window = 0;  // full attention: to the last so many positions; 0: to all
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

enum class QkNorm {
  per_head,   // each head's columns
  all_heads,  // the whole row
  none
};

struct AttentionConfig {
  std::int64_t head_count = 0;
  std::int64_t kv_head_count = 0;
  std::int64_t head_dim = 0;
  // q_proj gives, per head, head_dim query rows and then head_dim gate rows. Absent: yes in Qwen3.5 and
  // Qwen3-Next, no in Qwen3-MoE.
  bool output_gate = false;
  QkNorm qk_norm = QkNorm::per_head;
  bool bias = false;         // on query, key and value
  bool output_bias = false;  // on the output projection
  bool sinks = false;        // a logit for each head that joins the softmax
};

// Multi-head latent attention (MLA). AttentionConfig then has the query heads, one head for keys, and the
// width of what is stored for it: latent_dim + turned_dim.
struct LatentConfig {
  std::int64_t query_rank = 0;  // q_lora_rank; 0: queries are made of the input itself
  std::int64_t latent_dim = 0;  // kv_lora_rank
  std::int64_t plain_dim = 0;   // qk_nope_head_dim, of a query head: the columns that RoPE leaves alone
  std::int64_t turned_dim = 0;  // qk_rope_head_dim
  std::int64_t value_dim = 0;   // v_head_dim
  bool interleaved = true;      // RoPE turns columns 2j and 2j + 1 together; false: j and j + turned_dim / 2
  // Of the norms in front of q_b_proj and kv_b_proj: the makers' code and transformers do not read
  // rms_norm_eps there.
  double norm_epsilon = 1e-6;
  // Mistral-Small-4's scale grows with the position (backend::Attention); 0: it does not.
  double growth = 0;
  std::int64_t growth_positions = 0;
};

enum class DeltaGate { silu, sigmoid };

struct DeltaConfig {
  std::int64_t key_head_count = 0;
  std::int64_t value_head_count =
      0;  // grouped by key head: value head h belongs to key head h / values_per_key()
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_taps = 0;
  DeltaGate output_gate = DeltaGate::silu;  // absent: silu

  std::int64_t key_dim() const { return key_head_count * key_head_dim; }
  std::int64_t value_dim() const { return value_head_count * value_head_dim; }
  std::int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
  std::int64_t values_per_key() const { return value_head_count / key_head_count; }
};

struct YarnConfig {
  double factor = 1;
  std::int64_t original_positions = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp goes from a whole index to a whole index
  // The factor on cosines and sines: said, or made of the two (0: not said), or of `factor` alone.
  std::optional<double> attention_factor;
  double mscale = 0;
  double mscale_all_dim = 0;
};

struct RopeConfig {
  double theta = 0;
  std::int64_t rotary_dims = 0;              // of head_dim; the rest is not rotated
  std::vector<std::int64_t> mrope_sections;  // empty: plain RoPE. For text the sections make no difference
  bool mrope_interleaved = false;
  std::optional<YarnConfig> yarn;
};

struct MoeConfig {
  std::int64_t expert_count = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t shared_intermediate_size = 0;  // 0: no shared expert
  bool normalize_weights = true;              // norm_topk_prob; absent: yes in Qwen3.5 and Qwen3-Next
  bool sigmoid_scores = false;                // else softmax
  bool choice_bias = false;                   // a number for each expert, for choosing alone
  std::int64_t group_count = 1;               // experts are chosen from groups_kept of these
  std::int64_t groups_kept = 1;
  double weight_scale = 1;   // on the routed experts' weights
  bool shared_gate = false;  // on the shared expert
  bool bias = false;         // on the router and on experts
  // gpt-oss: gate and up are clamped at the limit (backend::GluKind::clamped). 0: plain SwiGLU.
  double glu_limit = 0;
  double glu_alpha = 0;
};

enum class StoredDType { bf16, f16, f32 };

struct ModelConfig {
  const Family* family = nullptr;
  std::string architecture;  // as the file says, for messages
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t position_limit = 0;
  double norm_epsilon = 0;
  bool norm_adds_one = false;  // x * (1 + w): Qwen3.5 and Qwen3-Next, except the DeltaNet output norm
  AttentionConfig attention;
  std::optional<LatentConfig> latent;  // present when a layer is latent attention
  std::optional<DeltaConfig> delta;    // present when a layer is linear attention
  RopeConfig rope;
  std::optional<MoeConfig> moe;              // present when a layer has experts
  std::int64_t dense_intermediate_size = 0;  // 0: no layer is dense
  std::vector<LayerKind> layers;
  std::int64_t mtp_layer_count =
      0;  // what the config announces; whether MTP exists is decided by the tensors
  bool tie_word_embeddings = false;
  StoredDType dtype = StoredDType::bf16;
  std::vector<std::int64_t> eos_ids;  // see GenerationDefaults: chat models stop on more
  std::optional<std::int64_t> bos_id;
  std::vector<std::string> unknown_fields;  // neither used nor known to be without effect; worth a notice

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
};

// `what` names the text in messages; `families` are those that may be named in it. Throws bad_checkpoint for
// bad values, unsupported_model for a model, RoPE type, activation or feature that is not implemented.
ModelConfig parse_model_config(std::string_view text, std::string_view what,
                               std::span<const Family* const> families = known_families());
ModelConfig read_model_config(const std::filesystem::path& folder);

struct GenerationDefaults {
  std::vector<std::int64_t> stop_ids;
  std::optional<std::int64_t> bos_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};

GenerationDefaults parse_generation_defaults(std::string_view text, std::string_view what);

// The file is optional: without it there are no defaults, and the config's eos_ids are all the model says
// about stopping.
std::optional<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder);

}  // namespace fourfold::checkpoint
