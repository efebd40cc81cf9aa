// Every instruction set, any number of threads, whole prompts and single tokens: the same bits, for the ops
// that Qwen's models do not have. (AMX has bits of its own for whole prompts.)
#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include "kernels/cpu/isa.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using backend::LogitsRow;
using backend::Pass;

struct CpuFamily {
  const char* shape;
  const char* format = "nvfp4";
};
void PrintTo(const CpuFamily& family, std::ostream* out) { *out << family.shape << " " << family.format; }

class CpuFamilies : public testing::TestWithParam<CpuFamily> {};

TEST_P(CpuFamilies, HaveTheSameBitsOnEveryInstructionSet) {
  checkpoint::TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, GetParam().format);
  const Loaded model(temp.path() / "model");
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 70; ++i) tokens.push_back((i * 131 + 7) % 500);
  std::vector<LogitsRow> wanted;
  for (const cpu::Isa isa : cpu::available_isas()) {
    if (isa == cpu::Isa::amx) continue;
    for (const int threads : {1, 3}) {
      const auto prepared =
          backend::make_cpu_backend({.threads = threads, .isa = std::string(cpu::isa_name(isa))})
              ->prepare(model.program(Activations::w4a16), kFourSequences);
      const auto whole = step(*prepared, Pass::main, {part(0, 0, tokens)});
      if (wanted.empty()) wanted = whole;
      EXPECT_EQ(whole, wanted) << cpu::isa_name(isa) << ", " << threads << " threads";
      for (std::int64_t at = 0; at < std::ssize(tokens); ++at)
        ASSERT_EQ(step(*prepared, Pass::main, {part(1, at, {tokens[static_cast<std::size_t>(at)]})})[0],
                  wanted[static_cast<std::size_t>(at)])
            << cpu::isa_name(isa) << ", token " << at;
    }
  }
}

class CpuAttention : public testing::TestWithParam<CpuFamily> {};

// Latent attention, and a window that a page's border lies in anywhere: 500 random batches of four sequences,
// prompt chunks beside single tokens and drafts that are taken back, on pages anywhere. Every row has the
// bits of its sequence alone.
TEST_P(CpuAttention, RowsHaveTheSameBitsInAnyBatch) {
  constexpr std::int64_t length = 150;
  checkpoint::TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, GetParam().format);
  const Loaded model(temp.path() / "model");
  const bool windowed = model.config.layers[0].window != 0;
  ASSERT_NE(windowed, model.config.latent.has_value());
  ASSERT_LT(3 * model.config.layers[0].window, length);  // most rows are beyond the window
  const auto prepare = [&] {
    return backend::make_cpu_backend({.threads = 3})
        ->prepare(model.program(Activations::w4a16), kFourSequences);
  };
  Random random(3);
  std::vector<std::vector<std::int32_t>> streams(4);
  std::vector<std::vector<LogitsRow>> alone;
  for (auto& stream : streams) {
    for (std::int64_t i = 0; i < length; ++i) stream.push_back(static_cast<std::int32_t>(random.below(500)));
    alone.push_back(step(*prepare(), Pass::main, {part(0, 0, stream)}));
  }
  std::vector<std::int32_t> pages(static_cast<std::size_t>(kFourSequences.page_count));
  std::iota(pages.begin(), pages.end(), 0);
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.below(i)]);
  const auto prepared = prepare();
  std::vector<std::int64_t> done(4);
  for (int batch = 0; batch < 500;) {
    std::vector<backend::Part> parts;
    std::vector<std::size_t> of;
    for (std::size_t s = 0; s < 4; ++s) {
      if (random.below(3) == 0) continue;
      if (done[s] == length) done[s] = 0;  // begins anew
      const std::int64_t left = std::min<std::int64_t>(length - done[s], 40);
      const std::int64_t count =
          random.below(3) != 0
              ? 1
              : 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(left)));
      const auto begin = streams[s].begin() + done[s];
      backend::Part next = part(static_cast<std::int32_t>(s), done[s], {begin, begin + count});
      next.pages = {pages.begin() + static_cast<std::ptrdiff_t>(s) * kPagesEach,
                    pages.begin() + static_cast<std::ptrdiff_t>(s + 1) * kPagesEach};
      if (count == 1 && random.below(2) == 0) {  // drafts that do not stand
        for (int i = 0; i < 3; ++i) next.tokens.push_back(static_cast<std::int32_t>(random.below(500)));
        next.draft_row_count = 3;
      }
      parts.push_back(std::move(next));
      of.push_back(s);
    }
    if (parts.empty()) continue;
    const auto rows = step(*prepared, Pass::main, parts);
    std::size_t row = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto count = std::ssize(parts[i].tokens) - parts[i].draft_row_count;
      for (std::int64_t k = 0; k < count; ++k)
        ASSERT_EQ(rows[row + static_cast<std::size_t>(k)],
                  alone[of[i]][static_cast<std::size_t>(done[of[i]] + k)])
            << "batch " << batch << ", sequence " << of[i] << ", position " << done[of[i]] + k;
      row += parts[i].tokens.size();
      done[of[i]] += count;
    }
    ++batch;
  }
}

INSTANTIATE_TEST_SUITE_P(Odd, CpuFamilies,
                         testing::Values(CpuFamily{"tiny-glm-odd"}, CpuFamily{"tiny-minimax-odd"},
                                         CpuFamily{"tiny-gpt-oss-odd"},
                                         CpuFamily{"tiny-gpt-oss-odd", "mxfp4"},
                                         CpuFamily{"tiny-deepseek-odd"}, CpuFamily{"tiny-mistral-odd"}));
INSTANTIATE_TEST_SUITE_P(Odd, CpuAttention,
                         testing::Values(CpuFamily{"tiny-deepseek-odd"}, CpuFamily{"tiny-gpt-oss-odd"},
                                         CpuFamily{"tiny-gpt-oss-odd", "mxfp4"}));

}  // namespace
}  // namespace fourfold::model
