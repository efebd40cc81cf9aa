// What runs an op: the table's default, a measured choice in its place, or a refusal.
#include "backend/cuda/tune/kernel_selector.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/tune/candidates.h"
#include "base/error.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::backend::cuda {
namespace {

using dense::TokenSource;

DenseMatrix matrix_of(int rows, int columns, WeightFormat format = WeightFormat::bf16) {
  DenseMatrix matrix;
  matrix.format = format;
  matrix.strips = matrix.plain_strips = rows / 32;
  matrix.column_records = columns / 64;
  return matrix;
}

class FormsTest : public testing::Test {
 protected:
  KernelSelector selector_with(std::vector<TunedChoice> choices) {
    auto tuning = std::make_shared<Tuning>();
    for (TunedChoice& choice : choices) tuning->add(std::move(choice));
    return {*machine_, tuning};
  }
  template <class Ask>
  std::string message(const Ask& ask) {
    try {
      ask();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  sim::Device device_;
  std::unique_ptr<kernels::Machine> machine_ = kernels::make_sim_machine(device_, {.arch = &plan::kSm90});
};

TEST_F(FormsTest, AChoiceTakesTheDefaultsPlaceInItsRangeAlone) {
  const DenseMatrix matrix = matrix_of(448, 1024);
  const std::string chosen = "dense_many 16x32x512 bf16";
  KernelSelector tuned = selector_with({{.op = "matrix",
                                         .shape = "448x1024 bf16 norm",
                                         .tokens_from = 2,
                                         .tokens_to = 8,
                                         .form = {chosen, {}, 0},
                                         .default_form = {}}});
  KernelSelector plain = selector_with({});
  for (const int tokens : {1, 2, 8, 9}) {
    const bool covered = tokens == 2 || tokens == 8;
    const dense::DenseForm form = tuned.matrix(matrix, TokenSource::norm, tokens);
    const dense::DenseForm usual = plain.matrix(matrix, TokenSource::norm, tokens);
    EXPECT_NE(usual.row, chosen);
    EXPECT_EQ(form.row, covered ? chosen : usual.row) << tokens;
    EXPECT_EQ(form.many, tokens > 1);
    if (covered) {
      EXPECT_EQ(form.workspace_bytes, dense::partial_bytes(448, 1024, tokens));
      EXPECT_FALSE(form.norms);
      EXPECT_GT(form.sum_blocks, 0) << "two segments";
    }
    // The same matrix with given rows is another question.
    EXPECT_NE(tuned.matrix(matrix, TokenSource::rows, tokens).row, chosen);
  }
}

TEST_F(FormsTest, EveryKindOfOpCanBeTuned) {
  moe_layer::Request request;
  request.shape = {2048, 512, 256, 8};
  request.tokens = 1;
  const std::string stream = "moe_stream 32x8x256 w4a16-mma nvfp4";
  const std::string tile = "moe_gemm 128x64x128 w4a16-mma nvfp4";
  const AttendCall attend{256, 16, 2, "bf16", 1, 4};
  KernelSelector tuned = selector_with(
      {{"experts", "2048,512,256,8 nvfp4", 1, 1, {stream, {}, 0}, 0, {}, 0},
       {"prompt experts", "2048,512,256,8 nvfp4", 1, 99, {tile, {}, 0}, 0, {}, 0},
       {"prompt matrix", "64x2048 nvfp4", 1, 99, {tile, {}, 0}, 0, {}, 0},
       {"attend", "16/2 heads of 256 bf16, 1 a sequence", 4, 4, {"attend 256 bf16 x64", {}, 7}, 0, {}, 0},
       {"attend prompt", "heads of 256 bf16", 1, 99, {"attend_prompt 256 bf16 mma", {}, 0}, 0, {}, 0}});
  EXPECT_TRUE(selector_with({}).experts(request).few);
  EXPECT_EQ(tuned.experts(request).gate_up_row, stream);
  EXPECT_EQ(tuned.experts(request).down_row, stream);
  EXPECT_EQ(tuned.experts(request).tile_tokens, 8);
  request.role = moe_layer::Role::prefill;
  EXPECT_EQ(tuned.experts(request).gate_up_row, tile);
  const DenseMatrix matrix = matrix_of(64, 2048, WeightFormat::nvfp4);
  EXPECT_EQ(tuned.prompt_matrix(matrix, 50).gate_up_row, tile);
  EXPECT_NE(tuned.prompt_matrix(matrix, 100).gate_up_row, tile);
  EXPECT_EQ(tuned.attend(attend).row, "attend 256 bf16 x64");
  EXPECT_EQ(tuned.attend(attend).blocks, 7);
  EXPECT_EQ(selector_with({}).attend(attend).row, "attend 256 bf16 x16");
  EXPECT_EQ(tuned.attend_prompt({256, "bf16", 10}), "attend_prompt 256 bf16 mma");
  EXPECT_EQ(selector_with({}).attend_prompt({256, "bf16", 10}), "attend_prompt 256 bf16 wgmma");
}

// Attention with a window or sinks is a question of its own, and takes rows that know them.
TEST_F(FormsTest, WindowsHaveRowsOfTheirOwn) {
  const AttendCall attend{64, 64, 8, "bf16", 1, 4, true};
  const PromptAttendCall prompt{64, "bf16", 10, true};
  EXPECT_EQ(selector_with({}).attend(attend).row, "attend 64 bf16 x16 window");
  EXPECT_EQ(selector_with({}).attend_prompt(prompt), "attend_prompt 64 bf16 wgmma window");
  KernelSelector other = selector_with({{"attend",
                                         "64/8 heads of 64 bf16 window, 1 a sequence",
                                         4,
                                         4,
                                         {"attend 64 bf16 x32", {}, 0},
                                         0,
                                         {},
                                         0}});
  EXPECT_NE(
      message([&] { other.attend(attend); }).find("no row of attend for heads of 64 and bf16 pages with a"),
      std::string::npos);
  KernelSelector wider = selector_with({{"attend",
                                         "64/8 heads of 64 bf16 window, 1 a sequence",
                                         4,
                                         4,
                                         {"attend 64 bf16 x32 window", {}, 0},
                                         0,
                                         {},
                                         0}});
  EXPECT_EQ(wider.attend(attend).row, "attend 64 bf16 x32 window");
}

// A matrix with FP4 inputs is one expert: prompts are a question of their own, generated rows none.
TEST_F(FormsTest, Fp4InputsTakeRowsOfOneExpert) {
  DenseMatrix matrix = matrix_of(64, 2048, WeightFormat::nvfp4);
  matrix.input = InputFormat::nvfp4_prefill;
  const std::string tile = "moe_gemm 128x64x128 w4a4 nvfp4";
  KernelSelector tuned =
      selector_with({{"prompt matrix", "64x2048 nvfp4 w4a4", 1, 99, {tile, {}, 0}, 0, {}, 0}});
  EXPECT_EQ(tuned.prompt_matrix(matrix, 50).gate_up_row, tile);
  EXPECT_EQ(tuned.prompt_matrix(matrix, 2048).gate_up_row, "moe_gemm 128x128x128 w4a4 nvfp4");
  using enum moe_layer::Activations;
  for (const auto& [rows, width] : {std::pair{1, 8}, {8, 8}, {9, 16}, {32, 32}, {33, 64}, {128, 64}}) {
    EXPECT_EQ(tuned.one_expert(matrix, rows, w4a4).tile_tokens, width) << rows;
    const std::string row = tuned.one_expert(matrix, rows, w4a16).gate_up_row;
    EXPECT_NE(row.find(" w4a16-fp4-mma nvfp4"), std::string::npos) << row;
  }
}

TEST_F(FormsTest, RefusesRowsThatWouldNotGiveTheSameBits) {
  moe_layer::Request request;
  request.shape = {2048, 512, 256, 8};
  request.tokens = 64;
  const auto refused = [&](const std::string& row, const std::string& second = {}) {
    KernelSelector tuned =
        selector_with({{"experts", "2048,512,256,8 nvfp4", 1, 64, {row, second, 0}, 0, {}, 0}});
    return message([&] { tuned.experts(request); });
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(contains, refused("moe_gemm 128x64x128 w4a16-mma nvfp4"), "other bits: sums as prefill does");
  EXPECT_PRED2(contains, refused("moe_stream 32x8x256 w4a4 nvfp4"), "other bits: multiplies FP4 tokens");
  EXPECT_PRED2(contains, refused("moe_stream 32x8x256 w4a16-mma mxfp4"), "for mxfp4 weights");
  EXPECT_PRED2(contains,
               refused("moe_stream 32x8x256 w4a16-mma nvfp4", "moe_stream 32x16x256 w4a16-mma nvfp4"),
               "tiles of 8 and of 16 tokens");
  EXPECT_PRED2(contains,
               refused("moe_few_gate_up 32x4x512 w4a16-mma nvfp4", "moe_few_down 16x4x512 w4a16-mma nvfp4"),
               "64 tokens; the two-kernel path takes 1 to 4");
  EXPECT_PRED2(contains, refused("moe_dream"), "has no such row");

  const auto matrix_refused = [&](const char* row, int blocks, int tokens) {
    KernelSelector tuned =
        selector_with({{"matrix", "448x1024 bf16 rows", 1, 64, {row, {}, blocks}, 0, {}, 0}});
    return message([&] { tuned.matrix(matrix_of(448, 1024), TokenSource::rows, tokens); });
  };
  EXPECT_PRED2(contains, matrix_refused("dense_few 32x8x512 rows bf16 w4", 0, 9), "takes up to 8 tokens");
  EXPECT_PRED2(contains, matrix_refused("dense_few 32x8x512 norm bf16 w4", 0, 8), "norms its tokens");
  EXPECT_PRED2(contains, matrix_refused("dense_few 32x8x512 rows bf16 w4", 77, 8), "no grid of 77 blocks");
  EXPECT_PRED2(contains, matrix_refused("dense_few 32x8x512 rows fp8 w8", 0, 8), "no row for generated rows");
}

// The default first and able to run; every other row of the kernel with a reason where it cannot.
TEST_F(FormsTest, ListsEveryCandidateOnce) {
  std::vector<Question> asked;
  KernelSelector listening = selector_with({});
  listening.listen(&asked);
  const DenseMatrix matrix = matrix_of(4096, 2048);
  moe_layer::Request request;
  request.shape = {2048, 512, 256, 8};
  for (const int tokens : {1, 8, 64}) {
    listening.enter(3);
    listening.matrix(matrix, TokenSource::norm, tokens);
    listening.enter(5);
    listening.matrix(matrix, TokenSource::norm, tokens);
    request.tokens = tokens;
    listening.experts(request);
    listening.attend({256, 16, 2, "bf16", 1, tokens});
  }
  listening.prompt_matrix(matrix, 128);
  listening.attend_prompt({256, "bf16", 128});
  listening.only("delta_decode 128 f32");
  ASSERT_EQ(asked.size(), 12u);
  EXPECT_EQ(asked.front().stages, 1u << 3 | 1u << 5);
  for (const Question& question : asked) {
    const auto all = candidates_of(*machine_, question, std::size_t{1} << 30);
    EXPECT_GE(all.size(), 3u) << question.op;
    EXPECT_EQ(all.front().refusal, "") << question.op;
    std::set<std::string> names;
    for (const Candidate& candidate : all) EXPECT_TRUE(names.insert(to_text(candidate.form)).second);
    const auto poor = candidates_of(*machine_, question, 1);
    if (question.op == "experts") {
      for (std::size_t i = 1; i < poor.size(); ++i) EXPECT_FALSE(poor[i].refusal.empty());
    }
  }
}

}  // namespace
}  // namespace fourfold::backend::cuda
