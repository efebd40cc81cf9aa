// Random batches on the simulated GPU, over a latent cache and with windows: every row has the bits that its
// sequence has alone, where generated tokens come one at a time.
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

// batches: that have generated rows. Sequences in several slots have the same tokens where there are fewer; a
// page has 64 positions, and each of these has two.
struct Size {
  std::int32_t slots, streams;
  std::int64_t prompt, length;
  int batches;
};
constexpr Size kSome{.slots = 4, .streams = 2, .prompt = 58, .length = 68, .batches = 8};
constexpr Size kAll{.slots = 10, .streams = 3, .prompt = 70, .length = 110, .batches = 500};

// Sequences that begin anew when they end: prompts in chunks beside generated tokens, drafts that stand
// beside drafts that are taken back.
class RandomBatches {
 public:
  RandomBatches(Random& random, const Size& size) : random_(random), size_(size) {
    done_.resize(static_cast<std::size_t>(size.slots));
    for (std::int32_t i = 0; i < size.streams; ++i) streams_.push_back(random_tokens(random, size.length));
  }
  std::size_t stream_of(std::int32_t slot) const { return static_cast<std::size_t>(slot) % streams_.size(); }
  const std::vector<std::int32_t>& stream(std::size_t i) const { return streams_[i]; }

  // Rows of the step, and how many of each part stand.
  std::vector<Sequences::Rows> next(std::vector<std::int64_t>& standing) {
    std::vector<Sequences::Rows> parts;
    standing.clear();
    std::int64_t room = kTenSequences.row_count;
    const std::int64_t among = 1 + below(size_.slots);  // small and large batches
    for (std::int32_t slot = 0; slot < size_.slots; ++slot) {
      if (below(size_.slots) >= among) continue;
      std::int64_t& done = done_[static_cast<std::size_t>(slot)];
      if (done == size_.length) done = 0;
      const bool is_prompt = done < size_.prompt;
      const std::int64_t left = std::min((is_prompt ? size_.prompt : size_.length) - done, room);
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
  const Size size_;
  std::vector<std::vector<std::int32_t>> streams_;
  std::vector<std::int64_t> done_;
};

// ./dev test has a few batches on one chip, --long 500 longer ones on both.
class GpuAttention : public testing::TestWithParam<GpuWay> {};

TEST_P(GpuAttention, RowsHaveTheSameBitsInAnyBatch) {
  TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, GetParam().format);
  const Loaded model(temp.path() / "model");
  const std::int64_t window = model.config.layers[0].window;
  ASSERT_NE(window != 0, model.config.latent.has_value());
  const Size size = test::wants_all() ? kAll : kSome;
  ASSERT_LT(2 * window, size.length);  // most generated rows are beyond the window
  const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
  Random random(5);
  RandomBatches batches(random, size);

  std::vector<std::vector<float>> alone;
  for (std::int32_t i = 0; i < size.streams; ++i) {
    Simulated gpu(*GetParam().arch);
    const auto prepared = gpu.prepare(model, kTenSequences);
    Sequences one(*prepared, 1);
    const auto& stream = batches.stream(static_cast<std::size_t>(i));
    alone.push_back(one.run({{2, 0, {stream.begin(), stream.begin() + size.prompt}, Role::prefill}}));
    for (std::int64_t at = size.prompt; at < size.length; ++at) {
      const auto more = one.run({{2, at, {stream[static_cast<std::size_t>(at)]}, Role::decode}});
      alone.back().insert(alone.back().end(), more.begin(), more.end());
    }
  }

  Simulated gpu(*GetParam().arch);
  const auto prepared = gpu.prepare(model, kTenSequences);
  Sequences many(*prepared, 2);
  std::int64_t prompt_rows = 0, generated_rows = 0, drafts = 0;
  for (int batch = 0; batch < size.batches;) {
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
  EXPECT_GE(prompt_rows, size.slots * size.prompt);
  EXPECT_GT(generated_rows, 3 * size.batches);
  EXPECT_GT(drafts, size.batches);
}

std::vector<GpuWay> ways() {
  std::vector<GpuWay> out = {{"tiny-gpt-oss", "mxfp4", &plan::kSm120},
                             {"tiny-deepseek-odd", "nvfp4", &plan::kSm120}};
  if (test::wants_all()) out.push_back({"tiny-deepseek-odd", "nvfp4", &plan::kSm90});
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, GpuAttention, testing::ValuesIn(ways()));

}  // namespace
}  // namespace fourfold::model
