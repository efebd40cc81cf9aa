// Prompt attention on the simulator against double precision, and against itself in other batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attention/prompt_row.h"
#include "tests/kernels/attention/attention_case.h"

namespace fourfold::attention {
namespace {

struct PromptRun {
  int gap = 0;
  int blocks = 0;  // 0: one a unit
  std::uint64_t page_seed = 1;
  std::uint64_t seed = 0;
};

// Prompt rows of every part, behind a context that is in the pages already.
template <class Row, class LayerT>
std::vector<std::uint16_t> attend_parts(LayerT& layer, const std::vector<Sequence>& parts,
                                        const std::vector<std::vector<std::int32_t>>& pages, PromptRun run,
                                        std::vector<float>* query = nullptr, bool check_banks = false) {
  constexpr int head_dim = Row::head_dim;
  const Shape& shape = layer.shape();
  sim::Device& device = layer.device();
  const auto batch = layer.make_batch(parts, pages, run.gap);
  const std::uint16_t* projection = layer.template upload_projections<std::uint16_t>(parts, batch);
  const std::size_t width = static_cast<std::size_t>(shape.heads) * head_dim;
  PromptParams params{};
  params.tables = batch.tables;
  params.query = layer.prepare_rows(parts, batch, projection);
  params.keys = layer.keys();
  params.values = layer.values();
  params.gate = shape.gated ? projection + head_dim : nullptr;
  params.gate_stride = layer.columns();
  params.gate_head_stride = layer.head_stride();
  params.heads = shape.heads;
  params.kv_heads = shape.kv_heads;
  params.heads_per_kv = shape.heads / shape.kv_heads;
  params.scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(head_dim));
  params.window = shape.window;
  params.sinks = shape.sinks.empty() ? nullptr : upload(device, shape.sinks, "sinks");
  params.out = device.template allocate_array<std::uint16_t>(batch.rows.size() * width, "out");
  std::int64_t units = 0;
  for (const Sequence& part : parts)
    units += prompt_units(part.context, part.rows, shape.heads, shape.kv_heads, Row::heads);
  const auto stats =
      kernels::run_on_sim<Row>(device, run.blocks ? run.blocks : static_cast<int>(units), params);
  if (check_banks) {
    for (const auto& site : stats.traffic)
      EXPECT_EQ(site.wavefronts, site.ideal) << "bank conflicts at " << site.file << ":" << site.line;
  }
  std::vector<std::uint16_t> out;
  for (std::size_t row = 0; row < batch.rows.size(); ++row)
    if (batch.rows[row].sequence >= 0) {
      out.resize(out.size() + width);
      device.read_to_host(out.data() + out.size() - width, params.out + row * width, width * 2);
      if (query)
        for (const float x : read_bf16(device, params.query + row * width, width)) query->push_back(x);
    }
  return out;
}

int pages_for(const std::vector<Sequence>& parts) {
  int count = 3;
  for (const Sequence& part : parts) count += (part.context + part.rows + 63) / 64;
  return count;
}

template <class Row>
void check_prompt(Shape shape, const std::vector<Sequence>& parts, PromptRun run = {}) {
  SCOPED_TRACE(testing::Message() << Row::name() << " heads " << shape.heads << " seed " << run.seed);
  using Kv = typename Row::Layout::Kv;
  Layer<Kv, Row::head_dim> layer(shape, pages_for(parts), run.seed);
  const auto pages = draw_pages(parts, pages_for(parts), run.page_seed);
  layer.write_contexts(parts, pages);
  std::vector<float> query;
  const auto out = attend_parts<Row>(layer, parts, pages, run, &query, true);
  check_rows(layer, parts, pages, query, floats(out), prompt_sums, /*bf16_gate=*/true);
}

template <class Kv, int HeadDim>
using Mma = PromptRow<plan::Sm120, Kv, HeadDim>;
template <int HeadDim>
using Wgmma = PromptWgmmaRow<plan::Sm90, HeadDim>;
template <class Kv>
using WindowMma = PromptRow<plan::Sm120, Kv, 64, true>;
using WindowWgmma = PromptWgmmaRow<plan::Sm90, 64, true>;

// Whole tiles, a last tile that is not full, a start inside a tile, one row alone.
const std::vector<Sequence> kParts{{0, 130, 1}, {64, 20, 2}, {70, 10, 3}, {191, 1, 4}};

TEST(PromptMma, AgreesWithDoublePrecision) {
  check_prompt<Mma<Bf16Kv, 64>>({.heads = 4, .kv_heads = 2}, kParts);
  check_prompt<Mma<Bf16Kv, 64>>({.heads = 3, .kv_heads = 1, .gated = false, .spread = 12.0}, kParts,
                                {.gap = 2, .blocks = 3, .seed = 1});
  check_prompt<Mma<E4m3Kv, 64>>({.heads = 2, .kv_heads = 1}, kParts, {.seed = 2});
  check_prompt<Mma<Bf16Kv, 128>>({.heads = 1, .kv_heads = 1, .pairs = 64}, {{50, 40, 1}}, {.seed = 3});
  check_prompt<Mma<E4m3Kv, 128>>({.heads = 1, .kv_heads = 1, .pairs = 64}, {{50, 40, 1}}, {.seed = 4});
  check_prompt<Mma<Bf16Kv, 256>>({.heads = 1, .kv_heads = 1, .pairs = 32}, {{50, 40, 1}}, {.seed = 5});
  check_prompt<Mma<E4m3Kv, 256>>({.heads = 1, .kv_heads = 1, .pairs = 32}, {{50, 40, 1}}, {.seed = 6});
}

template <class Row>
std::vector<std::uint16_t> run_prompt(Shape shape, const std::vector<Sequence>& parts, PromptRun run) {
  Layer<typename Row::Layout::Kv, Row::head_dim> layer(shape, pages_for(parts), run.seed);
  const auto pages = draw_pages(parts, pages_for(parts), run.page_seed);
  layer.write_contexts(parts, pages);
  return attend_parts<Row>(layer, parts, pages, run);
}

// Every part alone, in pieces cut at multiples of 64, in pages and grids of its own.
template <class Row>
void check_same_bits(Shape shape, const std::vector<Sequence>& parts) {
  const auto together = run_prompt<Row>(shape, parts, {});
  EXPECT_EQ(together, run_prompt<Row>(shape, parts, {.gap = 2, .blocks = 1, .page_seed = 5, .seed = 6}));
  EXPECT_EQ(together, run_prompt<Row>(shape, parts, {.gap = 40, .blocks = 3, .page_seed = 7, .seed = 8}));
  std::vector<std::uint16_t> alone;
  for (const Sequence& part : parts) {
    Layer<typename Row::Layout::Kv, Row::head_dim> layer(shape, pages_for(parts), 11);
    const auto pages = draw_pages({part}, pages_for(parts), 12);
    layer.write_contexts({part}, pages);
    for (int begin = part.context; begin < part.context + part.rows;) {
      const int end = std::min(begin / 64 * 64 + 64, part.context + part.rows);
      const auto out = attend_parts<Row>(layer, {{begin, end - begin, part.seed}}, pages, {});
      alone.insert(alone.end(), out.begin(), out.end());
      begin = end;
    }
  }
  EXPECT_EQ(together, alone);
}

TEST(PromptMma, GivesTheSameBitsInAnyBatchGridAndPageTable) {
  check_same_bits<Mma<Bf16Kv, 64>>({.heads = 2, .kv_heads = 1}, kParts);
  check_same_bits<Mma<E4m3Kv, 64>>({.heads = 2, .kv_heads = 2}, kParts);
}

TEST(PromptWgmma, AgreesWithDoublePrecision) {
  check_prompt<Wgmma<64>>({.heads = 4, .kv_heads = 2}, kParts);
  check_prompt<Wgmma<64>>({.heads = 3, .kv_heads = 1, .gated = false, .spread = 12.0}, kParts,
                          {.gap = 2, .blocks = 3, .seed = 1});
  check_prompt<Wgmma<128>>({.heads = 2, .kv_heads = 1, .pairs = 64}, {{50, 40, 1}}, {.seed = 2});
  check_prompt<Wgmma<256>>({.heads = 2, .kv_heads = 1, .pairs = 32}, {{50, 40, 1}}, {.seed = 3});
}

TEST(PromptWgmma, GivesTheSameBitsInAnyBatchGridAndPageTable) {
  check_same_bits<Wgmma<64>>({.heads = 2, .kv_heads = 1}, kParts);
}

// ---- windows and sinks ----

const Shape kSinks{.heads = 4, .kv_heads = 2, .gated = false, .sinks = {-30.0f, 0.5f, 4.0f, 40.0f}};
Shape windowed(int window) {
  Shape shape = kSinks;
  shape.window = window;
  return shape;
}
// Tiles whose first pages lie before the window of all their rows, of some, and of none.
const std::vector<Sequence> kWindowed{{0, 200, 1}, {64, 20, 2}, {250, 10, 3}, {319, 1, 4}};

TEST(PromptMma, SeesTheWindowAndTheSink) {
  check_prompt<WindowMma<Bf16Kv>>(windowed(64), kWindowed);
  check_prompt<WindowMma<Bf16Kv>>(kSinks, kParts, {.gap = 2, .blocks = 3, .seed = 1});
  check_prompt<WindowMma<E4m3Kv>>(windowed(100), kWindowed, {.seed = 2});
  check_prompt<WindowMma<Bf16Kv>>({.heads = 1, .kv_heads = 1, .window = 3}, kWindowed, {.seed = 3});
  check_prompt<WindowMma<Bf16Kv>>({.heads = 2, .kv_heads = 1, .window = 65}, kWindowed, {.seed = 4});
}
TEST(PromptWgmma, SeesTheWindowAndTheSink) {
  check_prompt<WindowWgmma>(windowed(64), kWindowed);
  check_prompt<WindowWgmma>(kSinks, kParts, {.gap = 2, .blocks = 3, .seed = 1});
  check_prompt<WindowWgmma>({.heads = 3, .kv_heads = 1, .window = 65}, kWindowed, {.seed = 4});
}
// Pages are counted from the window's first, and their numbers read 32 at a time.
TEST(PromptMma, SeesTheWindowFarBack) {
  const std::vector<Sequence> far{{2'300, 5, 1}, {4'200, 3, 2}};
  for (const int window : {128, 2'150}) {
    check_prompt<WindowMma<Bf16Kv>>(
        {.heads = 2, .kv_heads = 1, .gated = false, .window = window, .sinks = {1, -1}}, far);
    check_prompt<WindowWgmma>({.heads = 2, .kv_heads = 1, .gated = false, .window = window}, far);
  }
}
TEST(PromptMma, WindowsAndSinksGiveTheSameBitsInAnyBatch) {
  check_same_bits<WindowMma<Bf16Kv>>(windowed(100), kWindowed);
  check_same_bits<WindowWgmma>(windowed(65), kWindowed);
  EXPECT_EQ((run_prompt<WindowWgmma>(windowed(100), kWindowed, {})),
            (run_prompt<WindowMma<Bf16Kv>>(windowed(100), kWindowed, {.seed = 4})));
  // Without either they are the rows that know neither.
  const Shape plain{.heads = 3, .kv_heads = 1};
  EXPECT_EQ((run_prompt<WindowMma<Bf16Kv>>(plain, kParts, {})),
            (run_prompt<Mma<Bf16Kv, 64>>(plain, kParts, {.seed = 4})));
}

// Prompts compute their weights side by side, decode one behind another.
TEST(Softmax, FlatWeightsHaveTheBitsOfThoseWithABranch) {
  using Host = device::SimCta;
  const auto expect_same = [](float x) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(flat_weight<Host>(x)),
              std::bit_cast<std::uint32_t>(exp2_weight<Host>(x)))
        << x;
  };
  for (float x = 0; x > -130; x -= 0.00390625f * 1.37f) expect_same(x);
  for (float x = -1; x > -3e38f; x *= 1.19f) expect_same(x);
  for (const float x : {-0.0f, -126.0f, std::nextafter(-126.0f, -200.0f), kUnseen, kNothingSeen})
    expect_same(x);
  EXPECT_EQ(flat_weight<Host>(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(flat_weight<Host>(std::nanf(""))));
}

// One arithmetic, two instructions.
TEST(PromptWgmma, GivesTheBitsOfMma) {
  const Shape small{.heads = 3, .kv_heads = 1}, large{.heads = 2, .kv_heads = 1, .pairs = 32};
  EXPECT_EQ((run_prompt<Wgmma<64>>(small, kParts, {})),
            (run_prompt<Mma<Bf16Kv, 64>>(small, kParts, {.seed = 4})));
  EXPECT_EQ((run_prompt<Wgmma<256>>(large, {{60, 72, 1}}, {})),
            (run_prompt<Mma<Bf16Kv, 256>>(large, {{60, 72, 1}}, {.seed = 5})));
}

}  // namespace
}  // namespace fourfold::attention
