#include "nodes/messages.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/checkpoint/support.h"

namespace fourfold::nodes {
namespace {

Call full_call() {
  Call call{.task = Task::run_drafts, .pass = backend::Pass::draft};
  call.tokens = {1, 2, 3}, call.pages = {4}, call.logits_rows = {2}, call.hidden_rows = {0, 1, 2};
  call.sequences = {{.row_count = 3,
                     .position = std::int64_t{1} << 40,
                     .state_slot = 5,
                     .page_begin = 6,
                     .page_count = 7,
                     .role = backend::Role::decode,
                     .draft_row_count = 2}};
  call.choices = {{.wants_logits = true,
                   .has_history = true,
                   .top_k = 8,
                   .seed = ~std::uint64_t{0},
                   .temperature = 0.1,
                   .top_p = 0.2,
                   .min_p = 0.3,
                   .repetition_penalty = 0.4,
                   .presence_penalty = 0.5,
                   .frequency_penalty = 0.6}};
  call.counts = {9}, call.history = {{10, -1, 0.7}};
  call.token_limit = 11, call.slot = 12, call.anchor = 13, call.position = 14;
  call.token_count = 15, call.logit_count = 16;
  return call;
}

// Written again it is the same: then every field has been read, since each has a value of its own.
TEST(Messages, CallsComeBackAsTheyWere) {
  const Bytes bytes = full_call().bytes();
  const Call call = Call::read(bytes);
  EXPECT_EQ(call.bytes(), bytes);
  EXPECT_EQ(call.task, Task::run_drafts);
  EXPECT_EQ(call.sequences[0].position, std::int64_t{1} << 40);
  EXPECT_EQ(call.sequences[0].role, backend::Role::decode);
  EXPECT_EQ(call.choices[0].frequency_penalty, 0.6);
  EXPECT_EQ(call.history[0].bias, 0.7);
  EXPECT_EQ(call.batch().hidden_rows.size(), 3u);
}

TEST(Messages, TheOthersAsWell) {
  const Settings settings{.rank = 2,
                          .rank_count = 4,
                          .model = "a model",
                          .backend = "cuda",
                          .activations = "w4a16",
                          .kv = "bf16",
                          .experts = "ep",
                          .dense = "fp8",
                          .tuned = "none",
                          .collective = "nccl 2.27.3",
                          .memory_fraction = 0.75,
                          .isa = "amx",
                          .machine = "sm120 with 48 SMs",
                          .capacity = {1, 2, 3, 4, 5}};
  EXPECT_EQ(Settings::read(settings.bytes()).bytes(), settings.bytes());
  EXPECT_EQ(Settings::read(settings.bytes()).capacity.anchor_count, 5);
  EXPECT_EQ(Settings::read(settings.bytes()).isa, "amx");
  EXPECT_EQ(Settings::read(settings.bytes()).collective, "nccl 2.27.3");
  EXPECT_EQ(Settings::read(settings.bytes()).memory_fraction, 0.75);
  EXPECT_EQ(Settings::read(settings.bytes()).machine, "sm120 with 48 SMs");
  const Loaded loaded{7, {{"weights", 8}, {"pages", 9}}, {"a notice"}};
  EXPECT_EQ(Loaded::read(loaded.bytes()).bytes(), loaded.bytes());
  const Answer answer{false, {1, 2}, true, true, Code::out_of_memory, "no room", "more"};
  EXPECT_EQ(Answer::read(answer.bytes()).bytes(), answer.bytes());
  EXPECT_EQ(Answer::read(answer.bytes()).code, Code::out_of_memory);
  EXPECT_TRUE(Answer::read(answer.bytes()).is_of_no_rank);
  const ModelSums sums{1, 2, 3};
  EXPECT_EQ(ModelSums::read(sums.bytes()), sums);
  const TensorSums tensors{{4, 5}};
  EXPECT_EQ(TensorSums::read(tensors.bytes()), tensors);
}

TEST(Messages, SaysWhatDiffersOfAModel) {
  EXPECT_EQ(difference({1, 2, 3}, {1, 2, 3}), "");
  EXPECT_EQ(difference({1, 2, 3}, {1, 2, 4}), "its config.json or hf_quant_config.json differs");
  EXPECT_EQ(difference({1, 2, 3}, {4, 2, 3}), "its tensors differ");
  EXPECT_EQ(difference({1, 2, 3}, {1, 4, 3}), "its weights differ");
}

// Cut anywhere, or with a byte too many, it is refused; with other bytes it is refused or read, never more.
TEST(Messages, DamagedOnesAreRefused) {
  const Bytes whole = full_call().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(Call::read(std::span(whole).first(size)), Error) << size;
  Bytes longer = whole;
  longer.push_back({});
  EXPECT_THROW(Call::read(longer), Error);
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    Bytes damaged = whole;
    for (int i = 0; i < 4; ++i)
      damaged[random.below(damaged.size())] = static_cast<std::byte>(random.below(256));
    try {
      Call::read(damaged);
      Answer::read(damaged);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io) << error.what();
    }
  }
}

TEST(Messages, PartsAreRowsOfNumbers) {
  const PartHead head{.gathers = true, .is_last = true, .row_count = 2, .where = "logits"};
  const std::vector<float> values{1, 2, 3, 4};
  const auto with = [&](const PartHead& of, std::size_t bytes) {
    return ByteWriter().raw(of.bytes()).raw(std::as_bytes(std::span(values)).first(bytes)).take();
  };
  const Part part = Part::read(with(head, 16));
  EXPECT_EQ(part.values, values);
  EXPECT_EQ(part.head.where, "logits");
  EXPECT_TRUE(part.head.gathers && part.head.is_last);
  EXPECT_EQ(
      Part::read(with({.gathers = true, .is_last = false, .row_count = 0, .where = ""}, 0)).values.size(),
      0u);
  checkpoint::expect_error(Code::io, {"15 bytes"}, [&] { Part::read(with(head, 15)); });
  checkpoint::expect_error(Code::io, {"3 values in 2 rows"}, [&] { Part::read(with(head, 12)); });
  checkpoint::expect_error(Code::io, {"4 values in 0 rows"}, [&] {
    Part::read(with({.gathers = true, .is_last = false, .row_count = 0, .where = ""}, 16));
  });
}

}  // namespace
}  // namespace fourfold::nodes
