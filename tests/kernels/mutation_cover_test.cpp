// No header of a kernel that synchronises is left out of the mutation tests.
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/kernels/mutations.h"

namespace fourfold::test {
namespace {

// Which test removes the synchronisations of which header. A header that is missing here is in no such test.
const std::map<std::string, const char*> kTested = {
    {"all_reduce/all_reduce.h", "AllReduceMutations"},
    {"all_reduce/exchange_flags.h", "AllReduceMutations"},
    {"attention/attend.h", "StepMutation.Attend"},
    {"attention/attend_prompt.h", "StepMutation.AttendPrompt"},
    {"attention/attend_prompt_wgmma.h", "StepMutation.AttendPrompt"},
    {"attention/combine.h", "StepMutation.Combine"},
    {"attention/piece_ring.h", "StepMutation.AttendPrompt"},
    {"attention/prepare.h", "StepMutation.Prepare"},
    {"attention/row_squares.h", "StepMutation.RowSquares"},
    {"delta/decode.h", "DeltaMutations"},
    {"delta/decode_inputs.h", "DeltaMutations"},
    {"delta/decode_one.h", "DeltaMutations"},
    {"delta/decode_rule.h", "DeltaMutations"},
    {"delta/prompt_finish.h", "DeltaMutations"},
    {"delta/prompt_prepare.h", "DeltaMutations"},
    {"delta/prompt_rows.h", "DeltaMutations"},
    {"delta/prompt_scan.h", "DeltaMutations"},
    {"dense/dense_few.h", "StepMutation.DenseFew"},
    {"dense/dense_many.h", "StepMutation.DenseMany"},
    {"dense/dense_near.h", "StepMutation.DenseNear"},
    {"dense/dense_sum.h", "StepMutation.DenseSum"},
    {"dense/dense_sum_norm.h", "StepMutation.DenseSumNorm"},
    {"dense/dense_tall.h", "StepMutation.DenseTall"},
    {"dense/dense_tokens.h", "StepMutation.DenseFew"},
    {"dense/many_feed.h", "StepMutation.DenseMany"},
    {"dense/many_pair.h", "StepMutation.DenseSumPair"},
    {"dense/norm_fp4.h", "StepMutation.NormFp4"},
    {"dense/norm_prompt.h", "StepMutation.NormPrompt"},
    {"dense/norm_rows.h", "StepMutation.NormRows"},
    {"dense/quantize_rows.h", "StepMutation.QuantizeRows"},
    {"dense/weight_feed.h", "StepMutation.DenseFew"},
    {"mla/absorb_queries.h", "StepMutation.AbsorbQueries"},
    {"mla/attend_latent.h", "StepMutation.AttendLatent"},
    {"mla/attend_latent_wgmma.h", "StepMutation.AttendLatentPrompt"},
    {"mla/combine_expand.h", "StepMutation.CombineExpand"},
    {"mla/head_linear.h", "StepMutation.HeadLinear"},
    {"mla/page_ring.h", "StepMutation.AttendLatentPrompt"},
    {"mla/prepare_latent.h", "StepMutation.LatentRows"},
    {"mla/tile_ring.h", "StepMutation.AttendLatent"},
    {"moe_combine/combine_norm.h", "StepMutation.CombineNorm"},
    {"moe_combine/moe_combine.h", "Mutation.StreamAndCombine"},
    {"moe_few/fed_ring.h", "Mutation.FewTokensStreamed"},
    {"moe_few/few_down.h", "Mutation.FewTokensStreamed"},
    {"moe_few/few_gate_up.h", "Mutation.FewTokens"},
    {"moe_few/few_route.h", "Mutation.FewTokens"},
    {"moe_few/few_stream.h", "Mutation.FewTokensStreamed"},
    {"moe_few/record_ring.h", "Mutation.FewTokens"},
    {"moe_few/token_rows.h", "Mutation.FewTokensStreamed"},
    {"moe_gemm/finish_group.h", "Mutation.TiledMma"},
    {"moe_gemm/load_tiles.h", "Mutation.TiledMma"},
    {"moe_gemm/moe_gemm.h", "Mutation.TiledMma"},
    {"moe_gemm/multiply_fp8.h", "Mutation.TiledFp8"},
    {"moe_gemm/multiply_fp8_mma.h", "Mutation.TiledFp8Mma"},
    {"moe_gemm/multiply_mma.h", "Mutation.TiledMma"},
    {"moe_gemm/multiply_wgmma.h", "Mutation.TiledWgmma"},
    {"moe_group/moe_group.h", "BasicMutation.GroupedGemm"},
    {"moe_route/few_tables.h", "Mutation.OneBlockRoute"},
    {"moe_route/lay_out.h", "Mutation.SmallRoute"},
    {"moe_route/moe_route.h", "Mutation.LargestRoute"},
    {"moe_route/top_k.h", "Mutation.OneBlockRoute"},
    {"moe_stream/moe_stream.h", "Mutation.StreamAndCombine"},
    {"moe_tokens/moe_tokens.h", "BasicMutation.Tokens"},
    {"record/pack_dense_kernel.h", "BasicMutation.Pack"},
    {"record/pack_kernel.h", "BasicMutation.Pack"},
    {"sampling/accept.h", "StepMutation.Sampling"},
    {"sampling/block_tools.h", "StepMutation.Sampling"},
    {"sampling/choose.h", "StepMutation.Sampling"},
    {"sampling/gather.h", "StepMutation.Sampling"},
    {"sampling/peaks.h", "StepMutation.Sampling"},
    {"sampling/ranked.h", "StepMutation.Sampling"},
    {"sampling/scores.h", "StepMutation.Sampling"},
    {"sampling/weigh.h", "StepMutation.Sampling"},
    {"step/add_bias.h", "StepMutation.AddBias"},
    {"step/add_gated.h", "StepMutation.AddGated"},
    {"step/select_norm.h", "StepMutation.SelectNorm"},
};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether it calls one of the operations that mutations remove.
bool synchronises(const std::string& source) {
  for (unsigned op = 0; op <= static_cast<unsigned>(SyncOp::load_acquire); ++op)
    for (const char* before : {"cta.", "cta.template "})
      for (const char* after : {"(", "<", "_system("})
        if (source.find(before + std::string(name_of(static_cast<SyncOp>(op))) + after) != std::string::npos)
          return true;
  return false;
}

bool is_a_test(const std::string& name) {
  const auto& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      if (std::string(suite.name()).append(".").append(suite.GetTestInfo(j)->name()).find(name) !=
          std::string::npos)
        return true;
  }
  return false;
}

TEST(MutationCover, EveryHeaderThatSynchronisesIsInAMutationTest) {
  const std::filesystem::path room = FOURFOLD_SOURCE_DIR "/src/kernels";
  std::set<std::string> synchronise;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(room)) {
    const std::string name = std::filesystem::relative(entry.path(), room).string();
    if (entry.path().extension() != ".h" || name.starts_with("device/")) continue;
    if (synchronises(text_of(entry.path()))) synchronise.insert(name);
  }
  EXPECT_GT(synchronise.size(), 40u);
  for (const std::string& header : synchronise)
    EXPECT_TRUE(kTested.contains(header)) << header << " synchronises and is in no mutation test";
  for (const auto& [header, test] : kTested) {
    EXPECT_TRUE(synchronise.contains(header)) << header << " does not synchronise, or is gone";
    EXPECT_TRUE(is_a_test(test)) << header << ": there is no test " << test;
  }
}

}  // namespace
}  // namespace fourfold::test
