// Bad input through the C ABI: the right code, a sentence with the numbers, nothing written, no abort.
#include "tests/doors/support.h"

#include <cmath>
#include <limits>

namespace doors {
namespace {

TEST(BadDevice, UnknownNamesAreRefused) {
  auto options = FOURFOLD_INIT(fourfold_context_options);
  fourfold_context* context = nullptr;
  for (const char* name :
       {"", "gpu", "sim", "sim:", "sim:sm80", "sim:sm100", "sim:sm999", "cuda:", "cuda:x", "cuda:1x"}) {
    options.device = name;
    EXPECT_TRUE(refuses(fourfold_context_open(&options, &context), FOURFOLD_UNSUPPORTED_DEVICE, {})) << name;
    EXPECT_EQ(context, nullptr);
  }
  options.device = "cuda:4096";  // beyond any machine; without CUDA in the library also refused
  EXPECT_TRUE(refuses(fourfold_context_open(&options, &context), FOURFOLD_UNSUPPORTED_DEVICE, {}));
  options.device = nullptr;
  EXPECT_TRUE(refuses(fourfold_context_open(&options, &context), FOURFOLD_INVALID_REQUEST, {"null pointer"}));
  EXPECT_TRUE(refuses(fourfold_context_open(nullptr, &context), FOURFOLD_INVALID_REQUEST, {"null pointer"}));
  options.device = "sim:sm120";
  EXPECT_TRUE(refuses(fourfold_context_open(&options, nullptr), FOURFOLD_INVALID_REQUEST, {"null pointer"}));
  int stream = 0;
  options.stream = &stream;
  EXPECT_TRUE(refuses(fourfold_context_open(&options, &context), FOURFOLD_INVALID_REQUEST, {"stream"}));
  options.stream = nullptr;
  options.simulator_memory_bytes = ~std::uint64_t{0};
  EXPECT_TRUE(
      refuses(fourfold_context_open(&options, &context), FOURFOLD_INVALID_REQUEST, {"68,719,476,736"}));
  EXPECT_EQ(context, nullptr);
  fourfold_context_close(nullptr);
}

TEST(BadWeights, AreNotQuantised) {
  std::vector<float> values(4 * 32, 0.5f);
  std::vector<std::uint8_t> codes(4 * 16, 7), scales(4 * 2, 7);
  float scale = -1.0f;
  auto options = FOURFOLD_INIT(fourfold_quantize_options);
  options.format = FOURFOLD_NVFP4;
  options.rows = 4;
  options.columns = 32;
  options.values = values.data();
  const auto refused = [&](fourfold_status wanted, const std::vector<std::string>& words) {
    const auto status = fourfold_quantize_host(&options, codes.data(), scales.data(), &scale);
    return refuses(status, wanted, words);
  };
  options.rows = 0;
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"rows is 0"}));
  options.rows = 4;
  options.columns = 24;
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"columns is 24", "16"}));
  options.columns = 32;
  options.amax = -1.0f;
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"amax is -1"}));
  options.amax = 2.0f;
  options.format = FOURFOLD_MXFP4;
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"MXFP4 has no scale"}));
  options.format = FOURFOLD_NVFP4;
  options.values = nullptr;
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"values"}));
  options.values = values.data();
  values[2 * 32 + 5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused(FOURFOLD_BAD_CHECKPOINT, {"row 2"}));
  EXPECT_EQ(scale, -1.0f);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(4 * 16, 7));
  values[2 * 32 + 5] = 0.5f;
  EXPECT_TRUE(succeeds(fourfold_quantize_host(&options, codes.data(), scales.data(), &scale)));
  // amax 2 of the caller: 2 / (6 * 448), as ModelOpt has it. A block of one number is 6 times its scale.
  EXPECT_FLOAT_EQ(scale, 2.0f / (6.0f * 448.0f));
  EXPECT_EQ(codes, std::vector<std::uint8_t>(4 * 16, 0x77));
}

TEST(BadMemory, TooLittleOfIt) {
  Context context("sim:sm120", 1 << 20);
  void* memory = nullptr;
  EXPECT_TRUE(refuses(fourfold_allocate(context, 2 << 20, &memory), FOURFOLD_OUT_OF_MEMORY,
                      {"1,048,576", "2,097,152"}));
  EXPECT_TRUE(refuses(fourfold_allocate(context, std::numeric_limits<std::size_t>::max(), &memory),
                      FOURFOLD_OUT_OF_MEMORY, {"1,048,576"}));
  EXPECT_TRUE(succeeds(fourfold_allocate(context, 900'000, &memory)));
  void* second = nullptr;
  EXPECT_TRUE(refuses(fourfold_allocate(context, 900'000, &second), FOURFOLD_OUT_OF_MEMORY, {"900,000"}));
  EXPECT_EQ(second, nullptr);
  EXPECT_TRUE(refuses(fourfold_allocate(context, 0, &second), FOURFOLD_INVALID_REQUEST, {"0 bytes"}));
  EXPECT_TRUE(refuses(fourfold_allocate(nullptr, 1, &second), FOURFOLD_INVALID_REQUEST, {"null pointer"}));
}

TEST(BadMemory, CopiesAndFreesOfOtherMemory) {
  Context context("sim:sm120");
  std::vector<std::uint8_t> host(64, 1);
  std::uint8_t* const memory = context.upload(host);
  EXPECT_TRUE(refuses(fourfold_copy_to_device(context, memory + 32, host.data(), 64),
                      FOURFOLD_INVALID_REQUEST, {"32", "64"}));
  EXPECT_TRUE(refuses(fourfold_copy_to_device(context, host.data(), host.data(), 64),
                      FOURFOLD_INVALID_REQUEST, {"not memory"}));
  EXPECT_TRUE(refuses(fourfold_copy_from_device(context, nullptr, memory, 64), FOURFOLD_INVALID_REQUEST,
                      {"null pointer"}));
  EXPECT_TRUE(refuses(fourfold_copy_from_device(context, host.data(), context.allocate(64), 64),
                      FOURFOLD_INVALID_REQUEST, {"nobody ever wrote"}));
  EXPECT_EQ(host, std::vector<std::uint8_t>(64, 1));
  EXPECT_TRUE(refuses(fourfold_free(context, host.data()), FOURFOLD_INVALID_REQUEST, {"fourfold_allocate"}));
  EXPECT_TRUE(succeeds(fourfold_free(context, memory)));
  EXPECT_TRUE(refuses(fourfold_free(context, memory), FOURFOLD_INVALID_REQUEST, {"freed before"}));
  EXPECT_TRUE(succeeds(fourfold_free(context, nullptr)));
}

TEST(BadLayer, Shapes) {
  Context context("sim:sm120");
  const SmallLayer model;
  fourfold_layer* layer = nullptr;
  const auto refused = [&](fourfold_status wanted, const std::vector<std::string>& words, const auto& spoil) {
    auto options = model.options(FOURFOLD_DECODE, 8);
    spoil(options);
    const auto result = refuses(fourfold_layer_prepare(context, &options, &layer), wanted, words);
    return result && layer == nullptr ? result : ::testing::AssertionFailure() << result.message();
  };
  const auto bad = FOURFOLD_INVALID_REQUEST;
  EXPECT_TRUE(refused(bad, {"100", "64"}, [](auto& o) { o.hidden = 100; }));
  EXPECT_TRUE(refused(bad, {"32", "64"}, [](auto& o) { o.intermediate = 32; }));
  EXPECT_TRUE(refused(bad, {"-128"}, [](auto& o) { o.hidden = -128; }));
  EXPECT_TRUE(refused(bad, {"8192", "8,192"}, [](auto& o) {
    o.hidden = 8192 + 64;
    o.intermediate = 8192;
  }));
  EXPECT_TRUE(refused(bad, {"5", "4"}, [](auto& o) { o.top_k = 5; }));
  EXPECT_TRUE(refused(bad, {"0"}, [](auto& o) { o.top_k = 0; }));
  EXPECT_TRUE(refused(bad, {"1025", "1024"}, [](auto& o) { o.experts = 1025; }));
  EXPECT_TRUE(refused(bad, {"-1"}, [](auto& o) { o.tokens = -1; }));
  EXPECT_TRUE(refused(bad, {"1073741824"}, [](auto& o) { o.tokens = 1 << 30; }));
  EXPECT_TRUE(refused(bad, {"format is 0"}, [](auto& o) { o.format = 0; }));
  EXPECT_TRUE(refused(bad, {"activations is 7"}, [](auto& o) { o.activations = 7; }));
  EXPECT_TRUE(refused(bad, {"role is -3"}, [](auto& o) { o.role = -3; }));
  EXPECT_TRUE(refused(bad, {"struct_size is 8"}, [](auto& o) { o.struct_size = 8; }));
  EXPECT_TRUE(refused(FOURFOLD_UNSUPPORTED_OP, {"MXFP4"}, [](auto& o) {
    o.format = FOURFOLD_MXFP4;
    o.activations = FOURFOLD_W4A4;
  }));
  EXPECT_TRUE(refuses(fourfold_layer_prepare(context, nullptr, &layer), bad, {"null pointer"}));
  const auto options = model.options(FOURFOLD_DECODE, 8);
  EXPECT_TRUE(refuses(fourfold_layer_prepare(nullptr, &options, &layer), bad, {"null pointer"}));
  EXPECT_TRUE(refuses(fourfold_layer_prepare(context, &options, nullptr), bad, {"null pointer"}));
  auto choice = FOURFOLD_INIT(fourfold_choice);
  EXPECT_TRUE(
      refuses(fourfold_choose("sm999", &options, &choice), FOURFOLD_UNSUPPORTED_DEVICE, {"sm999", "sm120"}));
  EXPECT_TRUE(refuses(fourfold_choose(nullptr, &options, &choice), bad, {"null pointer"}));
  EXPECT_TRUE(refuses(fourfold_choose("sm120", &options, nullptr), bad, {"null pointer"}));
}

// Emulation is for proofs: nobody gets it without asking.
TEST(BadLayer, EmulationIsNotAFallback) {
  Context context("sim:sm90");
  SmallLayer model;
  model.activations = FOURFOLD_W4A4;
  auto options = model.options(FOURFOLD_DECODE, 8);
  fourfold_layer* layer = nullptr;
  EXPECT_TRUE(
      refuses(fourfold_layer_prepare(context, &options, &layer), FOURFOLD_UNSUPPORTED_OP, {"sm90", "W4A16"}));
  EXPECT_EQ(layer, nullptr);
  options.allow_emulated = 1;
  EXPECT_TRUE(succeeds(fourfold_layer_prepare(context, &options, &layer)));
  fourfold_layer_release(layer);
}

class BadRun : public ::testing::Test {
 protected:
  static constexpr int tokens = 6;
  void SetUp() override {
    const auto options = model_.options(FOURFOLD_PREFILL, tokens);
    ASSERT_TRUE(succeeds(fourfold_layer_prepare(context_, &options, &layer_)));
    ASSERT_TRUE(succeeds(fourfold_layer_workspace_bytes(layer_, &call_.workspace_bytes)));
    weights_ = model_.weights(context_);
    call_.tokens = tokens;
    call_.logits = context_.upload(model_.floats(tokens * SmallLayer::experts, -3.0f, 3.0f));
    call_.input = context_.upload(model_.tokens(tokens));
    call_.output = context_.upload(std::vector<std::uint8_t>(output_bytes, 0x5A));
    call_.workspace = context_.upload(std::vector<std::uint8_t>(call_.workspace_bytes, 0x5A));
  }
  void TearDown() override { fourfold_layer_release(layer_); }

  // Refused, and neither output nor workspace has changed.
  template <class Spoil>
  ::testing::AssertionResult refused(const std::vector<std::string>& words, const Spoil& spoil) {
    auto call = call_;
    auto weights = weights_;
    spoil(call, weights);
    const auto result = refuses(fourfold_layer_run(layer_, &weights, &call), FOURFOLD_INVALID_REQUEST, words);
    if (!result) return result;
    if (context_.download<std::uint8_t>(call_.output, output_bytes) !=
        std::vector<std::uint8_t>(output_bytes, 0x5A))
      return ::testing::AssertionFailure() << "the output was written";
    if (context_.download<std::uint8_t>(call_.workspace, call_.workspace_bytes) !=
        std::vector<std::uint8_t>(call_.workspace_bytes, 0x5A))
      return ::testing::AssertionFailure() << "the workspace was written";
    return result;
  }

  static constexpr std::size_t output_bytes = tokens * SmallLayer::hidden * 2;
  Context context_{"sim:sm120"};
  SmallLayer model_;
  fourfold_layer* layer_ = nullptr;
  fourfold_layer_weights weights_{};
  fourfold_layer_call call_ = FOURFOLD_INIT(fourfold_layer_call);
};

template <class T>
T* shifted(T* pointer, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
}

TEST_F(BadRun, NothingIsWritten) {
  const std::string size =
      std::to_string(call_.workspace_bytes % 1000);  // the last digits, as printed with commas
  EXPECT_TRUE(refused({"workspace", size}, [](auto& c, auto&) { c.workspace_bytes -= 1; }));
  EXPECT_TRUE(refused({"workspace has 0 bytes"}, [](auto& c, auto&) { c.workspace_bytes = 0; }));
  EXPECT_TRUE(refused({"workspace", "null"}, [](auto& c, auto&) { c.workspace = nullptr; }));
  EXPECT_TRUE(refused({"workspace", "256"},
                      [](auto& c, auto&) { c.workspace = shifted(static_cast<char*>(c.workspace), 16); }));
  EXPECT_TRUE(refused({"7 tokens", "0 to 6"}, [](auto& c, auto&) { c.tokens = 7; }));
  EXPECT_TRUE(refused({"-1 tokens"}, [](auto& c, auto&) { c.tokens = -1; }));
  EXPECT_TRUE(refused({"logits", "null"}, [](auto& c, auto&) { c.logits = nullptr; }));
  EXPECT_TRUE(refused({"tokens", "null"}, [](auto& c, auto&) { c.input = nullptr; }));
  EXPECT_TRUE(refused({"output", "null"}, [](auto& c, auto&) { c.output = nullptr; }));
  EXPECT_TRUE(refused({"same memory"}, [](auto& c, auto&) { c.output = const_cast<void*>(c.input); }));
  EXPECT_TRUE(refused({"input", "16 bytes"},
                      [](auto& c, auto&) { c.input = shifted(static_cast<const char*>(c.input), 2); }));
  EXPECT_TRUE(refused({"gate/up", "null"}, [](auto&, auto& w) { w.gate_up = nullptr; }));
  EXPECT_TRUE(refused({"down", "null"}, [](auto&, auto& w) { w.down = nullptr; }));
  EXPECT_TRUE(refused({"down", "16 bytes"},
                      [](auto&, auto& w) { w.down = shifted(static_cast<const char*>(w.down), 8); }));
  EXPECT_TRUE(refused({"up_scale", "4 bytes"}, [](auto&, auto& w) { w.up_scale = shifted(w.up_scale, 1); }));
  EXPECT_TRUE(refused({"struct_size is 4"}, [](auto& c, auto&) { c.struct_size = 4; }));
  EXPECT_TRUE(refused({"score is 2"}, [](auto& c, auto&) { c.score = 2; }));
  EXPECT_TRUE(refused({"softmax", "bias"}, [](auto& c, auto&) { c.choice_bias = c.logits; }));
  EXPECT_TRUE(refused({"softmax", "2 groups"}, [](auto& c, auto&) { c.groups = 2, c.groups_kept = 1; }));
  EXPECT_TRUE(refused({"4 experts in 3 groups"}, [](auto& c, auto&) {
    c.score = FOURFOLD_SIGMOID;
    c.groups = 3, c.groups_kept = 1;
  }));
  EXPECT_TRUE(
      refuses(fourfold_layer_run(nullptr, &weights_, &call_), FOURFOLD_INVALID_REQUEST, {"layer", "null"}));
  EXPECT_TRUE(
      refuses(fourfold_layer_run(layer_, nullptr, &call_), FOURFOLD_INVALID_REQUEST, {"weights", "null"}));
  EXPECT_TRUE(
      refuses(fourfold_layer_run(layer_, &weights_, nullptr), FOURFOLD_INVALID_REQUEST, {"call", "null"}));
  EXPECT_TRUE(succeeds(fourfold_layer_run(layer_, &weights_, &call_)));  // the fixture itself is in order
}

// Memory that is too small for what a call says cannot be seen from a pointer; the simulator sees it.
TEST_F(BadRun, TheSimulatorNamesABufferThatIsTooSmall) {
  auto call = call_;
  call.input = context_.upload(model_.tokens(tokens - 1));
  EXPECT_TRUE(
      refuses(fourfold_layer_run(layer_, &weights_, &call), FOURFOLD_INVALID_REQUEST, {"out_of_bounds"}));
  EXPECT_TRUE(succeeds(fourfold_layer_run(layer_, &weights_, &call_)));  // and goes on
}

TEST(BadRunW4A4, InputScalesAreNeeded) {
  Context context("sim:sm120");
  SmallLayer model;
  model.activations = FOURFOLD_W4A4;
  const auto options = model.options(FOURFOLD_DECODE, 1);
  fourfold_layer* layer = nullptr;
  ASSERT_TRUE(succeeds(fourfold_layer_prepare(context, &options, &layer)));
  auto weights = model.weights(context);
  auto call = FOURFOLD_INIT(fourfold_layer_call);
  ASSERT_TRUE(succeeds(fourfold_layer_workspace_bytes(layer, &call.workspace_bytes)));
  call.tokens = 1;
  call.logits = context.upload(model.floats(SmallLayer::experts, -1.0f, 1.0f));
  call.input = context.upload(model.tokens(1));
  call.output = context.allocate(SmallLayer::hidden * 2);
  call.workspace = context.allocate(call.workspace_bytes);
  weights.down_input_inverse = nullptr;
  EXPECT_TRUE(refuses(fourfold_layer_run(layer, &weights, &call), FOURFOLD_INVALID_REQUEST,
                      {"down input scales", "null"}));
  fourfold_layer_release(layer);
}

TEST(BadPack, ShapesPointersAndScales) {
  SmallLayer model;
  const auto codes = model.bytes(64 * 128 / 2, 0, 256);
  auto scales = model.scales(64, 128);
  auto good = model.pack_options(FOURFOLD_PLAIN, 64, 128);
  good.codes = codes.data();
  good.scales = scales.data();
  std::size_t size = 0;
  ASSERT_TRUE(succeeds(fourfold_packed_bytes(&good, &size)));
  std::vector<std::uint8_t> records(size, 0x5A);
  const auto refused = [&](fourfold_status wanted, const std::vector<std::string>& words, const auto& spoil,
                           std::size_t room = 0) {
    auto options = good;
    spoil(options);
    const auto result =
        refuses(fourfold_pack_host(&options, records.data(), room ? room : size), wanted, words);
    if (!result) return result;
    return records == std::vector<std::uint8_t>(size, 0x5A)
               ? result
               : ::testing::AssertionFailure() << "records were written";
  };
  const auto bad = FOURFOLD_INVALID_REQUEST;
  EXPECT_TRUE(refused(bad, {"rows is 60", "32"}, [](auto& o) { o.rows = 60; }));
  EXPECT_TRUE(refused(bad, {"columns is 100", "64"}, [](auto& o) { o.columns = 100; }));
  EXPECT_TRUE(refused(bad, {"columns is -64"}, [](auto& o) { o.columns = -64; }));
  EXPECT_TRUE(refused(bad, {"rows is 4611686018427387904"}, [](auto& o) { o.rows = std::int64_t{1} << 62; }));
  EXPECT_TRUE(refused(bad, {"codes", "null"}, [](auto& o) { o.codes = nullptr; }));
  EXPECT_TRUE(refused(bad, {"scales", "null"}, [](auto& o) { o.scales = nullptr; }));
  EXPECT_TRUE(refused(bad, {"up_codes", "null"}, [](auto& o) { o.row_order = FOURFOLD_GATE_UP; }));
  EXPECT_TRUE(refused(bad, {"up_codes"}, [&](auto& o) { o.up_codes = codes.data(); }));
  EXPECT_TRUE(refused(bad, {"row_order is 9"}, [](auto& o) { o.row_order = 9; }));
  EXPECT_TRUE(refused(FOURFOLD_UNSUPPORTED_OP, {"MXFP4"}, [](auto& o) {
    o.format = FOURFOLD_MXFP4;
    o.activations = FOURFOLD_W4A4;
  }));
  EXPECT_TRUE(refused(
      bad, {"records need", "100"}, [](auto&) {}, 100));
  scales[5 * 8 + 3] = 0x7F;  // row 5, block 3
  EXPECT_TRUE(refused(FOURFOLD_BAD_CHECKPOINT, {"0x7F", "row 5", "block 3"}, [](auto&) {}));
  scales[5 * 8 + 3] = 0x38;
  EXPECT_TRUE(refuses(fourfold_pack_host(&good, nullptr, size), bad, {"records", "null"}));
  EXPECT_TRUE(refuses(fourfold_packed_bytes(&good, nullptr), bad, {"null"}));
  Context context("sim:sm120");
  EXPECT_TRUE(refuses(fourfold_pack_device(nullptr, &good, records.data(), size), bad, {"context", "null"}));
  EXPECT_TRUE(refuses(
      fourfold_pack_device(context, &good, shifted(static_cast<char*>(context.allocate(size + 16)), 8), size),
      bad, {"16 bytes"}));
}

TEST(BadPack, GlobalScales) {
  float scale = 7.0f, inverse = 7.0f;
  for (const float stored : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(
        refuses(fourfold_weight_scale(FOURFOLD_MODELOPT, stored, &scale), FOURFOLD_BAD_CHECKPOINT, {}));
    EXPECT_TRUE(refuses(fourfold_input_scale(FOURFOLD_COMPRESSED_TENSORS, stored, &scale, &inverse),
                        FOURFOLD_BAD_CHECKPOINT, {}));
  }
  EXPECT_TRUE(refuses(fourfold_weight_scale(5, 1.0f, &scale), FOURFOLD_INVALID_REQUEST, {"convention is 5"}));
  EXPECT_TRUE(
      refuses(fourfold_weight_scale(FOURFOLD_MODELOPT, 1.0f, nullptr), FOURFOLD_INVALID_REQUEST, {"null"}));
  EXPECT_EQ(scale, 7.0f);
  EXPECT_EQ(inverse, 7.0f);
}

TEST(BadGemm, ShapesAndCalls) {
  Context context("sim:sm120");
  auto good = FOURFOLD_INIT(fourfold_gemm_options);
  good.columns = 128;
  good.out_columns = 64;
  good.experts = 2;
  good.rows = 8;
  good.format = FOURFOLD_NVFP4;
  good.activations = FOURFOLD_W4A16;
  good.role = FOURFOLD_DECODE;
  good.result = FOURFOLD_BF16;
  fourfold_gemm* gemm = nullptr;
  const auto refused = [&](fourfold_status wanted, const std::vector<std::string>& words, const auto& spoil) {
    auto options = good;
    spoil(options);
    return refuses(fourfold_gemm_prepare(context, &options, &gemm), wanted, words);
  };
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"K = 96"}, [](auto& o) { o.columns = 96; }));
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"N = 32"}, [](auto& o) { o.out_columns = 32; }));
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"0 experts"}, [](auto& o) { o.experts = 0; }));
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"-5 rows"}, [](auto& o) { o.rows = -5; }));
  EXPECT_TRUE(refused(FOURFOLD_INVALID_REQUEST, {"result is 0"}, [](auto& o) { o.result = 0; }));
  EXPECT_TRUE(refused(FOURFOLD_UNSUPPORTED_OP, {"f32"}, [](auto& o) {
    o.role = FOURFOLD_PREFILL;
    o.result = FOURFOLD_F32;
  }));
  EXPECT_EQ(gemm, nullptr);
  ASSERT_TRUE(succeeds(fourfold_gemm_prepare(context, &good, &gemm)));
  auto call = FOURFOLD_INIT(fourfold_gemm_call);
  call.rows = 9;
  EXPECT_TRUE(refuses(fourfold_gemm_run(gemm, &call), FOURFOLD_INVALID_REQUEST, {"9 rows", "0 to 8"}));
  call.rows = 8;
  EXPECT_TRUE(refuses(fourfold_gemm_run(gemm, &call), FOURFOLD_INVALID_REQUEST, {"weights", "null"}));
  call.weights = call.input = context.allocate(4096);
  call.offsets = static_cast<std::int32_t*>(context.allocate(64));
  call.output = call.workspace = context.allocate(4096);
  EXPECT_TRUE(refuses(fourfold_gemm_run(gemm, &call), FOURFOLD_INVALID_REQUEST, {"workspace has 0 bytes"}));
  EXPECT_TRUE(refuses(fourfold_gemm_run(nullptr, &call), FOURFOLD_INVALID_REQUEST, {"GEMM", "null"}));
  EXPECT_STREQ(fourfold_gemm_row(nullptr), "");
  fourfold_gemm_release(gemm);
  fourfold_gemm_release(nullptr);
  fourfold_layer_release(nullptr);
}

}  // namespace
}  // namespace doors
