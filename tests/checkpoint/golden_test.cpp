// The golden checkpoints, one per storage scheme, against each other and against what an independent
// implementation computed from them.
#include <cmath>
#include <map>
#include <optional>

#include "checkpoint/bind.h"
#include "checkpoint/load_matrix.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

struct Golden {
  explicit Golden(const std::string& name)
      : folder(golden_model(name)),
        checkpoint(folder),
        config(read_model_config(folder)),
        model(bind_model(checkpoint, config)),
        reference(folder / "reference.safetensors") {}

  const GatedMlp& expert(std::size_t layer, std::size_t index) const {
    return std::get<MoeWeights>(model.weights.layers[layer].mlp).experts[index];
  }

  std::filesystem::path folder;
  Checkpoint checkpoint;
  ModelConfig config;
  BoundModel model;
  SafetensorsFile reference;
};

std::map<MatrixFormat, int> count_formats(const Golden& golden) {
  std::map<MatrixFormat, int> counts;
  for_each_matrix(golden.model.weights, [&](const Matrix& matrix) { ++counts[format_of(matrix)]; });
  return counts;
}

// Four layers, eight experts of three matrices; three linear layers of five projections, one full layer of
// four; router, shared gate and three shared matrices a layer; the MTP layer; its fc, embedding and head.
constexpr int kExperts = 4 * 8 * 3;
constexpr int kShared = 4 * 3;
constexpr int kAttention = 4;
constexpr int kAll = kExperts + kShared + 3 * 5 + kAttention + 4 * 2 + (4 + 8 * 3 + 3 + 2) + 3;

TEST(Golden, EveryMatrixHasTheFormatOfItsRelease) {
  using Counts = std::map<MatrixFormat, int>;
  EXPECT_EQ(count_formats(Golden("bf16")), (Counts{{MatrixFormat::bf16, kAll}}));
  EXPECT_EQ(count_formats(Golden("modelopt")),
            (Counts{{MatrixFormat::nvfp4, kExperts}, {MatrixFormat::bf16, kAll - kExperts}}));
  constexpr int compressed = kExperts + kShared + kAttention;
  EXPECT_EQ(count_formats(Golden("compressed")),
            (Counts{{MatrixFormat::nvfp4, compressed}, {MatrixFormat::bf16, kAll - compressed}}));
  constexpr int mixed = kExperts + kShared + 1;
  constexpr int mixed_fp8 = kAttention + 3 * 3;
  EXPECT_EQ(count_formats(Golden("modelopt_mixed")),
            (Counts{{MatrixFormat::nvfp4, mixed},
                    {MatrixFormat::fp8_tensor, mixed_fp8},
                    {MatrixFormat::bf16, kAll - mixed - mixed_fp8}}));
}

TEST(Golden, OnlyModelsMadeForFp4ActivationsHaveInputScales) {
  const Golden compressed("compressed");
  const auto& with = std::get<Nvfp4Storage>(compressed.expert(0, 0).gate.storage);
  ASSERT_TRUE(with.input_scale);
  EXPECT_EQ(with.input_scale->inverse, 336.0f);  // 6 * 448 / 8
  const Golden modelopt("modelopt");
  const auto& inverse = std::get<Nvfp4Storage>(modelopt.expert(0, 0).gate.storage);
  ASSERT_TRUE(inverse.input_scale);
  EXPECT_EQ(inverse.input_scale->scale, 8.0f / (6.0f * 448.0f));
  const Golden mixed("modelopt_mixed");
  EXPECT_FALSE(std::get<Nvfp4Storage>(mixed.expert(0, 0).gate.storage).input_scale);
  const auto& attention = std::get<AttentionWeights>(mixed.model.weights.layers[3].mixer);
  EXPECT_EQ(std::get<Fp8Storage>(attention.query.storage).input_scale, 8.0f / 448.0f);
}

// Both exporters quantised the same experts with the same maxima, so the two conventions must give the same
// numbers, up to the rounding of two reciprocals and a product.
TEST(Golden, CompressedTensorsAndModelOptAgree) {
  const Golden compressed("compressed");
  const Golden mixed("modelopt_mixed");
  for (const std::size_t layer : {0u, 1u, 2u, 3u}) {
    for (std::size_t index = 0; index < 8; ++index) {
      const std::vector<float> a = read_all(compressed.expert(layer, index).down);
      const std::vector<float> b = read_all(mixed.expert(layer, index).down);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], std::abs(a[i]) * 0x1.8p-23f);
    }
  }
}

// |w - nvfp4(w)|: within a block of scale s the widest gap is between 4s and 6s, half of it s. The block
// scale is rounded to four significant bits (relative 2^-4), so the largest weight may lie 6 * 2^-4 s above
// 6s and be clipped by that much.
TEST(Golden, QuantisedExpertsAreNearTheirSource) {
  const Golden source("bf16");
  const Golden mixed("modelopt_mixed");
  for (std::size_t index = 0; index < 8; ++index) {
    const LoadedMatrix quantized = load(mixed.expert(2, index).up);
    const Nvfp4View& view = std::get<Nvfp4Storage>(quantized.matrix.storage).view;
    const std::vector<float> w = read_all(source.expert(2, index).up);
    const std::vector<float> q = read_all(quantized.matrix);
    ASSERT_EQ(w.size(), q.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(w.size()); ++i) {
      const float scale = to_float(view.scale(i / view.columns, i % view.columns / 16)) * view.global_scale;
      ASSERT_LE(std::abs(w[static_cast<std::size_t>(i)] - q[static_cast<std::size_t>(i)]), 1.0f * scale)
          << "index " << i;
    }
  }
}

class GoldenReference : public testing::TestWithParam<const char*> {};

// The first hidden state is the embedding of the tokens: exact.
TEST_P(GoldenReference, EmbeddingRowsAreTheFirstHiddenState) {
  const Golden golden(GetParam());
  const auto ids = golden.reference.copy<std::int64_t>(golden.reference.required("long.input_ids"));
  const auto hidden = golden.reference.copy<float>(golden.reference.required("long.hidden_f32"));
  std::vector<float> row(static_cast<std::size_t>(golden.config.hidden_size));
  const LoadedMatrix embedding = load(golden.model.weights.embedding);
  for (std::size_t token = 0; token < ids.size(); ++token) {
    read_row(embedding.matrix, ids[token], row);
    for (std::size_t i = 0; i < row.size(); ++i) ASSERT_EQ(row[i], hidden[token * row.size() + i]);
  }
}

// logits = head * final norm, in the format the head is stored in. A sum of n products in f32, in any order,
// is off by at most n * 2^-24 times the sum of magnitudes (twice: theirs and ours).
TEST_P(GoldenReference, TheHeadGivesTheReferenceLogits) {
  const Golden golden(GetParam());
  const auto states = golden.reference.copy<float>(golden.reference.required("long.final_norm_f32"));
  const auto logits = golden.reference.copy<float>(golden.reference.required("long.logits_f32"));
  const auto hidden = static_cast<std::size_t>(golden.config.hidden_size);
  const auto vocabulary = static_cast<std::size_t>(golden.config.vocab_size);
  std::vector<float> row(hidden);
  const LoadedMatrix head = load(golden.model.weights.head);
  for (std::size_t token = 0; token < states.size() / hidden; token += 13) {
    for (std::size_t id = 0; id < vocabulary; ++id) {
      read_row(head.matrix, static_cast<std::int64_t>(id), row);
      double sum = 0;
      double magnitude = 0;
      for (std::size_t i = 0; i < hidden; ++i) {
        sum += static_cast<double>(row[i]) * states[token * hidden + i];
        magnitude += std::abs(static_cast<double>(row[i]) * states[token * hidden + i]);
      }
      ASSERT_NEAR(sum, logits[token * vocabulary + id],
                  magnitude * static_cast<double>(hidden) * 0x1p-24 * 2);
    }
  }
}

TEST_P(GoldenReference, EveryMatrixIsSound) {
  const Golden golden(GetParam());
  for_each_matrix(golden.model.weights, [](const Matrix& matrix) { validate(load(matrix).matrix); });
  EXPECT_TRUE(golden.model.weights.mtp);
  EXPECT_TRUE(golden.model.skipped.empty());
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenReference,
                         testing::Values("bf16", "compressed", "modelopt", "modelopt_mixed"));

}  // namespace
}  // namespace fourfold::checkpoint
