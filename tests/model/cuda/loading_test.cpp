// How weights get onto the (simulated) GPU: through the file, quantised anew, through a packed copy. Each
// road must end in the same bits as the plainest one.
#include <deque>
#include <numeric>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load/record_cache.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::DenseWeights;
using checkpoint::expect_error;
using checkpoint::Matrix;
using checkpoint::TempFolder;

// Logits of a prompt of five tokens and two generated rows: both kinds of kernels read every weight.
std::vector<float> logits_of(const Loaded& model, const backend::LoadOptions& options) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared =
      backend::make_gpu_backend(*machine, {.load = options})
          ->prepare(model.program(Activations::w4a16),
                    {.page_count = 1, .page_tokens = 64, .state_slot_count = 1, .row_count = 8});
  const std::vector<std::int32_t> pages{0};
  const auto vocab = static_cast<std::size_t>(prepared->program().vocab_size);
  std::vector<float> all;
  const auto run = [&](std::vector<std::int32_t> tokens, std::int64_t position, backend::Role role) {
    std::vector<std::int32_t> asked(tokens.size());
    std::iota(asked.begin(), asked.end(), 0);
    const backend::SequenceRows rows{static_cast<std::int32_t>(tokens.size()), position, 0, 0, 1, role, 0};
    std::vector<float> logits(tokens.size() * vocab);
    prepared->run(backend::Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
    all.insert(all.end(), logits.begin(), logits.end());
  };
  run({7, 30, 200, 3, 99}, 0, backend::Role::prefill);
  run({11, 5}, 5, backend::Role::decode);
  return all;
}

bool is_quantised(std::string_view name, const char* kind) {
  return name.starts_with("model.") && name.find(kind) != std::string_view::npos &&
         (name.ends_with("_proj.weight") || name.ends_with("in_proj_qkv.weight") ||
          name.ends_with("in_proj_z.weight"));
}

// The golden bf16 model with its dense matrices quantised here, whole, in memory; and what that costs.
struct Requantised {
  Requantised(const Golden& from, DenseWeights dense) : model(checkpoint::golden_model("bf16")) {
    checkpoint::for_each_matrix(model.model.weights, [&](const Matrix& matrix) {
      for (const char* kind : {".self_attn.", ".linear_attn.", ".shared_expert."})
        if (is_quantised(matrix.name, kind)) replace(const_cast<Matrix&>(matrix), kind, dense);
      if (matrix.name == "lm_head.weight") replace(const_cast<Matrix&>(matrix), "head", dense);
    });
    EXPECT_EQ(from.config.vocab_size, model.config.vocab_size);
  }

  void replace(Matrix& matrix, const std::string& kind, DenseWeights dense) {
    const std::vector<float> values = checkpoint::read_all(matrix);
    matrix.source = nullptr;
    if (dense == WeightFormat::nvfp4) {
      fp4.push_back(quantize_nvfp4_weights(values, matrix.rows, matrix.columns));
      matrix.storage = checkpoint::Nvfp4Storage{fp4.back().view(), std::nullopt};
    } else {
      std::vector<E4m3>& codes = fp8.emplace_back();
      std::vector<float> scales;
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        const auto of_row = std::span(values).subspan(static_cast<std::size_t>(row * matrix.columns),
                                                      static_cast<std::size_t>(matrix.columns));
        float amax = 0;
        for (const float value : of_row) amax = std::max(amax, std::abs(value));
        scales.push_back(amax / 448.0f);
        for (const float value : of_row) codes.push_back(to_e4m3(value / scales.back()));
      }
      matrix.storage =
          checkpoint::Fp8Storage{codes, checkpoint::Fp8RowScales{std::move(scales)}, std::nullopt};
    }
    const std::vector<float> after = checkpoint::read_all(matrix);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double wanted = values[i], off = static_cast<double>(after[i]) - wanted;
      squares[kind] += wanted * wanted, off_squares[kind] += off * off;
    }
    ++counts[kind];
  }
  double relative_rms(const std::string& kind) { return std::sqrt(off_squares[kind] / squares[kind]); }

  Loaded model;
  std::deque<Nvfp4Matrix> fp4;
  std::deque<std::vector<E4m3>> fp8;
  std::map<std::string, double> squares, off_squares;
  std::map<std::string, std::int64_t> counts;
};

class DenseAtLoad : public testing::TestWithParam<DenseWeights> {};
TEST_P(DenseAtLoad, IsTheModelQuantisedBeforehandAndReportsItsError) {
  const Golden golden("bf16");
  Requantised wanted(golden, GetParam());
  backend::LoadReport report;
  const auto got =
      logits_of(golden, {.checkpoint = &golden.checkpoint, .dense = GetParam(), .report = &report});
  EXPECT_EQ(got, logits_of(wanted.model, {}));
  EXPECT_NE(got, logits_of(golden, {})) << "quantising must have changed something";
  EXPECT_EQ(report.kept_count, 0);
  ASSERT_EQ(report.dense.size(), 4u);
  const std::vector<std::pair<std::string, std::string>> kinds{{"attention", ".self_attn."},
                                                               {"DeltaNet", ".linear_attn."},
                                                               {"shared experts", ".shared_expert."},
                                                               {"head", "head"}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(report.dense[i].kind, kinds[i].first);
    EXPECT_EQ(report.dense[i].matrix_count, wanted.counts[kinds[i].second]);
    // The same numbers added up in another order.
    const double rms = wanted.relative_rms(kinds[i].second);
    EXPECT_NEAR(report.dense[i].relative_rms, rms, 1e-9 * rms);
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, DenseAtLoad, testing::Values(WeightFormat::fp8, WeightFormat::nvfp4));

TEST(DenseAtLoad, KeepsWhatIsQuantisedAlready) {
  const Golden golden("modelopt_mixed");
  backend::LoadReport report;
  const auto got =
      logits_of(golden, {.checkpoint = &golden.checkpoint, .dense = WeightFormat::nvfp4, .report = &report});
  EXPECT_EQ(got, logits_of(golden, {}));
  EXPECT_TRUE(report.dense.empty());
  EXPECT_GT(report.kept_count, 20);
}

// Routers are told by what they are: families call theirs gate or router. What else is f32 is not one.
TEST(Routers, InF32AreANotice) {
  const Golden golden("bf16");
  backend::Program program = golden.program(Activations::w4a16);
  std::deque<std::vector<float>> values;
  std::deque<Matrix> widened;
  const auto widen = [&](backend::MatrixUse& use, std::string_view name) {
    values.push_back(read_all(*use.matrix));
    Matrix wide = *use.matrix;
    wide.name = name;
    wide.storage = checkpoint::F32Storage{values.back()};
    wide.source = nullptr;
    use.matrix = &widened.emplace_back(wide);
  };
  int routers = 0;
  for (backend::MatrixUse& use : program.matrices) {
    if (use.matrix->role == checkpoint::TensorRole::router) {
      ++routers;
      widen(use, "router.weight");
    }
    if (use.matrix->name.ends_with("shared_expert_gate.weight")) widen(use, "gate.weight");
  }
  ASSERT_GT(routers, 1);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto prepared =
      backend::make_gpu_backend(*machine, {})
          ->prepare(std::move(program),
                    {.page_count = 1, .page_tokens = 64, .state_slot_count = 1, .row_count = 8});
  ASSERT_EQ(prepared->notices().size(), 2u);
  EXPECT_TRUE(prepared->notices()[0].starts_with(format("{} routers are stored in f32", routers)))
      << prepared->notices()[0];
}

// Slots that hold a strip or two: every matrix, every pair of gate and up and every run of experts is cut,
// and the ring of slots goes round many times.
TEST(Slots, OfAnySizeGiveTheSameModel) {
  for (const char* name : {"bf16", "modelopt_mixed"}) {
    const Golden golden(name);
    const auto wanted = logits_of(golden, {});
    EXPECT_EQ(logits_of(golden, {.checkpoint = &golden.checkpoint, .slot_bytes = 1}), wanted) << name;
    EXPECT_EQ(logits_of(golden, {.checkpoint = &golden.checkpoint, .slot_bytes = 100'000}), wanted) << name;
  }
}

// The first start writes the copy, the second reads it: the same bits, the same report. One that is damaged
// or of another checkpoint is refused, and made anew when asked.
TEST(PackedCopy, GivesTheSameModel) {
  const Golden golden("bf16");
  const TempFolder folder;
  backend::LoadReport report;
  backend::LoadOptions options{.checkpoint = &golden.checkpoint,
                               .dense = WeightFormat::fp8,
                               .cache = folder.path().string(),
                               .report = &report};
  const auto wanted = logits_of(golden, options);
  EXPECT_FALSE(report.from_cache);
  const std::vector<backend::DenseError> errors = report.dense;
  const auto file = backend::cuda::cache_file(folder.path(), golden.checkpoint.folder(), WeightFormat::fp8);
  EXPECT_EQ(report.cache_file, file.string());

  report = {};
  EXPECT_EQ(logits_of(golden, options), wanted);
  EXPECT_TRUE(report.from_cache);
  EXPECT_GT(report.bytes_read, 1'000'000u);
  ASSERT_EQ(report.dense.size(), errors.size());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(report.dense[i].relative_rms, errors[i].relative_rms);
    EXPECT_EQ(report.dense[i].matrix_count, errors[i].matrix_count);
  }

  std::string text = checkpoint::read_file(file);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  const std::string hint =
      expect_error(Code::bad_checkpoint, {file.string(), "are damaged"}, [&] { logits_of(golden, options); });
  EXPECT_NE(hint.find("--rebuild-cache"), std::string::npos);
  options.rebuild_cache = true;
  EXPECT_EQ(logits_of(golden, options), wanted);
  options.rebuild_cache = false;
  EXPECT_EQ(logits_of(golden, options), wanted);
  EXPECT_TRUE(report.from_cache);

  const Golden other("modelopt_mixed");
  std::filesystem::copy_file(
      file, backend::cuda::cache_file(folder.path(), other.checkpoint.folder(), WeightFormat::fp8));
  options.checkpoint = &other.checkpoint;
  expect_error(Code::bad_checkpoint, {"made from another checkpoint"}, [&] { logits_of(other, options); });
}

// No room: the model runs, the copy is not there, and both are said.
TEST(PackedCopy, ThatCannotBeWrittenIsANotice) {
  const Golden golden("bf16");
  const TempFolder folder;
  const auto in_the_way = folder.write("a file", "");
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  backend::LoadReport report;
  const auto prepared =
      backend::make_gpu_backend(*machine, {.load = {.checkpoint = &golden.checkpoint,
                                                    .cache = (in_the_way / "cache").string(),
                                                    .report = &report}})
          ->prepare(golden.program(Activations::w4a16),
                    {.page_count = 1, .page_tokens = 64, .state_slot_count = 1, .row_count = 8});
  ASSERT_EQ(prepared->notices().size(), 1u);
  EXPECT_NE(prepared->notices()[0].find("the packed copy was not written"), std::string::npos);
  EXPECT_EQ(report.cache_file, "");
}

}  // namespace
}  // namespace fourfold::model
