#include "checkpoint/stream.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "checkpoint/bind.h"
#include "tests/checkpoint/sparse_model.h"
#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

// What this process holds of memory that is its own.
std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "RssAnon:") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return -1;
}

TEST(LoadProgress, CountsAcrossThreadsAndNeverGoesBack) {
  std::vector<std::uint64_t> reports;
  LoadProgress progress(4000, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, 4000u);
    reports.push_back(done);
  });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int step = 0; step < 100; ++step) progress.add(10);
      });
  }
  EXPECT_EQ(reports.size(), 400u);
  EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
  EXPECT_EQ(reports.back(), 4000u);
}

TEST(Stream, PacksEveryMatrixOnceAndReportsAllBytes) {
  const std::filesystem::path folder = golden_folder() / "modelopt_mixed";
  const Checkpoint checkpoint(folder);
  const BoundModel model = bind_model(checkpoint, read_model_config(folder));
  std::uint64_t done = 0;
  LoadProgress progress(stored_bytes(model.weights), [&](std::uint64_t now, std::uint64_t) { done = now; });
  int packed = 0;
  for_each_matrix(model.weights, [&](const Matrix& matrix) {
    stream_matrix(
        matrix,
        [&](const LoadedMatrix& loaded) {
          ++packed;
          EXPECT_EQ(loaded.matrix.source, nullptr);
          EXPECT_EQ(read_all(loaded.matrix), read_all(matrix));
        },
        progress);
  });
  EXPECT_GT(packed, 100);
  EXPECT_EQ(done, progress.bytes_total());
  EXPECT_LE(done, checkpoint.tensor_bytes());
}

// The shapes of Qwen3.5-397B-A17B, experts in NVFP4, the rest in BF16.
constexpr const char* kConfig397 =
    R"({"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "text_config": {"model_type": "qwen3_5_moe_text", "attn_output_gate": true, "full_attention_interval": 4,
    "head_dim": 256, "hidden_act": "silu", "hidden_size": 4096, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
    "linear_value_head_dim": 128, "max_position_embeddings": 262144, "moe_intermediate_size": 1024,
    "num_attention_heads": 32, "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 60,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                        "mrope_interleaved": true, "mrope_section": [11, 11, 10]},
    "shared_expert_intermediate_size": 1024, "vocab_size": 248320}})";

constexpr const char* kPrefix = "model.language_model.";

void add_mixer(SparseShards& shards, int shard, const std::string& layer, bool full) {
  const auto bf16 = [&](const std::string& name, std::vector<std::int64_t> shape) {
    shards.add(shard, layer + name, "BF16", std::move(shape));
  };
  bf16("input_layernorm.weight", {4096});
  bf16("post_attention_layernorm.weight", {4096});
  if (full) {
    bf16("self_attn.q_proj.weight", {16384, 4096});
    bf16("self_attn.k_proj.weight", {512, 4096});
    bf16("self_attn.v_proj.weight", {512, 4096});
    bf16("self_attn.o_proj.weight", {4096, 8192});
    bf16("self_attn.q_norm.weight", {256});
    bf16("self_attn.k_norm.weight", {256});
    return;
  }
  bf16("linear_attn.in_proj_qkv.weight", {12288, 4096});
  bf16("linear_attn.in_proj_z.weight", {8192, 4096});
  bf16("linear_attn.in_proj_b.weight", {64, 4096});
  bf16("linear_attn.in_proj_a.weight", {64, 4096});
  bf16("linear_attn.conv1d.weight", {12288, 1, 4});
  bf16("linear_attn.A_log", {64});
  bf16("linear_attn.dt_bias", {64});
  bf16("linear_attn.norm.weight", {128});
  bf16("linear_attn.out_proj.weight", {4096, 8192});
}

std::uint64_t write_397b(const TempFolder& folder) {
  constexpr int layers_per_shard = 4;
  SparseShards shards(folder, 60 / layers_per_shard);
  folder.write("config.json", kConfig397);
  shards.add(0, std::string(kPrefix) + "embed_tokens.weight", "BF16", {248320, 4096});
  shards.add(0, std::string(kPrefix) + "norm.weight", "BF16", {4096});
  shards.add(0, "lm_head.weight", "BF16", {248320, 4096});
  for (int i = 0; i < 60; ++i) {
    const int shard = i / layers_per_shard;
    const std::string layer = format("{}layers.{}.", kPrefix, i);
    add_mixer(shards, shard, layer, i % 4 == 3);
    shards.add(shard, layer + "mlp.gate.weight", "BF16", {512, 4096});
    shards.add(shard, layer + "mlp.shared_expert_gate.weight", "BF16", {1, 4096});
    shards.add(shard, layer + "mlp.shared_expert.gate_proj.weight", "BF16", {1024, 4096});
    shards.add(shard, layer + "mlp.shared_expert.up_proj.weight", "BF16", {1024, 4096});
    shards.add(shard, layer + "mlp.shared_expert.down_proj.weight", "BF16", {4096, 1024});
    for (int expert = 0; expert < 512; ++expert) {
      const std::string module = format("{}mlp.experts.{}.", layer, expert);
      shards.add_nvfp4(shard, module + "gate_proj", 1024, 4096);
      shards.add_nvfp4(shard, module + "up_proj", 1024, 4096);
      shards.add_nvfp4(shard, module + "down_proj", 4096, 1024);
    }
  }
  return shards.write();
}

TEST(Stream, A237GigabyteCheckpointOpensBindsAndStreamsInBoundedMemory) {
  TempFolder folder;
  const std::uint64_t bytes = write_397b(folder);
  // The file size of this scheme without MTP: 250.2 - 13.2 GB.
  EXPECT_EQ(bytes / 1'000'000'000, 237u);

  const Checkpoint checkpoint(folder.path());
  const BoundModel model = bind_model(checkpoint, read_model_config(folder.path()));
  EXPECT_EQ(checkpoint.tensor_bytes(), bytes);
  EXPECT_FALSE(model.weights.mtp);

  const std::int64_t before = resident_bytes();
  ASSERT_GE(before, 0);
  std::int64_t most = 0;
  std::uint64_t streamed = 0;
  LoadProgress progress(stored_bytes(model.weights),
                        [&](std::uint64_t done, std::uint64_t) { streamed = done; });
  const auto& moe = std::get<MoeWeights>(model.weights.layers[59].mlp);
  for (std::size_t expert = 0; expert < 64; ++expert)
    for (const Matrix* matrix :
         {&moe.experts[expert].gate, &moe.experts[expert].up, &moe.experts[expert].down})
      stream_matrix(
          *matrix,
          [&](const LoadedMatrix& loaded) {
            const Matrix& m = loaded.matrix;
            std::vector<float> row(static_cast<std::size_t>(m.columns));
            for (std::int64_t i = 0; i < m.rows; i += 4) read_row(m, i, row);
            most = std::max(most, resident_bytes() - before);
          },
          progress);
  EXPECT_EQ(streamed, std::uint64_t{64} * 3 * 1024 * 4096 * 9 / 16);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed: 146 MB
  // One matrix is 2.4 MB; the allocator may keep some of those before.
  EXPECT_LT(most, std::int64_t{32} << 20);
#endif
}

}  // namespace
}  // namespace fourfold::checkpoint
