// A model sharded over ranks says the same as the whole: against an independent implementation's numbers, and
// against itself.
#include "model/shard.h"

#include "backend/cuda/cuda.h"
#include "checkpoint/load_matrix.h"
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "kernels/launch/sim_machine.h"
#include "plan/record_size.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/model/made_models.h"
#include "tests/support/ranks.h"

namespace fourfold::model {
namespace {

using backend::argmax;
using backend::Pass;
using backend::prepare_sharded;
using backend::problems_of;
using backend::Program;
using backend::RankSetup;
using checkpoint::Matrix;
using evaluate::Comparison;
using evaluate::ReferenceFile;

class ShardGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Formats, ShardGolden,
                         testing::Values("bf16", "modelopt", "modelopt_mixed", "compressed"));

Comparison compare_sharded(const Golden& golden, const std::string& name, RankSetup setup) {
  const Program whole = golden.program(setup.activations);
  const ReferenceFile reference(checkpoint::golden_model(name) / "reference.safetensors", whole);
  setup.keep_values = true;
  const auto prepared = prepare_sharded(golden, setup, evaluate::trace_capacity(reference.prompts()));
  const Comparison result = evaluate::compare(*prepared, whole, reference);
  EXPECT_TRUE(result.fine()) << setup.count << " ranks on " << setup.backend;
  EXPECT_TRUE(result.hidden_compared && result.mtp_compared);
  return result;
}

TEST_P(ShardGolden, EveryNumberOfRanksIsWithinTheBoundsWithTheSameTokens) {
  const Golden golden(GetParam());
  for (const RankSetup& setup : {RankSetup{.count = 2}, RankSetup{.count = 4},
                                 RankSetup{.count = 4, .experts = ExpertSharding::experts},
                                 RankSetup{.count = 2, .backend = "reference"}})
    for (const evaluate::TokenDifference& tokens : compare_sharded(golden, GetParam(), setup).tokens)
      EXPECT_EQ(tokens.same, tokens.count) << tokens.what << ", " << setup.count << " ranks";
}

// Blocks of FP4 activations are quantised on one rank as on the whole: a cut lies between two of them.
TEST(Shard, Fp4ActivationsAreWithinTheirBounds) {
  const Golden golden("compressed");
  compare_sharded(golden, "compressed", {.count = 4, .activations = Activations::automatic});
}

// All that is cut, put side by side again, is the whole; a head that ranks share is on both.
TEST(Shard, PartsTogetherAreTheWhole) {
  const Golden golden("modelopt");
  const checkpoint::ModelWeights& whole = golden.model.weights;
  std::vector<ModelShard> parts;
  for (int rank = 0; rank < 4; ++rank)
    parts.push_back(shard_model(golden.config, whole, {rank, 4}, ExpertSharding::columns));

  const auto rows_joined = [&](const Matrix& all, auto part_of) {
    std::vector<float> joined;
    for (const ModelShard& part : parts) {
      const std::vector<float> values = read_all(part_of(part.weights));
      joined.insert(joined.end(), values.begin(), values.end());
    }
    EXPECT_EQ(joined, read_all(all)) << all.name;
  };
  const auto columns_joined = [&](const Matrix& all, auto part_of) {
    std::vector<checkpoint::LoadedMatrix> loaded;
    for (const ModelShard& part : parts) loaded.push_back(checkpoint::load(part_of(part.weights)));
    std::vector<float> joined;
    for (std::int64_t row = 0; row < all.rows; ++row)
      for (const auto& [matrix, bytes] : loaded) {
        std::vector<float> values(static_cast<std::size_t>(matrix.columns));
        read_row(matrix, row, values);
        joined.insert(joined.end(), values.begin(), values.end());
      }
    EXPECT_EQ(joined, read_all(all)) << all.name;
  };
  using Weights = checkpoint::ModelWeights;
  const auto experts = [](const Weights& w) -> const checkpoint::MoeWeights& {
    return std::get<checkpoint::MoeWeights>(w.layers[0].mlp);
  };
  rows_joined(whole.head, [](const Weights& w) { return w.head; });
  rows_joined(experts(whole).experts[3].up, [&](const Weights& w) { return experts(w).experts[3].up; });
  columns_joined(experts(whole).experts[3].down,
                 [&](const Weights& w) { return experts(w).experts[3].down; });
  columns_joined(experts(whole).shared->down, [&](const Weights& w) { return experts(w).shared->down; });
  const auto delta = [](const Weights& w) { return std::get<checkpoint::DeltaWeights>(w.layers[0].mixer); };
  rows_joined(delta(whole).gate, [&](const Weights& w) { return delta(w).gate; });
  columns_joined(delta(whole).output, [&](const Weights& w) { return delta(w).output; });
  const auto full = [](const Weights& w) {
    return std::get<checkpoint::AttentionWeights>(w.layers[3].mixer);
  };
  rows_joined(full(whole).query, [&](const Weights& w) { return full(w).query; });
  columns_joined(full(whole).output, [&](const Weights& w) { return full(w).output; });

  // Two KV heads, two key heads and four ranks: ranks 0 and 1 share the first of each.
  EXPECT_EQ(read_all(full(parts[0].weights).key), read_all(full(parts[1].weights).key));
  EXPECT_NE(read_all(full(parts[1].weights).key), read_all(full(parts[2].weights).key));
  // q, k and v of the second rank: key head 0, key head 0, value head 1.
  const checkpoint::DeltaConfig& sizes = *golden.config.delta;
  const std::vector<float> all = read_all(delta(whole).qkv), second = read_all(delta(parts[1].weights).qkv);
  const auto head = static_cast<std::size_t>(sizes.key_head_dim * golden.config.hidden_size);
  const auto begin_of_values = static_cast<std::size_t>(2 * sizes.key_dim() * golden.config.hidden_size);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + head, second.begin()));
  EXPECT_TRUE(std::equal(second.begin() + 2 * head, second.end(), all.begin() + begin_of_values + head));
}

TEST(Shard, EveryByteOfAColumnCutIsOneRanks) {
  const Golden golden("modelopt");
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const ModelShard part =
        shard_model(golden.config, golden.model.weights, {rank, 4}, ExpertSharding::columns);
    for (const auto& expert : std::get<checkpoint::MoeWeights>(part.weights.layers[0].mlp).experts)
      for (const Matrix* matrix : {&expert.gate, &expert.up, &expert.down}) bytes += stored_bytes(*matrix);
  }
  std::uint64_t wanted = 0;
  for (const auto& expert : std::get<checkpoint::MoeWeights>(golden.model.weights.layers[0].mlp).experts)
    for (const Matrix* matrix : {&expert.gate, &expert.up, &expert.down}) wanted += stored_bytes(*matrix);
  EXPECT_EQ(bytes, wanted);
}

TEST(Shard, WidthsAreCutBetweenRecords) {
  using Counts = std::vector<std::int64_t>;
  const auto cut = [](std::int64_t width, int count) {
    Counts counts;
    std::int64_t at = 0;
    for (int rank = 0; rank < count; ++rank) {
      const checkpoint::RowRange share = share_of_width(width, {rank, count});
      EXPECT_EQ(share.first, at) << width << " by " << count;
      at += share.count;
      counts.push_back(share.count);
    }
    EXPECT_EQ(at, width);
    return counts;
  };
  EXPECT_EQ(cut(2880, 2), (Counts{1472, 1408}));
  EXPECT_EQ(cut(2880, 4), (Counts{768, 704, 704, 704}));
  EXPECT_EQ(cut(2880, 8), (Counts{384, 384, 384, 384, 384, 320, 320, 320}));
  EXPECT_EQ(cut(1408, 4), (Counts{384, 384, 320, 320}));
  EXPECT_EQ(cut(1536, 4), Counts(4, 384));
  // Fewer records than ranks, and no whole ones.
  EXPECT_EQ(cut(64, 2), Counts(2, 32));
  EXPECT_EQ(cut(288, 4), Counts(4, 72));
}

// 2,880 columns are 45 records. What the ranks take together is what the whole model does, but for biases: no
// record has zeros in it. The largest part is the first rank's, which is what a plan shows.
TEST(Shard, GptOssIsCutAtItsTrueWidth) {
  checkpoint::RandomModelOptions options;
  options.shape = checkpoint::find_shape("gpt-oss-20b");
  options.shape.layers = 1, options.shape.experts = 8, options.shape.vocab = 640;
  options.sparse = true;
  const std::int64_t records = options.shape.intermediate / plan::kRecordColumns;
  ASSERT_EQ(records, 45);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto routed_bytes = [&](const Program& program) {
    for (const backend::MemoryUse& use : backend::plan_weights(program, kFourSequences, *machine))
      if (use.what == "routed experts") return static_cast<double>(use.bytes);
    return 0.0;
  };
  for (const char* format_name : {"bf16", "mxfp4"}) {
    SCOPED_TRACE(format_name);
    checkpoint::TempFolder temp;
    checkpoint::OutputFolder folder(temp.path() / "model");
    options.scheme = checkpoint::scheme_named(format_name);
    write_random_model(folder, options, {0, 1});
    folder.publish();
    const Loaded model(temp.path() / "model");
    const double whole = routed_bytes(model.program(Activations::w4a16));
    for (const int count : {2, 4, 8}) {
      SCOPED_TRACE(count);
      EXPECT_EQ(column_problem(model.model.weights, count), "");
      double together = 0;
      for (int rank = 0; rank < count; ++rank) {
        const ModelShard part =
            shard_model(model.config, model.model.weights, {rank, count}, ExpertSharding::automatic);
        const std::int64_t width = share_of_width(2880, {rank, count}).count;
        const auto& moe = std::get<checkpoint::MoeWeights>(part.weights.layers[0].mlp);
        EXPECT_EQ(moe.experts.size(), 8u);
        EXPECT_EQ(moe.experts[7].gate.rows, width);
        EXPECT_EQ(moe.experts[7].up.rows, width);
        EXPECT_EQ(moe.experts[7].down.columns, width);
        EXPECT_EQ(std::ssize(moe.up_bias), 8 * width);
        EXPECT_EQ(part.config.moe->intermediate_size, width);
        const double bytes = routed_bytes(build_program(part, Activations::w4a16));
        const auto most = static_cast<double>((records + count - 1) / count);
        EXPECT_LE(bytes / whole, 1.01 * most / static_cast<double>(records));
        together += bytes;
      }
      EXPECT_NEAR(together / whole, 1, 0.01);
    }
  }
}

TEST(Shard, ByExpertEachRankHasItsOwn) {
  const Golden golden("bf16");
  for (int rank = 0; rank < 4; ++rank) {
    const ModelShard part =
        shard_model(golden.config, golden.model.weights, {rank, 4}, ExpertSharding::experts);
    const Program program = build_program(part, Activations::f32);
    EXPECT_TRUE(problems_of(program).empty());
    EXPECT_EQ(program.expert_sets.front().experts.size(), 2u);
    EXPECT_EQ(program.expert_sets.front().first, 2 * rank);
    EXPECT_EQ(program.expert_sets.front().count(), 8);
    // The shared expert is cut all the same: whole, it would be added four times.
    EXPECT_EQ(std::get<checkpoint::MoeWeights>(part.weights.layers[0].mlp).shared->down.columns, 16);
  }
}

TEST(Shard, RefusesWithEveryNumber) {
  const Golden golden("modelopt");
  const auto refuse = [&](int count, ExpertSharding experts, const std::vector<std::string>& parts) {
    checkpoint::expect_error(Code::unsupported_model, parts, [&] {
      shard_model(golden.config, golden.model.weights, {0, count}, experts);
    });
  };
  refuse(3, ExpertSharding::experts,
         {"into 3 parts", "2 KV heads are neither a multiple nor a divisor of 3", "8 experts", "320 words"});
  refuse(8, ExpertSharding::automatic,
         {"4 attention heads are not a multiple of 8", "4 DeltaNet value heads"});
  refuse(8, ExpertSharding::columns, {"64 columns of NVFP4 are not 8 times a multiple of 16"});
}

// The promise of one GPU holds for ranks: same bits alone or in a batch, cut or whole, and after a prefix
// that was kept.
TEST(Shard, ARowsBitsDependOnItsSequenceAlone) {
  const Golden golden("compressed");
  backend::Capacity capacity = kFourSequences;
  capacity.anchor_count = 1;
  const auto make = [&] {
    return prepare_sharded(golden, {.count = 2, .activations = Activations::automatic}, capacity);
  };
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(i * 37 % 300);
  const std::vector<std::int32_t> head(tokens.begin(), tokens.begin() + 64),
      tail(tokens.begin() + 64, tokens.end());
  const auto alone = step(*make(), Pass::main, {part(0, 0, tokens)});
  EXPECT_EQ(step(*make(), Pass::main, {part(1, 0, {5, 6, 7}), part(0, 0, tokens)}).back(), alone.back());

  const auto kept = make();
  step(*kept, Pass::main, {part(0, 0, head)});
  kept->save_anchor(0, 64, 0);
  step(*kept, Pass::main, {part(0, 64, {1, 2, 3})});  // another way on
  EXPECT_EQ(kept->anchor_bytes(),
            backend::anchor_bytes(golden.program(Activations::f32), kept->capacity().page_tokens));
  kept->restore_anchor(0, 1, 64);
  backend::Part on = part(1, 64, tail);
  on.pages = backend::own_pages(0, kPagesEach);  // the first 64 tokens' pages are slot 0's
  EXPECT_EQ(step(*kept, Pass::main, {on}).back(), alone.back());
}

TEST(Shard, ABatchThatAllRefuseChangesNothing) {
  const Golden golden("bf16");
  const auto prepared = prepare_sharded(golden, {.count = 2}, kFourSequences);
  const auto wanted = step(*prepared, Pass::main, {part(0, 0, {1, 2, 3})});
  checkpoint::expect_error(Code::invalid_request, {},
                           [&] { step(*prepared, Pass::main, {part(0, 9, {4})}); });
  checkpoint::expect_error(Code::invalid_request, {}, [&] { prepared->save_anchor(0, 64, 0); });
  EXPECT_EQ(step(*prepared, Pass::main, {part(0, 0, {1, 2, 3})}), wanted);
}

// Biases lie with their rows; the router's and the norms over all heads stay whole.
TEST(Shard, BiasesAreCutWithTheirRows) {
  checkpoint::TempFolder folder;
  checkpoint::tiny_glm().write(folder);
  const Loaded glm(folder.path());
  const auto attention = [](const checkpoint::ModelWeights& w) {
    return std::get<checkpoint::AttentionWeights>(w.layers[1].mixer);
  };
  const auto experts = [](const checkpoint::ModelWeights& w) {
    return std::get<checkpoint::MoeWeights>(w.layers[1].mlp);
  };
  const checkpoint::AttentionWeights whole = attention(glm.model.weights);
  checkpoint::Vector query, value;
  for (int rank = 0; rank < 2; ++rank) {
    const ModelShard part = shard_model(glm.config, glm.model.weights, {rank, 2}, ExpertSharding::experts);
    const checkpoint::AttentionWeights mixer = attention(part.weights);
    query.insert(query.end(), mixer.query_bias.begin(), mixer.query_bias.end());
    value.insert(value.end(), mixer.value_bias.begin(), mixer.value_bias.end());
    EXPECT_EQ(mixer.query_bias.size(), 16u);
    EXPECT_EQ(experts(part.weights).choice_bias, experts(glm.model.weights).choice_bias);
    EXPECT_TRUE(problems_of(build_program(part, Activations::f32)).empty());
  }
  EXPECT_EQ(query, whole.query_bias);
  EXPECT_EQ(value, whole.value_bias);
}

// Queries, what they become and what comes out of a head are of the rank's heads; the latent is whole.
TEST(Shard, LatentAttentionIsCutByHeads) {
  checkpoint::TempFolder folder;
  checkpoint::tiny_deepseek().write(folder);
  const Loaded deepseek(folder.path());
  const auto mixer = [](const checkpoint::ModelWeights& w) {
    return std::get<checkpoint::LatentWeights>(w.layers[1].mixer);
  };
  const checkpoint::LatentWeights whole = mixer(deepseek.model.weights);
  std::vector<float> turned, up;
  for (int rank = 0; rank < 2; ++rank) {
    const ModelShard part =
        shard_model(deepseek.config, deepseek.model.weights, {rank, 2}, ExpertSharding::columns);
    const checkpoint::LatentWeights own = mixer(part.weights);
    for (const float x : read_all(own.turned_query)) turned.push_back(x);
    for (const float x : read_all(own.value_up)) up.push_back(x);
    EXPECT_EQ(own.latent.rows, whole.latent.rows);
    EXPECT_EQ(own.output.columns, 6);
    const backend::Program program = build_program(part, Activations::f32);
    EXPECT_TRUE(problems_of(program).empty());
    EXPECT_EQ(program.kv_caches[0].stored_columns(), 20);
  }
  EXPECT_EQ(turned, read_all(whole.turned_query));
  EXPECT_EQ(up, read_all(whole.value_up));
  checkpoint::expect_error(Code::unsupported_model, {"2 attention heads are not a multiple of 4"}, [&] {
    shard_model(deepseek.config, deepseek.model.weights, {0, 4}, ExpertSharding::columns);
  });
}

TEST(Shard, HeadsThatAreNormedTogetherAreNotShared) {
  checkpoint::TempFolder folder;
  checkpoint::tiny_minimax().write(folder);
  const Loaded minimax(folder.path());
  checkpoint::expect_error(
      Code::unsupported_model, {"2 KV heads that are normed together are not a multiple of 4"}, [&] {
        shard_model(minimax.config, minimax.model.weights, {0, 4}, ExpertSharding::columns);
      });
}

}  // namespace
}  // namespace fourfold::model
