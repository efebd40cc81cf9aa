#include "checkpoint/quantization.h"

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

Quantization parse(const std::string& inside, const std::string& beside = "") {
  return parse_quantization(R"({"quantization_config": )" + inside + "}", beside, "config.json");
}

using Algorithms = std::vector<QuantAlgorithm>;

TEST(Quantization, ReadsTheGoldenDescriptions) {
  const Quantization none = read_quantization(golden_folder() / "bf16");
  EXPECT_FALSE(none.quantized());
  EXPECT_FALSE(none.made_for_fp4_activations());

  const Quantization compressed = read_quantization(golden_folder() / "compressed");
  EXPECT_EQ(compressed.method, QuantMethod::compressed_tensors);
  EXPECT_EQ(compressed.algorithms, Algorithms{QuantAlgorithm::nvfp4});
  EXPECT_TRUE(compressed.made_for_fp4_activations());
  EXPECT_EQ(compressed.kv_cache, KvCacheScheme::none);
  EXPECT_EQ(compressed.excluded.front(), "lm_head");

  const Quantization modelopt = read_quantization(golden_model("modelopt"));
  EXPECT_EQ(modelopt.method, QuantMethod::modelopt);
  EXPECT_EQ(modelopt.algorithms, Algorithms{QuantAlgorithm::nvfp4});
  EXPECT_TRUE(modelopt.made_for_fp4_activations());
  EXPECT_EQ(modelopt.kv_cache, KvCacheScheme::fp8);

  const Quantization mixed = read_quantization(golden_folder() / "modelopt_mixed");
  EXPECT_EQ(mixed.method, QuantMethod::modelopt);
  EXPECT_EQ(mixed.algorithms, (Algorithms{QuantAlgorithm::fp8, QuantAlgorithm::w4a16_nvfp4}));
  EXPECT_FALSE(mixed.made_for_fp4_activations());
  EXPECT_EQ(mixed.kv_cache, KvCacheScheme::fp8);
  EXPECT_EQ(mixed.modules.at("lm_head"), QuantAlgorithm::w4a16_nvfp4);
  EXPECT_EQ(mixed.producer, "modelopt 0.0.0+tiny");
}

TEST(Quantization, ReadsModelOptFromEitherFile) {
  const std::string inside = R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
                                 "kv_cache_scheme": {"num_bits": 8}})";
  const std::string beside = R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                 "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})";
  for (const Quantization& one : {parse(inside), parse("null", beside), parse(inside, beside)}) {
    EXPECT_EQ(one.method, QuantMethod::modelopt);
    EXPECT_EQ(one.algorithms, Algorithms{QuantAlgorithm::nvfp4});
    EXPECT_EQ(one.kv_cache, KvCacheScheme::fp8);
    EXPECT_TRUE(one.made_for_fp4_activations());
    EXPECT_EQ(one.excluded, std::vector<std::string>{"lm_head"});
  }
  // The list of modules may be in one of the files only.
  const std::string bare = R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})";
  const std::string listed = R"({"quantization": {"quant_algo": "MIXED_PRECISION",
                                 "quantized_layers": {"a": {"quant_algo": "FP8"}}}})";
  EXPECT_EQ(parse(bare, listed).algorithms, Algorithms{QuantAlgorithm::fp8});
}

TEST(Quantization, ReadsBlockFp8AndWeightOnlyGroups) {
  const Quantization blocks = parse(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})");
  EXPECT_EQ(blocks.algorithms, std::vector{QuantAlgorithm::mxfp4});
  EXPECT_EQ(blocks.excluded, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(parse(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})").algorithms,
            Algorithms{QuantAlgorithm::fp8});
  const std::string groups = R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16},
                                  "input_activations": null}}})";
  EXPECT_EQ(parse(groups).algorithms, Algorithms{QuantAlgorithm::w4a16_nvfp4});
}

TEST(Quantization, ReadsNamesInEitherCase) {
  const auto algorithms = [](const std::string& name) {
    return parse(R"({"quant_method": "modelopt", "quant_algo": ")" + name + "\"}").algorithms;
  };
  for (const char* name : {"FP8", "fp8", "FP8_PB_WO", "fp8_pb_wo", "FP8_PER_CHANNEL_PER_TOKEN"})
    EXPECT_EQ(algorithms(name), Algorithms{QuantAlgorithm::fp8}) << name;
  for (const char* name : {"nvfp4", "NVFP4_AWQ", "nvfp4_awq"})
    EXPECT_EQ(algorithms(name), Algorithms{QuantAlgorithm::nvfp4}) << name;
  EXPECT_EQ(algorithms("mxfp8"), Algorithms{QuantAlgorithm::mxfp8});
  EXPECT_EQ(parse(R"({"quant_method": "modelopt", "quant_algo": "mixed_precision", "quantized_layers":
                      {"a": {"quant_algo": "fp8_pb_wo"}, "b": {"quant_algo": "NVFP4"}}})")
                .modules.at("a"),
            QuantAlgorithm::fp8);
}

TEST(Quantization, ReadsMxfp8OfCompressedTensors) {
  const std::string groups = R"({"quant_method": "compressed-tensors", "format": "mxfp8-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "group_size": 32}}}})";
  EXPECT_EQ(parse(groups).algorithms, Algorithms{QuantAlgorithm::mxfp8});
}

TEST(Quantization, ReadsMxfp4OfCompressedTensors) {
  const std::string groups = R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}}})";
  EXPECT_EQ(parse(groups).algorithms, Algorithms{QuantAlgorithm::mxfp4});
}

TEST(Quantization, ReadsWhatTheKvSchemeSays) {
  const std::pair<const char*, KvCacheScheme> cases[] = {
      {"null", KvCacheScheme::none},
      {R"("FP8")", KvCacheScheme::fp8},
      {R"("nvfp4")", KvCacheScheme::nvfp4},
      {R"("INT8")", KvCacheScheme::other},
      {R"({"num_bits": 8, "type": "float"})", KvCacheScheme::fp8},
      {R"({"num_bits": 4, "type": "float", "group_size": 16})", KvCacheScheme::nvfp4},
      {R"({"num_bits": 8, "type": "int"})", KvCacheScheme::other},
      {R"({"num_bits": "many"})", KvCacheScheme::other},
      {"7", KvCacheScheme::other},
  };
  for (const auto& [scheme, wanted] : cases)
    EXPECT_EQ(parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": )" +
                    std::string(scheme) + "}")
                  .kv_cache,
              wanted)
        << scheme;
  EXPECT_EQ(
      parse("null",
            R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "NVFP4"}})")
          .kv_cache,
      KvCacheScheme::nvfp4);
}

TEST(Quantization, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quant_method": "awq"})", "quant_method is \"awq\""},
      {R"({})", "quant_method is \"\""},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", "quant_algo is \"W4A8_AWQ\""},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4_SVD"})", "quant_algo is \"NVFP4_SVD\""},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})",
       "config.json: quantization_config.group_size is 32: NVFP4 with one scale for 32 weights has no "
       "kernels"},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
           "quantized_layers": {"a": {"quant_algo": "INT4"}}})",
       "quantized_layers.a.quant_algo is \"INT4\""},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})",
       "format is \"pack-quantized\""},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
           {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 16}}}})",
       "type is \"int\""},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
           {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 64}}}})",
       "config_groups.g.weights.group_size is 64: NVFP4 with one scale for 64 weights has no kernels here"},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 64}}}})",
       "group_size is \"64\"; known: 16 for NVFP4, 32 for MXFP4"},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
           {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}}})",
       "group_size is 32: NVFP4 with one scale for 32 weights has no kernels here, only with one for 16"},
      {R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups":
           {"g": {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float", "group_size": 32}}}})",
       "group_size is 32: NVFP4 with one scale for 32 weights has no kernels here, only with one for 16"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    expect_error(Code::unsupported_model, {message, "config.json"}, [&] { parse(text); });
  }
  const std::string hint = expect_error(Code::unsupported_model, {"group_size is 32"}, [] {
    parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})");
  });
  EXPECT_NE(hint.find("one scale for 16 weights (fourfold quantize"), std::string::npos) << hint;
  expect_error(Code::bad_checkpoint, {"missing: quant_algo"},
               [] { parse(R"({"quant_method": "modelopt"})"); });
  expect_error(Code::bad_checkpoint, {"quantization_config is not an object"}, [] { parse("7"); });
}

TEST(Quantization, RefusesFilesThatContradictEachOther) {
  expect_error(Code::bad_checkpoint,
               {"config.json says modelopt NVFP4, hf_quant_config.json says modelopt FP8"}, [] {
                 parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
                       R"({"quantization": {"quant_algo": "FP8"}})");
               });
}

}  // namespace
}  // namespace fourfold::checkpoint
