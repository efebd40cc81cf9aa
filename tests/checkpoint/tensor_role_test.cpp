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

}  // namespace
}  // namespace fourfold::checkpoint
