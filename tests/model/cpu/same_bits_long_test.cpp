// As same_bits_test.cpp, over 1,200 tokens of one stream: past the positions where blocks of 64 take the
// place of older ones (128), runs of attention end (256), and stretches of runs are put together (1,024). Any
// chunks, any number of threads, wrong tokens taken back, and going back to any position that is allowed.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using backend::LogitsRow;
using backend::Part;
using backend::Pass;

constexpr std::int64_t kTokens = 1200;
constexpr std::int64_t kGuessesMax = 60;
constexpr std::int32_t kPages = (kTokens + kGuessesMax + 15) / 16;
constexpr backend::Capacity kOneLong{
    .page_count = kPages, .page_tokens = 16, .state_slot_count = 1, .row_count = kTokens};

class LongStream {
 public:
  LongStream(const Loaded& model, Activations activations) : model_(model), mode_(activations) {
    for (std::int64_t i = 0; i < kTokens; ++i) stream_.push_back(any_token());
    alone_ = step(*prepare(1), Pass::main, {part_of(0, stream_)});
  }

  void walk(std::uint64_t seed) {
    random_ = Random(seed);
    prepared_ = prepare(static_cast<int>(1 + random_.below(4)));
    std::int64_t done = 0;
    int times_back = 0;
    while (done < kTokens && !testing::Test::HasFatalFailure()) {
      run(done, 1 + below(random_.below(3) == 0 ? 8 : 300));
      done = end_;
      if (random_.below(3) == 0) guess();
      if (times_back == 12 || random_.below(2) == 0) continue;
      ++times_back;
      const std::int64_t first = std::min(prepared_->resumable_from(0), done);
      done = first + below(done - first + 1);
    }
    EXPECT_GE(times_back, 2);
  }

 private:
  std::int32_t any_token() {
    return static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(model_.config.vocab_size)));
  }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(limit)));
  }
  std::unique_ptr<backend::Prepared> prepare(int threads) const {
    return backend::make_cpu_backend({.threads = threads})->prepare(model_.program(mode_), kOneLong);
  }
  static Part part_of(std::int64_t position, std::vector<std::int32_t> tokens) {
    return {
        .slot = 0, .pages = backend::own_pages(0, kPages), .position = position, .tokens = std::move(tokens)};
  }
  void run(std::int64_t position, std::int64_t count) {
    end_ = std::min(position + count, kTokens);
    const auto rows = step(*prepared_, Pass::main,
                           {part_of(position, {stream_.begin() + position, stream_.begin() + end_})});
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(rows[i], alone_[static_cast<std::size_t>(position) + i])
          << "position " << position << " + " << i << ", threads and chunks of this seed";
  }
  // Wrong tokens, taken back by whatever comes next.
  void guess() {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(1 + below(kGuessesMax)));
    for (std::int32_t& token : tokens) token = any_token();
    step(*prepared_, Pass::main, {part_of(end_, std::move(tokens))});
  }

  const Loaded& model_;
  Activations mode_;
  Random random_{29};
  std::vector<std::int32_t> stream_;
  std::vector<LogitsRow> alone_;
  std::unique_ptr<backend::Prepared> prepared_;
  std::int64_t end_ = 0;
};

TEST(SameBitsLong, OfBf16) {
  const Golden golden("bf16");
  LongStream stream(golden, Activations::f32);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) stream.walk(seed);
}

TEST(SameBitsLong, OfMixedFormats) {
  const Golden golden("modelopt_mixed");
  LongStream stream(golden, Activations::automatic);
  for (std::uint64_t seed = 7; seed <= 12; ++seed) stream.walk(seed);
}

// Windows that begin in the run before, or in the stretch before.
TEST(SameBitsLong, OfWindows) {
  for (const std::int64_t window : {100, 300, 1030}) {
    checkpoint::TempFolder temp;
    checkpoint::OutputFolder folder(temp.path() / "model");
    checkpoint::RandomModelOptions options;
    options.shape = checkpoint::find_shape("tiny-gpt-oss");
    options.shape.layers = 2;
    options.shape.window = window;
    options.scheme = checkpoint::scheme_named("mxfp4");
    checkpoint::write_random_model(folder, options, {0, 1});
    folder.publish();
    const Loaded model(temp.path() / "model");
    LongStream stream(model, Activations::automatic);
    for (std::uint64_t seed = 13; seed <= 15; ++seed) stream.walk(seed);
  }
}

}  // namespace
}  // namespace fourfold::model
