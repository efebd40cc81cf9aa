#include "checkpoint/bind.h"
#include "checkpoint/family.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/opened.h"

namespace fourfold::checkpoint {
namespace {

ModelConfig parse(const std::string& text) { return parse_model_config(text, "config.json"); }

TEST(Glm4Moe, ReadsEveryField) {
  const ModelConfig config = parse(tiny_glm().config);
  EXPECT_EQ(config.family->name, "GLM-4 MoE");
  EXPECT_FALSE(config.norm_adds_one);
  EXPECT_TRUE(config.attention.bias);
  EXPECT_FALSE(config.attention.output_gate);
  EXPECT_EQ(config.attention.qk_norm, QkNorm::per_head);
  EXPECT_EQ(config.rope.rotary_dims, 4);
  EXPECT_EQ(config.layers[0], (LayerKind{MixerKind::full_attention, MlpKind::dense}));
  EXPECT_EQ(config.layers[1], (LayerKind{MixerKind::full_attention, MlpKind::experts}));
  EXPECT_EQ(config.dense_intermediate_size, 48);
  ASSERT_TRUE(config.moe);
  EXPECT_EQ(config.moe->expert_count, 6);
  EXPECT_EQ(config.moe->shared_intermediate_size, 32);
  EXPECT_TRUE(config.moe->sigmoid_scores && config.moe->choice_bias && config.moe->normalize_weights);
  EXPECT_FALSE(config.moe->shared_gate);
  EXPECT_EQ(config.moe->group_count, 3);
  EXPECT_EQ(config.moe->groups_kept, 2);
  EXPECT_EQ(config.moe->weight_scale, 2.5);
  EXPECT_EQ(config.mtp_layer_count, 1);
  EXPECT_EQ(config.eos_ids, (std::vector<std::int64_t>{37, 38, 39}));
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
  // Air has no norm of queries and keys; an absent partial_rotary_factor is 0.5.
  const ModelConfig air =
      parse(replaced(replaced(tiny_glm().config, "\"use_qk_norm\": true", "\"use_qk_norm\": false"),
                     "\"partial_rotary_factor\": 0.5, ", ""));
  EXPECT_EQ(air.attention.qk_norm, QkNorm::none);
  EXPECT_EQ(air.rope.rotary_dims, 4);
}

TEST(Glm4Moe, RefusesWhatItDoesNotKnow) {
  const auto refuse = [](const char* from, const char* to, Code code, const char* message) {
    SCOPED_TRACE(to);
    expect_error(code, {message}, [&] { parse(replaced(tiny_glm().config, from, to)); });
  };
  for (const char* name :
       {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "n_group",
        "topk_group", "routed_scaling_factor", "first_k_dense_replace", "head_dim"})
    refuse(format("\"{}\"", name).c_str(), "\"other\"", Code::bad_checkpoint, name);
  refuse("\"n_group\": 3", "\"n_group\": 4", Code::bad_checkpoint, "n_group = 4 does not divide 6 experts");
  refuse("\"n_group\": 3", "\"n_group\": 6", Code::bad_checkpoint, "leaves groups of one of 6 experts");
  refuse("\"topk_group\": 2", "\"topk_group\": 4", Code::bad_checkpoint,
         "topk_group = 4 exceeds n_group = 3");
  refuse("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5", Code::bad_checkpoint,
         "topk_group = 2 groups of 2 experts are fewer than num_experts_per_tok = 5");
  refuse("\"use_qk_norm\"", "\"scoring_func\": \"softmax\", \"use_qk_norm\"", Code::unsupported_model,
         "scoring_func is \"softmax\"");
  refuse("\"silu\"", "\"gelu\"", Code::unsupported_model, "hidden_act");
}

TEST(Glm4Moe, BindsLayersAndMtp) {
  TinyModel tiny = tiny_glm();
  const OpenedAndBound model(tiny);
  const ModelWeights& weights = model.bound.weights;
  ASSERT_EQ(weights.layers.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<GatedMlp>(weights.layers[0].mlp));
  const auto& moe = std::get<MoeWeights>(weights.layers[1].mlp);
  EXPECT_EQ(moe.choice_bias, values_of(tiny.tensor("model.layers.1.mlp.gate.e_score_correction_bias")));
  EXPECT_EQ(moe.shared->gate.rows, 32);
  EXPECT_FALSE(moe.shared_gate);
  const auto& attention = std::get<AttentionWeights>(weights.layers[1].mixer);
  EXPECT_EQ(attention.key_bias, values_of(tiny.tensor("model.layers.1.self_attn.k_proj.bias")));
  ASSERT_TRUE(weights.mtp);
  EXPECT_TRUE(weights.mtp->combine.of_mtp &&
              std::get<AttentionWeights>(weights.mtp->layers[0].mixer).query.of_mtp);
  EXPECT_FALSE(attention.query.of_mtp);
  EXPECT_EQ(read_all(weights.mtp->combine), values_of(tiny.tensor("model.layers.2.eh_proj.weight")));
  EXPECT_EQ(weights.mtp->final_norm, values_of(tiny.tensor("model.layers.2.shared_head.norm.weight")));
  EXPECT_EQ(model.bound.skipped, (std::vector<std::string>{"model.layers.2.embed_tokens.* (1 tensors)",
                                                           "model.layers.2.shared_head.head.* (1 tensors)"}));

  // Without the layer there are no drafts; with a part of it there is an error.
  TinyModel without = tiny_glm();
  std::erase_if(without.tensors, [](const TestTensor& x) { return x.name.starts_with("model.layers.2."); });
  EXPECT_FALSE(OpenedAndBound(without).bound.weights.mtp);
  TinyModel partial = tiny_glm();
  partial.remove("model.layers.2.hnorm.weight");
  expect_error(Code::bad_checkpoint, {"missing: model.layers.2.hnorm.weight"},
               [&] { OpenedAndBound{partial}; });
  TinyModel unbiased = tiny_glm();
  unbiased.remove("model.layers.1.self_attn.v_proj.bias");
  expect_error(Code::bad_checkpoint, {"missing: model.layers.1.self_attn.v_proj.bias"},
               [&] { OpenedAndBound{unbiased}; });
}

}  // namespace
}  // namespace fourfold::checkpoint
