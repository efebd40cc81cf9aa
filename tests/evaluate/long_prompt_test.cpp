// A prompt of 2,150 tokens through a whole model on every backend, against Hugging Face's numbers: 34 pages,
// so that the kernels' lists of 32 page numbers are loaded again, and a continuation behind them. The same
// runs on a GPU by `fourfold compare` (tests/golden/families/README.md).
#include <numeric>

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "evaluate/compare.h"
#include "evaluate/trace.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/made_models.h"
#include "tests/support/long_test.h"

namespace fourfold::evaluate {
namespace {

using backend::Pass;
using model::Activations;
using model::family_reference;
using model::Loaded;
using model::make_model;

constexpr std::int64_t kStepRows = 1024;             // pieces: 1,024, 1,024 and 102 tokens
constexpr std::int64_t kLastPiece = 2048;            // where the last one begins
constexpr std::int32_t kFarPages = kLastPiece / 64;  // those before it
constexpr std::size_t kKinds = 6;                    // logits, embedding, two layers, norm, continuation

class LongPrompt : public testing::Test {
 protected:
  LongPrompt() {
    make_model(folder_.path() / "model", "tiny-long", "bf16");
    model_.emplace(folder_.path() / "model");
    reference_.emplace(family_reference("tiny-long"), model_->program(Activations::f32));
  }

  const PromptReference& prompt() const { return reference_->prompts().front(); }
  backend::Capacity capacity(std::int64_t step_rows) const {
    return trace_capacity(reference_->prompts(), step_rows);
  }
  void expect_fine(const Comparison& result, std::size_t kinds) const {
    EXPECT_EQ(result.numbers.size(), kinds);
    for (const NumberDifference& item : result.numbers)
      EXPECT_TRUE(item.fine()) << item.what << ": " << item.largest << " of " << item.largest_bound << ", "
                               << item.typical << " of " << item.typical_bound;
    for (const TokenDifference& item : result.tokens)
      EXPECT_TRUE(item.fine()) << item.what << ": " << item.same << " of " << item.count;
  }
  // On the simulated GPU, which keeps no final norm.
  void expect_fine_on(const plan::ArchFacts& arch, std::int64_t step_rows, const Bounds& bounds) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
    const auto prepared = backend::make_gpu_backend(*machine, {.keep_values = true})
                              ->prepare(model_->program(Activations::w4a16), capacity(step_rows));
    expect_fine(compare(*prepared, *reference_, bounds), kKinds - 1);
  }

  checkpoint::TempFolder folder_;
  std::optional<Loaded> model_;
  std::optional<ReferenceFile> reference_;
};

TEST_F(LongPrompt, IsThereInTheReference) {
  EXPECT_EQ(prompt().ids.size(), 2150u);
  EXPECT_EQ(prompt().greedy_logits.size(), 8u * 320);
  for (const std::int32_t row : {63, 64, 1023, 1024, 2047, 2048, 2111, 2112, 2149})
    EXPECT_TRUE(std::binary_search(prompt().rows.begin(), prompt().rows.end(), row)) << row;
  checkpoint::expect_error(Code::invalid_request, {"100 rows", "multiple of 64"}, [&] { capacity(100); });
}

TEST_F(LongPrompt, ReferenceBackendAgreesWholeAndInPieces) {
  for (const std::int64_t step_rows : {std::int64_t{0}, kStepRows}) {
    const auto prepared = model_->prepare(Activations::f32, capacity(step_rows));
    EXPECT_EQ(prepared->capacity().row_count, step_rows == 0 ? 2150 : kStepRows);
    expect_fine(compare(*prepared, *reference_), kKinds);
  }
}

TEST_F(LongPrompt, CpuAgreesWholeAndInPieces) {
  for (const std::int64_t step_rows : {std::int64_t{0}, kStepRows}) {
    const auto prepared = backend::make_cpu_backend({.keep_values = true})
                              ->prepare(model_->program(Activations::f32), capacity(step_rows));
    expect_fine(compare(*prepared, *reference_), kKinds);
  }
}

// The logits of the last piece's rows with a page table that has `instead` in the place of `page`, on the CPU
// and in the GPU's format: the piece itself writes behind the far pages, so it only reads them elsewhere.
class LastPiece {
 public:
  LastPiece(const Loaded& model, const PromptReference& prompt, backend::Capacity capacity)
      : prompt_(prompt), foreign_(static_cast<std::int32_t>(capacity.page_count)) {
    ++capacity.page_count;
    capacity.anchor_count = 1;
    capacity.state_slot_count = 2;
    prepared_ = backend::make_cpu_backend({})->prepare(model.program(Activations::w4a16), capacity);
    pages_.resize(static_cast<std::size_t>(foreign_));
    std::iota(pages_.begin(), pages_.end(), 0);
    const std::span<const std::int32_t> ids = prompt.ids;
    for (std::size_t at = 0; at < kLastPiece; at += kStepRows)
      run(0, static_cast<std::int64_t>(at), ids.subspan(at, kStepRows), pages_);
    prepared_->save_anchor(0, kLastPiece, 0);
    run(1, 0, std::vector<std::int32_t>(64, 7), {foreign_});
    for (const std::int32_t row : prompt.rows)
      if (row >= kLastPiece) asked_.push_back(row - static_cast<std::int32_t>(kLastPiece));
  }

  // A page of another sequence.
  std::int32_t foreign() const { return foreign_; }

  // Beyond the bound of the comparison in its largest number or in its typical row.
  bool is_noticed(std::int32_t page, std::int32_t instead, const Bounds::Kind& bound) {
    std::vector<std::int32_t> pages = pages_;
    pages[static_cast<std::size_t>(page)] = instead;
    prepared_->restore_anchor(0, 0, kLastPiece);
    const auto ours = run(0, kLastPiece, std::span(prompt_.ids).subspan(kLastPiece), pages, asked_);
    const auto theirs = prompt_.logits.last(ours.size());
    const std::size_t vocab = ours.size() / asked_.size();
    std::vector<double> rows;
    double largest = 0;
    for (std::size_t row = 0; row < asked_.size(); ++row) {
      double squares = 0;
      for (std::size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
        const double off = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
        largest = std::max(largest, off);
        squares += off * off;
      }
      rows.push_back(std::sqrt(squares / static_cast<double>(vocab)));
    }
    std::sort(rows.begin(), rows.end());
    return largest > bound.largest || rows[rows.size() / 2] > bound.typical;
  }

 private:
  std::vector<float> run(std::int32_t slot, std::int64_t position, std::span<const std::int32_t> tokens,
                         const std::vector<std::int32_t>& pages,
                         const std::vector<std::int32_t>& asked = {}) {
    const backend::SequenceRows rows{.row_count = static_cast<std::int32_t>(tokens.size()),
                                     .position = position,
                                     .state_slot = slot,
                                     .page_count = static_cast<std::int32_t>(pages.size())};
    std::vector<float> logits(asked.size() * static_cast<std::size_t>(prepared_->program().vocab_size));
    prepared_->run(Pass::main, {tokens, {&rows, 1}, pages, asked, {}}, logits);
    return logits;
  }

  const PromptReference& prompt_;
  std::int32_t foreign_;
  std::unique_ptr<backend::Prepared> prepared_;
  std::vector<std::int32_t> pages_, asked_;
};

// And it can fail: the bounds it is held to notice any far page that is another sequence's, or its neighbour.
TEST_F(LongPrompt, SimulatedGpuIsWithinBoundsThatNoticeEveryPage) {
  const Bounds bounds(model_->program(Activations::w4a16), *reference_, capacity(kStepRows));
  expect_fine_on(plan::kSm120, kStepRows, bounds);

  const Bounds::Kind& logits = bounds.of(0).kinds.front();
  ASSERT_EQ(logits.what, "logits");
  LastPiece last(*model_, prompt(), capacity(kStepRows));
  EXPECT_FALSE(last.is_noticed(0, 0, logits)) << "with every page in its place";
  for (std::int32_t page = 0; page < kFarPages; ++page) {
    EXPECT_TRUE(last.is_noticed(page, last.foreign(), logits)) << "page " << page << " of another sequence";
    EXPECT_TRUE(last.is_noticed(page, (page + 1) % kFarPages, logits))
        << "page " << page << " taken for its neighbour";
  }
}

// Seconds more: the prompt at once, and Hopper's kernels.
TEST_F(LongPrompt, EveryArchitectureAndCutIsWithinItsBounds) {
  if (!test::wants_all()) GTEST_SKIP() << "FOURFOLD_LONG=1 runs it";
  for (const std::int64_t step_rows : {std::int64_t{0}, kStepRows}) {
    const Bounds bounds(model_->program(Activations::w4a16), *reference_, capacity(step_rows));
    if (step_rows == 0) expect_fine_on(plan::kSm120, step_rows, bounds);
    expect_fine_on(plan::kSm90, step_rows, bounds);
  }
}

}  // namespace
}  // namespace fourfold::evaluate
