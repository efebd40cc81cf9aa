// Random batches on the simulated GPU, over a latent cache on both chips and with windows: every row has the
// bits that its sequence has alone, where generated tokens come one at a time.
#include <algorithm>
#include <array>
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
  static constexpr std::int32_t kSlots = 10, kStreams = 3;
  static constexpr std::int64_t kPrompt = 70, kLength = 110;

  explicit RandomBatches(Random& random) : random_(random), done_(kSlots) {
    for (auto& stream : streams_) stream = random_tokens(random, kLength);
  }
  // A slot's tokens; several have the same, on other pages.
  const std::vector<std::int32_t>& stream(std::int32_t slot) const { return streams_[slot % kStreams]; }

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
      const std::int64_t most = is_prompt && random_.below(2) == 0 ? left : std::min<std::int64_t>(left, 4);
      if (most < 1) continue;
      const std::int64_t count = 1 + below(most);
      Sequences::Rows part{slot, done, {}, is_prompt ? Role::prefill : Role::decode};
      const auto begin = stream(slot).begin() + done;
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
  std::array<std::vector<std::int32_t>, kStreams> streams_;
  std::vector<std::int64_t> done_;
};

// 12 batches of each in ./dev test, 500 in --long.
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
  RandomBatches batches(random);

  std::vector<std::vector<float>> alone;
  for (std::int32_t slot = 0; slot < RandomBatches::kStreams; ++slot) {
    Simulated gpu(*GetParam().arch);
    const auto prepared = gpu.prepare(model, kTenSequences);
    Sequences one(*prepared, 1);
    const auto& stream = batches.stream(slot);
    const auto answer = stream.begin() + RandomBatches::kPrompt;
    alone.push_back(one.run({{slot, 0, {stream.begin(), answer}, Role::prefill}}));
    for (std::int64_t at = RandomBatches::kPrompt; at < RandomBatches::kLength; ++at) {
      const auto more = one.run({{slot, at, {stream[static_cast<std::size_t>(at)]}, Role::decode}});
      alone.back().insert(alone.back().end(), more.begin(), more.end());
    }
  }

  Simulated gpu(*GetParam().arch);
  const auto prepared = gpu.prepare(model, kTenSequences);
  Sequences many(*prepared, 2);
  const int count = test::wants_all() ? 500 : 12;
  std::int64_t compared = 0;
  for (int batch = 0; batch < count;) {
    std::vector<std::int64_t> standing;
    const auto parts = batches.next(standing);
    if (parts.empty()) continue;
    const std::vector<float> logits = many.run(parts);
    auto row = logits.begin();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& expected = alone[static_cast<std::size_t>(parts[i].slot % RandomBatches::kStreams)];
      const auto first = static_cast<std::size_t>(parts[i].position) * vocab;
      const std::size_t numbers = static_cast<std::size_t>(standing[i]) * vocab;
      ASSERT_TRUE(std::equal(row, row + static_cast<std::ptrdiff_t>(numbers),
                             expected.begin() + static_cast<std::ptrdiff_t>(first)))
          << "batch " << batch << ", sequence " << parts[i].slot << ", rows " << parts[i].position << " to "
          << parts[i].position + standing[i] - 1;
      compared += standing[i];
      row += static_cast<std::ptrdiff_t>(parts[i].tokens.size() * vocab);
    }
    ++batch;
  }
  EXPECT_GT(compared, 8 * count);
}

INSTANTIATE_TEST_SUITE_P(All, GpuAttention,
                         testing::Values(GpuWay{"tiny-gpt-oss", "mxfp4", &plan::kSm120},
                                         GpuWay{"tiny-deepseek-odd", "nvfp4", &plan::kSm120},
                                         GpuWay{"tiny-deepseek-odd", "nvfp4", &plan::kSm90}));

}  // namespace
}  // namespace fourfold::model
