#include "checkpoint/write/random_model.h"

#include <sys/stat.h>

#include <cmath>

#include "checkpoint/bind.h"
#include "checkpoint/quantization.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

constexpr TokenIds kIds{5, 6};
const char* const kFormats[] = {"bf16", "modelopt", "modelopt-mixed", "compressed-tensors", "nvfp4", "mxfp4"};

std::filesystem::path make(const TempFolder& temp, const std::string& name,
                           const RandomModelOptions& options) {
  OutputFolder folder(temp.path() / name);
  write_random_model(folder, options, kIds);
  folder.publish();
  return temp.path() / name;
}

RandomModelOptions options_of(std::string_view shape, const char* format, std::uint64_t seed = 1) {
  RandomModelOptions options;
  options.shape = find_shape(shape);
  options.scheme = scheme_named(format);
  options.seed = seed;
  return options;
}

std::string all_bytes(const std::filesystem::path& folder) {
  std::string bytes;
  for (const char* name : {"config.json", "model.safetensors"}) bytes += read_file(folder / name);
  return bytes;
}

// Binding checks every name and shape: nothing missing, nothing left over, nothing misshapen.
TEST(RandomModel, EveryFamilyInEveryFormatBinds) {
  TempFolder temp;
  for (const ModelShape& shape : tiny_shapes())
    for (const char* format_name : kFormats) {
      if (shape.name == "small") continue;  // and twenty times as large
      const RandomModelOptions options = options_of(shape.name, format_name);
      const auto folder = make(temp, std::string(shape.name) + format_name, options);
      const Checkpoint checkpoint(folder);
      const ModelConfig config = read_model_config(folder);
      EXPECT_EQ(config.family, options.shape.family);
      EXPECT_TRUE(config.unknown_fields.empty()) << config.unknown_fields.front();
      const BoundModel model = bind_model(checkpoint, config);
      EXPECT_TRUE(model.skipped.empty());
      EXPECT_EQ(model.weights.mtp.has_value(), options.shape.mtp) << shape.name;
      EXPECT_EQ(read_quantization(folder).quantized(), std::string(format_name) != "bf16");
      int fp4 = 0;
      for_each_matrix(model.weights, [&](const Matrix& matrix) {
        validate(load(matrix).matrix);
        const bool is_mxfp4 = std::string(format_name) == "mxfp4";
        if (format_of(matrix) == (is_mxfp4 ? MatrixFormat::mxfp4 : MatrixFormat::nvfp4)) ++fp4;
      });
      // A dense model has no experts to quantise.
      const bool of_experts = std::string(format_name) == "modelopt" || std::string(format_name) == "mxfp4";
      const bool some = std::string(format_name) != "bf16" && !(options.shape.experts == 0 && of_experts);
      EXPECT_EQ(fp4 > 0, some) << shape.name << " " << format_name;
    }
}

TEST(RandomModel, TheSameSeedGivesTheSameBytes) {
  TempFolder temp;
  const std::string first = all_bytes(make(temp, "first", options_of("tiny", "modelopt-mixed", 7)));
  EXPECT_EQ(first, all_bytes(make(temp, "again", options_of("tiny", "modelopt-mixed", 7))));
  EXPECT_NE(first, all_bytes(make(temp, "other", options_of("tiny", "modelopt-mixed", 8))));
}

// A linear map of random weights keeps the size of what it maps, whatever the format.
TEST(RandomModel, WeightsHaveUnitGain) {
  TempFolder temp;
  for (const char* format_name : kFormats) {
    const auto folder = make(temp, format_name, options_of("tiny", format_name));
    const Checkpoint checkpoint(folder);
    const BoundModel model = bind_model(checkpoint, read_model_config(folder));
    double squares = 0;
    std::size_t rows = 0;
    const auto add = [&](const Matrix& matrix) {
      for (const float w : read_all(matrix)) squares += static_cast<double>(w) * w;
      rows += static_cast<std::size_t>(matrix.rows);
    };
    for (const LayerWeights& layer : model.weights.layers)
      for (const GatedMlp& expert : std::get<MoeWeights>(layer.mlp).experts)
        add(expert.gate), add(expert.up), add(expert.down);
    // Rows are scaled by 0.5 to 1.5: the mean of the squares is 13/12.
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows)), std::sqrt(13.0 / 12), 0.05) << format_name;
  }
}

// The published file size of the 397B release: 250.2 GB with its MTP layer in BF16.
TEST(RandomModel, SparseHasTheTrueSizeAndTakesNoDisk) {
  TempFolder temp;
  RandomModelOptions options = options_of("397b", "modelopt");
  options.sparse = true;
  const auto folder = make(temp, "397b", options);
  std::uint64_t disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat facts {};
    ASSERT_EQ(::stat(entry.path().c_str(), &facts), 0);
    disk += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  EXPECT_LT(disk, 400'000'000u);
  const Checkpoint checkpoint(folder);
  EXPECT_EQ(checkpoint.tensor_bytes() / 100'000'000, 2502u);
  const BoundModel model = bind_model(checkpoint, read_model_config(folder));
  EXPECT_TRUE(model.weights.mtp);
  EXPECT_EQ(format_of(std::get<MoeWeights>(model.weights.layers[59].mlp).experts[511].down),
            MatrixFormat::nvfp4);
}

// The published checkpoint sizes: 12.8 and 60.8 GiB.
TEST(RandomModel, GptOssHasItsReleasesSize) {
  TempFolder temp;
  for (const auto& [shape, tenths] : {std::pair("gpt-oss-20b", 128u), {"gpt-oss-120b", 608u}}) {
    RandomModelOptions options = options_of(shape, "mxfp4");
    options.sparse = true;
    const Checkpoint checkpoint(make(temp, shape, options));
    EXPECT_EQ((checkpoint.tensor_bytes() * 10 + (1u << 29)) >> 30, tenths) << shape;
  }
}

TEST(RandomModel, StopsWhenAskedAndLeavesNothing) {
  TempFolder temp;
  const auto run = [&] {
    OutputFolder folder(temp.path() / "model");
    write_random_model(folder, options_of("tiny", "modelopt"), kIds,
                       [](std::uint64_t, std::uint64_t) { fail(Code::cancelled, "enough"); });
  };
  expect_error(Code::cancelled, {"enough"}, run);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

// Its release's name and YaRN, which its reference is computed with.
TEST(ModelShape, KimiIsWrittenAsItself) {
  for (const char* name : {"tiny-kimi", "kimi-k2"}) {
    const std::string text = config_text(find_shape(name), kIds, {}, {});
    EXPECT_NE(text.find("\"model_type\": \"kimi_k2\""), std::string::npos) << text;
    const ModelConfig config = parse_model_config(text, name);
    ASSERT_TRUE(config.rope.yarn);
    EXPECT_EQ(config.rope.yarn->beta_fast, 1) << name;
    EXPECT_EQ(config.moe->group_count, 1) << name;
    EXPECT_EQ(config.mtp_layer_count, 0) << name;
  }
}

TEST(ModelShape, UnknownNamesAreRefused) {
  EXPECT_NE(expect_error(Code::invalid_request, {"'7b'"}, [] { find_shape("7b"); }).find("35b"),
            std::string::npos);
}

}  // namespace
}  // namespace fourfold::checkpoint
