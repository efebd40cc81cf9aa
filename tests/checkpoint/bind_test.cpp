#include "checkpoint/bind.h"

#include <set>

#include "base/nvfp4.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/opened.h"
#include "tests/checkpoint/store_nvfp4.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

std::vector<float> rows_of(const std::vector<float>& values, std::int64_t columns,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  std::vector<float> out;
  for (const auto& [first, count] : ranges)
    out.insert(out.end(), values.begin() + first * columns, values.begin() + (first + count) * columns);
  return out;
}

TEST(Bind, BindsQwen3Moe) {
  TinyModel model = tiny_qwen3_moe();
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  ASSERT_EQ(bound.weights.layers.size(), 2u);
  EXPECT_FALSE(bound.weights.mtp);
  EXPECT_TRUE(std::holds_alternative<GatedMlp>(bound.weights.layers[0].mlp));
  const auto& moe = std::get<MoeWeights>(bound.weights.layers[1].mlp);
  EXPECT_FALSE(moe.shared);
  ASSERT_EQ(moe.experts.size(), 3u);
  EXPECT_EQ(read_all(moe.experts[2].down),
            values_of(model.tensor("model.layers.1.mlp.experts.2.down_proj.weight")));
  EXPECT_EQ(read_all(bound.weights.head), values_of(model.tensor("lm_head.weight")));
  EXPECT_EQ(bound.weights.layers[1].input_norm,
            values_of(model.tensor("model.layers.1.input_layernorm.weight")));
}

TEST(Bind, UntanglesQwen3NextProjections) {
  TinyModel model = tiny_qwen3_next();
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  const auto& delta = std::get<DeltaWeights>(bound.weights.layers[0].mixer);
  const std::vector<float> qkvz = values_of(model.tensor("model.layers.0.linear_attn.in_proj_qkvz.weight"));
  // Per key head 40 rows: 4 of q, 4 of k, 2 x 8 of v, 2 x 8 of z.
  EXPECT_EQ(read_all(delta.qkv), rows_of(qkvz, 32, {{0, 4}, {40, 4}, {4, 4}, {44, 4}, {8, 16}, {48, 16}}));
  EXPECT_EQ(read_all(delta.gate), rows_of(qkvz, 32, {{24, 16}, {64, 16}}));
  EXPECT_EQ(delta.qkv.rows, 48);
  EXPECT_EQ(delta.gate.rows, 32);
  const std::vector<float> ba = values_of(model.tensor("model.layers.0.linear_attn.in_proj_ba.weight"));
  EXPECT_EQ(read_all(delta.beta), rows_of(ba, 32, {{0, 2}, {4, 2}}));
  EXPECT_EQ(read_all(delta.decay), rows_of(ba, 32, {{2, 2}, {6, 2}}));
  EXPECT_EQ(stored_bytes(delta.qkv) + stored_bytes(delta.gate), qkvz.size() * sizeof(Bf16));

  ASSERT_TRUE(bound.weights.mtp);
  EXPECT_EQ(bound.weights.mtp->layers.size(), 1u);
  EXPECT_EQ(bound.weights.mtp->combine.columns, 64);
}

TEST(Bind, MtpIsOptionalButNeverPartial) {
  TinyModel without = tiny_qwen3_next();
  std::erase_if(without.tensors, [](const TestTensor& tensor) { return tensor.name.starts_with("mtp."); });
  const Opened opened(without);
  EXPECT_FALSE(opened.bind().weights.mtp);

  TinyModel partial = tiny_qwen3_next();
  partial.remove("mtp.norm.weight");
  const Opened broken(partial);
  expect_error(Code::bad_checkpoint, {"1 missing: mtp.norm.weight"}, [&] { broken.bind(); });
}

TEST(Bind, AcceptsEveryPrefix) {
  TinyModel model = tiny_qwen3_next();
  for (TestTensor& tensor : model.tensors) {
    if (tensor.name.starts_with("model."))
      tensor.name = "model.language_model." + tensor.name.substr(6);
    else if (tensor.name.starts_with("mtp."))
      tensor.name = "model." + tensor.name;
  }
  model.tensors.push_back(random_bf16("model.visual.patch_embed.proj.weight", {4, 3, 2, 2, 2}));
  model.tensors.push_back(random_bf16("model.language_model.rotary_emb.inv_freq", {4}));
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  EXPECT_TRUE(bound.weights.mtp);
  EXPECT_EQ(bound.skipped,
            (std::vector<std::string>{"model.visual.* (1 tensors)", "*.rotary_emb.inv_freq (1 tensors)"}));
}

TEST(Bind, BindsStackedExperts) {
  TinyModel model = tiny_qwen3_moe();
  std::erase_if(model.tensors,
                [](const TestTensor& t) { return t.name.find(".mlp.experts.") != std::string::npos; });
  const std::string prefix = "model.layers.1.mlp.experts.";
  model.tensors.push_back(random_bf16(prefix + "gate_up_proj", {3, 32, 32}));
  model.tensors.push_back(random_bf16(prefix + "down_proj", {3, 32, 16}));
  const std::vector<float> gate_up = values_of(model.tensor(prefix + "gate_up_proj"));
  const std::vector<float> down = values_of(model.tensor(prefix + "down_proj"));
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  const auto& moe = std::get<MoeWeights>(bound.weights.layers[1].mlp);
  ASSERT_EQ(moe.experts.size(), 3u);
  for (std::int64_t expert = 0; expert < 3; ++expert) {
    const GatedMlp& mlp = moe.experts[static_cast<std::size_t>(expert)];
    EXPECT_EQ(read_all(mlp.gate), rows_of(gate_up, 32, {{32 * expert, 16}}));
    EXPECT_EQ(read_all(mlp.up), rows_of(gate_up, 32, {{32 * expert + 16, 16}}));
    EXPECT_EQ(read_all(mlp.down), rows_of(down, 16, {{32 * expert, 32}}));
  }
  model.tensor(prefix + "down_proj").shape = {3, 16, 32};
  const Opened broken(model);
  expect_error(Code::bad_checkpoint,
               {"experts.down_proj is BF16 [3, 16, 32], not BF16, F16 or F32 [3, 32, 16]"},
               [&] { broken.bind(); });
}

TEST(Bind, ATiedHeadIsTheEmbedding) {
  TinyModel model = tiny_qwen3_moe();
  model.config = replaced(model.config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  model.remove("lm_head.weight");
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  EXPECT_TRUE(bound.weights.head_is_embedding);
  EXPECT_EQ(bound.weights.head.name, bound.weights.embedding.name);
  std::vector<std::string_view> visited;
  for_each_matrix(bound.weights, [&](const Matrix& matrix) { visited.push_back(matrix.name); });
  EXPECT_EQ(std::count(visited.begin(), visited.end(), "model.embed_tokens.weight"), 1);
}

// What shares an NVFP4 scale where it is quantised.
TEST(Bind, GroupsWhatIsMultipliedAtOnce) {
  const OpenedAndBound model(tiny_qwen3_next());
  std::set<std::set<std::string>> groups;
  for_each_group(model.bound.weights, [&](std::span<const Matrix* const> matrices) {
    std::set<std::string> leaves;
    for (const Matrix* matrix : matrices) {
      const std::string_view module = matrix->name.substr(0, matrix->name.rfind('.'));
      leaves.emplace(module.substr(module.rfind('.') + 1));
    }
    if (leaves.size() > 1) groups.insert(leaves);
  });
  EXPECT_EQ(groups,
            (std::set<std::set<std::string>>{{"gate_proj", "up_proj"}, {"q_proj", "k_proj", "v_proj"}}));
  std::size_t count = 0, in_groups = 0;
  for_each_matrix(model.bound.weights, [&](const Matrix&) { ++count; });
  for_each_group(model.bound.weights, [&](auto matrices) { in_groups += matrices.size(); });
  EXPECT_EQ(in_groups, count);
}

TEST(Bind, ListsMissingMisshapenAndLeftOverInOneError) {
  TinyModel model = tiny_qwen3_moe();
  model.remove("model.norm.weight");
  model.remove("model.layers.0.mlp.up_proj.weight");
  model.tensor("lm_head.weight").shape = {32, 40};
  model.tensors.push_back(random_bf16("model.layers.0.self_attn.q_proj.bias", {32}));
  model.tensors.push_back(random_bf16("model.layers.2.input_layernorm.weight", {32}));
  model.tensor("model.layers.0.input_layernorm.weight").bytes[1] = '\x7F';
  model.tensor("model.layers.0.input_layernorm.weight").bytes[0] = '\xC0';  // 0x7FC0: NaN
  const Opened opened(model);
  expect_error(Code::bad_checkpoint,
               {"2 missing: model.layers.0.mlp.up_proj.weight, model.norm.weight",
                "1 misshapen: lm_head.weight is BF16 [32, 40], not [40, 32]",
                "1 unusable: model.layers.0.input_layernorm.weight: a value is NaN or infinite",
                "2 left over: model.layers.0.self_attn.q_proj.bias, model.layers.2.input_layernorm.weight"},
               [&] { opened.bind(); });
}

TEST(Bind, LongListsAreCutAndCounted) {
  TinyModel model = tiny_qwen3_moe();
  model.config = replaced(model.config, "\"num_experts\": 3", "\"num_experts\": 60000");
  const Opened opened(model);
  expect_error(Code::bad_checkpoint,
               {"missing: model.layers.1.mlp.experts.3.gate_proj.weight", "and 99,992 more"},
               [&] { opened.bind(); });
}

TEST(Bind, TheTwoNvfp4ConventionsMeanTheSame) {
  const std::string module = "model.layers.1.mlp.experts.0.up_proj";
  TinyModel model = tiny_qwen3_moe();
  TinyModel inverse = model;
  store_nvfp4(model, module, 16, 32, false);
  store_nvfp4(inverse, module, 16, 32, true);
  const Opened a(model);
  const Opened b(inverse);
  const BoundModel bound_a = a.bind();
  const BoundModel bound_b = b.bind();
  const Matrix& modelopt = std::get<MoeWeights>(bound_a.weights.layers[1].mlp).experts[0].up;
  const Matrix& compressed = std::get<MoeWeights>(bound_b.weights.layers[1].mlp).experts[0].up;
  ASSERT_EQ(format_of(modelopt), MatrixFormat::nvfp4);
  ASSERT_EQ(format_of(compressed), MatrixFormat::nvfp4);
  const std::vector<float> x = read_all(modelopt);
  const std::vector<float> y = read_all(compressed);
  // Two reciprocals and one product, each rounded once: 1.5 units of 2^-23 at most.
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], std::abs(x[i]) * 0x1.8p-23f);
  EXPECT_FALSE(std::get<Nvfp4Storage>(modelopt.storage).input_scale);
  ASSERT_TRUE(std::get<Nvfp4Storage>(compressed.storage).input_scale);
  EXPECT_EQ(std::get<Nvfp4Storage>(compressed.storage).input_scale->inverse, 336.0f);
}

// NVFP4_AWQ: what an input is multiplied by goes into the columns, exactly; not into those of routed experts.
TEST(Bind, FactorsOfInputsAreMultipliedIn) {
  const std::string module = "model.layers.0.mlp.down_proj";
  TinyModel model = tiny_qwen3_moe();
  const std::int64_t rows = model.tensor(module + ".weight").shape[0];
  const std::int64_t columns = model.tensor(module + ".weight").shape[1];
  store_nvfp4(model, module, rows, columns, false);
  const auto down = [](const BoundModel& bound) {
    return read_all(std::get<GatedMlp>(bound.weights.layers[0].mlp).down);
  };
  std::vector<float> wanted = down(Opened(model).bind());
  std::vector<float> factors;
  for (std::int64_t i = 0; i < columns; ++i) factors.push_back(i % 3 == 0 ? 0.5f : 1.25f);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] *= factors[i % factors.size()];
  const std::string name = module + ".pre_quant_scale";
  model.tensors.insert(model.tensors.begin(), {name, "F32", {columns}, bytes_of(factors)});
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  EXPECT_EQ(down(bound), wanted);
  EXPECT_EQ(format_of(std::get<GatedMlp>(bound.weights.layers[0].mlp).down), MatrixFormat::f32);
  EXPECT_EQ(bound.folded.at(0).name, module + ".weight");

  TinyModel wrong = model;
  factors[1] = std::numeric_limits<float>::infinity();
  wrong.tensor(name).bytes = bytes_of(factors);
  expect_error(Code::bad_checkpoint, {"unusable: " + name}, [&] { Opened(wrong).bind(); });
  wrong.tensor(name).shape = {2, columns / 2};
  expect_error(Code::bad_checkpoint, {"misshapen: " + name}, [&] { Opened(wrong).bind(); });

  const std::string expert = "model.layers.1.mlp.experts.0.up_proj";
  store_nvfp4(model, expert, 16, 32, false);
  model.tensors.insert(model.tensors.begin(),
                       {expert + ".pre_quant_scale", "F32", {32}, bytes_of(std::vector<float>(32, 1.0f))});
  expect_error(Code::unsupported_model, {expert + ".pre_quant_scale", "NVFP4_AWQ", "memory"},
               [&] { Opened(model).bind(); });
}

// Once for a tensor, whose rows are two matrices.
TEST(Bind, FactorsOfInputsAreMultipliedInOnce) {
  const std::string module = "model.layers.0.self_attn.kv_b_proj";
  TinyModel model = tiny_deepseek();
  store_nvfp4(model, module, 28, 16, false);
  const std::vector<float> factors(16, 1.25f);
  model.tensors.insert(model.tensors.begin(), {module + ".pre_quant_scale", "F32", {16}, bytes_of(factors)});
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  EXPECT_EQ(bound.folded.at(0).values.size(), 28u * 16);
  EXPECT_EQ(bound.folded.size(), 1u);
}

// MXFP4 under either convention's names: a byte for 32 columns, no scale above it.
TEST(Bind, Mxfp4IsKnownByItsScales) {
  const std::string module = "model.layers.1.mlp.experts.0.up_proj";
  std::vector<float> values(16 * 32);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i % 29) - 14);
  const Mxfp4Matrix made = quantize_mxfp4_weights(values, 16, 32);
  for (const char* name : {".weight_packed", ".weight"})
    for (const char* type : {"U8", "F8_E8M0"}) {
      TinyModel model = tiny_qwen3_moe();
      model.remove(module + ".weight");
      model.tensors.push_back({module + name, "U8", {16, 16}, bytes_of(made.codes)});
      model.tensors.push_back({module + ".weight_scale", type, {16, 1}, bytes_of(made.scales)});
      const Opened opened(model);
      const BoundModel bound = opened.bind();
      const Matrix& up = std::get<MoeWeights>(bound.weights.layers[1].mlp).experts[0].up;
      ASSERT_EQ(format_of(up), MatrixFormat::mxfp4);
      EXPECT_EQ(read_all(up), dequantize(made.view()));
      EXPECT_EQ(stored_bytes(up), 16u * 16 + 16);
      const Matrix rows = pick_rows(up, std::vector<RowRange>{{3, 2}, {9, 1}});
      const std::vector<float> all = read_all(up), some = read_all(rows);
      EXPECT_TRUE(std::equal(some.begin(), some.begin() + 64, all.begin() + 3 * 32));
      EXPECT_TRUE(std::equal(some.begin() + 64, some.end(), all.begin() + 9 * 32));
      TinyModel wrong = model;
      wrong.tensor(module + ".weight_scale").shape = {8, 2};
      const Opened misshapen(wrong);
      expect_error(Code::bad_checkpoint, {"weight_scale", "[8, 2]", "U8 or F8_E8M0 [16, 1]"},
                   [&] { misshapen.bind(); });
      TinyModel broken = model;
      broken.tensor(module + ".weight_scale").bytes[4] = static_cast<char>(0xFF);
      const Opened damaged(broken);
      const BoundModel last = damaged.bind();
      expect_error(Code::bad_checkpoint, {module}, [&] {
        validate(load(std::get<MoeWeights>(last.weights.layers[1].mlp).experts[0].up).matrix);
      });
    }
}

TEST(Bind, RefusesHalfAnNvfp4Matrix) {
  const std::string module = "model.layers.1.mlp.experts.0.up_proj";
  TinyModel whole = tiny_qwen3_moe();
  store_nvfp4(whole, module, 16, 32, false);
  for (const char* part : {".weight_scale", ".weight_scale_2"}) {
    TinyModel model = whole;
    model.remove(module + part);
    const Opened opened(model);
    expect_error(Code::bad_checkpoint, {"1 missing: " + module + part}, [&] { opened.bind(); });
  }
  TinyModel mixed_up = whole;  // ModelOpt's tensors with the other convention's name for the scale
  mixed_up.tensor(module + ".weight_scale_2").name = module + ".weight_global_scale";
  const Opened opened(mixed_up);
  expect_error(Code::bad_checkpoint,
               {"missing: " + module + ".weight_scale_2", "left over: " + module + ".weight_global_scale"},
               [&] { opened.bind(); });
  TinyModel swizzled = whole;
  swizzled.tensor(module + ".weight_scale").shape = {2, 16};
  const Opened wrong(swizzled);
  expect_error(Code::bad_checkpoint, {"weight_scale is F8_E4M3 [2, 16], not F8_E4M3 [16, 2]"},
               [&] { wrong.bind(); });
  for (const float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TinyModel model = whole;
    model.tensor(module + ".weight_scale_2").bytes = bytes_of(std::vector<float>{bad});
    const Opened damaged(model);
    expect_error(Code::bad_checkpoint, {"unusable: " + module + ".weight_scale_2"}, [&] { damaged.bind(); });
  }
}

TEST(Bind, TellsFp8ScalesApartByShape) {
  const std::string module = "model.layers.0.self_attn.k_proj";
  struct Case {
    std::string suffix;
    std::vector<std::int64_t> shape;
    std::size_t count;
    MatrixFormat format;
  };
  for (const Case& fp8 : {Case{".weight_scale", {}, 1, MatrixFormat::fp8_tensor},
                          Case{".weight_scale", {1}, 1, MatrixFormat::fp8_tensor},
                          Case{".weight_scale", {16, 1}, 16, MatrixFormat::fp8_rows},
                          Case{".weight_scale", {16}, 16, MatrixFormat::fp8_rows}}) {
    TinyModel model = tiny_qwen3_moe();
    model.tensor(module + ".weight") = {module + ".weight", "F8_E4M3", {16, 32}, std::string(512, '\x38')};
    model.tensors.insert(model.tensors.begin(), {module + fp8.suffix, "F32", fp8.shape,
                                                 bytes_of(std::vector<float>(fp8.count, 0.5f))});
    const Opened opened(model);
    const BoundModel bound = opened.bind();
    const Matrix& key = std::get<AttentionWeights>(bound.weights.layers[0].mixer).key;
    EXPECT_EQ(format_of(key), fp8.format);
    EXPECT_EQ(read_all(key), std::vector<float>(512, 0.5f));
  }
  TinyModel model = tiny_qwen3_moe();
  model.tensor(module + ".weight") = {module + ".weight", "F8_E4M3", {16, 32}, std::string(512, '\x38')};
  model.tensors.insert(model.tensors.begin(), {module + ".weight_scale", "F32", {3}, std::string(12, '\0')});
  const Opened opened(model);
  expect_error(Code::bad_checkpoint, {"k_proj.weight_scale is F32 [3], not F32 [], [16, 1] or [1, 1]"},
               [&] { opened.bind(); });
}

TEST(Bind, BindsBlockScaledFp8) {
  TinyModel model = tiny_qwen3_moe();
  model.config = replaced(model.config, "\"vocab_size\": 40", "\"vocab_size\": 300");
  model.tensor("model.embed_tokens.weight") = random_bf16("model.embed_tokens.weight", {300, 32});
  model.tensor("lm_head.weight") = {"lm_head.weight", "F8_E4M3", {300, 32}, std::string(300 * 32, '\x38')};
  model.tensors.insert(model.tensors.begin(),
                       {"lm_head.weight_scale_inv", "F32", {3, 1}, bytes_of(std::vector<float>{1, 2, 3})});
  const Opened opened(model);
  const BoundModel bound = opened.bind();
  EXPECT_EQ(format_of(bound.weights.head), MatrixFormat::fp8_blocks);
  const std::vector<float> values = read_all(bound.weights.head);
  for (const auto& [index, value] : {std::pair{0, 1.0f}, {127, 1.0f}, {128, 2.0f}, {255, 2.0f}, {256, 3.0f}})
    EXPECT_EQ(values[static_cast<std::size_t>(index) * 32], value) << index;
  // ModelOpt keeps the axes of blocks apart, under the other name.
  model.tensor("lm_head.weight_scale_inv") = {
      "lm_head.weight_scale", "F32", {3, 1, 1, 1}, bytes_of(std::vector<float>{1, 2, 3})};
  const Opened apart(model);
  EXPECT_EQ(read_all(apart.bind().weights.head), values);
}

const std::string kStaticKey = "model.layers.0.self_attn.k_proj", kStacked = "model.layers.1.mlp.experts.";

// FP8 as transformers writes it and Mistral releases it: one number for a matrix under the name of blocks,
// one for its inputs, and experts in one tensor with a number for each.
TinyModel static_fp8() {
  TinyModel model = tiny_qwen3_moe();
  std::erase_if(model.tensors,
                [](const TestTensor& t) { return t.name.find(".mlp.experts.") != std::string::npos; });
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
    std::vector<Bf16> stored;
    for (const float value : values) stored.push_back(to_bf16(value));
    model.tensors.insert(model.tensors.begin(), {name, "BF16", std::move(shape), bytes_of(stored)});
  };
  const std::string &key = kStaticKey, &experts = kStacked;
  model.tensor(key + ".weight") = {key + ".weight", "F8_E4M3", {16, 32}, std::string(512, '\x38')};
  add(key + ".weight_scale_inv", {}, {0.5f});
  add(key + ".activation_scale", {}, {0.25f});
  std::string codes(std::size_t{3} * 32 * 32, '\x38');                             // 1
  std::fill(codes.begin() + (32 + 16) * 32, codes.begin() + 2 * 32 * 32, '\x40');  // expert 1, up: 2
  model.tensors.push_back({experts + "gate_up_proj", "F8_E4M3", {3, 32, 32}, codes});
  model.tensors.push_back(
      {experts + "down_proj", "F8_E4M3", {3, 32, 16}, std::string(std::size_t{3} * 32 * 16, '\x38')});
  add(experts + "gate_up_proj_scale_inv", {3, 1, 1}, {0.5f, 2.0f, 4.0f});
  add(experts + "down_proj_scale_inv", {3, 1, 1}, {1.0f, 0.25f, 8.0f});
  add(experts + "gate_up_proj_activation_scale", {3}, {0.125f, 0.5f, 1.0f});
  return model;
}

void expect_scaled(const Matrix& matrix, float value, std::optional<float> input_scale) {
  ASSERT_EQ(format_of(matrix), MatrixFormat::fp8_tensor);
  const std::vector<float> values = read_all(matrix);
  EXPECT_EQ(values, std::vector<float>(values.size(), value));
  EXPECT_EQ(std::get<Fp8Storage>(matrix.storage).input_scale, input_scale);
}

TEST(Bind, BindsStaticFp8) {
  TinyModel model = static_fp8();
  const OpenedAndBound opened(model);
  const BoundModel& bound = opened.bound;
  expect_scaled(std::get<AttentionWeights>(bound.weights.layers[0].mixer).key, 0.5f, 0.25f);
  const auto& moe = std::get<MoeWeights>(bound.weights.layers[1].mlp);
  ASSERT_EQ(moe.experts.size(), 3u);
  expect_scaled(moe.experts[0].gate, 0.5f, 0.125f);
  expect_scaled(moe.experts[1].gate, 2.0f, 0.5f);
  expect_scaled(moe.experts[1].up, 4.0f, 0.5f);
  expect_scaled(moe.experts[2].up, 4.0f, 1.0f);
  expect_scaled(moe.experts[1].down, 0.25f, std::nullopt);
  EXPECT_EQ(moe.experts[2].down.rows, 32);

  // Gate and up each with their own.
  const std::string both = kStacked + "gate_up_proj_scale_inv";
  model.remove(both);
  model.tensors.insert(model.tensors.begin(),
                       {both, "F32", {3, 2, 1}, bytes_of(std::vector<float>{1, 2, 4, 8, 16, 32})});
  const OpenedAndBound other(model);
  const auto& mlp = std::get<MoeWeights>(other.bound.weights.layers[1].mlp).experts[1];
  expect_scaled(mlp.gate, 4.0f, 0.5f);
  expect_scaled(mlp.up, 16.0f, 0.5f);
}

TEST(Bind, RefusesScalesOfStaticFp8) {
  const TinyModel model = static_fp8();
  const auto refuse = [&](const TestTensor& tensor, const std::string& message) {
    TinyModel wrong = model;
    wrong.tensor(tensor.name) = tensor;
    expect_error(Code::bad_checkpoint, {message}, [&] { Opened(wrong).bind(); });
  };
  const std::string scale = kStacked + "down_proj_scale_inv", own = kStaticKey + ".activation_scale";
  const std::string inputs = kStacked + "gate_up_proj_activation_scale", down = kStacked + "down_proj";
  refuse({scale, "BF16", {2, 1, 1}, std::string(4, '\x3f')},
         "misshapen: " + scale + " is BF16 [2, 1, 1], not BF16, F16 or F32 [3, 1, 1]");
  refuse({scale, "BF16", {3, 1, 1}, std::string(6, '\0')},
         "unusable: " + scale + ": a scale is not a positive number");
  refuse({inputs, "BF16", {3}, std::string("\1\0\1\0\1\0", 6)},  // subnormal
         "unusable: " + inputs + ": not a positive number with a reciprocal");
  refuse({own, "BF16", {}, std::string(2, '\0')},
         "unusable: " + own + ": not a positive number with a reciprocal");
  refuse({down, "F8_E4M3", {3, 16, 32}, std::string(std::size_t{3} * 32 * 16, '\x38')},
         "misshapen: " + down + " is F8_E4M3 [3, 16, 32], not F8_E4M3 [3, 32, 16]");
  TinyModel without = model;
  without.remove(scale);
  expect_error(Code::bad_checkpoint, {"1 missing: " + scale}, [&] { Opened(without).bind(); });
}

TEST(Bind, BindsMxfp8) {
  TinyModel model = tiny_qwen3_moe();
  const std::string module = "model.layers.0.self_attn.k_proj";
  std::string scales(16, '\x7f');  // 2^0
  scales[3] = '\x81';              // 2^2
  model.tensor(module + ".weight") = {module + ".weight", "F8_E4M3", {16, 32}, std::string(512, '\x38')};
  for (const char* type : {"U8", "F8_E8M0"}) {
    TinyModel typed = model;
    typed.tensors.insert(typed.tensors.begin(), {module + ".weight_scale", type, {16, 1}, scales});
    const Opened opened(typed);
    const BoundModel bound = opened.bind();
    const std::vector<float> values = read_all(std::get<AttentionWeights>(bound.weights.layers[0].mixer).key);
    EXPECT_EQ(values[2 * 32], 1.0f);
    EXPECT_EQ(values[3 * 32], 4.0f);
    EXPECT_EQ(values[3 * 32 + 31], 4.0f);
    EXPECT_EQ(values[4 * 32], 1.0f);
  }
  TinyModel damaged = model;
  scales[5] = '\xff';
  damaged.tensors.insert(damaged.tensors.begin(), {module + ".weight_scale", "U8", {16, 1}, scales});
  const Opened with_nan(damaged);
  expect_error(Code::bad_checkpoint, {"unusable: " + module + ".weight_scale", "a scale is NaN"},
               [&] { with_nan.bind(); });
  TinyModel narrow = model;
  narrow.tensors.insert(narrow.tensors.begin(),
                        {module + ".weight_scale", "U8", {16, 2}, std::string(32, '\x7f')});
  const Opened misshapen(narrow);
  expect_error(Code::bad_checkpoint, {"weight_scale is U8 [16, 2], not U8 or F8_E8M0 [16, 1]"},
               [&] { misshapen.bind(); });
}

}  // namespace
}  // namespace fourfold::checkpoint
