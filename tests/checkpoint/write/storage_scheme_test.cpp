#include "checkpoint/write/storage_scheme.h"

#include <set>

#include "checkpoint/quantization.h"
#include "checkpoint/write/random_model.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

// What a writer says about its files, the reader understands as it was meant.
TEST(DescribeQuantization, IsUnderstoodByTheReader) {
  const std::vector<StoredModule> modules{{"model.layers.0.mlp.experts.0.up_proj", StoredAs::nvfp4, true},
                                          {"model.layers.0.mlp.experts.1.up_proj", StoredAs::nvfp4, true},
                                          {"model.layers.0.self_attn.q_proj", StoredAs::fp8},
                                          {"lm_head", StoredAs::plain}};
  for (const char* name : {"modelopt", "modelopt-mixed", "compressed-tensors"}) {
    const StorageScheme scheme = scheme_named(name);
    JsonWriter json;
    json.begin_object().key("quantization_config");
    describe_quantization(json, scheme, modules);
    const Quantization read =
        parse_quantization(json.end_object().finish(), modelopt_sidecar(scheme, modules), name);
    EXPECT_EQ(read.method, scheme.names == NameConvention::modelopt ? QuantMethod::modelopt
                                                                    : QuantMethod::compressed_tensors);
    EXPECT_EQ(read.made_for_fp4_activations(), scheme.input_scales) << name;
    EXPECT_EQ(std::set(read.algorithms.begin(), read.algorithms.end()),
              (std::set{QuantAlgorithm::fp8,
                        scheme.input_scales ? QuantAlgorithm::nvfp4 : QuantAlgorithm::w4a16_nvfp4}))
        << name;
    EXPECT_EQ(read.excluded, std::vector<std::string>{"lm_head"});
    if (read.method == QuantMethod::modelopt) {
      EXPECT_EQ(read.modules.size(), 2u) << "the experts of a layer are one entry";
    }
  }
}

TEST(DescribeQuantization, Mxfp4IsUnderstoodByTheReader) {
  std::vector<StoredModule> modules{{"model.layers.0.mlp.experts.0.up_proj", StoredAs::mxfp4, true},
                                    {"lm_head", StoredAs::plain}};
  for (const bool mixed : {false, true}) {
    if (mixed) modules.push_back({"model.layers.0.self_attn.q_proj", StoredAs::fp8});
    for (const NameConvention names : {NameConvention::compressed_tensors, NameConvention::modelopt}) {
      StorageScheme scheme = scheme_named("mxfp4");
      scheme.names = names;
      JsonWriter json;
      json.begin_object().key("quantization_config");
      describe_quantization(json, scheme, modules);
      const Quantization read =
          parse_quantization(json.end_object().finish(), modelopt_sidecar(scheme, modules), "mxfp4");
      std::set<QuantAlgorithm> expected{QuantAlgorithm::mxfp4};
      if (mixed) expected.insert(QuantAlgorithm::fp8);
      EXPECT_EQ(std::set(read.algorithms.begin(), read.algorithms.end()), expected);
      EXPECT_FALSE(read.made_for_fp4_activations());
    }
  }
}

// Whatever a family calls its experts and layers.
TEST(DescribeQuantization, ExpertsOfALayerAreOneEntry) {
  const std::vector<StoredModule> modules{{"pebbles.10.stones.0.open", StoredAs::nvfp4, true},
                                          {"pebbles.10.stones.11.narrow", StoredAs::nvfp4, true},
                                          {"pebbles.2.look.q_proj", StoredAs::fp8},
                                          {"pebbles.2.think.7.open", StoredAs::fp8},
                                          {"draft.stones.open", StoredAs::plain, true},
                                          {"draft.stones.narrow", StoredAs::plain, true}};
  JsonWriter json;
  describe_quantization(json, scheme_named("compressed-tensors"), modules);
  const std::string text = json.finish();
  for (const char* part :
       {R"("targets":["re:.*pebbles.10.stones\\..*"])",
        R"("targets":["pebbles.2.look.q_proj","pebbles.2.think.7.open"])", R"("ignore":["draft.stones"])"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(DescribeQuantization, OneAlgorithmNeedsNoList) {
  const std::vector<StoredModule> modules{{"model.layers.0.mlp.experts.0.up_proj", StoredAs::nvfp4, true}};
  const StorageScheme scheme = scheme_named("modelopt");
  JsonWriter json;
  describe_quantization(json, scheme, modules);
  EXPECT_NE(json.finish().find("\"quant_algo\":\"NVFP4\""), std::string::npos);
}

TEST(Scheme, UnknownNamesAreRefused) {
  EXPECT_NE(expect_error(Code::invalid_request, {"'int4'"}, [] { scheme_named("int4"); }).find("modelopt"),
            std::string::npos);
}

}  // namespace
}  // namespace fourfold::checkpoint
