// Random ways to run the same four token streams on the CPU backend: threads, instruction sets, batches,
// page tables, chunks, drafts taken back, MTP passes of depth 0 to 5. Every row that belongs to a stream must
// have the bits it has when its stream runs alone, in one piece, on one thread.
#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "kernels/cpu/isa.h"
#include "tests/model/support.h"
#include "tests/support/long_test.h"

namespace fourfold::model {
namespace {

using backend::LogitsRow;
using backend::Part;
using backend::Pass;

constexpr std::int64_t kTokens = 100;  // crosses position 64, where the state moves
constexpr std::size_t kStreams = 4;

struct Scene {
  // The streams' rows, each stream alone, in one piece, on one thread.
  struct Alone {
    std::vector<std::vector<LogitsRow>> main, draft;  // by stream
  };

  Scene(const std::string& name, Activations activations, bool tile_codes_too = false)
      : golden(name), mode(activations), tile_codes(tile_codes_too) {
    Random random(17);
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      streams.emplace_back();
      for (std::int64_t i = 0; i <= kTokens; ++i)
        streams.back().push_back(
            static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(golden.config.vocab_size))));
    }
    for (const cpu::Isa isa : cpu::available_isas())
      if (isa != cpu::Isa::plain) (isa == cpu::Isa::amx ? tiles : others) = run_alone(isa);
    if (others.main.empty()) others = run_alone(cpu::Isa::plain);
  }
  Alone run_alone(cpu::Isa isa) const {
    Alone alone;
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const auto prepared = prepare({.threads = 1, .isa = std::string(cpu::isa_name(isa))});
      alone.main.push_back(step(*prepared, Pass::main, {part(0, 0, tokens(stream, 0, kTokens))}));
      Part next = part(0, 0, tokens(stream, 1, kTokens));
      for (std::int32_t row = 0; row < kTokens; ++row) next.hidden_rows.push_back(row);
      alone.draft.push_back(step(*prepared, Pass::draft, {next}));
    }
    return alone;
  }
  std::unique_ptr<backend::Prepared> prepare(backend::CpuOptions options) const {
    options.tile_codes = tile_codes;
    return backend::make_cpu_backend(std::move(options))->prepare(golden.program(mode), kFourSequences);
  }
  std::vector<std::int32_t> tokens(std::size_t stream, std::int64_t begin, std::int64_t count) const {
    return {streams[stream].begin() + begin, streams[stream].begin() + begin + count};
  }

  Golden golden;
  Activations mode;
  bool tile_codes;  // where there are tiles
  std::vector<std::vector<std::int32_t>> streams;
  Alone tiles, others;  // tiles add bf16 inputs in an order of their own; all others agree
};

// Made when it is asked for: each costs some runs.
const Scene& scene(int index) {
  static std::unique_ptr<const Scene> scenes[4];
  std::unique_ptr<const Scene>& wanted = scenes[index];
  if (wanted != nullptr) return *wanted;
  switch (index) {
    case 0: wanted = std::make_unique<Scene>("bf16", Activations::f32); break;
    case 1: wanted = std::make_unique<Scene>("modelopt_mixed", Activations::automatic); break;
    case 2: wanted = std::make_unique<Scene>("compressed", Activations::automatic); break;
    default: wanted = std::make_unique<Scene>("modelopt", Activations::w4a16, true); break;
  }
  return *wanted;
}

// One random way through all streams.
class Walk {
 public:
  Walk(const Scene& scene, std::uint64_t seed) : s_(scene), random_(seed), done_(kStreams) {
    const auto isas = cpu::available_isas();
    // The best two; plain C++ is slow and compared elsewhere, so one case in forty takes it.
    const std::size_t back = std::min<std::size_t>(random_.below(2), isas.size() - 1);
    const cpu::Isa isa = isas[random_.below(40) == 0 ? 0 : isas.size() - 1 - back];
    alone_ = isa == cpu::Isa::amx ? &s_.tiles : &s_.others;
    prepared_ = s_.prepare(
        {.threads = static_cast<int>(1 + random_.below(5)), .isa = std::string(cpu::isa_name(isa))});
    mtp_depth_ = static_cast<int>(random_.below(6));
    pages_.resize(static_cast<std::size_t>(kFourSequences.page_count));
    std::iota(pages_.begin(), pages_.end(), 0);
    for (std::size_t i = pages_.size(); i > 1; --i) std::swap(pages_[i - 1], pages_[random_.below(i)]);
  }

  void run() {
    while (*std::min_element(done_.begin(), done_.end()) < kTokens && !testing::Test::HasFatalFailure()) {
      choose_rows();
      if (parts_.empty()) continue;
      compare_main();
      if (mtp_depth_ > 0) compare_draft();
      for (const Rows& rows : rows_) done_[rows.stream] += rows.count;
    }
  }

 private:
  // A stream's own rows in a step, and where they begin in the batch.
  struct Rows {
    std::size_t stream;
    std::int64_t count;
    std::int32_t first;
  };

  Part part_of(std::size_t stream, std::int64_t position, std::vector<std::int32_t> tokens) const {
    Part made = part(static_cast<std::int32_t>(stream), position, std::move(tokens));
    const auto begin = pages_.begin() + static_cast<std::int64_t>(stream) * kPagesEach;
    made.pages = {begin, begin + kPagesEach};
    return made;
  }
  std::int32_t any_token() {
    return static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(s_.golden.config.vocab_size)));
  }

  void choose_rows() {
    parts_.clear(), rows_.clear();
    std::int32_t first = 0;
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::int64_t left = kTokens - done_[stream];
      if (left == 0 || random_.below(4) == 0) continue;
      const std::int64_t count =
          random_.below(2) == 0
              ? std::min<std::int64_t>(left, 1 + static_cast<std::int64_t>(random_.below(3)))
              : 1 + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(left)));
      if (first + count + 5 > kFourSequences.row_count) continue;
      Part next = part_of(stream, done_[stream], s_.tokens(stream, done_[stream], count));
      // Wrong guesses behind the stream's own rows, taken back by the step after.
      next.draft_row_count = static_cast<std::int32_t>(random_.below(6));
      for (int i = 0; i < next.draft_row_count; ++i) next.tokens.push_back(any_token());
      rows_.push_back({stream, count, first});
      first += static_cast<std::int32_t>(next.tokens.size());
      parts_.push_back(std::move(next));
    }
  }

  void compare_main() {
    const auto logits = step(*prepared_, Pass::main, parts_);
    for (const Rows& rows : rows_)
      for (std::int64_t i = 0; i < rows.count; ++i)
        ASSERT_EQ(logits[static_cast<std::size_t>(rows.first + i)],
                  alone_->main[rows.stream][static_cast<std::size_t>(done_[rows.stream] + i)])
            << "stream " << rows.stream << " position " << done_[rows.stream] + i;
  }

  // The draft pass over the same rows, then deeper passes with any tokens, which the next step overwrites.
  void compare_draft() {
    std::vector<Part> parts;
    for (const Rows& rows : rows_) {
      Part next = part_of(rows.stream, done_[rows.stream],
                          s_.tokens(rows.stream, done_[rows.stream] + 1, rows.count));
      for (std::int64_t i = 0; i < rows.count; ++i)
        next.hidden_rows.push_back(rows.first + static_cast<std::int32_t>(i));
      parts.push_back(std::move(next));
    }
    const auto logits = step(*prepared_, Pass::draft, parts);
    std::size_t row = 0;
    std::vector<std::int32_t> last_rows;
    for (const Rows& rows : rows_) {
      for (std::int64_t i = 0; i < rows.count; ++i)
        ASSERT_EQ(logits[row++], alone_->draft[rows.stream][static_cast<std::size_t>(done_[rows.stream] + i)])
            << "draft of stream " << rows.stream << " position " << done_[rows.stream] + i;
      last_rows.push_back(static_cast<std::int32_t>(row) - 1);
    }
    for (int depth = 1; depth < mtp_depth_; ++depth) {
      std::vector<Part> deeper;
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        deeper.push_back(
            part_of(rows_[i].stream, done_[rows_[i].stream] + rows_[i].count + depth - 1, {any_token()}));
        deeper.back().hidden_rows = {last_rows[i]};
        last_rows[i] = static_cast<std::int32_t>(i);
      }
      step(*prepared_, Pass::draft, deeper);
    }
  }

  const Scene& s_;
  Random random_;
  const Scene::Alone* alone_ = nullptr;
  std::unique_ptr<backend::Prepared> prepared_;
  int mtp_depth_ = 0;
  std::vector<std::int32_t> pages_;
  std::vector<std::int64_t> done_;  // positions of each stream
  std::vector<Part> parts_;
  std::vector<Rows> rows_;
};

class SameBits : public testing::TestWithParam<int> {};

// 100 runs in all, and 500 in ./dev test --long.
TEST_P(SameBits, InRandomRuns) {
  const std::uint64_t runs = test::wants_all() ? 125 : 25;
  for (std::uint64_t seed = 0; seed < runs; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Walk(scene(GetParam()), 1000 * static_cast<std::uint64_t>(GetParam()) + seed).run();
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Scenes, SameBits, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace fourfold::model
