#include "checkpoint/write/quantize.h"

#include <map>

#include "base/nvfp4.h"
#include "checkpoint/bind.h"
#include "checkpoint/quantization.h"
#include "checkpoint/write/random_model.h"
#include "tests/checkpoint/support.h"
#include "tests/checkpoint/tiny_model.h"

namespace fourfold::checkpoint {
namespace {

struct Opened {
  explicit Opened(const std::filesystem::path& folder)
      : checkpoint(folder), config(read_model_config(folder)), model(bind_model(checkpoint, config)) {}
  Checkpoint checkpoint;
  ModelConfig config;
  BoundModel model;
};

StorageScheme scheme_of(NameConvention names, StoredAs dense) {
  return {.names = names,
          .routed = StoredAs::nvfp4,
          .shared = dense,
          .attention = dense,
          .delta = dense,
          .head = dense};
}

QuantizeReport quantize(const Opened& in, const StorageScheme& scheme, const std::filesystem::path& out) {
  OutputFolder folder(out);
  const QuantizeReport report = quantize_checkpoint(in.checkpoint, in.config, scheme, folder);
  folder.publish();
  return report;
}

std::filesystem::path make(const TempFolder& temp, const char* shape) {
  OutputFolder folder(temp.path() / shape);
  RandomModelOptions options;
  options.shape = find_shape(shape);
  options.seed = 3;
  write_random_model(folder, options, {5, 6});
  folder.write("tokenizer.json", "{}");
  folder.publish();
  return temp.path() / shape;
}

// The matrix quantised by base alone, in memory, with the largest weight of all that share its scale.
std::vector<float> expected(const Matrix& matrix, const std::vector<const Matrix*>& together) {
  float amax = 0;
  for (const Matrix* member : together)
    for (const float w : read_all(*member)) amax = std::max(amax, std::abs(w));
  return dequantize(quantize_nvfp4_weights(read_all(matrix), matrix.rows, matrix.columns, amax).view());
}

// Both conventions, every family: what is read back is what the quantiser made, bit for bit where the scale
// is stored as it is.
TEST(Quantize, ReadingBackGivesTheQuantisersNumbers) {
  TempFolder temp;
  for (const char* shape : {"tiny", "tiny-next", "tiny-qwen3-moe", "tiny-minimax"}) {
    const Opened in(make(temp, shape));
    const auto out = temp.path() / (std::string(shape) + "-out");
    const QuantizeReport report = quantize(in, scheme_of(NameConvention::modelopt, StoredAs::plain), out);
    const Opened back(out);
    std::size_t matrices = 0;
    for (std::size_t i = 0; i < in.model.weights.layers.size(); ++i) {
      const auto& before = std::get<MoeWeights>(in.model.weights.layers[i].mlp);
      const auto& after = std::get<MoeWeights>(back.model.weights.layers[i].mlp);
      for (std::size_t e = 0; e < before.experts.size(); ++e) {
        const GatedMlp& old = before.experts[e];
        EXPECT_EQ(read_all(after.experts[e].gate), expected(old.gate, {&old.gate, &old.up}));
        EXPECT_EQ(read_all(after.experts[e].up), expected(old.up, {&old.gate, &old.up}));
        EXPECT_EQ(read_all(after.experts[e].down), expected(old.down, {&old.down}));
        matrices += 3;
      }
      EXPECT_EQ(read_all(after.router), read_all(before.router));
    }
    EXPECT_EQ(report.matrices.size(), matrices) << shape;
    EXPECT_EQ(read_all(back.model.weights.head), read_all(in.model.weights.head));
    EXPECT_EQ(read_file(out / "tokenizer.json"), "{}");
    EXPECT_LT(report.bytes_after, report.bytes_before);
    // Normal weights: about 9.5 % for the codes' steps.
    for (const MatrixError& error : report.matrices) {
      EXPECT_GT(error.relative_rms, 0.05) << error.name;
      EXPECT_LT(error.relative_rms, 0.13) << error.name;
      EXPECT_EQ(error.role, TensorRole::routed_expert);
    }
  }
}

// GLM's MTP layer is the one behind the last; it stays as it is, like the others' MTP layers.
TEST(Quantize, LeavesTheMtpLayer) {
  TempFolder temp;
  const Opened in(make(temp, "tiny-glm"));
  quantize(in, scheme_of(NameConvention::modelopt, StoredAs::nvfp4), temp.path() / "out");
  const Opened back(temp.path() / "out");
  const auto& mtp = std::get<MoeWeights>(back.model.weights.mtp->layers[0].mlp);
  const auto& last = std::get<MoeWeights>(back.model.weights.layers[2].mlp);
  EXPECT_EQ(format_of(mtp.experts[0].gate), MatrixFormat::bf16);
  EXPECT_EQ(format_of(mtp.shared->down), MatrixFormat::bf16);
  EXPECT_EQ(format_of(last.experts[0].gate), MatrixFormat::nvfp4);
  EXPECT_EQ(format_of(last.shared->down), MatrixFormat::nvfp4);
}

TEST(Quantize, DenseMatricesAsAsked) {
  TempFolder temp;
  const Opened in(make(temp, "tiny"));
  for (const NameConvention names : {NameConvention::modelopt, NameConvention::compressed_tensors})
    for (const StoredAs dense : {StoredAs::fp8, StoredAs::nvfp4}) {
      const auto out = temp.path() / format("out-{}{}", static_cast<int>(names), static_cast<int>(dense));
      const QuantizeReport report = quantize(in, scheme_of(names, dense), out);
      const Opened back(out);
      const MatrixFormat wanted = dense == StoredAs::fp8 ? MatrixFormat::fp8_tensor : MatrixFormat::nvfp4;
      std::map<TensorRole, MatrixFormat> formats;
      for (const MatrixError& error : report.matrices) {
        formats[error.role] = error.format;
        // E4M3 has three bits behind the leading one: 2^-4 / sqrt(3) at most, a good deal less on average.
        if (error.format == MatrixFormat::fp8_tensor) {
          EXPECT_LT(error.relative_rms, 0.036) << error.name;
        }
      }
      EXPECT_EQ(formats, (std::map<TensorRole, MatrixFormat>{{TensorRole::routed_expert, MatrixFormat::nvfp4},
                                                             {TensorRole::shared_expert, wanted},
                                                             {TensorRole::attention, wanted},
                                                             {TensorRole::delta, wanted},
                                                             {TensorRole::head, wanted}}));
      const auto& full = std::get<AttentionWeights>(back.model.weights.layers[3].mixer);
      if (dense == StoredAs::nvfp4) {  // one product for all three, so one scale
        EXPECT_EQ(std::get<Nvfp4Storage>(full.query.storage).view.global_scale,
                  std::get<Nvfp4Storage>(full.value.storage).view.global_scale);
      }
      EXPECT_FALSE(read_quantization(out).made_for_fp4_activations());
    }
}

TEST(Quantize, RefusesAQuantisedCheckpoint) {
  TempFolder temp;
  const Opened in(golden_folder() / "compressed");
  expect_error(Code::unsupported_model, {"quantised already", "compressed-tensors"}, [&] {
    quantize(in, scheme_of(NameConvention::modelopt, StoredAs::plain), temp.path() / "out");
  });
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

TEST(Quantize, NamesTheWeightThatIsNoNumber) {
  TempFolder temp;
  TinyModel tiny = tiny_qwen3_moe();
  std::string& bytes = tiny.tensor("model.layers.1.mlp.experts.2.up_proj.weight").bytes;
  bytes[2 * (5 * 32 + 7)] = static_cast<char>(0xC0), bytes[2 * (5 * 32 + 7) + 1] = 0x7F;  // NaN
  tiny.write(temp);
  const Opened in(temp.path());
  expect_error(Code::bad_checkpoint, {"experts.2.up_proj.weight", "row 5, column 7"}, [&] {
    quantize(in, scheme_of(NameConvention::modelopt, StoredAs::plain), temp.path() / "out");
  });
  EXPECT_FALSE(std::filesystem::exists(temp.path() / "out"));
}

// Of experts that one tensor holds, the expert is named.
TEST(Quantize, NamesTheStackedExpertWithAWeightThatIsNoNumber) {
  TempFolder temp;
  TinyModel tiny = tiny_gpt_oss();  // [3, 32, 64]: gates and ups in turns, transposed
  std::string& bytes = tiny.tensor("model.layers.1.mlp.experts.gate_up_proj").bytes;
  const std::size_t at = 2 * ((2 * 32 + 7) * 64 + 2 * 5 + 1);
  bytes[at] = static_cast<char>(0xC0), bytes[at + 1] = 0x7F;
  tiny.write(temp);
  const Opened in(temp.path());
  expect_error(
      Code::bad_checkpoint,
      {"layers.1.mlp.experts.gate_up_proj, model.layers.1.mlp.experts.2.up_proj: row 5, column 7"},
      [&] { quantize(in, scheme_of(NameConvention::modelopt, StoredAs::plain), temp.path() / "out"); });
}

// Where the head is the embedding, a copy of it that is written as well is nobody's, and stays.
TEST(Quantize, LeavesTheCopyOfATiedHead) {
  TempFolder temp;
  TinyModel tiny = tiny_qwen3_moe();
  tiny.config = replaced(tiny.config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  tiny.write(temp);
  const Opened in(temp.path());
  quantize(in, scheme_of(NameConvention::modelopt, StoredAs::nvfp4), temp.path() / "out");
  const Opened back(temp.path() / "out");
  EXPECT_EQ(back.checkpoint.find("lm_head.weight")->dtype, DType::bf16);
}

// Columns that are no multiple of sixteen stay as they are, and the report says so.
TEST(Quantize, KeepsWhatBlocksDoNotFit) {
  TempFolder temp;
  TinyModel tiny = tiny_qwen3_moe();
  tiny.config = replaced(tiny.config, "\"moe_intermediate_size\": 16", "\"moe_intermediate_size\": 24");
  for (int e = 0; e < 3; ++e) {
    const std::string prefix = format("model.layers.1.mlp.experts.{}.", e);
    tiny.tensor(prefix + "gate_proj.weight") = random_bf16(prefix + "gate_proj.weight", {24, 32});
    tiny.tensor(prefix + "up_proj.weight") = random_bf16(prefix + "up_proj.weight", {24, 32});
    tiny.tensor(prefix + "down_proj.weight") = random_bf16(prefix + "down_proj.weight", {32, 24});
  }
  tiny.write(temp);
  const Opened in(temp.path());
  const QuantizeReport report =
      quantize(in, scheme_of(NameConvention::modelopt, StoredAs::plain), temp.path() / "out");
  EXPECT_EQ(report.matrices.size(), 6u);
  EXPECT_EQ(report.unsuited.size(), 3u);
  const Opened back(temp.path() / "out");
}

// A file that became shorter after it was opened is an error, not a crash.
TEST(Quantize, SurvivesAFileThatShrinks) {
  TempFolder temp;
  const auto folder = make(temp, "tiny-qwen3-moe");
  const Opened in(folder);
  OutputFolder out(temp.path() / "out");
  // Vectors, which binding reads, lie in front.
  const auto file = folder / "model.safetensors";
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 70'000);
  expect_error(Code::io, {"model.safetensors", "ended at byte"}, [&] {
    quantize_checkpoint(in.checkpoint, in.config, scheme_of(NameConvention::modelopt, StoredAs::plain), out);
  });
}

}  // namespace
}  // namespace fourfold::checkpoint
