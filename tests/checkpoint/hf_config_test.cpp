#include "checkpoint/hf_config.h"

#include "checkpoint/family.h"
#include "tests/checkpoint/support.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {
namespace {

ModelConfig parse(const std::string& text) { return parse_model_config(text, "config.json"); }

std::string golden_config() { return read_file(golden_folder() / "bf16" / "config.json"); }

TEST(ModelConfig, ReadsTheNestedQwen35) {
  const ModelConfig config = parse(golden_config());
  EXPECT_EQ(config.family->name, "Qwen3.5");
  EXPECT_EQ(config.architecture, "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(config.hidden_size, 128);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.position_limit, 4096);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_TRUE(config.norm_adds_one);
  EXPECT_EQ(config.attention.head_count, 4);
  EXPECT_EQ(config.attention.kv_head_count, 2);
  EXPECT_EQ(config.attention.head_dim, 64);
  EXPECT_TRUE(config.attention.output_gate);
  ASSERT_TRUE(config.delta);
  EXPECT_EQ(config.delta->conv_dim(), 256);
  EXPECT_EQ(config.delta->values_per_key(), 2);
  EXPECT_EQ(config.delta->conv_taps, 4);
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_EQ(config.rope.rotary_dims, 16);
  EXPECT_EQ(config.rope.mrope_sections, (std::vector<std::int64_t>{3, 3, 2}));
  EXPECT_TRUE(config.rope.mrope_interleaved);
  EXPECT_FALSE(config.rope.yarn);
  ASSERT_TRUE(config.moe);
  EXPECT_EQ(config.moe->expert_count, 8);
  EXPECT_EQ(config.moe->shared_intermediate_size, 64);
  EXPECT_TRUE(config.moe->normalize_weights);
  ASSERT_EQ(config.layer_count(), 4);
  EXPECT_EQ(config.layers[2], (LayerKind{MixerKind::linear_attention, MlpKind::experts}));
  EXPECT_EQ(config.layers[3], (LayerKind{MixerKind::full_attention, MlpKind::experts}));
  EXPECT_EQ(config.mtp_layer_count, 1);
  EXPECT_EQ(config.eos_ids, std::vector<std::int64_t>{319});
  EXPECT_FALSE(config.bos_id);
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
}

TEST(ModelConfig, ReadsTheFlatForm) {
  // Cut text_config out of the nested file: a text-only export.
  const std::string text = golden_config();
  const auto begin = text.find('{', text.find("\"text_config\""));
  const auto end = text.find("\n }", begin) + 3;
  const ModelConfig flat = parse(text.substr(begin, end - begin));
  EXPECT_EQ(flat.family->name, "Qwen3.5");
  EXPECT_EQ(flat.hidden_size, 128);
  EXPECT_EQ(flat.layer_count(), 4);
  EXPECT_EQ(flat.architecture, "qwen3_5_moe_text");
  EXPECT_TRUE(flat.unknown_fields.empty());
}

TEST(ModelConfig, ReadsQwen3MoeAndQwen3Next) {
  const ModelConfig moe = parse(tiny_qwen3_moe().config);
  EXPECT_EQ(moe.family->name, "Qwen3-MoE");
  EXPECT_FALSE(moe.attention.output_gate);
  EXPECT_FALSE(moe.norm_adds_one);
  EXPECT_FALSE(moe.delta);
  EXPECT_EQ(moe.rope.rotary_dims, 8);
  EXPECT_EQ(moe.moe->shared_intermediate_size, 0);
  EXPECT_EQ(moe.layers[0], (LayerKind{MixerKind::full_attention, MlpKind::dense}));
  EXPECT_EQ(moe.layers[1], (LayerKind{MixerKind::full_attention, MlpKind::experts}));
  EXPECT_EQ(moe.dense_intermediate_size, 48);
  EXPECT_TRUE(moe.unknown_fields.empty());

  const ModelConfig next = parse(tiny_qwen3_next().config);
  EXPECT_EQ(next.family->name, "Qwen3-Next");
  EXPECT_TRUE(next.attention.output_gate);
  EXPECT_EQ(next.rope.rotary_dims, 2);
  EXPECT_EQ(next.layers[0].mixer, MixerKind::linear_attention);
  EXPECT_EQ(next.layers[1].mixer, MixerKind::full_attention);
  EXPECT_EQ(next.bos_id, 1);
  EXPECT_TRUE(next.unknown_fields.empty());
}

TEST(ModelConfig, ReadsADenseMember) {
  std::string text = replaced(golden_config(), "\"qwen3_5_moe_text\"", "\"qwen3_5_text\"");
  text = replaced(text, "\"hidden_size\": 128", "\"hidden_size\": 128, \"intermediate_size\": 512");
  const ModelConfig config = parse(text);
  EXPECT_FALSE(config.moe);
  EXPECT_EQ(config.dense_intermediate_size, 512);
  EXPECT_EQ(config.layers[0].mlp, MlpKind::dense);
}

TEST(ModelConfig, SparseStepSaysWhichLayersHaveExperts) {
  std::string text =
      replaced(tiny_qwen3_moe().config, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 3");
  text = replaced(text, "\"mlp_only_layers\": [0]", "\"mlp_only_layers\": []");
  text = replaced(text, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4");
  const ModelConfig config = parse(text);
  std::vector<MlpKind> kinds;
  for (const LayerKind& layer : config.layers) kinds.push_back(layer.mlp);
  EXPECT_EQ(kinds, (std::vector<MlpKind>{MlpKind::dense, MlpKind::dense, MlpKind::experts, MlpKind::dense}));
}

TEST(ModelConfig, ReadsYarn) {
  const std::string text = replaced(tiny_qwen3_moe().config, "\"rope_scaling\": null",
                                    R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                       "original_max_position_embeddings": 32768})");
  const ModelConfig config = parse(text);
  ASSERT_TRUE(config.rope.yarn);
  EXPECT_EQ(config.rope.yarn->factor, 4.0);
  EXPECT_EQ(config.rope.yarn->original_positions, 32768);
  EXPECT_EQ(config.rope.theta, 1e6);
}

TEST(ModelConfig, ListsEveryMissingFieldAtOnce) {
  expect_error(
      Code::bad_checkpoint,
      {"config.json", "missing: hidden_size, vocab_size, max_position_embeddings, rms_norm_eps", "more"},
      [] { parse(R"({"model_type": "qwen3_moe"})"); });
  expect_error(Code::bad_checkpoint, {"missing: model_type"}, [] { parse("{}"); });
  expect_error(Code::bad_checkpoint, {"text_config.num_experts"},
               [] { parse(replaced(golden_config(), "\"num_experts\"", "\"n_experts\"")); });
}

struct BadValue {
  const char* from;
  const char* to;
  Code code;
  const char* message;
};

TEST(ModelConfig, RefusesBadValues) {
  const BadValue cases[] = {
      {"\"hidden_size\": 128", "\"hidden_size\": 0", Code::bad_checkpoint, "hidden_size = 0 (1 to"},
      {"\"hidden_size\": 128", "\"hidden_size\": -1", Code::bad_checkpoint, "hidden_size = -1"},
      {"\"hidden_size\": 128", "\"hidden_size\": 128.5", Code::bad_checkpoint, "hidden_size = 128.5"},
      {"\"hidden_size\": 128", "\"hidden_size\": \"128\"", Code::bad_checkpoint,
       "hidden_size (not a whole number)"},
      {"\"hidden_size\": 128", "\"hidden_size\": 1e400", Code::bad_checkpoint, "a number beyond 1.8e308"},
      {"\"hidden_size\": 128", "\"hidden_size\": 18446744073709551615", Code::bad_checkpoint, "out of range"},
      {"\"hidden_size\": 128", "\"hidden_size\": null", Code::bad_checkpoint,
       "missing: text_config.hidden_size"},
      {"\"hidden_size\": 128", "\"hidden_size\": 128, \"hidden_size\": 64", Code::bad_checkpoint,
       "two members"},
      {"\"num_experts\": 8", "\"num_experts\": 2147483648", Code::bad_checkpoint, "num_experts = 2147483648"},
      {"\"num_experts\": 8", "\"num_experts\": 1", Code::bad_checkpoint, "exceeds num_experts = 1"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 0", Code::bad_checkpoint,
       "num_attention_heads = 0"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", Code::bad_checkpoint,
       "no multiple of num_key_value"},
      {"\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 3", Code::bad_checkpoint,
       "no multiple of linear"},
      {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", Code::bad_checkpoint,
       "has 4 entries for num_hidden_layers = 5"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", Code::bad_checkpoint, "rms_norm_eps = 0"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN", Code::bad_checkpoint, "not valid JSON"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": true", Code::bad_checkpoint,
       "rms_norm_eps (not a number)"},
      {"\"rope_theta\": 10000000", "\"rope_theta\": -1", Code::bad_checkpoint,
       "rope_parameters.rope_theta = -1"},
      {"\"rope_theta\": 10000000", "\"rope_theta\": 1e7, \"mscale\": 2", Code::bad_checkpoint,
       "unknown: text_config.rope_parameters.mscale"},
      {"\"mrope_section\": [\n    3,", "\"mrope_section\": [\n    4,", Code::bad_checkpoint,
       "three of sum 8"},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", Code::unsupported_model,
       "is \"longrope\"; known: default"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", Code::unsupported_model,
       "hidden_act is \"gelu\""},
      {"\"attention_bias\": false", "\"attention_bias\": true", Code::unsupported_model, "attention_bias"},
      {"\"linear_attention\"", "\"sliding_attention\"", Code::unsupported_model, "sliding_attention"},
      {"\"qwen3_5_moe_text\"", "\"llama\"", Code::unsupported_model, "model_type is \"llama\""},
      {"\"dtype\": \"bfloat16\",\n  \"eos", "\"dtype\": \"int8\",\n  \"eos", Code::unsupported_model,
       "\"int8\""},
      {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", Code::bad_checkpoint,
       "tie_word_embeddings"},
      {"\"text_config\": {", "\"text_config\": 3, \"x\": {", Code::bad_checkpoint,
       "text_config (not an object)"},
  };
  for (const BadValue& bad : cases) {
    SCOPED_TRACE(bad.to);
    expect_error(bad.code, {bad.message, "config.json"},
                 [&] { parse(replaced(golden_config(), bad.from, bad.to)); });
  }
}

TEST(ModelConfig, NamesUnknownFields) {
  const ModelConfig config =
      parse(replaced(golden_config(), "\"hidden_size\"", "\"new_trick\": 1, \"hidden_size\""));
  EXPECT_EQ(config.unknown_fields, std::vector<std::string>{"text_config.new_trick"});
}

}  // namespace
}  // namespace fourfold::checkpoint
