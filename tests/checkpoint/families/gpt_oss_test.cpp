#include "base/e2m1.h"
#include "checkpoint/bind.h"
#include "checkpoint/family.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {
namespace {

ModelConfig parse(const std::string& text) { return parse_model_config(text, "config.json"); }

TEST(GptOss, ReadsEveryField) {
  const ModelConfig config = parse(tiny_gpt_oss().config);
  EXPECT_EQ(config.family->name, "gpt-oss");
  EXPECT_EQ(config.attention.qk_norm, QkNorm::none);
  EXPECT_TRUE(config.attention.bias && config.attention.output_bias && config.attention.sinks);
  EXPECT_FALSE(config.attention.output_gate || config.norm_adds_one);
  EXPECT_EQ(config.layers[0], (LayerKind{MixerKind::full_attention, MlpKind::experts, 16}));
  EXPECT_EQ(config.layers[1], (LayerKind{MixerKind::full_attention, MlpKind::experts, 0}));
  EXPECT_EQ(config.rope.rotary_dims, 8);
  EXPECT_EQ(config.rope.theta, 150000);
  ASSERT_TRUE(config.rope.yarn);
  EXPECT_EQ(config.rope.yarn->factor, 32);
  EXPECT_EQ(config.rope.yarn->original_positions, 128);
  EXPECT_FALSE(config.rope.yarn->truncate);
  EXPECT_EQ(config.moe->expert_count, 3);
  EXPECT_EQ(config.moe->experts_per_token, 2);
  EXPECT_EQ(config.moe->intermediate_size, 32);
  EXPECT_TRUE(config.moe->bias && config.moe->normalize_weights);
  EXPECT_FALSE(config.moe->sigmoid_scores || config.moe->choice_bias);
  EXPECT_EQ(config.moe->glu_limit, 7);
  EXPECT_EQ(config.moe->glu_alpha, 1.702);
  EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
  // Layers in turns where the file does not list them.
  const ModelConfig bare = parse(
      replaced(tiny_gpt_oss().config, R"("layer_types": ["sliding_attention", "full_attention"],)", ""));
  EXPECT_EQ(bare.layers, config.layers);
}

TEST(GptOss, RefusesWhatNoReleaseHas) {
  const std::string config = tiny_gpt_oss().config;
  expect_error(Code::unsupported_model, {"layer_types", "chunked_attention"},
               [&] { parse(replaced(config, "\"full_attention\"", "\"chunked_attention\"")); });
  expect_error(Code::bad_checkpoint, {"layer_types", "1 entries for 2 layers"}, [&] {
    parse(replaced(config, R"(["sliding_attention", "full_attention"])", R"(["full_attention"])"));
  });
  expect_error(Code::unsupported_model, {"hidden_act"},
               [&] { parse(replaced(config, "\"silu\"", "\"gelu\"")); });
  expect_error(Code::bad_checkpoint, {"sliding_window"},
               [&] { parse(replaced(config, "\"sliding_window\": 16", "\"sliding_window\": 0")); });
}

// Kernels have positions as 32 bits, one of them for the sign.
TEST(GptOss, PositionsFit32Bits) {
  for (const auto& [name, value] : {std::pair<std::string, const char*>("sliding_window", "16"),
                                    {"max_position_embeddings", "4096"},
                                    {"original_max_position_embeddings", "128"}}) {
    SCOPED_TRACE(name);
    const auto parse_with = [&](const char* other) {
      return parse(replaced(tiny_gpt_oss().config, format("\"{}\": {}", name, value),
                            format("\"{}\": {}", name, other)));
    };
    EXPECT_NO_THROW(parse_with("2147483647"));
    expect_error(Code::bad_checkpoint, {name, "2147483648"}, [&] { parse_with("2147483648"); });
  }
}

// The element of a stacked tensor [3, in, out].
float stacked(const std::vector<float>& values, std::size_t in, std::size_t out, std::size_t expert,
              std::size_t column, std::size_t row) {
  return values[(expert * in + column) * out + row];
}

TEST(GptOss, BindsExpertsIn16Bits) {
  TinyModel tiny = tiny_gpt_oss();
  TempFolder folder;
  tiny.write(folder);
  const Checkpoint checkpoint(folder.path());
  const BoundModel bound = bind_model(checkpoint, parse(tiny.config));
  const auto& moe = std::get<MoeWeights>(bound.weights.layers[1].mlp);
  const auto& attention = std::get<AttentionWeights>(bound.weights.layers[1].mixer);
  EXPECT_EQ(attention.sinks, values_of(tiny.tensor("model.layers.1.self_attn.sinks")));
  EXPECT_EQ(attention.output_bias, values_of(tiny.tensor("model.layers.1.self_attn.o_proj.bias")));
  EXPECT_EQ(moe.router_bias, values_of(tiny.tensor("model.layers.1.mlp.router.bias")));
  const std::string experts = "model.layers.1.mlp.experts.";
  const std::vector<float> both = values_of(tiny.tensor(experts + "gate_up_proj"));
  const std::vector<float> last = values_of(tiny.tensor(experts + "down_proj"));
  const std::vector<float> bias = values_of(tiny.tensor(experts + "gate_up_proj_bias"));
  const std::vector<float> gate = read_all(moe.experts[2].gate), up = read_all(moe.experts[2].up),
                           down = read_all(moe.experts[2].down);
  ASSERT_EQ(moe.gate_bias.size(), 3u * 32);
  EXPECT_EQ(moe.down_bias, values_of(tiny.tensor(experts + "down_proj_bias")));
  for (std::size_t row = 0; row < 32; ++row) {
    EXPECT_EQ(moe.gate_bias[2 * 32 + row], bias[2 * 64 + 2 * row]);
    EXPECT_EQ(moe.up_bias[2 * 32 + row], bias[2 * 64 + 2 * row + 1]);
    for (std::size_t column = 0; column < 32; ++column) {
      ASSERT_EQ(gate[row * 32 + column], stacked(both, 32, 64, 2, column, 2 * row));
      ASSERT_EQ(up[row * 32 + column], stacked(both, 32, 64, 2, column, 2 * row + 1));
      ASSERT_EQ(down[row * 32 + column], stacked(last, 32, 32, 2, column, row));
    }
  }
}

// Codes and scales of which each expert's rows and columns are told apart.
void store_as_mxfp4(TinyModel& tiny, const std::string& name, std::int64_t rows) {
  tiny.remove(name);
  std::string codes, scales;
  for (std::int64_t row = 0; row < 3 * rows; ++row) {
    for (std::int64_t i = 0; i < 16; ++i) codes.push_back(static_cast<char>(7 * row + 13 * i + row * i));
    scales.push_back(static_cast<char>(120 + row % 11));
  }
  tiny.tensors.push_back({name + "_blocks", "U8", {3, rows, 1, 16}, codes});
  tiny.tensors.push_back({name + "_scales", "U8", {3, rows, 1}, scales});
}

TinyModel tiny_mxfp4() {
  TinyModel tiny = tiny_gpt_oss();
  for (const char* layer : {"0", "1"}) {
    const std::string experts = format("model.layers.{}.mlp.experts.", layer);
    store_as_mxfp4(tiny, experts + "gate_up_proj", 64);
    store_as_mxfp4(tiny, experts + "down_proj", 32);
  }
  return tiny;
}

TEST(GptOss, BindsMxfp4AsReleased) {
  TinyModel tiny = tiny_mxfp4();
  TempFolder folder;
  tiny.write(folder);
  const Checkpoint checkpoint(folder.path());
  const BoundModel bound = bind_model(checkpoint, parse(tiny.config));
  const auto& expert = std::get<MoeWeights>(bound.weights.layers[0].mlp).experts[1];
  const auto value = [&](const std::string& name, std::size_t row, std::size_t column) {
    const std::string experts = "model.layers.0.mlp.experts.";
    const auto byte =
        static_cast<std::uint8_t>(tiny.tensor(experts + name + "_blocks").bytes[row * 16 + column / 2]);
    const auto scale = static_cast<std::uint8_t>(tiny.tensor(experts + name + "_scales").bytes[row]);
    // The even column is in the low half.
    const E2m1 code{static_cast<std::uint8_t>(column % 2 == 0 ? byte & 15 : byte >> 4)};
    return std::ldexp(to_float(code), scale - 127);
  };
  const std::vector<float> gate = read_all(expert.gate), up = read_all(expert.up),
                           down = read_all(expert.down);
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t column = 0; column < 32; ++column) {
      ASSERT_EQ(gate[row * 32 + column], value("gate_up_proj", 64 + 2 * row, column));
      ASSERT_EQ(up[row * 32 + column], value("gate_up_proj", 64 + 2 * row + 1, column));
      ASSERT_EQ(down[row * 32 + column], value("down_proj", 32 + row, column));
    }
  EXPECT_EQ(stored_bytes(expert.gate), 32u * 17);
}

TEST(GptOss, NamesTensorsThatDoNotFit) {
  const auto refuse = [](const std::string& name, const std::string& dtype,
                         const std::vector<std::int64_t>& shape, const std::string& wanted) {
    SCOPED_TRACE(name + " " + dtype);
    TinyModel tiny = tiny_mxfp4();
    TestTensor& tensor = tiny.tensor("model.layers.1.mlp.experts." + name);
    tensor.dtype = dtype;
    tensor.shape = shape;
    TempFolder folder;
    tiny.write(folder);
    const Checkpoint checkpoint(folder.path());
    expect_error(Code::bad_checkpoint, {tensor.name, wanted},
                 [&] { bind_model(checkpoint, parse(tiny.config)); });
  };
  refuse("down_proj_scales", "U8", {3, 1, 32}, "[3, 32, 1]");
  refuse("gate_up_proj_scales", "U8", {3, 1, 64}, "[3, 64, 1]");
  refuse("down_proj_blocks", "U8", {3, 32, 16, 1}, "U8 [3, 32, 1, 16]");
  refuse("down_proj_blocks", "I8", {3, 32, 1, 16}, "U8 [3, 32, 1, 16]");
  refuse("gate_up_proj_scales", "I8", {3, 64, 1}, "U8 or F8_E8M0 [3, 64, 1]");
}

}  // namespace
}  // namespace fourfold::checkpoint
