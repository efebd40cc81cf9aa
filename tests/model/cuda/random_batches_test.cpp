// Random batches on the simulated GPU, over a latent cache on both chips and with windows: every row has the
// bits that its sequence has alone, where generated tokens come one at a time.
#include <algorithm>
#include <vector>

#include "tests/model/cuda/simulated.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"

namespace fourfold::model {
namespace {

using checkpoint::TempFolder;

struct GpuWay {
  const char* shape;
  const char* format;
  const plan::ArchFacts* arch;
};
void PrintTo(const GpuWay& way, std::ostream* out) {
  *out << way.shape << " " << way.format << " " << way.arch->name;
}

// Ten sequences that begin anew when they end: prompts in chunks beside generated tokens, drafts that stand
// beside drafts that are taken back.
class RandomBatches {
 public:
  static constexpr std::int32_t kSlots = 10;
  static constexpr std::int64_t kPrompt = 70, kLength = 110;

  RandomBatches(Random& random, std::int32_t streams) : random_(random), done_(kSlots) {
    for (std::int32_t i = 0; i < streams; ++i) streams_.push_back(random_tokens(random, kLength));
  }
  // Several slots have the same tokens, on other pages.
  std::size_t stream_of(std::int32_t slot) const { return static_cast<std::size_t>(slot) % streams_.size(); }
  const std::vector<std::int32_t>& stream(std::size_t i) const { return streams_[i]; }

  // Rows of the step, and how many of each part stand.
  std::vector<Sequences::Rows> next(std::vector<std::int64_t>& standing) {
    std::vector<Sequences::Rows> parts;
    standing.clear();
    std::int64_t room = kTenSequences.row_count;
    const std::uint64_t among = 1 + random_.below(kSlots);  // of ten; small and large batches
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
      if (random_.below(kSlots) >= among) continue;
      std::int64_t& done = done_[slot];
      if (done == kLength) done = 0;
      const bool is_prompt = done < kPrompt;
      const std::int64_t left = std::min((is_prompt ? kPrompt : kLength) - done, room);
      const std::int64_t most = is_prompt ? left : std::min<std::int64_t>(left, 4);
      if (most < 1) continue;
      const std::int64_t count = 1 + below(most);
      Sequences::Rows part{slot, done, {}, is_prompt ? Role::prefill : Role::decode};
      const auto begin = stream(stream_of(slot)).begin() + done;
      part.tokens.assign(begin, begin + count);
      if (!is_prompt) {
        const std::int64_t wrong = below(std::min<std::int64_t>(room - count, 2) + 1);
        for (const std::int32_t token : random_tokens(random_, wrong)) part.tokens.push_back(token);
        part.drafts = static_cast<std::int32_t>(count - 1 + wrong);
      }
      room -= std::ssize(part.tokens);
      done += count;
      standing.push_back(count);
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(limit)));
  }
  Random& random_;
  std::vector<std::vector<std::int32_t>> streams_;
  std::vector<std::int64_t> done_;
};

// In ./dev test 12 batches that have generated rows, in --long 500, with more tokens.
class GpuAttention : public testing::TestWithParam<GpuWay> {};

TEST_P(GpuAttention, RowsHaveTheSameBitsInAnyBatch) {
  TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, GetParam().format);
  const Loaded model(temp.path() / "model");
  const std::int64_t window = model.config.layers[0].window;
  ASSERT_NE(window != 0, model.config.latent.has_value());
  ASSERT_LT(3 * window, RandomBatches::kLength);  // most rows are beyond the window
  const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
  Random random(5);
  RandomBatches batches(random, test::wants_all() ? 3 : 1);

  std::vector<std::vector<float>> alone;
  for (std::size_t i = 0; i < (test::wants_all() ? 3u : 1u); ++i) {
    Simulated gpu(*GetParam().arch);
    const auto prepared = gpu.prepare(model, kTenSequences);
    Sequences one(*prepared, 1);
    const auto& stream = batches.stream(i);
    alone.push_back(
        one.run({{2, 0, {stream.begin(), stream.begin() + RandomBatches::kPrompt}, Role::prefill}}));
    for (std::int64_t at = RandomBatches::kPrompt; at < RandomBatches::kLength; ++at) {
      const auto more = one.run({{2, at, {stream[static_cast<std::size_t>(at)]}, Role::decode}});
      alone.back().insert(alone.back().end(), more.begin(), more.end());
    }
  }

  Simulated gpu(*GetParam().arch);
  const auto prepared = gpu.prepare(model, kTenSequences);
  Sequences many(*prepared, 2);
  const int count = test::wants_all() ? 500 : 12;
  std::int64_t prompt_rows = 0, generated_rows = 0, drafts = 0;
  for (int batch = 0; batch < count;) {
    std::vector<std::int64_t> standing;
    const auto parts = batches.next(standing);
    if (parts.empty()) continue;
    const std::vector<float> logits = many.run(parts);
    auto row = logits.begin();
    bool has_generated = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& expected = alone[batches.stream_of(parts[i].slot)];
      const auto first = static_cast<std::size_t>(parts[i].position) * vocab;
      const std::size_t numbers = static_cast<std::size_t>(standing[i]) * vocab;
      ASSERT_TRUE(std::equal(row, row + static_cast<std::ptrdiff_t>(numbers),
                             expected.begin() + static_cast<std::ptrdiff_t>(first)))
          << "batch " << batch << ", sequence " << parts[i].slot << ", rows " << parts[i].position << " to "
          << parts[i].position + standing[i] - 1;
      const bool is_generated = parts[i].role == Role::decode;
      (is_generated ? generated_rows : prompt_rows) += standing[i];
      if (is_generated) drafts += standing[i] - 1;
      has_generated = has_generated || is_generated;
      row += static_cast<std::ptrdiff_t>(parts[i].tokens.size() * vocab);
    }
    batch += has_generated;
  }
  EXPECT_GT(prompt_rows, 5 * RandomBatches::kPrompt);
  EXPECT_GT(generated_rows, 4 * count);
  EXPECT_GT(drafts, count);
}

INSTANTIATE_TEST_SUITE_P(All, GpuAttention,
                         testing::Values(GpuWay{"tiny-gpt-oss", "mxfp4", &plan::kSm120},
                                         GpuWay{"tiny-deepseek-odd", "nvfp4", &plan::kSm120},
                                         GpuWay{"tiny-deepseek-odd", "nvfp4", &plan::kSm90}));

}  // namespace
}  // namespace fourfold::model
