#include "checkpoint/bind.h"
#include "checkpoint/family.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/opened.h"

namespace fourfold::checkpoint {
namespace {

ModelConfig parse(const std::string& text) { return parse_model_config(text, "config.json"); }

TEST(DeepseekV3, ReadsEveryField) {
  const ModelConfig config = parse(tiny_deepseek().config);
  EXPECT_EQ(config.family->name, "DeepSeek-V3");
  ASSERT_TRUE(config.latent);
  EXPECT_EQ(config.latent->query_rank, 24);
  EXPECT_EQ(config.latent->latent_dim, 16);
  EXPECT_EQ(config.latent->plain_dim, 8);
  EXPECT_EQ(config.latent->turned_dim, 4);
  EXPECT_EQ(config.latent->value_dim, 6);
  EXPECT_TRUE(config.latent->interleaved);
  EXPECT_EQ(config.latent->growth_positions, 0);
  EXPECT_EQ(config.attention.head_count, 2);
  EXPECT_EQ(config.attention.kv_head_count, 1);
  EXPECT_EQ(config.attention.head_dim, 20);
  EXPECT_EQ(config.rope.rotary_dims, 4);
  ASSERT_TRUE(config.rope.yarn);
  EXPECT_EQ(config.rope.yarn->mscale_all_dim, 1);
  EXPECT_EQ(config.layers[0], (LayerKind{MixerKind::latent_attention, MlpKind::dense}));
  EXPECT_EQ(config.layers[1], (LayerKind{MixerKind::latent_attention, MlpKind::experts}));
  ASSERT_TRUE(config.moe);
  EXPECT_TRUE(config.moe->sigmoid_scores && config.moe->choice_bias && config.moe->normalize_weights);
  EXPECT_EQ(config.moe->group_count, 3);
  EXPECT_EQ(config.moe->groups_kept, 2);
  EXPECT_EQ(config.moe->weight_scale, 2.5);
  EXPECT_EQ(config.moe->shared_intermediate_size, 32);
  EXPECT_EQ(config.mtp_layer_count, 1);
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();

  const std::string text = tiny_deepseek().config;
  EXPECT_EQ(parse(replaced(text, "\"deepseek_v3\"", "\"kimi_k2\"")).family->name, "DeepSeek-V3");
  EXPECT_EQ(parse(replaced(text, "\"q_lora_rank\": 24", "\"q_lora_rank\": null")).latent->query_rank, 0);
  EXPECT_FALSE(
      parse(replaced(text, "\"seq_aux\"", "\"rope_interleave\": false, \"seq_aux\"")).latent->interleaved);
}

// As transformers has it: 0 is one that is not said, and what is below is none.
TEST(DeepseekV3, AnMscaleOf0IsNotSaid) {
  const std::string text = tiny_deepseek().config;
  const auto parse_with = [&](const char* mscale, const char* all_dim) {
    return parse(replaced(replaced(text, "\"mscale\": 1.0", format("\"mscale\": {}", mscale)),
                          "\"mscale_all_dim\": 1.0", format("\"mscale_all_dim\": {}", all_dim)));
  };
  const ModelConfig zero = parse_with("0", "0.0");
  const ModelConfig unsaid = parse(replaced(text, "\"mscale\": 1.0, \"mscale_all_dim\": 1.0,", ""));
  ASSERT_TRUE(zero.rope.yarn && unsaid.rope.yarn);
  EXPECT_EQ(zero.rope.yarn->mscale, unsaid.rope.yarn->mscale);
  EXPECT_EQ(zero.rope.yarn->mscale_all_dim, unsaid.rope.yarn->mscale_all_dim);
  expect_error(Code::bad_checkpoint, {"mscale"}, [&] { parse_with("-1", "1.0"); });
  expect_error(Code::bad_checkpoint, {"mscale_all_dim"}, [&] { parse_with("1.0", "-1"); });
}

// Softmax without a bias; the scale grows for every trained length.
TEST(DeepseekV3, ReadsMistralSmall4) {
  std::string text = tiny_deepseek().config;
  for (const auto& [from, to] : {std::pair<const char*, const char*>("\"deepseek_v3\"", "\"mistral4\""),
                                 {"\"scoring_func\": \"sigmoid\", ", ""},
                                 {"\"topk_method\": \"noaux_tc\",", ""},
                                 {"\"num_nextn_predict_layers\": 1,", ""},
                                 {"\"rope_theta\": 10000,", ""},
                                 {"\"rope_scaling\": {",
                                  "\"rope_parameters\": {\"rope_theta\": 10000, "
                                  "\"llama_4_scaling_beta\": 0.1, \"max_position_embeddings\": 4096, "
                                  "\"partial_rotary_factor\": 0.3333333333333333, "}})
    text = replaced(text, from, to);
  const ModelConfig config = parse(text);
  EXPECT_EQ(config.family->name, "Mistral-Small-4");
  EXPECT_FALSE(config.moe->sigmoid_scores || config.moe->choice_bias);
  EXPECT_EQ(config.latent->growth, 0.1);
  EXPECT_EQ(config.latent->growth_positions, 4096);
  EXPECT_EQ(config.rope.rotary_dims, 4);
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
  expect_error(Code::bad_checkpoint, {"qk_rope_head_dim = 4, but RoPE turns 6 columns"},
               [&] { parse(replaced(text, "0.3333333333333333", "0.5")); });
  expect_error(Code::bad_checkpoint, {"llama_4_scaling_beta is there, but RoPE is not yarn"},
               [&] { parse(replaced(text, "\"yarn\"", "\"default\"")); });
}

TEST(DeepseekV3, RefusesWhatItDoesNotKnow) {
  const auto refuse = [](const char* from, const char* to, Code code, const char* message) {
    SCOPED_TRACE(to);
    expect_error(code, {message}, [&] { parse(replaced(tiny_deepseek().config, from, to)); });
  };
  for (const char* name : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_group",
                           "num_attention_heads", "first_k_dense_replace", "routed_scaling_factor"})
    refuse(format("\"{}\"", name).c_str(), "\"other\"", Code::bad_checkpoint, name);
  refuse("\"sigmoid\"", "\"softmax\"", Code::unsupported_model, "scoring_func is \"softmax\"");
  refuse("\"noaux_tc\"", "\"greedy\"", Code::unsupported_model, "topk_method is \"greedy\"");
  refuse("\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", Code::unsupported_model, "moe_layer_freq");
  refuse("\"attention_bias\": false", "\"attention_bias\": true", Code::unsupported_model, "attention_bias");
  refuse("\"qk_rope_head_dim\": 4", "\"qk_rope_head_dim\": 5", Code::bad_checkpoint, "no even number");
  refuse("\"mscale\": 1.0", "\"llama_4_scaling_beta\": 0.1", Code::bad_checkpoint, "llama_4_scaling_beta");
}

std::vector<float> rows_of(const TestTensor& tensor, std::int64_t columns,
                           const std::vector<std::int64_t>& rows) {
  const std::vector<float> all = values_of(tensor);
  std::vector<float> out;
  for (const std::int64_t row : rows)
    out.insert(out.end(), all.begin() + row * columns, all.begin() + (row + 1) * columns);
  return out;
}

// Which rows of a tensor are which matrix, head by head; pairs of RoPE half a head apart.
TEST(DeepseekV3, BindsLayersAndMtp) {
  TinyModel tiny = tiny_deepseek();
  const OpenedAndBound model(tiny);
  const ModelWeights& weights = model.bound.weights;
  const auto& mixer = std::get<LatentWeights>(weights.layers[1].mixer);
  const std::string prefix = "model.layers.1.self_attn.";
  const auto tensor = [&](const char* name) { return tiny.tensor(prefix + name); };
  ASSERT_TRUE(mixer.query_down);
  EXPECT_EQ(read_all(*mixer.query_down), values_of(tensor("q_a_proj.weight")));
  EXPECT_EQ(mixer.query_norm, values_of(tensor("q_a_layernorm.weight")));
  EXPECT_EQ(read_all(mixer.plain_query),
            rows_of(tensor("q_b_proj.weight"), 24, {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(read_all(mixer.turned_query),
            rows_of(tensor("q_b_proj.weight"), 24, {8, 10, 9, 11, 20, 22, 21, 23}));
  EXPECT_EQ(read_all(mixer.turned_key), rows_of(tensor("kv_a_proj_with_mqa.weight"), 32, {16, 18, 17, 19}));
  EXPECT_EQ(mixer.latent.rows, 16);
  EXPECT_EQ(read_all(mixer.key_up), rows_of(tensor("kv_b_proj.weight"), 16,
                                            {0, 1, 2, 3, 4, 5, 6, 7, 14, 15, 16, 17, 18, 19, 20, 21}));
  EXPECT_EQ(read_all(mixer.value_up),
            rows_of(tensor("kv_b_proj.weight"), 16, {8, 9, 10, 11, 12, 13, 22, 23, 24, 25, 26, 27}));
  ASSERT_TRUE(weights.mtp);
  EXPECT_TRUE(std::get<LatentWeights>(weights.mtp->layers[0].mixer).key_up.of_mtp);
  EXPECT_FALSE(mixer.key_up.of_mtp);
  EXPECT_EQ(read_all(weights.mtp->combine), values_of(tiny.tensor("model.layers.2.eh_proj.weight")));

  TinyModel partial = tiny_deepseek();
  partial.remove("model.layers.1.self_attn.kv_a_layernorm.weight");
  partial.remove("model.layers.0.self_attn.q_b_proj.weight");
  expect_error(Code::bad_checkpoint,
               {"model.layers.1.self_attn.kv_a_layernorm.weight", "model.layers.0.self_attn.q_b_proj.weight"},
               [&] { OpenedAndBound{partial}; });
}

// Queries straight from the input, pairs as transformers may have stored them, the text model of one that
// sees.
TEST(DeepseekV3, BindsOtherLayouts) {
  TinyModel tiny = tiny_deepseek();
  tiny.config =
      replaced(tiny.config, "\"q_lora_rank\": 24", "\"q_lora_rank\": null, \"rope_interleave\": false");
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = format("model.layers.{}.self_attn.", layer);
    for (const char* name : {"q_a_proj.weight", "q_a_layernorm.weight", "q_b_proj.weight"})
      tiny.remove(prefix + name);
    tiny.tensors.push_back(random_bf16(prefix + "q_proj.weight", {24, 32}));
  }
  const TestTensor query = tiny.tensor("model.layers.1.self_attn.q_proj.weight");
  for (TestTensor& tensor : tiny.tensors) tensor.name = "language_model." + tensor.name;
  tiny.tensors.push_back(random_bf16("vision_tower.patch.weight", {4, 4}));
  const OpenedAndBound model(tiny);
  const auto& mixer = std::get<LatentWeights>(model.bound.weights.layers[1].mixer);
  EXPECT_FALSE(mixer.query_down);
  EXPECT_TRUE(mixer.query_norm.empty());
  EXPECT_EQ(read_all(mixer.turned_query), rows_of(query, 32, {8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(model.bound.skipped.front(), "vision_tower.* (1 tensors)");
}

// FP8 in blocks of 128 rows, which end inside of heads: what is read is a code times its block's scale.
TEST(DeepseekV3, ReadsRowsOfFp8Blocks) {
  TinyModel tiny = tiny_deepseek();
  tiny.config = replaced(replaced(tiny.config, "\"qk_nope_head_dim\": 8", "\"qk_nope_head_dim\": 100"),
                         "\"v_head_dim\": 6", "\"v_head_dim\": 60");
  std::vector<E4m3> codes;
  for (int i = 0; i < 320 * 16; ++i) codes.push_back(to_e4m3(static_cast<float>(i % 29 - 14)));
  const std::vector<float> scales{0.5f, 0.25f, 2.0f};
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = format("model.layers.{}.self_attn.", layer), module = prefix + "kv_b_proj";
    tiny.tensor(prefix + "q_b_proj.weight") = random_bf16(prefix + "q_b_proj.weight", {2 * 104, 24});
    tiny.tensor(prefix + "o_proj.weight") = random_bf16(prefix + "o_proj.weight", {32, 120});
    tiny.tensor(module + ".weight") = {module + ".weight", "F8_E4M3", {320, 16}, bytes_of(codes)};
    tiny.tensors.push_back({module + ".weight_scale_inv", "F32", {3, 1}, bytes_of(scales)});
  }
  const OpenedAndBound model(tiny);
  const auto& mixer = std::get<LatentWeights>(model.bound.weights.layers[1].mixer);
  const auto expect_rows = [&](const Matrix& matrix, std::int64_t first, std::int64_t count) {
    ASSERT_EQ(format_of(matrix), MatrixFormat::fp8_blocks);
    const std::vector<float> values = read_all(matrix);
    ASSERT_EQ(std::ssize(values), 2 * count * 16);
    for (std::int64_t i = 0; i < 2 * count; ++i)
      for (std::int64_t j = 0; j < 16; ++j) {
        const std::int64_t row = i / count * 160 + first + i % count;
        ASSERT_EQ(values[static_cast<std::size_t>(i * 16 + j)],
                  to_float(codes[static_cast<std::size_t>(row * 16 + j)]) *
                      scales[static_cast<std::size_t>(row / 128)])
            << row << ", " << j;
      }
  };
  expect_rows(mixer.key_up, 0, 100);
  expect_rows(mixer.value_up, 100, 60);
}

}  // namespace
}  // namespace fourfold::checkpoint
