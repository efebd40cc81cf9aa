#include "checkpoint/bind.h"
#include "checkpoint/family.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {
namespace {

ModelConfig parse(const std::string& text) { return parse_model_config(text, "config.json"); }

TEST(MiniMaxM2, ReadsEveryField) {
  const ModelConfig config = parse(tiny_minimax().config);
  EXPECT_EQ(config.family->name, "MiniMax-M2");
  EXPECT_EQ(config.attention.qk_norm, QkNorm::all_heads);
  EXPECT_FALSE(config.attention.bias || config.attention.output_gate || config.norm_adds_one);
  EXPECT_EQ(config.rope.rotary_dims, 4);
  EXPECT_EQ(config.layers[0], (LayerKind{MixerKind::full_attention, MlpKind::experts}));
  EXPECT_EQ(config.moe->expert_count, 3);
  EXPECT_EQ(config.moe->intermediate_size, 16);
  EXPECT_EQ(config.moe->shared_intermediate_size, 0);
  EXPECT_TRUE(config.moe->sigmoid_scores && config.moe->choice_bias && config.moe->normalize_weights);
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
  // As transformers writes it.
  const ModelConfig again = parse(replaced(
      replaced(tiny_minimax().config, "\"rotary_dim\": 4, ", ""), "\"rope_theta\": 5000000",
      R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5})"));
  EXPECT_EQ(again.rope.rotary_dims, 4);
  EXPECT_EQ(again.rope.theta, 5e6);
}

TEST(MiniMaxM2, RefusesWhatNoReleaseHas) {
  const auto refuse = [](const char* from, const char* to, const char* message) {
    SCOPED_TRACE(to);
    expect_error(Code::unsupported_model, {message},
                 [&] { parse(replaced(tiny_minimax().config, from, to)); });
  };
  refuse("\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"", "scoring_func");
  refuse("\"per_layer\"", "\"per_head\"", "qk_norm_type");
  refuse("\"use_qk_norm\": true", "\"use_qk_norm\": false", "use_qk_norm");
  refuse("\"shared_intermediate_size\": 0", "\"shared_intermediate_size\": 64", "shared_intermediate_size");
  refuse("\"sliding_window\": null", "\"sliding_window\": 128", "sliding_window");
  refuse("[1, 1]", "[1, 0]", "attn_type_list");
  expect_error(Code::bad_checkpoint, {"rotary_dim", "64", "head_dim"},
               [&] { parse(replaced(tiny_minimax().config, "\"rotary_dim\": 4", "\"rotary_dim\": 64")); });
  const std::string whole = replaced(tiny_minimax().config, "\"rotary_dim\": 4", "\"rotary_dim\": 8");
  EXPECT_EQ(parse(whole).rope.rotary_dims, parse(whole).attention.head_dim);
  refuse("\"layernorm_mlp_beta\": 1.0", "\"layernorm_mlp_beta\": 2.0", "layernorm_mlp_beta");
}

TEST(MiniMaxM2, BindsItsNames) {
  TinyModel tiny = tiny_minimax();
  TempFolder folder;
  tiny.write(folder);
  const Checkpoint checkpoint(folder.path());
  const BoundModel bound = bind_model(checkpoint, parse(tiny.config));
  const auto& moe = std::get<MoeWeights>(bound.weights.layers[1].mlp);
  const std::string expert = "model.layers.1.block_sparse_moe.experts.2.";
  EXPECT_EQ(read_all(moe.experts[2].gate), values_of(tiny.tensor(expert + "w1.weight")));
  EXPECT_EQ(read_all(moe.experts[2].up), values_of(tiny.tensor(expert + "w3.weight")));
  EXPECT_EQ(read_all(moe.experts[2].down), values_of(tiny.tensor(expert + "w2.weight")));
  EXPECT_EQ(moe.choice_bias.size(), 3u);
  EXPECT_EQ(std::get<AttentionWeights>(bound.weights.layers[0].mixer).query_norm.size(), 32u);
  EXPECT_FALSE(moe.shared);
}

}  // namespace
}  // namespace fourfold::checkpoint
