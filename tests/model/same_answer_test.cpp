// A row's bits are its own: however the prompt is cut, whoever shares the batch, wherever the pages lie, and
// whatever was drafted and taken back.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "tests/checkpoint/tiny_model.h"
#include "tests/model/support.h"

namespace fourfold::model {
namespace {

using backend::LogitsRow;
using backend::Part;
using backend::Pass;

constexpr std::int64_t kTokens = 150;

// A model, four token streams, and the logits of each stream run alone in one piece.
struct Scene {
  Scene(const std::string& name, Activations activations) : golden(name), mode(activations) {
    Random random(7);
    for (std::int32_t stream = 0; stream < 4; ++stream) {
      streams.emplace_back();
      for (std::int64_t i = 0; i < kTokens; ++i)
        streams.back().push_back(static_cast<std::int32_t>(random.below(golden.config.vocab_size)));
      alone.push_back(step(*prepare(), Pass::main, {part(0, 0, streams.back())}));
    }
  }
  std::unique_ptr<backend::Prepared> prepare() const { return golden.prepare(mode, kFourSequences); }
  std::vector<std::int32_t> tokens(std::size_t stream, std::int64_t begin, std::int64_t count) const {
    return {streams[stream].begin() + begin, streams[stream].begin() + begin + count};
  }

  Golden golden;
  Activations mode;
  std::vector<std::vector<std::int32_t>> streams;
  std::vector<std::vector<LogitsRow>> alone;
};

// A process has one test: it makes the scene of that test alone.
const Scene& scene(int index) {
  static std::map<int, Scene> made;
  const auto known = made.find(index);
  if (known != made.end()) return known->second;
  if (index == 0) return made.try_emplace(index, "bf16", Activations::f32).first->second;
  return made.try_emplace(index, index == 1 ? "modelopt_mixed" : "compressed", Activations::automatic)
      .first->second;
}

class SameAnswer : public testing::TestWithParam<int> {
 protected:
  const Scene& s() const { return scene(GetParam()); }
};

TEST_P(SameAnswer, HoweverThePromptIsCut) {
  for (const std::int64_t piece : {1, 3, 64, 100}) {
    const auto prepared = s().prepare();
    std::vector<LogitsRow> rows;
    for (std::int64_t at = 0; at < kTokens; at += piece) {
      const auto got =
          step(*prepared, Pass::main, {part(1, at, s().tokens(0, at, std::min(piece, kTokens - at)))});
      rows.insert(rows.end(), got.begin(), got.end());
    }
    EXPECT_EQ(rows, s().alone[0]) << "pieces of " << piece;
  }
}

// Random steps of random sequences, prompt chunks beside single tokens, until all are through.
TEST_P(SameAnswer, InAnyBatchWithShuffledPages) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Random random(seed);
    const auto prepared = s().prepare();
    std::vector<std::int32_t> pages(kFourSequences.page_count);
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.below(i)]);
    std::vector<std::int64_t> done(4);
    while (*std::min_element(done.begin(), done.end()) < kTokens) {
      std::vector<Part> parts;
      std::vector<std::size_t> streams;
      std::int64_t room = kFourSequences.row_count;
      for (std::size_t stream = 0; stream < 4; ++stream) {
        const std::int64_t left = std::min(kTokens - done[stream], room);
        if (left == 0 || random.below(3) == 0) continue;
        const auto count = random.below(2) == 0 ? 1 : static_cast<std::int64_t>(1 + random.below(left));
        Part next =
            part(static_cast<std::int32_t>(stream), done[stream], s().tokens(stream, done[stream], count));
        next.pages = {pages.begin() + stream * kPagesEach, pages.begin() + (stream + 1) * kPagesEach};
        next.all_logits = random.below(2) == 0;
        room -= count;
        streams.push_back(stream);
        parts.push_back(std::move(next));
      }
      if (parts.empty()) continue;
      const auto rows = step(*prepared, Pass::main, parts);
      std::size_t row = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto count = static_cast<std::int64_t>(parts[i].tokens.size());
        for (std::int64_t k = parts[i].all_logits ? 0 : count - 1; k < count; ++k)
          ASSERT_EQ(rows[row++], s().alone[streams[i]][parts[i].position + k])
              << "seed " << seed << " stream " << streams[i] << " position " << parts[i].position + k;
        done[streams[i]] += count;
      }
    }
  }
}

// Wrong tokens are tried and taken back, across block boundaries too; nothing of them remains.
TEST_P(SameAnswer, AfterDraftsAreTakenBack) {
  const auto prepared = s().prepare();
  Random random(11);
  for (std::int64_t at = 0; at < kTokens; ++at) {
    std::vector<std::int32_t> guess = s().tokens(0, at, 1);
    for (int i = 0; i < 5; ++i) guess.push_back(static_cast<std::int32_t>(random.below(320)));
    Part drafts = part(2, at, guess);
    drafts.draft_row_count = 5;
    ASSERT_EQ(step(*prepared, Pass::main, {drafts}).front(), s().alone[0][at]) << at;
  }
}

// As far back as a sequence can go: to the first position of the block before the one it is in.
TEST_P(SameAnswer, AfterGoingBackTwoBlocks) {
  const auto prepared = s().prepare();
  step(*prepared, Pass::main, {part(2, 0, s().tokens(0, 0, 64))});
  step(*prepared, Pass::main, {part(2, 64, s().tokens(1, 0, 127))});  // up to 190, of another stream
  const auto rows = step(*prepared, Pass::main, {part(2, 64, s().tokens(0, 64, kTokens - 64))});
  for (std::int64_t i = 64; i < kTokens; ++i) ASSERT_EQ(rows[i - 64], s().alone[0][i]) << i;
}

TEST_P(SameAnswer, ASlotBeginsAnewAtPositionZero) {
  const auto prepared = s().prepare();
  step(*prepared, Pass::main, {part(3, 0, s().streams[1])});
  EXPECT_EQ(step(*prepared, Pass::main, {part(3, 0, s().streams[0])}), s().alone[0]);
}

// The draft pass over two sequences at once, cut in pieces, against each alone.
TEST_P(SameAnswer, DraftPassInABatch) {
  const auto draft_rows = [&](std::size_t stream) {
    const auto prepared = s().prepare();
    step(*prepared, Pass::main, {part(0, 0, s().tokens(stream, 0, 20))});
    Part draft = part(0, 0, s().tokens(stream, 1, 20));
    for (std::int32_t i = 0; i < 20; ++i) draft.hidden_rows.push_back(i);
    return step(*prepared, Pass::draft, {draft});
  };
  const auto prepared = s().prepare();
  std::vector<LogitsRow> first;
  std::vector<LogitsRow> second;
  for (std::int64_t at = 0; at < 20; at += 10) {
    step(*prepared, Pass::main, {part(0, at, s().tokens(0, at, 10)), part(1, at, s().tokens(1, at, 10))});
    std::vector<Part> drafts{part(0, at, s().tokens(0, at + 1, 10)), part(1, at, s().tokens(1, at + 1, 10))};
    for (std::int32_t i = 0; i < 10; ++i)
      drafts[0].hidden_rows.push_back(i), drafts[1].hidden_rows.push_back(10 + i);
    const auto rows = step(*prepared, Pass::draft, drafts);
    first.insert(first.end(), rows.begin(), rows.begin() + 10);
    second.insert(second.end(), rows.begin() + 10, rows.end());
  }
  EXPECT_EQ(first, draft_rows(0));
  EXPECT_EQ(second, draft_rows(1));
}

INSTANTIATE_TEST_SUITE_P(Formats, SameAnswer, testing::Values(0, 1, 2));

// Page size is capacity's business alone.
TEST(SameAnswerPages, WithAnyPageSize) {
  const Scene& s = scene(0);
  for (const std::int64_t page_tokens : {1, 7, 64, 256}) {
    const auto count = static_cast<std::int32_t>((kTokens + page_tokens - 1) / page_tokens);
    const auto prepared = s.golden.prepare(
        s.mode, {.page_count = count, .page_tokens = page_tokens, .state_slot_count = 1, .row_count = 256});
    Part all = part(0, 0, s.streams[2]);
    all.pages = backend::own_pages(0, count);
    std::reverse(all.pages.begin(), all.pages.end());
    EXPECT_EQ(step(*prepared, Pass::main, {all}), s.alone[2]) << page_tokens;
  }
}

// Two sequences whose first page is one and the same.
TEST(SameAnswerPages, WithASharedPrefix) {
  const Scene& s = scene(0);
  const auto prepared = s.prepare();
  step(*prepared, Pass::main, {part(0, 0, s.tokens(0, 0, 16))});
  Part again = part(1, 0, s.tokens(0, 0, 16));
  step(*prepared, Pass::main, {again});  // its own state; its pages could be the other's
  Part first = part(0, 16, s.tokens(0, 16, 4));
  Part second = part(1, 16, s.tokens(0, 16, 4));
  second.pages[0] = first.pages[0];
  const auto rows = step(*prepared, Pass::main, {first, second});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i], s.alone[0][16 + i]);
    EXPECT_EQ(rows[4 + i], s.alone[0][16 + i]);
  }
}

// The other families, in tiny: the config alone says what differs.
TEST(Families, RunAndDoNotSeeTheirNeighbours) {
  for (const auto& tiny : {checkpoint::tiny_qwen3_moe(), checkpoint::tiny_qwen3_next(),
                           checkpoint::tiny_glm(), checkpoint::tiny_minimax(), checkpoint::tiny_deepseek()}) {
    checkpoint::TempFolder folder;
    tiny.write(folder);
    const Loaded loaded(folder.path());
    const std::vector<std::int32_t> tokens{3, 14, 15, 9, 26, 5, 35, 8};
    const auto whole =
        step(*loaded.prepare(Activations::w4a16, kFourSequences), Pass::main, {part(0, 0, tokens)});
    for (const LogitsRow& row : whole)
      for (const float x : row) ASSERT_TRUE(std::isfinite(x)) << loaded.config.architecture;
    const auto prepared = loaded.prepare(Activations::w4a16, kFourSequences);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const auto rows = step(*prepared, Pass::main,
                             {part(1, at, {tokens[tokens.size() - 1 - i]}), part(0, at, {tokens[i]})});
      ASSERT_EQ(rows[1], whole[i]) << loaded.config.architecture;
    }
  }
}

}  // namespace
}  // namespace fourfold::model
