#include "cli/plan_command.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "kernels/plan/row_table.h"
#include "plan/separate_budget.h"
#include "tests/cli/support.h"

namespace fourfold::cli {
namespace {

std::string plan_text(const PlanOptions& options, int expected = kFine) {
  Captured captured;
  EXPECT_EQ(run_plan(options, captured.console), expected);
  return captured.out.str();
}

std::string error_of(const PlanOptions& options) {
  Captured captured;
  try {
    run_plan(options, captured.console);
  } catch (const Error& error) {
    EXPECT_EQ(captured.out.str(), "") << "nothing is printed before an error";
    return std::string(error.what()) + " | " + error.hint();
  }
  return "no error";
}

TEST(PlanCommand, EveryRowFitsItsLimit) {
  for (const char* arch : {"sm90", "sm120", "sm121"}) {
    PlanOptions options;
    options.archs = arch;
    options.json = true;
    const Json json = read_json(plan_text(options));
    EXPECT_GT(json.at("rows").items.size(), 60u);
    EXPECT_EQ(json.at("limit_bytes").number, plan::find_arch(arch)->smem_bytes_per_block);
    for (const Json& row : json.at("rows").items) {
      EXPECT_LE(row.at("total_bytes").number, row.at("limit_bytes").number) << row.at("row").text;
      EXPECT_LE(row.at("limit_bytes").number, json.at("limit_bytes").number) << row.at("row").text;
      EXPECT_FALSE(row.at("kernel").text.empty());
      double parts = 0.0;
      for (const Json& part : row.at("parts").items) parts += part.at("bytes").number;
      EXPECT_EQ(parts, row.at("total_bytes").number) << row.at("row").text;
    }
  }
}

TEST(PlanCommand, RefusedShapesSayWhy) {
  PlanOptions options;
  options.json = true;
  const Json json = read_json(plan_text(options));
  ASSERT_GT(json.at("refused").items.size(), 8u);
  int too_large = 0;
  bool famous = false, wgmma = false;
  for (const Json& shape : json.at("refused").items) {
    EXPECT_FALSE(shape.at("reason").text.empty());
    EXPECT_GT(shape.at("needs_bytes").number, 0.0);
    too_large += shape.at("needs_bytes").number > shape.at("limit_bytes").number;
    wgmma = wgmma || shape.at("path").text == "w4a16-wgmma";
    famous = famous || (shape.at("tile").text == "256x128x128" && shape.at("needs_bytes").number == 102'400);
  }
  EXPECT_GE(too_large, 8);
  EXPECT_TRUE(famous);
  EXPECT_TRUE(wgmma);
}

TEST(PlanCommand, ExplainComputesItsNumbers) {
  PlanOptions options;
  options.explain = "256x128x128";
  const std::string page = plan_text(options);
  const plan::separate::Budget budget =
      plan::separate::budget_of({.tile = {256, 128, 128}, .epilogue = plan::separate::Epilogue::finalize});
  for (const int number : {budget.sum_bytes, budget.content_bytes, budget.total_bytes, budget.limit_bytes})
    EXPECT_NE(page.find(with_commas(number)), std::string::npos) << number;
  EXPECT_NE(page.find("102,400"), std::string::npos);
  EXPECT_NE(page.find("moe_gemm 256x128x128 w4a4 nvfp4"), std::string::npos);
}

TEST(PlanCommand, ThePictureShowsTheOverflow) {
  PlanOptions options;
  options.picture = true;
  const std::string page = plan_text(options);
  EXPECT_NE(page.find("fused finalize epilogue"), std::string::npos);
  EXPECT_NE(page.find("101,376"), std::string::npos);
}

TEST(PlanCommand, SeveralArchitecturesAndOnesWithoutKernels) {
  PlanOptions options;
  options.archs = "sm120,sm100";
  EXPECT_NE(plan_text(options).find("sm100: a block may use 232,448"), std::string::npos);
  options.json = true;
  const Json json = read_json(plan_text(options));
  EXPECT_EQ(json.at("limit_bytes").number, 101'376) << "the tightest of those asked for";
  EXPECT_NE(json.at("refused").items.back().at("reason").text.find("no kernels are compiled for this chip"),
            std::string::npos);
}

TEST(PlanCommand, ChoosesRowsThatExist) {
  for (const char* arch : {"sm90", "sm120", "sm121"}) {
    std::set<std::string> have;
    for (const plan::RowFacts& row : kernels::rows_of(*plan::find_arch(arch))) have.insert(row.row);
    for (const char* shape : {"35b", "122b", "397b", "397b-tp4", "320,192,7,3"})
      for (const char* activations : {"auto", "w4a16", "w4a4"})
        for (const char* format : {"nvfp4", "mxfp4"}) {
          if (std::string(activations) == "w4a4" && std::string(format) == "mxfp4") continue;
          PlanOptions options;
          options.archs = arch;
          options.choose = options.json = true;
          options.shape = shape;
          options.tokens = "0,1,4,5,64,300,8192";
          options.activations = activations;
          options.format = format;
          const Json json = read_json(plan_text(options));
          for (const Json& choice : json.at("choices").items) {
            EXPECT_TRUE(have.count(choice.at("gate_up_row").text))
                << choice.at("gate_up_row").text << " on " << arch;
            EXPECT_TRUE(have.count(choice.at("down_row").text))
                << choice.at("down_row").text << " on " << arch;
          }
        }
  }
}

// As a model is served: on chips with the FP4 instruction every prompt, also a chunk of one token, in W4A4.
TEST(PlanCommand, PromptsTakeFp4RowsWhereTheChipHasThem) {
  PlanOptions options;
  options.archs = "sm90,sm120,sm121";
  options.choose = options.json = true;
  options.shape = "397b";
  options.tokens = "1,9,64,300,8192";
  int fp4 = 0;
  const Json json = read_json(plan_text(options));
  for (const Json& choice : json.at("choices").items) {
    const bool is_fp4 = choice.at("arch").text != "sm90" && choice.at("role").text == "prefill";
    EXPECT_EQ(choice.at("activations").text, is_fp4 ? "w4a4" : "w4a16");
    for (const char* row : {"gate_up_row", "down_row"}) {
      const std::string name = choice.at(row).text;
      EXPECT_EQ(name.find(" w4a4 ") != std::string::npos, is_fp4) << name;
      EXPECT_EQ(name.find(" w4a16-fp4-mma ") != std::string::npos,
                choice.at("arch").text != "sm90" && !is_fp4)
          << name;
    }
    fp4 += is_fp4;
  }
  EXPECT_EQ(fp4, 10);
}

// A dense matrix with an input scale: the same, by rows of one expert.
TEST(PlanCommand, AMatrixWithAnInputScaleTakesFp4RowsToo) {
  PlanOptions options;
  options.choose = true;
  options.matrix = 2048;
  options.tokens = "1,2048";
  const std::string text = plan_text(options);
  for (const char* line : {"1 token, decode: moe_stream 32x8x512 w4a16-fp4-mma nvfp4\n",
                           "1 token, prefill: moe_gemm 128x8x256 w4a4 nvfp4\n",
                           "2048 tokens, prefill: moe_gemm 128x128x128 w4a4 nvfp4\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  options.archs = "sm90";
  EXPECT_NE(plan_text(options, kMiss).find("--matrix is for nvfp4 and FP4 inputs"), std::string::npos);
}

// FP8 x FP8 is of dense matrices, and of prompts.
TEST(PlanCommand, AnFp8MatrixTakesFp8Rows) {
  PlanOptions options;
  options.choose = true;
  options.matrix = 2048;
  options.tokens = "1,2048";
  options.activations = "w8a8";
  options.role = "prefill";
  options.archs = "sm90,sm120,sm121";
  const std::string text = plan_text(options);
  for (const char* line : {"sm90 2048 tokens, prefill: moe_gemm 128x256x128 w8a8-wgmma fp8\n",
                           "sm120 1 token, prefill: moe_gemm 128x32x128 w8a8-mma fp8 (FP8 x FP8 by mma",
                           "sm120 2048 tokens, prefill: moe_gemm 128x128x128 w8a8-mma fp8 (FP8 x FP8 by mma",
                           "sm121 2048 tokens, prefill: moe_gemm 128x128x128 w8a8-mma fp8 (FP8 x FP8 by mma"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  options.role = "decode";
  EXPECT_NE(plan_text(options, kMiss).find("for prompt rows"), std::string::npos);
  options.role = "prefill";
  options.matrix = 0;
  options.shape = "35b";
  EXPECT_NE(plan_text(options, kMiss).find("for dense matrices"), std::string::npos);
}

// Who quantises tokens follows from scales that a shape does not have: both ways are named.
TEST(PlanCommand, W4a4PromptsSayWhoQuantises) {
  PlanOptions options;
  options.choose = true;
  options.shape = "35b";
  options.tokens = "2048";
  options.archs = "sm120";
  const std::string text = plan_text(options);
  EXPECT_NE(text.find("(norm_fp4)"), std::string::npos) << text;
  EXPECT_NE(text.find("(quantize_tokens)"), std::string::npos) << text;
  options.role = "decode";
  EXPECT_EQ(plan_text(options).find("norm_fp4"), std::string::npos);
}

TEST(PlanCommand, ARefusedChoiceIsAMissWithItsReason) {
  PlanOptions options;
  options.choose = true;
  options.shape = "35b";
  options.tokens = "8";
  options.archs = "sm100";
  EXPECT_NE(plan_text(options, kMiss).find("refused: no kernels are compiled for sm100"), std::string::npos);
}

TEST(PlanCommand, NativeRowsComeWithThePriceOfTheirRefusal) {
  PlanOptions options;
  options.choose = true;
  options.shape = "35b";
  options.tokens = "8";
  options.archs = "sm120";
  options.activations = "w4a16";
  EXPECT_EQ(plan_text(options, kFine).find("price"), std::string::npos);
  options.activations = "w4a4";
  const std::string text = plan_text(options, kFine);
  EXPECT_NE(text.find("What remains then has a price: W4A16 reads the same bytes of weights"),
            std::string::npos)
      << text;
}

TEST(PlanCommand, StrictMakesEmulationAnError) {
  PlanOptions options;
  options.choose = true;
  options.shape = "35b";
  options.tokens = "8";
  options.archs = "sm90";
  options.activations = "w4a4";
  Captured captured;
  EXPECT_EQ(run_plan(options, captured.console), kFine);
  EXPECT_NE(captured.err.str().find("emulated"), std::string::npos);
  options.strict = true;
  EXPECT_NE(error_of(options).find("--strict"), std::string::npos);
}

TEST(PlanCommand, BadInputNamesTheNumbers) {
  PlanOptions options;
  options.archs = "sm122";
  EXPECT_NE(error_of(options).find("sm80, sm89, sm90, sm100, sm103, sm120, sm121"), std::string::npos);
  options = {};
  options.explain = "256x128x64B";
  EXPECT_NE(error_of(options).find("another library's spelling"), std::string::npos);
  options = {};
  options.choose = true;
  EXPECT_NE(error_of(options).find("--shape"), std::string::npos);
  const std::pair<const char*, const char*> bad_shapes[] = {{"100,64,8,2", "100"},
                                                            {"64,64,2,4", "top-k 4 exceeds the 2 experts"},
                                                            {"64,64,2000,4", "2000"},
                                                            {"huge", "huge"},
                                                            {"64,64,8", "64,64,8"}};
  for (const auto& [shape, says] : bad_shapes) {
    options.shape = shape;
    options.tokens = "1";
    EXPECT_NE(error_of(options).find(says), std::string::npos) << shape << ": " << error_of(options);
  }
  options.shape = "35b";
  for (const char* tokens : {"-1", "x", "1,,2", "1.5"}) {
    options.tokens = tokens;
    EXPECT_NE(error_of(options).find("is not a token count"), std::string::npos) << tokens;
  }
  options = {};
  options.shape = "35b";
  EXPECT_NE(error_of(options).find("--choose"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::cli
