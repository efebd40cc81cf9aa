// The other families, quantised as ModelOpt, compressed-tensors and the releases in FP8 have them, against
// Hugging Face's numbers of the dequantised weights: every backend but the GPU's, whole, and in the long test
// on two ranks.
#include <cmath>
#include <map>

#include "backend/cpu/cpu.h"
#include "checkpoint/quantization.h"
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "tests/model/quantised_models.h"
#include "tests/support/long_test.h"
#include "tests/support/ranks.h"

namespace fourfold::evaluate {
namespace {

using model::Activations;
using model::family_reference;
using model::Loaded;
using model::QuantisedModel;

class QuantisedFamilies : public testing::TestWithParam<QuantisedModel> {
 protected:
  QuantisedFamilies() { make_quantised(temp_.path() / "model", GetParam()); }
  std::filesystem::path folder() const { return temp_.path() / "model"; }

 private:
  checkpoint::TempFolder temp_;
};

class QuantisedReferences : public testing::TestWithParam<QuantisedModel> {};

void expect_fine(const Comparison& result, const std::string& what) {
  for (const NumberDifference& item : result.numbers)
    EXPECT_TRUE(item.fine()) << what << ": " << item.what << ": " << item.largest << " of "
                             << item.largest_bound << ", " << item.typical << " of " << item.typical_bound;
  for (const TokenDifference& item : result.tokens)
    EXPECT_TRUE(item.fine()) << what << ": " << item.what << ": " << item.same << " of " << item.count;
  EXPECT_FALSE(result.numbers.empty());
}

TEST_P(QuantisedFamilies, AgreeWithAnIndependentImplementation) {
  const Loaded model(folder());
  ASSERT_TRUE(checkpoint::read_quantization(folder()).quantized());
  const auto file = family_reference(GetParam().name());
  const backend::Program whole = model.program(Activations::f32);
  const ReferenceFile reference(file, whole);
  const backend::Capacity capacity = trace_capacity(reference.prompts());
  expect_fine(compare(*model.prepare(Activations::f32, capacity), whole, reference), "f32");
  const auto cpu = backend::make_cpu_backend({.threads = 2, .keep_values = true});
  expect_fine(compare(*cpu->prepare(model.program(Activations::f32), capacity), whole, reference), "cpu");
  if (!test::wants_all()) return;
  expect_fine(
      compare(*model.prepare(Activations::w4a16, capacity), model.program(Activations::w4a16), reference),
      "w4a16");
  for (const char* name : {"reference", "cpu"})
    expect_fine(compare(*backend::prepare_sharded(model, {.count = 2, .backend = name, .keep_values = true},
                                                  capacity),
                        whole, reference),
                format("two ranks, {}", name));
}

// Numbers of the weights before they were quantised are far beyond the bound of f32, so the test above sees
// whether they were dequantised.
TEST_P(QuantisedReferences, AreNotThoseOfTheWeightsBefore) {
  // By row: a file may have the logits of some rows only.
  const auto logits = [](const std::string& name) {
    const checkpoint::SafetensorsFile file(family_reference(name));
    const auto rows = file.copy<std::int64_t>(file.required("p.rows"));
    const auto numbers = file.copy<float>(file.required("p.logits_f32"));
    const std::size_t vocab = numbers.size() / rows.size();
    std::map<std::int64_t, std::vector<float>> out;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto first = numbers.begin() + static_cast<std::ptrdiff_t>(i * vocab);
      out[rows[i]].assign(first, first + static_cast<std::ptrdiff_t>(vocab));
    }
    return out;
  };
  const auto before = logits(GetParam().shape);
  double squares = 0;
  std::size_t count = 0;
  for (const auto& [row, after] : logits(GetParam().name())) {
    ASSERT_EQ(before.count(row), 1u) << row;
    ASSERT_EQ(before.at(row).size(), after.size());
    for (std::size_t i = 0; i < after.size(); ++i)
      squares += std::pow(double{after[i]} - double{before.at(row)[i]}, 2);
    count += after.size();
  }
  EXPECT_GT(std::sqrt(squares / static_cast<double>(count)), 50 * kExactBound);
}

// Every way of storing, with latent attention where heads have matrices of their own.
std::vector<QuantisedModel> some() {
  return {{"tiny-glm", "nvfp4-modelopt"},
          {"tiny-glm", "fp8-tensor"},
          {"tiny-glm", "fp8-rows"},
          {"tiny-minimax", "fp8-blocks"},
          {"tiny-dense", "nvfp4-awq"},
          {"tiny-deepseek", "nvfp4-modelopt"},
          {"tiny-mistral", "nvfp4-compressed"},
          {"tiny-mistral", "fp8-blocks"},
          {"tiny-mistral", "fp8-static"},
          {"tiny-glm", "mxfp8-modelopt"},
          {"tiny-glm", "mxfp8-compressed"},
          {"tiny-glm", "mxfp4-modelopt"},
          {"tiny-glm", "mxfp4-compressed"}};
}
std::vector<QuantisedModel> all() {
  std::vector<QuantisedModel> out = some();
  out.insert(out.end(), {{"tiny-glm", "nvfp4-compressed"},
                         {"tiny-minimax", "nvfp4-modelopt"},
                         {"tiny-deepseek", "fp8-blocks"},
                         {"tiny-mistral", "nvfp4-modelopt"}});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedFamilies, testing::ValuesIn(test::wants_all() ? all() : some()));
INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedReferences, testing::ValuesIn(all()));

}  // namespace
}  // namespace fourfold::evaluate
