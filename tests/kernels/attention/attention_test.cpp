// Decode attention on the simulator against double precision, with bounds derived from the arithmetic, and
// against itself in other batches, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/launch/sim_machine.h"
#include "kernels/verify/step_case.h"
#include "tests/kernels/attention/attention_case.h"

namespace fourfold::attention {
namespace {

// ---- splits ----

TEST(Splits, FollowEachOtherWithoutGap) {
  int split = 0;
  for (int position = 0; position < 300'000; ++position) {
    if (position == split_begin(split + 1)) ++split;
    ASSERT_EQ(split_of(position), split) << position;
  }
  EXPECT_EQ(split_count(262'143), 568);
}

// ---- layout ----

template <class Layout>
void check_layout() {
  std::vector<int> key_seen(Layout::page_bytes), value_seen(Layout::page_bytes);
  for (int position = 0; position < kPageTokens; ++position)
    for (int dim = 0; dim < Layout::head_dim; ++dim) {
      ++key_seen[Layout::key_offset(position, dim)];
      ++value_seen[Layout::value_offset(position, dim)];
    }
  for (int i = 0; i < Layout::page_bytes; ++i) {
    ASSERT_EQ(key_seen[static_cast<std::size_t>(i)], i % Layout::Kv::bytes == 0 ? 1 : 0) << i;
    ASSERT_EQ(value_seen[static_cast<std::size_t>(i)], i % Layout::Kv::bytes == 0 ? 1 : 0) << i;
  }
}

TEST(PageLayout, GivesEveryNumberItsOwnPlace) {
  check_layout<PageLayout<Bf16Kv, 64>>();
  check_layout<PageLayout<Bf16Kv, 128>>();
  check_layout<PageLayout<Bf16Kv, 256>>();
  check_layout<PageLayout<E4m3Kv, 64>>();
  check_layout<PageLayout<E4m3Kv, 128>>();
  check_layout<PageLayout<E4m3Kv, 256>>();
}

// ---- numbers ----

TEST(Softmax, Exp2IsCloseAndExactAtZero) {
  using Cta = device::SimCta;
  EXPECT_EQ(exp2_weight<Cta>(0.0f), 1.0f);
  EXPECT_EQ(exp2_weight<Cta>(kUnseen), 0.0f);
  EXPECT_EQ(exp2_weight<Cta>(-126.5f), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_weight<Cta>(std::nanf(""))));
  double worst = 0;
  for (int i = 0; i <= 2'000'000; ++i) {
    const auto x = static_cast<float>(-126.0 * i / 2'000'000);
    const double exact = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp2_weight<Cta>(x) / exact - 1.0));
  }
  EXPECT_LE(worst, std::exp2(-22.4));
}

TEST(KvNumbers, DecodesEveryE4m3Code) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    const std::uint32_t word = code * 0x01010101u;
    for (int pair = 0; pair < 2; ++pair) {
      const std::uint32_t two = decode_e4m3x2<device::SimCta>(word, pair);
      EXPECT_EQ(two & 0xFFFFu, two >> 16);
      EXPECT_EQ(to_float(Bf16{static_cast<std::uint16_t>(two)}),
                to_float(E4m3{static_cast<std::uint8_t>(code)}));
    }
  }
  EXPECT_EQ(decode_e4m3x2<device::SimCta>(0x40383008u, 0), decode_e4m3x2<device::SimCta>(0x00003008u, 0));
  EXPECT_NE(decode_e4m3x2<device::SimCta>(0x40383008u, 0), decode_e4m3x2<device::SimCta>(0x40383008u, 1));
}

// ---- prepare ----

template <class Kv, int HeadDim, class Element>
void check_prepare(Shape shape, std::vector<Sequence> parts, int gap, std::uint64_t seed) {
  Layer<Kv, HeadDim> layer(shape, 16, seed);
  const auto pages = draw_pages(parts, 16, seed);
  const auto batch = layer.make_batch(parts, pages, gap);
  const auto* query =
      layer.prepare_rows(parts, batch, layer.template upload_projections<Element>(parts, batch));
  const std::size_t width = static_cast<std::size_t>(shape.heads) * HeadDim;
  std::size_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (int r = 0; r < parts[i].rows; ++r) {
      const int position = parts[i].context + r, within = position % kPageTokens;
      const int page = pages[i][static_cast<std::size_t>(position / kPageTokens)];
      auto in = layer.projection(parts[i], position);
      if constexpr (!std::is_same_v<Element, float>)
        for (float& x : in) x = to_float(to_bf16(x));
      const auto got =
          read_bf16(layer.device(), query + (first + static_cast<std::size_t>(r)) * width, width);
      for (int h = 0; h < shape.heads; ++h) {
        const auto want = prepared_head<device::SimCta>(in.data() + h * layer.head_stride(),
                                                        shape.normed ? layer.query_weight().data() : nullptr,
                                                        HeadDim, shape.pairs, position, shape.epsilon);
        for (int d = 0; d < HeadDim; ++d) {
          const float value = got[static_cast<std::size_t>(h * HeadDim + d)];
          ASSERT_LE(std::abs(value - want.value[d]), prepare_bound(false, want.value[d], want.size[d]))
              << "query head " << h << " column " << d << " position " << position;
          ASSERT_EQ(value, rounded<Bf16Kv>(want.bits[d])) << "query head " << h << " column " << d;
        }
      }
      for (int h = 0; h < shape.kv_heads; ++h) {
        const auto want = prepared_head<device::SimCta>(in.data() + layer.key_column() + h * HeadDim,
                                                        shape.normed ? layer.key_weight().data() : nullptr,
                                                        HeadDim, shape.pairs, position, shape.epsilon);
        for (int d = 0; d < HeadDim; ++d) {
          const float value = layer.key(page, h, within, d);
          ASSERT_LE(std::abs(value - want.value[d]),
                    prepare_bound(Kv::bytes == 1, want.value[d], want.size[d]))
              << "key head " << h << " column " << d << " position " << position;
          ASSERT_EQ(value, rounded<Kv>(want.bits[d])) << "key head " << h << " column " << d;
          ASSERT_EQ(layer.value(page, h, within, d),
                    rounded<Kv>(in[static_cast<std::size_t>(layer.value_column() + h * HeadDim + d)]))
              << "value head " << h << " column " << d << " position " << position;
        }
      }
    }
    first += static_cast<std::size_t>(parts[i].rows + gap);
  }
}

TEST(Prepare, NormsTurnsAndWritesPages) {
  // Runs of rows that fill chunks, straddle them and cross a page; unused rows between.
  const std::vector<Sequence> parts{{0, 70, 1}, {5, 30, 2}, {63, 2, 3}, {100, 1, 4}};
  check_prepare<Bf16Kv, 64, float>({.heads = 3, .kv_heads = 1, .pairs = 8}, parts, 0, 0);
  check_prepare<Bf16Kv, 64, std::uint16_t>({.heads = 2, .kv_heads = 2, .pairs = 32}, parts, 1, 1);
  check_prepare<E4m3Kv, 64, std::uint16_t>({.heads = 2, .kv_heads = 1, .pairs = 16}, parts, 0, 2);
  check_prepare<E4m3Kv, 256, float>({.heads = 1, .kv_heads = 2, .pairs = 32}, {{7, 26, 5}}, 2, 3);
  check_prepare<Bf16Kv, 256, std::uint16_t>({.heads = 2, .kv_heads = 1, .pairs = 32}, {{7, 20, 5}}, 0, 4);
  check_prepare<Bf16Kv, 128, float>({.heads = 2, .kv_heads = 1, .pairs = 64, .gated = false}, {{60, 9, 6}}, 0,
                                    5);
  check_prepare<E4m3Kv, 128, float>({.heads = 1, .kv_heads = 1, .pairs = 0, .gated = false, .normed = false},
                                    {{60, 9, 6}}, 1, 6);
}

// ---- decode ----

struct Decoded {
  std::vector<std::uint16_t> out;  // [rows, heads * head_dim] of the parts' rows, one after another
  sim::LaunchStats stats;
};

struct DecodeRun {
  int gap = 0;
  int blocks = 0;  // 0: one a unit
  std::uint64_t page_seed = 1;
  std::uint64_t seed = 0;
};

template <class Kv, int HeadDim, int Tile, bool Windowed = false>
Decoded decode(Layer<Kv, HeadDim>& layer, const std::vector<Sequence>& parts,
               const std::vector<std::vector<std::int32_t>>& pages, DecodeRun run) {
  const Shape& shape = layer.shape();
  sim::Device& device = layer.device();
  const auto batch = layer.make_batch(parts, pages, run.gap);
  const float* projection = layer.template upload_projections<float>(parts, batch);
  std::int64_t slots = 0, units = 0;
  for (const Sequence& part : parts) {
    slots += slots_of(part.context + part.rows - 1, part.rows, shape.window);
    units += attend_units(part.context + part.rows - 1, part.rows, shape.heads, shape.kv_heads, Tile,
                          shape.window);
  }
  AttendParams attend{};
  attend.tables = batch.tables;
  attend.query = layer.prepare_rows(parts, batch, projection);
  attend.keys = layer.keys();
  attend.values = layer.values();
  attend.partial =
      static_cast<float*>(device.allocate(partial_bytes(slots, shape.heads, HeadDim), "partial"));
  attend.partial_scale =
      static_cast<float*>(device.allocate(partial_scale_bytes(slots, shape.heads), "partial scale"));
  attend.heads = shape.heads;
  attend.kv_heads = shape.kv_heads;
  attend.heads_per_kv = shape.heads / shape.kv_heads;
  attend.scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(HeadDim));
  attend.window = shape.window;
  Decoded decoded;
  decoded.stats = kernels::run_on_sim<AttendRow<Arch, Kv, HeadDim, Tile, Windowed>>(
      device, run.blocks ? run.blocks : static_cast<int>(units), attend);
  CombineParams combine{};
  combine.tables = batch.tables;
  combine.partial = attend.partial;
  combine.partial_scale = attend.partial_scale;
  combine.gate = shape.gated ? projection + HeadDim : nullptr;
  combine.gate_stride = layer.columns();
  combine.gate_head_stride = layer.head_stride();
  combine.heads = shape.heads;
  combine.window = shape.window;
  combine.sinks = shape.sinks.empty() ? nullptr : upload(device, shape.sinks, "sinks");
  const std::size_t width = static_cast<std::size_t>(shape.heads) * HeadDim;
  combine.out = device.allocate_array<std::uint16_t>(batch.rows.size() * width, "out");
  kernels::run_on_sim<CombineRow<Arch, HeadDim, Windowed>>(
      device, static_cast<int>(combine_blocks(batch.tables.row_limit, shape.heads)), combine);
  for (std::size_t row = 0; row < batch.rows.size(); ++row)
    if (batch.rows[row].sequence >= 0) {
      decoded.out.resize(decoded.out.size() + width);
      device.read_to_host(decoded.out.data() + decoded.out.size() - width, combine.out + row * width,
                          width * 2);
    }
  return decoded;
}

template <class Kv, int HeadDim, int Tile, bool Windowed = false>
void check_decode(Shape shape, const std::vector<Sequence>& parts, DecodeRun run = {}) {
  SCOPED_TRACE(testing::Message() << HeadDim << " " << Kv::name << " x" << Tile << " heads " << shape.heads
                                  << " seed " << run.seed);
  int page_count = 3;
  for (const Sequence& part : parts) page_count += (part.context + part.rows + 63) / 64;
  Layer<Kv, HeadDim> layer(shape, page_count, run.seed);
  const auto pages = draw_pages(parts, page_count, run.page_seed);
  layer.write_contexts(parts, pages);
  const Decoded decoded = decode<Kv, HeadDim, Tile, Windowed>(layer, parts, pages, run);
  for (const auto& site : decoded.stats.traffic)
    EXPECT_EQ(site.wavefronts, site.ideal) << "bank conflicts at " << site.file << ":" << site.line;
  // The same query rows once more, for the reference.
  const auto batch = layer.make_batch(parts, pages);
  const auto* rows = layer.prepare_rows(parts, batch, layer.template upload_projections<float>(parts, batch));
  const auto query = read_bf16(layer.device(), rows, decoded.out.size());
  check_rows(layer, parts, pages, query, floats(decoded.out), decode_sums);
}

TEST(Decode, AgreesWithDoublePrecision) {
  // Around the borders of pages (64) and splits (64, then 128 from 1,024 on), with one to eight rows.
  const std::vector<Sequence> few{{0, 1, 1}, {62, 4, 2}, {63, 1, 3}, {64, 8, 4}, {130, 1, 5}};
  check_decode<Bf16Kv, 64, 16>({.heads = 4, .kv_heads = 2}, few);
  check_decode<Bf16Kv, 64, 16>({.heads = 16, .kv_heads = 1}, few, {.gap = 1, .seed = 1});
  check_decode<Bf16Kv, 64, 32>({.heads = 5, .kv_heads = 1, .gated = false}, few, {.seed = 2});
  check_decode<Bf16Kv, 64, 64>({.heads = 9, .kv_heads = 1}, few, {.blocks = 3, .seed = 3});
  check_decode<E4m3Kv, 64, 16>({.heads = 4, .kv_heads = 2}, few, {.seed = 4});
  check_decode<E4m3Kv, 64, 64>({.heads = 9, .kv_heads = 1}, few, {.blocks = 5, .seed = 5});
  check_decode<Bf16Kv, 128, 16>({.heads = 2, .kv_heads = 1, .pairs = 64}, {{62, 4, 2}, {130, 1, 5}},
                                {.seed = 6});
  check_decode<E4m3Kv, 128, 32>({.heads = 3, .kv_heads = 1, .pairs = 64}, {{62, 4, 2}, {130, 1, 5}},
                                {.seed = 7});
  // A sharp softmax: one position takes nearly all.
  check_decode<Bf16Kv, 64, 16>({.heads = 4, .kv_heads = 1, .spread = 12.0}, few, {.seed = 8});
}

TEST(Decode, AgreesAtHeadsOf256) {
  const Shape shape{.heads = 8, .kv_heads = 1, .pairs = 32};
  check_decode<Bf16Kv, 256, 16>(shape, {{62, 2, 1}, {150, 1, 2}});
  check_decode<Bf16Kv, 256, 32>(shape, {{62, 4, 1}}, {.seed = 1});
  check_decode<Bf16Kv, 256, 64>(shape, {{126, 8, 1}}, {.seed = 2});
  check_decode<E4m3Kv, 256, 16>(shape, {{62, 2, 1}, {150, 1, 2}}, {.blocks = 2, .seed = 3});
  check_decode<E4m3Kv, 256, 64>(shape, {{126, 8, 1}}, {.seed = 4});
}

TEST(Decode, AgreesAcrossSplitTiers) {
  // Splits of several pages: 1,024 to 1,151 is the first of two; its border, and drafts across it.
  check_decode<Bf16Kv, 64, 16>({.heads = 1, .kv_heads = 1}, {{1'022, 4, 1}, {1'150, 3, 2}, {1'100, 1, 3}});
  check_decode<E4m3Kv, 64, 32>({.heads = 1, .kv_heads = 1}, {{1'150, 3, 2}}, {.seed = 1});
  // Two pages of 256 are more pieces than the ring holds: slots are filled again inside a split.
  check_decode<Bf16Kv, 256, 16>({.heads = 2, .kv_heads = 1, .pairs = 32}, {{1'150, 3, 2}}, {.seed = 2});
  check_decode<Bf16Kv, 256, 64>({.heads = 2, .kv_heads = 1, .pairs = 32}, {{1'150, 3, 2}},
                                {.blocks = 2, .seed = 3});
  check_decode<E4m3Kv, 256, 16>({.heads = 2, .kv_heads = 1, .pairs = 32}, {{4'400, 1, 2}}, {.seed = 4});
}

// ---- the same bits ----

// Every part alone, one row after another, in pages and grids of its own.
template <class Kv, int HeadDim, bool Windowed = false>
void check_same_bits(Shape shape, const std::vector<Sequence>& parts) {
  int page_count = 3;
  for (const Sequence& part : parts) page_count += (part.context + part.rows + 63) / 64;
  const auto run_all = [&](auto tile, DecodeRun run) {
    Layer<Kv, HeadDim> layer(shape, page_count, run.seed);
    const auto pages = draw_pages(parts, page_count, run.page_seed);
    layer.write_contexts(parts, pages);
    return decode<Kv, HeadDim, decltype(tile)::value, Windowed>(layer, parts, pages, run).out;
  };
  const auto together = run_all(std::integral_constant<int, 16>{}, {});
  EXPECT_EQ(together,
            run_all(std::integral_constant<int, 16>{}, {.gap = 2, .blocks = 1, .page_seed = 5, .seed = 6}));
  EXPECT_EQ(together, run_all(std::integral_constant<int, 32>{}, {.blocks = 3, .page_seed = 7, .seed = 8}));
  EXPECT_EQ(together, run_all(std::integral_constant<int, 64>{}, {.gap = 33, .page_seed = 9, .seed = 10}));
  std::vector<std::uint16_t> alone;
  for (const Sequence& part : parts) {
    Layer<Kv, HeadDim> layer(shape, page_count, 11);
    const auto pages = draw_pages({part}, page_count, 12);
    layer.write_contexts({part}, pages);
    for (int r = 0; r < part.rows; ++r) {
      const auto out =
          decode<Kv, HeadDim, 16, Windowed>(layer, {{part.context + r, 1, part.seed}}, pages, {}).out;
      alone.insert(alone.end(), out.begin(), out.end());
    }
  }
  EXPECT_EQ(together, alone);
}

TEST(Decode, GivesTheSameBitsInAnyBatchGridAndPageTable) {
  check_same_bits<Bf16Kv, 64>({.heads = 6, .kv_heads = 2}, {{61, 8, 1}, {127, 3, 2}, {0, 2, 3}});
  check_same_bits<E4m3Kv, 64>({.heads = 3, .kv_heads = 1}, {{61, 8, 1}, {190, 1, 2}});
  check_same_bits<Bf16Kv, 256>({.heads = 4, .kv_heads = 1, .pairs = 32}, {{62, 4, 1}});
}

// ---- windows and sinks ----

// Windows that begin inside a page, on its border, one position beside it, and in a split of several pages.
const std::vector<Sequence> kWindowed{{0, 1, 1}, {62, 4, 2}, {126, 8, 3}, {190, 3, 4}, {1'150, 5, 5}};

TEST(Decode, SeesTheWindowAlone) {
  check_decode<Bf16Kv, 64, 16, true>({.heads = 4, .kv_heads = 2, .window = 64}, kWindowed);
  check_decode<Bf16Kv, 64, 32, true>({.heads = 8, .kv_heads = 1, .gated = false, .window = 100}, kWindowed,
                                     {.gap = 1, .seed = 1});
  check_decode<E4m3Kv, 64, 64, true>({.heads = 9, .kv_heads = 1, .window = 3}, kWindowed,
                                     {.blocks = 3, .seed = 2});
  check_decode<Bf16Kv, 64, 16, true>({.heads = 2, .kv_heads = 1, .window = 1}, kWindowed, {.seed = 3});
}

// Where splits are of two and of four pages, and grow within the rows of a sequence; a window of more than 32
// pages.
TEST(Decode, SeesTheWindowFarBack) {
  const std::vector<Sequence> far{{4'094, 5, 1}, {5'000, 2, 2}};
  check_decode<Bf16Kv, 64, 16, true>(
      {.heads = 2, .kv_heads = 1, .gated = false, .window = 128, .sinks = {1, -1}}, far);
  check_decode<Bf16Kv, 64, 16, true>({.heads = 2, .kv_heads = 1, .gated = false, .window = 2'150}, far);
}

// Sinks far below every score, among them and far above all: the last leaves next to nothing of the values.
TEST(Decode, AddsTheSinkOnce) {
  const Shape shape{.heads = 4, .kv_heads = 2, .gated = false, .sinks = {-30.0f, 0.5f, 4.0f, 40.0f}};
  check_decode<Bf16Kv, 64, 16, true>(shape, kWindowed);
  Shape both = shape;
  both.window = 128;
  check_decode<E4m3Kv, 64, 32, true>(both, kWindowed, {.gap = 2, .seed = 1});
}

TEST(Decode, WindowsAndSinksGiveTheSameBitsInAnyBatch) {
  // Five rows that begin in different pages and splits: alone each leaves out other pages than together.
  check_same_bits<Bf16Kv, 64, true>({.heads = 6, .kv_heads = 2, .window = 65, .sinks = {0, 1, -1, 2, -2, 3}},
                                    {{61, 8, 1}, {127, 3, 2}, {0, 2, 3}, {1'086, 5, 4}});
  check_same_bits<E4m3Kv, 64, true>({.heads = 3, .kv_heads = 1, .window = 128, .sinks = {1, -4, 0}},
                                    {{188, 8, 1}, {1'214, 4, 2}});
}

// A row without window and sinks has the bits of the rows that know neither.
TEST(Decode, RowsForWindowsGiveTheUsualBitsWithoutOne) {
  const std::vector<Sequence> parts{{62, 4, 2}, {130, 1, 5}};
  Layer<Bf16Kv, 64> layer({.heads = 4, .kv_heads = 2}, 12, 1);
  const auto pages = draw_pages(parts, 12, 1);
  layer.write_contexts(parts, pages);
  EXPECT_EQ((decode<Bf16Kv, 64, 16>(layer, parts, pages, {}).out),
            (decode<Bf16Kv, 64, 16, true>(layer, parts, pages, {}).out));
}

TEST(Splits, OfAWindowFollowFromTheRowAlone) {
  for (const int window : {1, 64, 65, 128})
    for (int position = 0; position < 20'000; position += 7) {
      const int seen = first_seen(position, window);
      EXPECT_EQ(position - seen + 1, std::min(window, position + 1));
      EXPECT_EQ(split_count(position, position, window), split_of(position) - split_of(seen) + 1);
      EXPECT_EQ(slots_of(position + 3, 4, window), 4 * (split_of(position + 3) - split_of(seen) + 1));
    }
  EXPECT_EQ(first_seen(20'000, 0), 0);
}

// ---- long contexts ----

// Proofs of `verify` whose weight lies on planted positions at every border, all pages distinct: a page
// number, a reload of page numbers or a split that is wrong loses one of them.
void expect_proved(const plan::ArchFacts& arch, const char* row_name, int variant) {
  SCOPED_TRACE(row_name);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.arch = &arch});
  const auto& rows = machine->rows(kernels::RowKind::step);
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const plan::RowFacts& facts) { return facts.row == row_name; });
  ASSERT_NE(row, rows.end()) << row_name;
  const verify::Result result = verify::run_step_case(*machine, {*row, "", variant, 7}, true);
  EXPECT_EQ(result.failure, "");
  EXPECT_TRUE(result.passed()) << result.shape;
}

TEST(Decode, FindsEveryBorderUpToPosition262143) {
  expect_proved(plan::kSm120, "attend 64 bf16 x16", 3);
  expect_proved(plan::kSm120, "attend 64 fp8 x16", 3);
  expect_proved(plan::kSm120, "attend 64 bf16 x16 window", 3);
}

TEST(Prompt, FindsEveryBorderBeyond2048) {
  expect_proved(plan::kSm120, "attend_prompt 64 bf16 mma", 3);
  expect_proved(plan::kSm120, "attend_prompt 64 fp8 mma", 3);
  expect_proved(plan::kSm90, "attend_prompt 64 bf16 wgmma", 3);
}

}  // namespace
}  // namespace fourfold::attention
