// The parts of config.json that several families have, for their readers (family.h).
#pragma once

#include <initializer_list>
#include <string_view>

#include "checkpoint/field_reader.h"
#include "checkpoint/hf_config.h"

namespace fourfold::checkpoint {

// Limits far beyond every known model and far below what would overflow a product of three of them.
inline constexpr IntRange kWidth{1, 1 << 20};
inline constexpr IntRange kHeads{1, 4096};
inline constexpr IntRange kHeadDim{1, 4096};
inline constexpr IntRange kLayers{1, 4096};
inline constexpr IntRange kExperts{1, 65536};
inline constexpr IntRange kVocabulary{1, 1 << 26};
inline constexpr IntRange kPositions{1, (std::int64_t{1} << 31) - 1};  // kernels have them as 32 bits
inline constexpr IntRange kTokenId{0, 1 << 26};

struct ConfigFields {
  std::string_view model_type;
  FieldReader& fields;  // of the text model: the whole document, or its text_config
  std::string_view what;
  ProblemList& problems;
};

// What would change the arithmetic in a way that is not implemented is refused, not skipped.
void refuse_activations_but_silu(FieldReader& fields);
void refuse_if_true(FieldReader& fields, std::initializer_list<const char*> names);
// An absent field is as good as the known value.
void refuse_text_but(FieldReader& fields, const char* name, std::string_view known);

void read_head_sizes(FieldReader& fields, ModelConfig& config);
void check_experts_per_token(FieldReader& fields, const char* expert_count_name, const MoeConfig& moe);
// Groups of equal length with at least two experts, enough of which are kept.
void check_groups(FieldReader& fields, const MoeConfig& moe);

// n_routed_experts and what goes with it, as DeepSeek-V3, GLM and their kin write it: groups of experts,
// shared ones without a gate, a factor on the weights. Whether scores are sigmoids with a bias is the
// family's to say.
MoeConfig read_routed_experts(FieldReader& fields);
// num_hidden_layers, of which the first_k_dense_replace first are dense, and num_nextn_predict_layers.
void read_dense_then_experts(FieldReader& fields, MixerKind mixer, ModelConfig& config);

// rope_parameters holds everything in new files; old ones have rope_theta and rope_scaling beside the other
// fields. A value in the object wins. `rotary_factor` is what an absent partial_rotary_factor means.
// `growth` is where llama_4_scaling_beta goes; families without it have none, and the field is an error.
void read_rope(ConfigFields& from, double rotary_factor, ModelConfig& config, double* growth = nullptr);

}  // namespace fourfold::checkpoint
