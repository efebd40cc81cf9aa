// Tiny models of each family: a config text and BF16 tensors that fit it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {

struct TinyModel {
  std::string config;
  std::vector<TestTensor> tensors;

  void write(const TempFolder& folder) const {
    folder.write("config.json", config);
    folder.write("model.safetensors", safetensors_file(tensors));
  }
  TestTensor& tensor(const std::string& name) {
    for (TestTensor& candidate : tensors)
      if (candidate.name == name) return candidate;
    throw std::runtime_error("the tiny model has no tensor " + name);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
  }
};

// The numbers of a tensor in BF16.
inline std::vector<float> values_of(const TestTensor& tensor) {
  std::vector<float> values;
  for (std::size_t i = 0; i + 1 < tensor.bytes.size(); i += 2) {
    Bf16 value{};
    std::memcpy(&value, tensor.bytes.data() + i, 2);
    values.push_back(to_float(value));
  }
  return values;
}

// Replaces the first occurrence, which must exist.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto place = text.find(from);
  if (place == std::string::npos) throw std::runtime_error("not in the text: " + std::string(from));
  return text.replace(place, from.size(), to);
}

inline void add_norms(std::vector<TestTensor>& tensors, const std::string& layer) {
  tensors.push_back(random_bf16(layer + "input_layernorm.weight", {32}));
  tensors.push_back(random_bf16(layer + "post_attention_layernorm.weight", {32}));
}

// Four heads of 8, two of them for keys and values, hidden size 32.
inline void add_attention(std::vector<TestTensor>& tensors, const std::string& layer, bool gate) {
  tensors.push_back(random_bf16(layer + "self_attn.q_proj.weight", {gate ? 64 : 32, 32}));
  tensors.push_back(random_bf16(layer + "self_attn.k_proj.weight", {16, 32}));
  tensors.push_back(random_bf16(layer + "self_attn.v_proj.weight", {16, 32}));
  tensors.push_back(random_bf16(layer + "self_attn.o_proj.weight", {32, 32}));
  tensors.push_back(random_bf16(layer + "self_attn.q_norm.weight", {8}));
  tensors.push_back(random_bf16(layer + "self_attn.k_norm.weight", {8}));
}

inline void add_mlp(std::vector<TestTensor>& tensors, const std::string& prefix, std::int64_t width) {
  tensors.push_back(random_bf16(prefix + "gate_proj.weight", {width, 32}));
  tensors.push_back(random_bf16(prefix + "up_proj.weight", {width, 32}));
  tensors.push_back(random_bf16(prefix + "down_proj.weight", {32, width}));
}

inline void add_experts(std::vector<TestTensor>& tensors, const std::string& layer, bool shared) {
  tensors.push_back(random_bf16(layer + "mlp.gate.weight", {3, 32}));
  for (int expert = 0; expert < 3; ++expert) add_mlp(tensors, format("{}mlp.experts.{}.", layer, expert), 16);
  if (!shared) return;
  add_mlp(tensors, layer + "mlp.shared_expert.", 16);
  tensors.push_back(random_bf16(layer + "mlp.shared_expert_gate.weight", {1, 32}));
}

inline void add_ends(std::vector<TestTensor>& tensors) {
  tensors.push_back(random_bf16("model.embed_tokens.weight", {40, 32}));
  tensors.push_back(random_bf16("model.norm.weight", {32}));
  tensors.push_back(random_bf16("lm_head.weight", {40, 32}));
}

// Two layers, one dense, one of three experts.
inline TinyModel tiny_qwen3_moe() {
  TinyModel model;
  model.config =
      R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "decoder_sparse_step": 1,
    "eos_token_id": 39, "head_dim": 8, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48,
    "max_position_embeddings": 4096, "mlp_only_layers": [0], "model_type": "qwen3_moe", "moe_intermediate_size": 16,
    "norm_topk_prob": true, "num_attention_heads": 4, "num_experts": 3, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_sliding_window": false, "vocab_size": 40})";
  add_ends(model.tensors);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = format("model.layers.{}.", layer);
    add_norms(model.tensors, prefix);
    add_attention(model.tensors, prefix, false);
    if (layer == 0)
      add_mlp(model.tensors, prefix + "mlp.", 48);
    else
      add_experts(model.tensors, prefix, false);
  }
  return model;
}

// One linear layer with interleaved projections (two key heads of 4, four value heads of 8), one full layer,
// and MTP.
inline TinyModel tiny_qwen3_next() {
  TinyModel model;
  model.config = R"({"architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "bos_token_id": 1,
    "decoder_sparse_step": 1, "eos_token_id": 2, "full_attention_interval": 2, "head_dim": 8, "hidden_act": "silu",
    "hidden_size": 32, "intermediate_size": 48, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
    "max_position_embeddings": 4096, "mlp_only_layers": [], "model_type": "qwen3_next", "moe_intermediate_size": 16,
    "norm_topk_prob": true, "num_attention_heads": 4, "num_experts": 3, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 10000000, "shared_expert_intermediate_size": 16, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "vocab_size": 40})";
  add_ends(model.tensors);
  const std::string linear = "model.layers.0.linear_attn.";
  add_norms(model.tensors, "model.layers.0.");
  model.tensors.push_back(random_bf16(linear + "in_proj_qkvz.weight", {2 * (4 + 4 + 16 + 16), 32}));
  model.tensors.push_back(random_bf16(linear + "in_proj_ba.weight", {8, 32}));
  model.tensors.push_back(random_bf16(linear + "conv1d.weight", {8 + 8 + 32, 1, 4}));
  model.tensors.push_back(random_bf16(linear + "A_log", {4}));
  model.tensors.push_back(random_bf16(linear + "dt_bias", {4}));
  model.tensors.push_back(random_bf16(linear + "norm.weight", {8}));
  model.tensors.push_back(random_bf16(linear + "out_proj.weight", {32, 32}));
  add_experts(model.tensors, "model.layers.0.", true);
  add_norms(model.tensors, "model.layers.1.");
  add_attention(model.tensors, "model.layers.1.", true);
  add_experts(model.tensors, "model.layers.1.", true);
  for (const char* name :
       {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight"})
    model.tensors.push_back(random_bf16(name, {32}));
  model.tensors.push_back(random_bf16("mtp.fc.weight", {32, 64}));
  add_norms(model.tensors, "mtp.layers.0.");
  add_attention(model.tensors, "mtp.layers.0.", true);
  add_experts(model.tensors, "mtp.layers.0.", true);
  return model;
}

inline void add_biases(std::vector<TestTensor>& tensors, const std::string& layer) {
  tensors.push_back(random_bf16(layer + "self_attn.q_proj.bias", {32}));
  tensors.push_back(random_bf16(layer + "self_attn.k_proj.bias", {16}));
  tensors.push_back(random_bf16(layer + "self_attn.v_proj.bias", {16}));
}

// Six experts in three groups, and two shared ones.
inline void add_glm_experts(std::vector<TestTensor>& tensors, const std::string& layer) {
  tensors.push_back(random_bf16(layer + "mlp.gate.weight", {6, 32}));
  tensors.push_back(random_bf16(layer + "mlp.gate.e_score_correction_bias", {6}));
  for (int expert = 0; expert < 6; ++expert) add_mlp(tensors, format("{}mlp.experts.{}.", layer, expert), 16);
  add_mlp(tensors, layer + "mlp.shared_experts.", 32);
}

// One dense layer, one of experts, and the MTP layer with its copies of embedding and head. The fields are
// those of the GLM-4.x releases.
inline TinyModel tiny_glm() {
  TinyModel model;
  model.config =
      R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": [37, 38, 39], "first_k_dense_replace": 1, "head_dim": 8, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": 4096, "model_type": "glm4_moe",
    "moe_intermediate_size": 16, "n_group": 3, "n_routed_experts": 6, "n_shared_experts": 2, "norm_topk_prob": true,
    "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "num_nextn_predict_layers": 1, "pad_token_id": 37, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 2.5, "tie_word_embeddings": false,
    "topk_group": 2, "torch_dtype": "bfloat16", "transformers_version": "4.54.0", "use_cache": true,
    "use_qk_norm": true, "vocab_size": 40})";
  add_ends(model.tensors);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = format("model.layers.{}.", layer);
    add_norms(model.tensors, prefix);
    add_attention(model.tensors, prefix, false);
    add_biases(model.tensors, prefix);
    if (layer == 0)
      add_mlp(model.tensors, prefix + "mlp.", 48);
    else
      add_glm_experts(model.tensors, prefix);
  }
  for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"})
    model.tensors.push_back(random_bf16(std::string("model.layers.2.") + name, {32}));
  model.tensors.push_back(random_bf16("model.layers.2.eh_proj.weight", {32, 64}));
  model.tensors.push_back(random_bf16("model.layers.2.embed_tokens.weight", {40, 32}));
  model.tensors.push_back(random_bf16("model.layers.2.shared_head.head.weight", {40, 32}));
  return model;
}

// Two heads on a latent of 16 and a key of 4: one dense layer, one of experts, and the MTP layer. The fields
// are those of the DeepSeek-V3 releases.
inline TinyModel tiny_deepseek() {
  TinyModel model;
  model.config =
      R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48, "kv_lora_rank": 16,
    "max_position_embeddings": 4096, "model_type": "deepseek_v3", "moe_intermediate_size": 16, "moe_layer_freq": 1,
    "n_group": 3, "n_routed_experts": 6, "n_shared_experts": 2, "norm_topk_prob": true, "num_attention_heads": 2,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_nextn_predict_layers": 1,
    "pretraining_tp": 1, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 2,
    "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true,
    "v_head_dim": 6, "vocab_size": 40})";
  add_ends(model.tensors);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = format("model.layers.{}.", layer), attention = prefix + "self_attn.";
    add_norms(model.tensors, prefix);
    model.tensors.push_back(random_bf16(attention + "q_a_proj.weight", {24, 32}));
    model.tensors.push_back(random_bf16(attention + "q_a_layernorm.weight", {24}));
    model.tensors.push_back(random_bf16(attention + "q_b_proj.weight", {2 * 12, 24}));
    model.tensors.push_back(random_bf16(attention + "kv_a_proj_with_mqa.weight", {20, 32}));
    model.tensors.push_back(random_bf16(attention + "kv_a_layernorm.weight", {16}));
    model.tensors.push_back(random_bf16(attention + "kv_b_proj.weight", {2 * 14, 16}));
    model.tensors.push_back(random_bf16(attention + "o_proj.weight", {32, 12}));
    if (layer == 0)
      add_mlp(model.tensors, prefix + "mlp.", 48);
    else
      add_glm_experts(model.tensors, prefix);
  }
  for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"})
    model.tensors.push_back(random_bf16(std::string("model.layers.2.") + name, {32}));
  model.tensors.push_back(random_bf16("model.layers.2.eh_proj.weight", {32, 64}));
  model.tensors.push_back(random_bf16("model.layers.2.embed_tokens.weight", {40, 32}));
  model.tensors.push_back(random_bf16("model.layers.2.shared_head.head.weight", {40, 32}));
  return model;
}

// Two layers of three experts. The fields are those of the MiniMax-M2 release.
inline TinyModel tiny_minimax() {
  TinyModel model;
  model.config =
      R"({"architectures": ["MiniMaxM2ForCausalLM"], "attention_dropout": 0.0, "attn_type_list": [1, 1],
    "bos_token_id": null, "eos_token_id": null, "head_dim": 8, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 16, "layernorm_full_attention_beta": 1.0,
    "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0, "max_position_embeddings": 4096,
    "mlp_intermediate_size": 8192, "model_type": "minimax_m2", "mtp_transformer_layers": 1, "num_attention_heads": 4,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 3,
    "num_mtp_modules": 3, "output_router_logits": false, "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06,
    "rope_theta": 5000000, "rotary_dim": 4, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
    "scoring_func": "sigmoid", "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": null,
    "tie_word_embeddings": false, "transformers_version": "4.46.1", "use_cache": true, "use_mtp": true,
    "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 40})";
  add_ends(model.tensors);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = format("model.layers.{}.", layer);
    add_norms(model.tensors, prefix);
    add_attention(model.tensors, prefix, false);
    model.tensor(prefix + "self_attn.q_norm.weight") = random_bf16(prefix + "self_attn.q_norm.weight", {32});
    model.tensor(prefix + "self_attn.k_norm.weight") = random_bf16(prefix + "self_attn.k_norm.weight", {16});
    const std::string block = prefix + "block_sparse_moe.";
    model.tensors.push_back(random_bf16(block + "gate.weight", {3, 32}));
    model.tensors.push_back(random_bf16(block + "e_score_correction_bias", {3}));
    for (int expert = 0; expert < 3; ++expert) {
      const std::string name = format("{}experts.{}.", block, expert);
      model.tensors.push_back(random_bf16(name + "w1.weight", {16, 32}));
      model.tensors.push_back(random_bf16(name + "w2.weight", {32, 16}));
      model.tensors.push_back(random_bf16(name + "w3.weight", {16, 32}));
    }
  }
  return model;
}

// As the release's config.json is, with the sizes above; experts in 16 bits, as transformers writes them.
inline TinyModel tiny_gpt_oss() {
  TinyModel model;
  model.config =
      R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 2,
    "experts_per_token": 2, "head_dim": 8, "hidden_act": "silu", "hidden_size": 32, "initial_context_length": 128,
    "initializer_range": 0.02, "intermediate_size": 32, "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 4096, "model_type": "gpt_oss", "num_attention_heads": 4, "num_experts_per_tok": 2,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 3, "output_router_logits": false,
    "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 128, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
    "router_aux_loss_coef": 0.9, "sliding_window": 16, "swiglu_limit": 7.0, "tie_word_embeddings": false,
    "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 40})";
  add_ends(model.tensors);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = format("model.layers.{}.", layer);
    add_norms(model.tensors, prefix);
    add_attention(model.tensors, prefix, false);
    const std::string attention = prefix + "self_attn.", experts = prefix + "mlp.experts.";
    model.remove(attention + "q_norm.weight");
    model.remove(attention + "k_norm.weight");
    model.tensors.push_back(random_bf16(attention + "q_proj.bias", {32}));
    model.tensors.push_back(random_bf16(attention + "k_proj.bias", {16}));
    model.tensors.push_back(random_bf16(attention + "v_proj.bias", {16}));
    model.tensors.push_back(random_bf16(attention + "o_proj.bias", {32}));
    model.tensors.push_back(random_bf16(attention + "sinks", {4}));
    model.tensors.push_back(random_bf16(prefix + "mlp.router.weight", {3, 32}));
    model.tensors.push_back(random_bf16(prefix + "mlp.router.bias", {3}));
    model.tensors.push_back(random_bf16(experts + "gate_up_proj", {3, 32, 64}));
    model.tensors.push_back(random_bf16(experts + "gate_up_proj_bias", {3, 64}));
    model.tensors.push_back(random_bf16(experts + "down_proj", {3, 32, 32}));
    model.tensors.push_back(random_bf16(experts + "down_proj_bias", {3, 32}));
  }
  return model;
}

}  // namespace fourfold::checkpoint
