// A family is a config reader and a binder: this one is added in this folder, and nothing else knows of it.
// It computes what a GLM of dense layers does, so that is what it is held against.
#include "tests/model/made_up_family/pebble.h"
#include "backend/cpu/cpu.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::Pass;
using checkpoint::replaced;
using checkpoint::TestTensor;

constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"model.embed_tokens.", "tokens."},
                                                                    {"model.norm.", "after."},
                                                                    {"model.layers.", "pebbles."},
                                                                    {"input_layernorm.", "before."},
                                                                    {"post_attention_layernorm.", "between."},
                                                                    {"self_attn.", "look."},
                                                                    {"mlp.gate_proj.", "think.open."},
                                                                    {"mlp.up_proj.", "think.widen."},
                                                                    {"mlp.down_proj.", "think.narrow."}};

checkpoint::TinyModel dense_glm() {
  checkpoint::TinyModel model = checkpoint::tiny_glm();
  model.config = replaced(model.config, "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 2");
  model.config = replaced(model.config, "\"use_qk_norm\": true", "\"use_qk_norm\": false");
  std::erase_if(model.tensors, [](const TestTensor& x) {
    return x.name.starts_with("model.layers.2.") || x.name.find("_norm.weight") != std::string::npos ||
           x.name.starts_with("model.layers.1.mlp.");
  });
  checkpoint::add_mlp(model.tensors, "model.layers.1.mlp.", 48);
  return model;
}

checkpoint::TinyModel pebble() {
  checkpoint::TinyModel model = dense_glm();
  for (TestTensor& tensor : model.tensors)
    for (const auto& [from, to] : kNames)
      if (tensor.name.find(from) != std::string::npos) tensor.name = replaced(tensor.name, from, to);
  model.config = R"({"model_type": "pebble", "head_dim": 8, "hidden_size": 32, "num_attention_heads": 4,
    "max_position_embeddings": 4096, "num_key_value_heads": 2, "pebble_count": 2, "pebble_width": 48,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000, "tie_word_embeddings": false, "vocab_size": 40})";
  return model;
}

TEST(MadeUpFamily, IsAFolder) {
  const std::vector<std::int32_t> tokens{3, 14, 15, 9, 26, 5, 35, 8};
  checkpoint::TempFolder glm_folder, folder;
  dense_glm().write(glm_folder);
  pebble().write(folder);
  const Loaded glm(glm_folder.path());

  const checkpoint::Family* const families[] = {&checkpoint::kPebble};
  const checkpoint::ModelConfig config =
      checkpoint::parse_model_config(pebble().config, "config.json", families);
  EXPECT_TRUE(config.unknown_fields.empty());
  const checkpoint::Checkpoint checkpoint(folder.path());
  const checkpoint::BoundModel model = checkpoint::bind_model(checkpoint, config);
  const auto program = build_program(config, model.weights, Activations::w4a16);

  const auto prepare = [&](backend::Backend& with, const backend::Program& made) {
    return step(*with.prepare(made, kFourSequences), Pass::main, {part(0, 0, tokens)});
  };
  backend::ReferenceBackend reference;
  const auto cpu = backend::make_cpu_backend({.threads = 1});
  const auto wanted = glm.program(Activations::w4a16);
  EXPECT_EQ(prepare(reference, program), prepare(reference, wanted));
  EXPECT_EQ(prepare(*cpu, program), prepare(*cpu, wanted));
  EXPECT_NE(prepare(reference, program)[7], prepare(reference, program)[6]);
}

// Unless it is given, it is not known.
TEST(MadeUpFamily, IsNotKnownElsewhere) {
  const std::string hint =
      checkpoint::expect_error(Code::unsupported_model, {"model_type is \"pebble\""},
                               [] { checkpoint::parse_model_config(pebble().config, "config.json"); });
  EXPECT_NE(hint.find("qwen3_next, qwen3_moe, glm4_moe"), std::string::npos) << hint;
}

}  // namespace
}  // namespace fourfold::model
