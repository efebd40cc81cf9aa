#include "checkpoint/tensor_role.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "tests/checkpoint/opened.h"

namespace fourfold::checkpoint {
namespace {

// How names of the known families end, and what the matrices are.
struct Known {
  const char* ending;
  TensorRole role;
};
constexpr Known kKnown[] = {{"embed_tokens.weight", TensorRole::other},
                            {"lm_head.weight", TensorRole::head},
                            {"eh_proj.weight", TensorRole::other},
                            {"mtp.fc.weight", TensorRole::other},
                            {"self_attn.kv_b_proj.weight", TensorRole::other},
                            {"self_attn.q_proj.weight", TensorRole::attention},
                            {"self_attn.k_proj.weight", TensorRole::attention},
                            {"self_attn.v_proj.weight", TensorRole::attention},
                            {"self_attn.o_proj.weight", TensorRole::attention},
                            {"self_attn.q_a_proj.weight", TensorRole::attention},
                            {"self_attn.q_b_proj.weight", TensorRole::attention},
                            {"self_attn.kv_a_proj_with_mqa.weight", TensorRole::attention},
                            {"linear_attn.in_proj_qkvz.weight", TensorRole::delta},
                            {"linear_attn.out_proj.weight", TensorRole::delta},
                            {"linear_attn.in_proj_ba.weight", TensorRole::other},
                            {"mlp.gate.weight", TensorRole::router},
                            {"mlp.router.weight", TensorRole::router},
                            {"block_sparse_moe.gate.weight", TensorRole::router},
                            {"mlp.shared_expert_gate.weight", TensorRole::other},
                            {"mlp.experts.gate_up_proj", TensorRole::routed_expert},
                            {"mlp.experts.down_proj", TensorRole::routed_expert},
                            {"experts.N.w1.weight", TensorRole::routed_expert},
                            {"experts.N.w2.weight", TensorRole::routed_expert},
                            {"experts.N.w3.weight", TensorRole::routed_expert},
                            {"mlp.experts.N.gate_proj.weight", TensorRole::routed_expert},
                            {"mlp.experts.N.up_proj.weight", TensorRole::routed_expert},
                            {"mlp.experts.N.down_proj.weight", TensorRole::routed_expert},
                            {"shared_expert.gate_proj.weight", TensorRole::shared_expert},
                            {"shared_expert.up_proj.weight", TensorRole::shared_expert},
                            {"shared_expert.down_proj.weight", TensorRole::shared_expert},
                            {"shared_experts.gate_proj.weight", TensorRole::shared_expert},
                            {"shared_experts.up_proj.weight", TensorRole::shared_expert},
                            {"shared_experts.down_proj.weight", TensorRole::shared_expert},
                            {"mlp.gate_proj.weight", TensorRole::dense_mlp},
                            {"mlp.up_proj.weight", TensorRole::dense_mlp},
                            {"mlp.down_proj.weight", TensorRole::dense_mlp}};

// "model.layers.3.mlp.experts.7.up_proj.weight" -> "model.layers.N.mlp.experts.N.up_proj.weight".
std::string without_numbers(std::string_view name) {
  return std::regex_replace(std::string(name), std::regex("\\.[0-9]+\\."), ".N.");
}

TEST(TensorRole, IsToldByThePlace) {
  std::set<std::string> met;
  for (const TinyModel& tiny :
       {tiny_qwen3_moe(), tiny_qwen3_next(), tiny_glm(), tiny_deepseek(), tiny_minimax(), tiny_gpt_oss()}) {
    const OpenedAndBound model(tiny);
    for_each_matrix(model.bound.weights, [&](const Matrix& matrix) {
      const std::string name = without_numbers(matrix.name);
      const auto* wanted =
          std::ranges::find_if(kKnown, [&](const Known& each) { return name.ends_with(each.ending); });
      ASSERT_NE(wanted, std::end(kKnown)) << name;
      EXPECT_EQ(matrix.role, wanted->role) << name;
      met.insert(wanted->ending);
    });
  }
  EXPECT_EQ(met.size(), std::size(kKnown));
}

TEST(TensorRole, IsToldByTheName) {
  const std::string layer = "model.language_model.layers.3.";
  EXPECT_EQ(role_of(layer + "mlp.experts.7.up_proj.weight"), TensorRole::routed_expert);
  EXPECT_EQ(role_of(layer + "mlp.experts.gate_up_proj"), TensorRole::routed_expert);
  EXPECT_EQ(role_of(layer + "mlp.experts.down_proj"), TensorRole::routed_expert);
  EXPECT_EQ(role_of(layer + "mlp.experts.gate_up_proj_blocks"), TensorRole::routed_expert);
  EXPECT_EQ(role_of(layer + "mlp.experts.gate_up_proj_bias"), TensorRole::other);
  EXPECT_EQ(role_of(layer + "mlp.shared_expert.down_proj.weight"), TensorRole::shared_expert);
  EXPECT_EQ(role_of(layer + "mlp.shared_experts.up_proj.weight"), TensorRole::shared_expert);
  EXPECT_EQ(role_of(layer + "block_sparse_moe.experts.7.w2.weight"), TensorRole::routed_expert);
  EXPECT_EQ(role_of(layer + "mlp.gate_proj.weight"), TensorRole::dense_mlp);
  EXPECT_EQ(role_of(layer + "self_attn.o_proj.weight"), TensorRole::attention);
  EXPECT_EQ(role_of(layer + "linear_attn.in_proj_qkvz.weight"), TensorRole::delta);
  for (const char* name : {"q_a_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight"})
    EXPECT_EQ(role_of(layer + "self_attn." + name), TensorRole::attention) << name;
  EXPECT_EQ(role_of("language_model.model.layers.3.mlp.experts.7.up_proj.weight"), TensorRole::routed_expert);
  EXPECT_EQ(role_of("lm_head.weight"), TensorRole::head);
  EXPECT_EQ(role_of("language_model.lm_head.weight"), TensorRole::head);
  for (const char* name :
       {"mlp.gate.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.e_score_correction_bias",
        "mlp.shared_expert_gate.weight", "self_attn.q_norm.weight", "linear_attn.in_proj_a.weight",
        "linear_attn.in_proj_ba.weight", "self_attn.kv_b_proj.weight", "linear_attn.conv1d.weight",
        "linear_attn.norm.weight", "input_layernorm.weight"})
    EXPECT_EQ(role_of(layer + name), TensorRole::other) << name;
  for (const char* name :
       {"model.language_model.embed_tokens.weight", "mtp.layers.0.mlp.experts.N.up_proj.weight",
        "model.mtp.layers.0.self_attn.q_proj.weight", "model.visual.blocks.0.mlp.up_proj.weight",
        "mtp.fc.weight"})
    EXPECT_EQ(role_of(name), TensorRole::other) << name;
}

TEST(TensorRole, ALayerBehindTheLastIsMtp) {
  const std::string name = "model.layers.46.mlp.experts.7.up_proj.weight";
  EXPECT_EQ(role_of(name, 47), TensorRole::routed_expert);
  EXPECT_EQ(role_of(name, 46), TensorRole::other);
  EXPECT_EQ(role_of("lm_head.weight", 0), TensorRole::head);
}

}  // namespace
}  // namespace fourfold::checkpoint
