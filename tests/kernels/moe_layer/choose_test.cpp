#include "kernels/moe_layer/choose.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/sim_machine.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe_layer/moe_layer.h"
#include "kernels/moe_layer/options.h"

namespace fourfold::moe_layer {
namespace {

const char* const kKnownShapes[] = {"35b", "122b", "397b", "397b-tp4"};
constexpr int kTokens[] = {0,  1,  2,  3,   4,   5,   7,   8,    9,    16,   31,   32,
                           63, 64, 65, 100, 128, 256, 512, 1000, 2048, 4096, 8192, 16384};

bool compiled_for(const plan::ArchFacts& arch) {
  return arch.name == "sm90" || arch.name == "sm120" || arch.name == "sm121";
}

template <class Visit>
void every_request(const std::vector<Shape>& shapes, const Visit& visit) {
  for (const Shape& shape : shapes)
    for (const int tokens : kTokens)
      for (const Role role : {Role::prefill, Role::decode})
        for (const Activations activations : {Activations::w4a16, Activations::w4a4})
          for (const WeightFormat format :
               {WeightFormat::nvfp4, WeightFormat::mxfp4, WeightFormat::bf16, WeightFormat::fp8})
            for (const plan::ArchFacts* arch : plan::kArchs)
              visit(*arch, Request{shape, activations, format, role, tokens});
}

std::vector<Shape> some_shapes() {
  std::vector<Shape> shapes;
  for (const char* name : kKnownShapes) shapes.push_back(parse_shape(name));
  // The ends of what is allowed, and sizes only 64 divides.
  for (const Shape& shape : {Shape{64, 64, 1, 1}, Shape{8192, 8192, 1024, 32}, Shape{192, 320, 7, 7},
                             Shape{2880, 2880, 128, 4}, Shape{256, 512, 32, 32}})
    shapes.push_back(shape);
  return shapes;
}

const plan::RowFacts* find_row(const kernels::Machine& machine, kernels::RowKind kind,
                               const std::string& name) {
  const auto handle = machine.find(kind, name);
  return handle.found() ? &machine.rows(kind)[static_cast<std::size_t>(handle.index)] : nullptr;
}

// Prompt tiles by the mean number of tokens an expert gets (35b: a 32nd of the prompt), as they measured.
TEST(Choose, PromptTilesFollowTheMean) {
  const auto row = [](const plan::ArchFacts& arch, WeightFormat format, int tokens) {
    return choose(arch, {parse_shape("35b"), Activations::w4a16, format, Role::prefill, tokens}).gate_up_row;
  };
  EXPECT_EQ(row(plan::kSm90, WeightFormat::nvfp4, 2048), "moe_gemm 256x64x128 w4a16-wgmma nvfp4");
  EXPECT_EQ(row(plan::kSm90, WeightFormat::nvfp4, 2049), "moe_gemm 256x128x128 w4a16-wgmma nvfp4");
  EXPECT_EQ(row(plan::kSm90, WeightFormat::bf16, 1536), "moe_gemm 256x64x64 w16a16-wgmma bf16");
  EXPECT_EQ(row(plan::kSm90, WeightFormat::bf16, 1537), "moe_gemm 256x128x64 w16a16-wgmma bf16");
}

// Routed experts of SM12x by the table that the model of kernels' time makes; everything else as it was.
TEST(Choose, PromptTilesOfSm12xAreTheModels) {
  Request request{parse_shape("35b"), Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 512};
  const auto tile = [&](const plan::ArchFacts& arch, int tokens) {
    request.tokens = tokens;
    return choose(arch, request).gate_up_row;
  };
  for (const auto& [tokens, name] : {std::pair(128, "8x256"),
                                     {129, "16x256"},
                                     {384, "16x256"},
                                     {1024, "32x128"},
                                     {1025, "64x128"},
                                     {2560, "64x128"},
                                     {2561, "128x128"},
                                     {5120, "64x128"},
                                     {8192, "128x128"}})
    EXPECT_EQ(tile(plan::kSm121, tokens), format("moe_gemm 128x{} w4a16-mma nvfp4", name)) << tokens;
  EXPECT_EQ(choose(plan::kSm120, request).because, kByModel);
  request.activations = Activations::w4a4;
  for (const auto& [tokens, name] : {std::pair(256, "8x256"),
                                     {512, "16x256"},
                                     {1024, "32x128"},
                                     {1792, "64x128"},
                                     {1793, "128x256"},
                                     {8192, "128x256"}})
    EXPECT_EQ(tile(plan::kSm120, tokens), format("moe_gemm 128x{} w4a4 nvfp4", name)) << tokens;
  EXPECT_EQ(tile(plan::kSm90, 8192), "moe_gemm 128x128x128 w4a4 nvfp4") << "emulated there, as it was";
  request.shape.experts = request.shape.top_k = 1;
  EXPECT_EQ(tile(plan::kSm120, 2048), "moe_gemm 128x128x128 w4a4 nvfp4") << "a lone matrix";
  EXPECT_TRUE(choose(plan::kSm120, request).because.empty());
}

// Weights packed for W4A4: prompts in W4A4, generated tokens in either, and nothing else is guessed.
// Experts with biases and a clamped SwiGLU (gpt-oss): rows of their own for every number of tokens, or a
// reason. 2,880 columns are 45 records: five rounds of eight, and one of five.
TEST(Choose, ClampedExpertsHaveRowsOfTheirOwn) {
  sim::Device device;
  for (const plan::ArchFacts* arch : {&plan::kSm90, &plan::kSm120}) {
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::bf16})
      for (const Shape& shape : {Shape{2880, 2880, 32, 4}, Shape{2880, 2880, 128, 4}, Shape{512, 1024, 8, 2}})
        for (const Role role : {Role::prefill, Role::decode})
          for (const int tokens : kTokens) {
            Request request{shape, Activations::w4a16, format, role, tokens};
            request.clamped = true;
            const Choice choice = choose(*arch, request);
            ASSERT_TRUE(choice.ok()) << choice.refusal;
            // Two kernels for one token, and for two where their rows have room.
            const bool few = role == Role::decode && format == WeightFormat::mxfp4 && tokens >= 1 &&
                             tokens <= (shape.hidden == 2880 ? 1 : 2);
            EXPECT_EQ(choice.few, few) << choice.gate_up_row;
            for (const bool is_first : {true, false}) {
              const std::string& name = is_first ? choice.gate_up_row : choice.down_row;
              using enum kernels::RowKind;
              const auto* row = find_row(*machine, !few ? gemm : is_first ? few_gate_up : few_down, name);
              ASSERT_NE(row, nullptr) << name;
              EXPECT_TRUE(row->clamps) << name;
              EXPECT_EQ(row->n, choice.tile_tokens);
              if (role == Role::decode) {
                EXPECT_EQ(row->k, format == WeightFormat::mxfp4 && row->n <= 32 ? 512 : 64) << name;
              }
            }
          }
  }
  const auto refusal = [](WeightFormat format, Activations activations) {
    Request request{{2880, 2880, 32, 4}, activations, format, Role::decode, 1};
    request.clamped = true;
    return choose(plan::kSm120, request).refusal;
  };
  EXPECT_NE(refusal(WeightFormat::nvfp4, Activations::w4a16).find("mxfp4 and bf16 weights"),
            std::string::npos);
  EXPECT_NE(refusal(WeightFormat::fp8, Activations::w4a16).find("these are fp8"), std::string::npos);
  EXPECT_NE(refusal(WeightFormat::mxfp4, Activations::w4a4).find("quantised tokens"), std::string::npos);
  Request one{{512, 512, 8, 2}, Activations::w4a16, WeightFormat::mxfp4, Role::decode, 1};
  EXPECT_TRUE(few_choice(one).ok());
  one.clamped = true;
  EXPECT_EQ(few_choice(one).gate_up_row, "moe_few_stream 32x4x512 w4a16-mma mxfp4 clamped");
  one = {{832, 1024, 64, 12}, Activations::w4a16, WeightFormat::mxfp4, Role::decode, 3};
  one.clamped = true;
  EXPECT_NE(few_choice(one).refusal.find("36 pairs of 1024 columns and their sums are 82944 bytes"),
            std::string::npos)
      << few_choice(one).refusal;
  one.shape.top_k = 8, one.shape.intermediate = 256, one.tokens = 4;
  EXPECT_EQ(few_choice(one).refusal, "");
  one.shape.top_k = 4, one.shape.intermediate = 896;
  EXPECT_EQ(few_choice(one).refusal, "") << "GEMM2's room to the last byte";
  one.shape.top_k = 9, one.shape.intermediate = 512, one.tokens = 3;
  EXPECT_NE(few_choice(one).refusal.find("27 pairs of 512 columns and their sums are 32832 bytes"),
            std::string::npos)
      << "the biases of one pair too many";
  one.shape.top_k = 8, one.shape.intermediate = 256, one.tokens = 4, one.shape.hidden = 2880;
  EXPECT_NE(few_choice(one).refusal.find("4 tokens of 2880 columns are 23296 bytes"), std::string::npos);
  one.tokens = 2;
  EXPECT_EQ(few_choice(one).refusal, "");
  one.format = WeightFormat::bf16;
  EXPECT_FALSE(few_choice(one).ok());
}

TEST(Choose, WeightsPackedForW4a4) {
  const auto choice = [](Role role, Activations activations, WeightFormat format, int tokens) {
    return choose(plan::kSm120, {parse_shape("35b"), activations, format, role, tokens, true});
  };
  for (const int tokens : {1, 9, 64, 2048})
    EXPECT_NE(
        choice(Role::prefill, Activations::w4a4, WeightFormat::nvfp4, tokens).gate_up_row.find(" w4a4 nvfp4"),
        std::string::npos);
  EXPECT_EQ(choice(Role::decode, Activations::w4a16, WeightFormat::nvfp4, 1).gate_up_row,
            "moe_few_gate_up 32x4x512 w4a16-fp4-mma nvfp4");
  EXPECT_EQ(choice(Role::decode, Activations::w4a16, WeightFormat::nvfp4, 64).gate_up_row,
            "moe_stream 32x8x512 w4a16-fp4-mma nvfp4");
  EXPECT_EQ(choice(Role::decode, Activations::w4a16, WeightFormat::nvfp4, 2048).gate_up_row,
            "moe_stream 32x64x64 w4a16-fp4-mma nvfp4");
  EXPECT_NE(choice(Role::prefill, Activations::w4a16, WeightFormat::nvfp4, 64).refusal.find("prompt rows"),
            std::string::npos);
  EXPECT_NE(choice(Role::decode, Activations::w4a16, WeightFormat::mxfp4, 64).refusal.find("mxfp4"),
            std::string::npos);
}

TEST(Choose, NoRowTakesF32Weights) {
  for (const Role role : {Role::prefill, Role::decode})
    for (const Activations activations : {Activations::w4a16, Activations::w4a4}) {
      const Request request{parse_shape("35b"), activations, WeightFormat::f32, role, 1};
      EXPECT_NE(choose(plan::kSm90, request).refusal.find("f32"), std::string::npos);
      EXPECT_NE(choose_gemm(plan::kSm120, request).refusal.find("f32"), std::string::npos);
    }
}

TEST(Choose, EveryRequestHasRowsThatExistOrAReason) {
  sim::Device device;
  const auto hopper = kernels::make_sim_machine(device, {.arch = &plan::kSm90});
  const auto workstation = kernels::make_sim_machine(device, {.arch = &plan::kSm120});
  int chosen = 0, refused = 0;
  every_request(some_shapes(), [&](const plan::ArchFacts& arch, const Request& request) {
    const Choice choice = choose(arch, request);
    const bool no_fp4_tokens =
        request.activations == Activations::w4a4 && request.format != WeightFormat::nvfp4;
    ASSERT_EQ(choice.ok(), compiled_for(arch) && !no_fp4_tokens) << arch.name << ": " << choice.refusal;
    if (!choice.ok()) {
      ++refused;
      // A reason says what is missing, and what there is instead.
      const bool names_chip = choice.refusal.find(arch.name) != std::string::npos;
      ASSERT_TRUE(compiled_for(arch) ? choice.refusal.find("w4a16") != std::string::npos : names_chip)
          << choice.refusal;
      return;
    }
    ++chosen;
    const kernels::Machine& machine = arch.name == "sm90" ? *hopper : *workstation;
    using kernels::RowKind;
    const auto* const first =
        find_row(machine, choice.few ? RowKind::few_gate_up : RowKind::gemm, choice.gate_up_row);
    const auto* const second =
        find_row(machine, choice.few ? RowKind::few_down : RowKind::gemm, choice.down_row);
    ASSERT_NE(first, nullptr) << choice.gate_up_row;
    ASSERT_NE(second, nullptr) << choice.down_row;
    for (const auto* row : {first, second}) {
      EXPECT_EQ(row->n, choice.tile_tokens);
      EXPECT_EQ(row->role, request.role == Role::decode ? "decode" : "prefill");
      EXPECT_EQ(row->format, format_name(request.format));
      EXPECT_EQ(row->path == "w4a4", request.activations == Activations::w4a4);
    }
    // The streaming rows unroll K columns: they must divide the matrix.
    if (request.role == Role::decode && !choice.few) {
      EXPECT_TRUE(moe::loop_takes(request.shape.hidden, *first)) << choice.gate_up_row;
      EXPECT_TRUE(moe::loop_takes(request.shape.intermediate, *second)) << choice.down_row;
    }
    EXPECT_EQ(choice.emulated, request.activations == Activations::w4a4 && !arch.has_fp4_mma);
    EXPECT_NO_THROW(prepare_with(machine, request, choice));
  });
  EXPECT_GT(chosen, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Choose, RoleDecidesTheArithmeticAndBatchNever) {
  // Whatever the token count: decode rows add in segments, prefill rows straight through, of one chip and
  // path.
  every_request(some_shapes(), [&](const plan::ArchFacts& arch, const Request& request) {
    const Choice choice = choose(arch, request);
    if (!choice.ok()) return;
    const bool tiled = choice.gate_up_row.starts_with("moe_gemm ");
    ASSERT_EQ(tiled, request.role == Role::prefill);
    ASSERT_EQ(tiled, choice.down_row.starts_with("moe_gemm "));
  });
}

TEST(Choose, OneTokenTakesTheTwoKernelPath) {
  const Shape shape = parse_shape("35b");
  EXPECT_TRUE(choose(plan::kSm120, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 1}).few);
  EXPECT_TRUE(choose(plan::kSm120, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 2}).few);
  EXPECT_FALSE(choose(plan::kSm120, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 3}).few);
  EXPECT_FALSE(choose(plan::kSm120, {shape, Activations::w4a4, WeightFormat::nvfp4, Role::decode, 1}).few);
  EXPECT_FALSE(choose(plan::kSm120, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 1}).few);
}

// More than four segments of K: one warp brings the others their weights.
TEST(Choose, OneTokenOfLongRowsIsStreamed) {
  for (const Shape& shape : {parse_shape("122b"), parse_shape("397b"), Shape{3072, 1536, 256, 8}}) {
    const Request one{shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 1};
    EXPECT_EQ(choose(plan::kSm90, one).gate_up_row, "moe_few_stream 32x4x512 w4a16-mma nvfp4");
  }
  const Request two{{4096, 128, 8, 2}, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 2};
  EXPECT_EQ(few_choice(two).gate_up_row, "moe_few_gate_up 32x4x512 w4a16-mma nvfp4") << "two have no room";
}

// A row that somebody names, or a tuning file, is held to its own limits.
TEST(Choose, EveryFirstKernelHasItsOwnLimits) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &plan::kSm120});
  const auto refusal = [&](const Shape& shape, int tokens, const std::string& first) {
    const Request request{shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens};
    const std::string tail = " 32x4x512 w4a16-mma nvfp4";
    return choice_of(*machine, request, first + tail, "moe_few_down" + tail).refusal;
  };
  EXPECT_EQ(refusal({5120, 512, 8, 2}, 1, "moe_few_stream"), "");
  EXPECT_NE(refusal({5120, 512, 8, 2}, 1, "moe_few_gate_up").find("5120 columns; GEMM1 takes up to 4096"),
            std::string::npos);
  EXPECT_EQ(refusal({4096, 128, 8, 2}, 2, "moe_few_gate_up"), "");
  EXPECT_NE(refusal({4096, 128, 8, 2}, 2, "moe_few_stream").find("room for 12672"), std::string::npos);
}

// What was not measured keeps the kernels it had.
TEST(Choose, TwoTokensOfSixSegmentsTakeMoeStream) {
  const auto few = [](int hidden, int tokens) {
    return choose(plan::kSm90,
                  {{hidden, 128, 64, 8}, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens})
        .few;
  };
  EXPECT_TRUE(few(3072, 1));
  EXPECT_FALSE(few(3072, 2));
  EXPECT_FALSE(few(1536, 1));
  EXPECT_TRUE(few(2048, 2));
}

TEST(Choose, TheTwoKernelPathTakesFourTokensOrSaysWhyNot) {
  const Shape shape{2048, 128, 64, 8};
  for (int tokens = 1; tokens <= 4; ++tokens) {
    const Choice choice = few_choice({shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens});
    EXPECT_TRUE(choice.ok() && choice.few) << choice.refusal;
  }
  EXPECT_NE(
      few_choice({shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, 5}).refusal.find("5 tokens"),
      std::string::npos);
  EXPECT_FALSE(few_choice({shape, Activations::w4a4, WeightFormat::nvfp4, Role::decode, 1}).ok());
  EXPECT_FALSE(few_choice({shape, Activations::w4a16, WeightFormat::nvfp4, Role::prefill, 1}).ok());
  EXPECT_NE(few_choice({shape, Activations::w4a16, WeightFormat::bf16, Role::decode, 1}).refusal.find("bf16"),
            std::string::npos);
  const auto refusal = [](const Shape& of, int tokens) {
    return few_choice({of, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens}).refusal;
  };
  EXPECT_NE(refusal({2048, 512, 513, 8}, 1).find("513 experts; the two-kernel path ranks up to 512"),
            std::string::npos);
  EXPECT_TRUE(refusal({2048, 512, 512, 8}, 1).empty());
  EXPECT_NE(refusal({2048, 64, 512, 17}, 1).find("top-k 17; the two-kernel path takes up to 16"),
            std::string::npos);
  EXPECT_NE(refusal({4096, 8192, 512, 10}, 1).find("10 pairs of 8192 columns and their sums are"),
            std::string::npos);
  EXPECT_NE(refusal({8192, 128, 8, 2}, 1).find("8192 columns; GEMM1 takes up to 4096"), std::string::npos);
  EXPECT_NE(refusal({4096, 128, 8, 2}, 3).find("3 tokens of 4096 columns are 24768 bytes"),
            std::string::npos);
  EXPECT_NE(refusal(parse_shape("35b"), 4).find("32 pairs of 512 columns and their sums are 36864 bytes"),
            std::string::npos);
}

TEST(Choose, WiderPassesForMoreTokens) {
  int before = 0;
  for (const int tokens : kTokens) {
    if (tokens <= 4) continue;
    const Choice choice = choose(
        plan::kSm120, {parse_shape("35b"), Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens});
    EXPECT_GE(choice.tile_tokens, before) << tokens;
    before = choice.tile_tokens;
  }
  EXPECT_EQ(before, 64);
}

std::string refusal_of(const Request& request) {
  try {
    require_shape(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(RequireShape, NamesTheNumbers) {
  const auto refuse = [](Shape shape, int tokens, std::vector<std::string> numbers) {
    const std::string text =
        refusal_of({shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens});
    for (const std::string& number : numbers) EXPECT_NE(text.find(number), std::string::npos) << text;
    // Choosing asks first.
    EXPECT_THROW(choose(plan::kSm120, {shape, Activations::w4a16, WeightFormat::nvfp4, Role::decode, tokens}),
                 Error);
  };
  refuse({100, 128, 4, 2}, 1, {"100", "64"});
  refuse({128, 96, 4, 2}, 1, {"96", "64"});
  refuse({0, 128, 4, 2}, 1, {"0", "64"});
  refuse({128, -64, 4, 2}, 1, {"-64"});
  refuse({8256, 128, 4, 2}, 1, {"8256", "8,192"});
  refuse({128, 8256, 4, 2}, 1, {"8256", "8,192"});
  refuse({128, 128, 0, 1}, 1, {"0", "1024"});
  refuse({128, 128, 1025, 1}, 1, {"1025", "1024"});
  refuse({128, 128, 4, 0}, 1, {"0", "32"});
  refuse({128, 128, 64, 33}, 1, {"33", "32"});
  refuse({128, 128, 4, 5}, 1, {"5", "4"});
  refuse({128, 128, 4, 2}, -3, {"-3"});
  refuse({128, 128, 64, 32}, 1 << 20, {"1048576", "32", "16777216"});
  // A product that does not fit 32 bits is no way around it.
  refuse({128, 128, 64, 32}, 1 << 30, {"1073741824"});
}

// A lone matrix may be wider than a layer: heads x head size, or a dense MLP's neurons.
TEST(Choose, LoneMatricesAreWiderThanLayers) {
  for (const plan::ArchFacts* arch : {&plan::kSm90, &plan::kSm120})
    for (const int columns : {10944, 12288, 16384, 18432, kMaxMatrixColumns})
      for (const Role role : {Role::prefill, Role::decode})
        for (const int tokens : {1, 16, 2048}) {
          const Request request{{columns, 64, 1, 1}, Activations::w4a16, WeightFormat::nvfp4, role, tokens};
          EXPECT_TRUE(choose_gemm(*arch, request).ok()) << columns;
          EXPECT_THROW(choose(*arch, request), Error) << "a layer of " << columns;
        }
  const Request request{{kMaxMatrixColumns + 64, 64, 1, 1}};
  try {
    choose_gemm(plan::kSm90, request);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("65600"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("65,536"), std::string::npos) << error.what();
  }
}

TEST(ParseShape, KnownNamesAndNumbers) {
  for (const char* name : kKnownShapes) EXPECT_NO_THROW(require_shape({parse_shape(name)}));
  const Shape shape = parse_shape("256,128,16,4");
  EXPECT_EQ(shape.hidden, 256);
  EXPECT_EQ(shape.intermediate, 128);
  EXPECT_EQ(shape.experts, 16);
  EXPECT_EQ(shape.top_k, 4);
  for (const char* bad :
       {"", "35", "35B", "1,2,3", "1,2,3,4,5", "1,2,3,", ",1,2,3", "a,b,c,d", "1 ,2,3,4", "1,2,3,4x"}) {
    try {
      parse_shape(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(format("'{}'", bad)), std::string::npos) << error.what();
    }
  }
}

// Prompt rows of fp8 matrices: by the number of tokens, and tiles of 128 where 256 would leave SMs idle.
TEST(Choose, Fp8Fp8RowsFillTheSms) {
  const auto choice = [](const plan::ArchFacts& arch, int rows, int tokens, Role role = Role::prefill,
                         WeightFormat format = WeightFormat::fp8) {
    return choose_gemm(arch, {{2048, 64, 1, 1}, Activations::w8a8, format, role, tokens, false, rows});
  };
  EXPECT_EQ(choice(plan::kSm90, 12288, 2048).gate_up_row, "moe_gemm 128x256x128 w8a8-wgmma fp8");
  EXPECT_EQ(choice(plan::kSm90, 2048, 2048).gate_up_row, "moe_gemm 128x256x128 w8a8-wgmma fp8");
  EXPECT_EQ(choice(plan::kSm90, 1024, 2048).gate_up_row, "moe_gemm 128x128x128 w8a8-wgmma fp8");
  EXPECT_EQ(choice(plan::kSm90, 12288, 128).gate_up_row, "moe_gemm 128x128x128 w8a8-wgmma fp8");
  EXPECT_EQ(choice(plan::kSm90, 12288, 1).gate_up_row, "moe_gemm 128x64x128 w8a8-wgmma fp8");
  EXPECT_EQ(choice(plan::kSm90, 12288, 1).tile_tokens, 64);
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm121}) {
    EXPECT_EQ(choice(*arch, 12288, 2048).gate_up_row, "moe_gemm 128x128x128 w8a8-mma fp8");
    EXPECT_EQ(choice(*arch, 512, 2048).gate_up_row, "moe_gemm 128x64x128 w8a8-mma fp8");
    EXPECT_EQ(choice(*arch, 12288, 33).gate_up_row, "moe_gemm 128x64x128 w8a8-mma fp8");
    EXPECT_EQ(choice(*arch, 12288, 1).gate_up_row, "moe_gemm 128x32x128 w8a8-mma fp8");
    EXPECT_EQ(choice(*arch, 12288, 1).because, kFp8Mma);
  }
  EXPECT_NE(choice(plan::kSm100, 2048, 64).refusal.find("sm100"), std::string::npos);
  EXPECT_NE(choice(plan::kSm90, 2048, 64, Role::decode).refusal.find("prompt"), std::string::npos);
  EXPECT_NE(choice(plan::kSm90, 2048, 64, Role::prefill, WeightFormat::bf16).refusal.find("fp8 weights"),
            std::string::npos);
}

// A router's few rows, of 16-bit weights, take the smallest tile: 96 of them instead of 48.
TEST(Choose, SmallMatricesTakeSmallTilesOnHopper) {
  const auto row = [](int rows) {
    return choose_gemm(
               plan::kSm90,
               {{2048, 64, 1, 1}, Activations::w4a16, WeightFormat::bf16, Role::prefill, 2048, false, rows})
        .gate_up_row;
  };
  EXPECT_EQ(row(288), "moe_gemm 128x64x64 w16a16-wgmma bf16");
  EXPECT_EQ(row(1024), "moe_gemm 128x128x64 w16a16-wgmma bf16");
  EXPECT_EQ(row(12352), "moe_gemm 256x128x64 w16a16-wgmma bf16");
  EXPECT_EQ(row(0), "moe_gemm 256x128x64 w16a16-wgmma bf16");
}

}  // namespace
}  // namespace fourfold::moe_layer
