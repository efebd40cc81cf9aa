// A family is a config reader, a binder and a maker: this one is added in this folder, and nothing else knows
// of it. It computes what GLM-4 MoE does, so that is what it is held against; commands are in
// tests/registered_family.
#include "backend/cpu/cpu.h"
#include "checkpoint/family.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/model/made_up_family/twin.h"
#include "tests/model/support.h"

namespace fourfold::checkpoint {
extern const Family kPebble;
}

namespace fourfold::model {
namespace {

using backend::Pass;
using checkpoint::replaced;
using checkpoint::TestTensor;

checkpoint::TinyModel plain_glm() {
  checkpoint::TinyModel model = checkpoint::tiny_glm();
  for (const auto& [from, to] : {std::pair("\"use_qk_norm\": true", "\"use_qk_norm\": false"),
                                 {"\"n_group\": 3", "\"n_group\": 1"},
                                 {"\"topk_group\": 2", "\"topk_group\": 1"},
                                 {"\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 1.0"}})
    model.config = replaced(model.config, from, to);
  std::erase_if(model.tensors, [](const TestTensor& x) {
    return x.name.starts_with("model.layers.2.") || x.name.find("_norm.weight") != std::string::npos;
  });
  return model;
}

checkpoint::TinyModel pebble() {
  checkpoint::TinyModel model = plain_glm();
  for (TestTensor& tensor : model.tensors) tensor.name = checkpoint::pebble_name(tensor.name);
  model.config = R"({"model_type": "pebble", "head_dim": 8, "hidden_size": 32, "num_attention_heads": 4,
    "max_position_embeddings": 4096, "num_key_value_heads": 2, "pebble_count": 2, "flat_count": 1,
    "flat_width": 48, "stone_count": 6, "stones_per_token": 2, "stone_width": 16, "river_width": 32,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000, "tie_word_embeddings": false, "vocab_size": 40})";
  return model;
}

TEST(MadeUpFamily, IsAFolder) {
  const std::vector<std::int32_t> tokens{3, 14, 15, 9, 26, 5, 35, 8};
  checkpoint::TempFolder glm_folder, folder;
  plain_glm().write(glm_folder);
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
