// Latent attention on the simulator against double precision and against itself: in other batches, grids,
// page tables, tiles and launches a row's bits are the same. Its proofs at more shapes are those of `fourfold
// verify` (kernels/verify/step_latent_case.cpp), which the mutation tests run as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/bf16.h"
#include "base/random.h"
#include "kernels/attention/rows.h"
#include "kernels/launch/sim_row.h"
#include "kernels/mla/reference.h"
#include "kernels/mla/rows.h"
#include "plan/arch.h"
#include "sim/device.h"

namespace fourfold::mla {
namespace {

using Arch = plan::Sm120;

// A sequence's new rows stand at positions context to context + rows - 1; its numbers are a function of seed
// and position alone.
struct Part {
  int context = 0;
  int rows = 1;
  std::uint64_t seed = 1;
  int last() const { return context + rows - 1; }
};

struct How {
  int gap = 0;     // rows and sequences without anything, between the parts
  int blocks = 0;  // 0: one a unit
  std::uint64_t page_seed = 1;
  std::uint64_t seed = 0;
  bool check_banks = false;
  int growth = 0;  // positions of one scale; 0: all of them

  double factor(int position) const { return growth == 0 ? 1 : 1 + 0.25 * (position / growth); }
};

std::vector<std::uint16_t> numbers(std::uint64_t seed, int position, int count, double size) {
  Random random(seed * 1'000'003 + static_cast<std::uint64_t>(position));
  std::vector<std::uint16_t> out;
  for (int i = 0; i < count; ++i) out.push_back(to_bf16(static_cast<float>(size * random.normal())).bits);
  return out;
}
float value_of(std::uint16_t bits) { return to_float(Bf16{bits}); }

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* to = device.allocate_array<T>(std::max<std::size_t>(values.size(), 1), name);
  device.write_from_host(to, values.data(), values.size() * sizeof(T));
  return to;
}

// The parts in device memory: pages drawn without order, whose bytes nobody has written are NaN.
template <class Page>
struct Batch {
  sim::Device device;
  std::vector<step::RowPlace> rows;
  std::vector<step::SequencePlace> sequences;
  std::vector<unsigned char> bytes;
  std::int64_t slots = 0;
  AttendParams params{};

  Batch(const std::vector<Part>& parts, int heads, const How& how) {
    device.set_seed(how.seed);
    int page_count = 2;
    for (const Part& part : parts) page_count += part.last() / kPageTokens + 1;
    for (int i = 0; i < page_count; ++i) pool.push_back(i);
    Random random(how.page_seed);
    for (std::size_t i = pool.size() - 1; i > 0; --i) std::swap(pool[i], pool[random.below(i + 1)]);
    bytes.assign(static_cast<std::size_t>(page_count) * Page::page_bytes, 0xFF);
    for (const Part& part : parts) add(part, heads, how.gap);
    params.tables = {upload(device, rows, "row places"), upload(device, sequences, "sequences"),
                     upload(device, page_numbers, "page numbers"), static_cast<std::int32_t>(rows.size()),
                     static_cast<std::int32_t>(sequences.size())};
    params.query = upload(device, query, "query");
    params.pages = upload(device, bytes, "pages");
    params.heads = heads;
    params.scale_log2 = static_cast<float>(1.4426950408889634 / std::sqrt(Page::width));
    params.growth_positions = how.growth;
    if (how.growth > 0) {
      std::vector<float> grown;
      for (int p = 0; p <= longest; p += how.growth)
        grown.push_back(static_cast<float>(params.scale_log2 * how.factor(p)));
      params.grown_scale = upload(device, grown, "grown scale");
    }
    const std::size_t width = static_cast<std::size_t>(heads * Page::latent);
    params.out = device.allocate_array<std::uint16_t>(rows.size() * width, "out");
    params.partial = device.allocate_array<float>(static_cast<std::size_t>(slots) * width, "partial");
    params.partial_scale =
        device.allocate_array<float>(static_cast<std::size_t>(slots * heads) * 2, "partial scale");
  }

 private:
  void add(const Part& part, int heads, int gap) {
    const auto page_begin = static_cast<std::int32_t>(page_numbers.size());
    sequences.push_back({static_cast<std::int32_t>(rows.size()), part.rows, part.context, 0, page_begin, {}});
    for (int p = 0; p <= part.last(); ++p) {
      if (p % kPageTokens == 0) page_numbers.push_back(pool.back()), pool.pop_back();
      const auto row = numbers(part.seed, p, Page::width, 1.0);
      for (int d = 0; d < Page::width; ++d)
        std::memcpy(bytes.data() + static_cast<std::size_t>(page_numbers.back()) * Page::page_bytes +
                        Page::offset(p % kPageTokens, d),
                    &row[static_cast<std::size_t>(d)], 2);
    }
    for (int r = 0; r < part.rows; ++r) {
      rows.push_back({static_cast<std::int32_t>(sequences.size()) - 1, part.context + r, 0, page_begin});
      const auto row = numbers(part.seed + 77, part.context + r, heads * Page::width, 1.5);
      query.insert(query.end(), row.begin(), row.end());
    }
    for (int g = 0; g < gap; ++g) {
      rows.push_back({-1, 0, 0, 0});
      sequences.push_back({0, 0, 0, 0, 0, {}});
      query.insert(query.end(), static_cast<std::size_t>(heads * Page::width), 0xFFFF);
    }
    slots += attention::slots_of(part.last(), part.rows);
    longest = std::max(longest, part.last());
  }
  int longest = 0;
  std::vector<std::int32_t> pool, page_numbers{-1};
  std::vector<std::uint16_t> query;
};

template <class Page>
void combine_splits(Batch<Page>& batch) {
  using Combine = std::conditional_t<Page::latent == 512, CombineLatentRow<Arch>,
                                     attention::CombineRow<Arch, Page::latent == 512 ? 64 : Page::latent>>;
  attention::CombineParams combine{};
  combine.tables = batch.params.tables;
  combine.partial = batch.params.partial;
  combine.partial_scale = batch.params.partial_scale;
  combine.heads = batch.params.heads;
  combine.out = batch.params.out;
  kernels::run_on_sim<Combine>(
      batch.device, static_cast<int>(attention::combine_blocks(combine.tables.row_limit, combine.heads)),
      combine);
}

// What attention gives for every row of the parts, in order: [rows][heads][latent].
template <class Row>
std::vector<std::uint16_t> attend(const std::vector<Part>& parts, int heads, How how) {
  using Page = typename Row::Page;
  Batch<Page> batch(parts, heads, how);
  std::int64_t units = 0;
  for (const Part& part : parts)
    units += Row::is_prompt ? vector_tiles(part.rows, heads, Row::tile)
                            : attend_units(part.last(), part.rows, heads, Row::tile);
  const auto stats =
      kernels::run_on_sim<Row>(batch.device, how.blocks ? how.blocks : static_cast<int>(units), batch.params);
  if (how.check_banks) {
    for (const auto& site : stats.traffic)
      EXPECT_EQ(site.wavefronts, site.ideal) << "bank conflicts at " << site.file << ":" << site.line;
  }
  if constexpr (!Row::is_prompt) combine_splits(batch);
  const std::size_t width = static_cast<std::size_t>(heads * Page::latent);
  std::vector<std::uint16_t> out;
  for (std::size_t row = 0; row < batch.rows.size(); ++row)
    if (batch.rows[row].sequence >= 0) {
      out.resize(out.size() + width);
      batch.device.read_to_host(out.data() + out.size() - width, batch.params.out + row * width, width * 2);
    }
  return out;
}

template <class Row>
void check_bounds(const std::vector<Part>& parts, int heads, How how = {}) {
  SCOPED_TRACE(Row::name());
  using Page = typename Row::Page;
  how.check_banks = true;
  const auto out = attend<Row>(parts, heads, how);
  std::size_t at = 0;
  for (const Part& part : parts) {
    std::vector<std::vector<std::uint16_t>> cache;
    for (int p = 0; p <= part.last(); ++p) cache.push_back(numbers(part.seed, p, Page::width, 1.0));
    for (int r = 0; r < part.rows; ++r) {
      const int position = part.context + r;
      std::vector<float> query;
      for (const std::uint16_t bits : numbers(part.seed + 77, position, heads * Page::width, 1.5))
        query.push_back(value_of(bits));
      for (int h = 0; h < heads; ++h) {
        const auto want = attended(
            query.data() + h * Page::width, Page::latent, Page::width,
            how.factor(position) / std::sqrt(Page::width), position,
            [&](int p, int d) {
              return value_of(cache[static_cast<std::size_t>(p)][static_cast<std::size_t>(d)]);
            },
            Row::is_prompt
                ? prompt_roundings(position, Page::width, std::string_view(Row::products) == "wgmma")
                : decode_roundings(position, Page::width));
        for (const Bounded& bounded : want)
          ASSERT_NEAR(value_of(out[at++]), bounded.value, bounded.error) << "position " << position;
      }
    }
  }
  EXPECT_EQ(at, out.size());
}

template <int Latent, int Tile>
using Decode = AttendLatentRow<Arch, Latent, Tile, false>;
template <int Latent, int Tile>
using Prompt = AttendLatentRow<Arch, Latent, Tile, true>;
template <int Latent>
using Wgmma = PromptLatentWgmmaRow<plan::Sm90, Latent>;

// Drafts over a border of pages and splits, one row alone, several pages.
const std::vector<Part> kParts{{62, 4, 1}, {0, 1, 2}, {170, 2, 3}};

TEST(LatentAttention, AgreesWithDoublePrecision) {
  check_bounds<Decode<64, 16>>(kParts, 5, {.gap = 1, .blocks = 3});
  check_bounds<Decode<64, 32>>(kParts, 11);
  check_bounds<Decode<512, 16>>({{62, 3, 1}}, 5);
  check_bounds<Decode<512, 32>>({{62, 3, 1}}, 12);
  check_bounds<Decode<256, 32>>({{62, 3, 1}}, 12);
  check_bounds<Prompt<64, 16>>(kParts, 3);
  check_bounds<Prompt<64, 32>>({{0, 40, 1}, {70, 3, 2}}, 3, {.gap = 2, .blocks = 2});
  check_bounds<Prompt<512, 32>>({{50, 20, 1}}, 3);
}

// Blocks that begin inside a row's heads, rows over a border of pages, a second warpgroup without vectors,
// tails of pages that were never written, and a page that only the block's last rows see.
TEST(LatentAttention, OnHopperAgreesWithDoublePrecision) {
  check_bounds<Wgmma<64>>(kParts, 5, {.gap = 1, .blocks = 2});
  check_bounds<Wgmma<64>>({{0, 130, 1}, {70, 3, 2}}, 3, {.gap = 2, .blocks = 2, .seed = 3});
  check_bounds<Wgmma<256>>({{50, 20, 1}}, 7, {.seed = 4});
  check_bounds<Wgmma<512>>({{50, 20, 1}, {129, 1, 2}}, 5, {.blocks = 1, .seed = 5});
}

// Page numbers are read 32 at a time, splits grow at 1,024, 4,096 and 16,384: every page is another, and
// counts.
TEST(LatentAttention, AgreesWithDoublePrecisionFarBack) {
  check_bounds<Prompt<64, 16>>({{2'046, 4, 1}, {4'160, 1, 2}}, 2);
  check_bounds<Prompt<64, 32>>({{2'100, 12, 3}}, 3);
  check_bounds<Decode<64, 16>>({{1'022, 4, 1}, {4'094, 4, 2}, {16'900, 1, 3}}, 2, {.blocks = 7});
  check_bounds<Decode<64, 32>>({{2'300, 2, 4}}, 11);
  check_bounds<Wgmma<64>>({{2'046, 4, 1}, {4'160, 1, 2}}, 2);
}

// Rows on both sides of where the scale grows, which is no border of pages.
TEST(LatentAttention, AScaleThatGrowsIsTheRowsOwn) {
  check_bounds<Decode<64, 16>>(kParts, 5, {.growth = 65});
  check_bounds<Prompt<64, 32>>({{0, 40, 1}, {70, 3, 2}}, 3, {.growth = 24});
  check_bounds<Wgmma<64>>({{0, 40, 1}, {70, 3, 2}}, 3, {.growth = 24});
}

// Every part alone, and in other company.
template <class Row>
void check_same_bits(const std::vector<Part>& parts, int heads) {
  SCOPED_TRACE(Row::name());
  const auto together = attend<Row>(parts, heads, {});
  EXPECT_EQ(together, attend<Row>(parts, heads, {.gap = 2, .blocks = 1, .page_seed = 5, .seed = 6}));
  EXPECT_EQ(together, attend<Row>(parts, heads, {.gap = 33, .blocks = 3, .page_seed = 7, .seed = 8}));
  std::vector<std::uint16_t> alone;
  for (const Part& part : parts)
    for (int r = 0; r < part.rows; ++r) {
      const auto out = attend<Row>({{part.context + r, 1, part.seed}}, heads, {.page_seed = 9});
      alone.insert(alone.end(), out.begin(), out.end());
    }
  EXPECT_EQ(together, alone);
}

TEST(LatentAttention, GivesTheSameBitsInAnyBatchGridAndPageTable) {
  check_same_bits<Decode<64, 16>>(kParts, 5);
  check_same_bits<Decode<64, 32>>(kParts, 11);
  check_same_bits<Prompt<64, 16>>(kParts, 5);
  check_same_bits<Prompt<64, 32>>(kParts, 11);
  check_same_bits<Decode<512, 32>>({{62, 3, 1}}, 12);
  check_same_bits<Wgmma<64>>(kParts, 11);
  check_same_bits<Wgmma<64>>({{40, 50, 1}}, 3);
  check_same_bits<Wgmma<256>>({{62, 3, 1}}, 12);
  check_same_bits<Wgmma<512>>({{62, 3, 1}}, 25);
}

TEST(LatentAttention, GivesTheSameBitsInTilesOf16And32) {
  EXPECT_EQ((attend<Decode<64, 16>>(kParts, 11, {})), (attend<Decode<64, 32>>(kParts, 11, {.seed = 4})));
  EXPECT_EQ((attend<Prompt<64, 16>>(kParts, 11, {})), (attend<Prompt<64, 32>>(kParts, 11, {.seed = 4})));
  EXPECT_EQ((attend<Decode<512, 16>>({{60, 8, 1}}, 3, {})), (attend<Decode<512, 32>>({{60, 8, 1}}, 3, {})));
  EXPECT_EQ((attend<Prompt<256, 16>>({{60, 8, 1}}, 3, {})), (attend<Prompt<256, 32>>({{60, 8, 1}}, 3, {})));
}

// ---- a matrix for each head ----

// Rows of f32 or bf16 of the same numbers.
template <class Row>
std::vector<std::uint16_t> multiply(int first, int rows, int heads, int in, int out) {
  using Element = typename Row::Element;
  sim::Device device;
  std::vector<Element> input;
  for (int r = first; r < first + rows; ++r)
    for (const std::uint16_t bits : numbers(3, r, heads * in, 1.0))
      if constexpr (std::is_same_v<Element, float>)
        input.push_back(value_of(bits));
      else
        input.push_back(bits);
  HeadLinearParams params{};
  params.in = upload(device, input, "in");
  params.in_stride = heads * in;
  params.in_head_stride = params.in_columns = in;
  params.weight = upload(device, numbers(4, 0, heads * in * out, 1.0), "weight");
  params.weight_stride = Row::transposed ? out : in;
  params.heads = heads;
  params.out = device.allocate_array<std::uint16_t>(static_cast<std::size_t>(rows * heads * out), "out");
  params.out_columns = params.out_head_stride = out;
  params.out_stride = heads * out;
  params.row_count = rows;
  kernels::run_on_sim<Row>(device, static_cast<int>(head_linear_blocks(rows, heads, out, Row::tokens)),
                           params);
  std::vector<std::uint16_t> result(static_cast<std::size_t>(rows * heads * out));
  device.read_to_host(result.data(), params.out, result.size() * 2);
  return result;
}

template <bool Transposed>
void check_rows_alone(int in, int out) {
  using Few = HeadLinearRow<Arch, Transposed, std::uint16_t, 16>;
  using Many = HeadLinearRow<Arch, Transposed, std::uint16_t, 32>;
  const auto together = multiply<Many>(0, 37, 3, in, out);
  EXPECT_EQ(together, multiply<Few>(0, 37, 3, in, out));
  EXPECT_EQ(together, (multiply<HeadLinearRow<Arch, Transposed, float, 16>>(0, 37, 3, in, out)));
  std::vector<std::uint16_t> alone;
  for (int r = 0; r < 37; ++r) {
    const auto row = multiply<Few>(r, 1, 3, in, out);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  EXPECT_EQ(together, alone);
}

TEST(HeadLinear, GivesTheSameBitsForARowAloneAndAmongOthers) {
  check_rows_alone<true>(64, 80);
  check_rows_alone<false>(72, 128);
}

// ---- launches of few rows ---- each gives the bits of those it takes the place of

struct FewRows {
  int heads, plain, latent, pairs = 32;
  std::vector<Part> parts;
};

// The pages, then the query vectors: by one launch, or by latent_rows, turn_queries and head_linear.
template <int Latent>
std::vector<std::uint16_t> prepare_few(const FewRows& few, bool joined, std::uint64_t seed = 0) {
  using Page = LatentPage<Latent, kPanelColumns>;
  Batch<Page> batch(few.parts, few.heads, {.seed = seed});
  const auto rows = static_cast<int>(batch.rows.size());
  const int in_width = few.latent + 2 * few.pairs, width = few.heads * (few.plain + 2 * few.pairs);
  const auto floats = [&](std::uint64_t from, int count) {
    std::vector<float> out;
    for (const std::uint16_t bits : numbers(from, 0, count, 1.0)) out.push_back(value_of(bits));
    return upload(batch.device, out, "numbers");
  };
  const std::vector<unsigned char> empty(batch.bytes.size(), 0x11);
  AbsorbParams params{};
  params.cache.tables = params.turn.tables = batch.params.tables;
  params.cache.projection = floats(21, rows * in_width);
  params.cache.projection_stride = in_width;
  params.cache.latent_columns = params.turn.latent_columns = params.absorb.out_columns = few.latent;
  params.cache.latent_weight = floats(22, few.latent);
  params.cache.latent_epsilon = 1e-6f;
  params.cache.key_column = few.latent;
  params.cache.rotary_pairs = params.turn.rotary_pairs = few.pairs;
  params.cache.rotary = params.turn.rotary = floats(23, 200 * 2 * few.pairs);
  params.cache.pages = upload(batch.device, empty, "written pages");
  params.turn.projection = params.absorb.in = floats(24, rows * width);
  params.turn.projection_stride = params.absorb.in_stride = width;
  params.turn.column = few.heads * few.plain;
  params.turn.heads = params.absorb.heads = few.heads;
  const std::size_t size = static_cast<std::size_t>(rows * few.heads * Page::width);
  params.turn.query = params.absorb.out =
      upload(batch.device, std::vector<std::uint16_t>(size, 0x2222), "written queries");
  params.turn.page_latent = Latent;
  params.absorb.in_head_stride = params.absorb.in_columns = few.plain;
  params.absorb.weight =
      upload(batch.device, numbers(25, 0, few.heads * few.plain * few.latent, 1.0), "weight");
  params.absorb.weight_stride = few.latent;
  params.absorb.out_stride = few.heads * Page::width;
  params.absorb.out_head_stride = Page::width;
  params.absorb.row_count = rows;
  params.turn_blocks = static_cast<int>(turn_queries_blocks(rows, few.heads));
  if (joined) {
    params.cache_blocks = static_cast<int>(warp_blocks(rows));
    kernels::run_on_sim<AbsorbRow<Arch, Latent>>(batch.device, static_cast<int>(absorb_blocks(params)),
                                                 params);
  } else {
    kernels::run_on_sim<LatentRowsRow<Arch, Latent, float>>(
        batch.device, static_cast<int>(latent_rows_blocks(rows)), params.cache);
    kernels::run_on_sim<TurnQueriesRow<Arch, float>>(batch.device, params.turn_blocks, params.turn);
    kernels::run_on_sim<HeadLinearRow<Arch, true, float, 32>>(
        batch.device, static_cast<int>(head_linear_blocks(rows, few.heads, few.latent, 32)), params.absorb);
  }
  std::vector<std::uint16_t> out(size + empty.size() / 2);
  batch.device.read_to_host(out.data(), params.turn.query, 2 * size);
  batch.device.read_to_host(out.data() + size, params.cache.pages, empty.size());
  return out;
}

template <int Latent>
void check_prepared(const FewRows& few) {
  const auto apart = prepare_few<Latent>(few, false);
  EXPECT_EQ(apart, prepare_few<Latent>(few, true));
  EXPECT_EQ(apart, prepare_few<Latent>(few, true, 5));
}

TEST(AbsorbQueries, GivesTheBitsOfThreeLaunches) {
  check_prepared<64>({.heads = 3, .plain = 40, .latent = 48, .pairs = 8, .parts = kParts});
  check_prepared<256>({.heads = 5, .plain = 64, .latent = 256, .parts = {{7, 1, 1}}});
  check_prepared<512>({.heads = 2, .plain = 160, .latent = 512, .parts = {{62, 9, 1}, {3, 4, 2}}});
}

// What attention left, then the heads' results: by one launch, or by combine and head_linear.
template <int Latent>
std::vector<std::uint16_t> expand_few(const std::vector<Part>& parts, int heads, int in, int out, bool joined,
                                      std::uint64_t seed = 0) {
  using Page = LatentPage<Latent, kPanelColumns>;
  Batch<Page> batch(parts, heads, {.seed = seed});
  const auto rows = static_cast<int>(batch.rows.size());
  const auto floats = [&](std::uint64_t from, std::int64_t count, double size) {
    std::vector<float> numbers_of;
    for (const std::uint16_t bits : numbers(from, 0, static_cast<int>(count), size))
      numbers_of.push_back(size > 0 ? value_of(bits) : std::abs(value_of(bits)));
    return upload(batch.device, numbers_of, "numbers");
  };
  CombineExpandParams params{};
  params.combine.tables = batch.params.tables;
  params.combine.partial = floats(31, batch.slots * heads * Latent, 4.0);
  params.combine.partial_scale = floats(32, batch.slots * heads * 2, -3.0);
  params.combine.heads = params.expand.heads = heads;
  params.combine.out = batch.params.out;
  params.expand.in = batch.params.out;
  params.expand.in_head_stride = Latent;
  params.expand.in_stride = heads * Latent;
  params.expand.in_columns = in;
  params.expand.weight = upload(batch.device, numbers(33, 0, heads * out * Latent, 1.0), "weight");
  params.expand.weight_stride = Latent;
  params.expand.out_columns = params.expand.out_head_stride = out;
  params.expand.out_stride = heads * out + 24;
  params.expand.pad_columns = 24;
  params.expand.row_count = rows;
  std::vector<std::uint16_t> result(static_cast<std::size_t>(rows) * (heads * out + 24), 0x3333);
  params.expand.out = upload(batch.device, result, "written");
  if (joined) {
    kernels::run_on_sim<CombineExpandRow<Arch, Latent>>(
        batch.device, static_cast<int>(combine_expand_blocks(rows, heads, out)), params);
  } else {
    batch.params.partial = const_cast<float*>(params.combine.partial);
    batch.params.partial_scale = const_cast<float*>(params.combine.partial_scale);
    combine_splits(batch);
    kernels::run_on_sim<HeadLinearRow<Arch, false, std::uint16_t, 16>>(
        batch.device, static_cast<int>(head_linear_blocks(rows, heads, out, 16)), params.expand);
  }
  batch.device.read_to_host(result.data(), params.expand.out, 2 * result.size());
  return result;
}

template <int Latent>
void check_expanded(const std::vector<Part>& parts, int heads, int in, int out) {
  const auto apart = expand_few<Latent>(parts, heads, in, out, false);
  EXPECT_EQ(apart, expand_few<Latent>(parts, heads, in, out, true));
  EXPECT_EQ(apart, expand_few<Latent>(parts, heads, in, out, true, 5));
}

TEST(CombineExpand, GivesTheBitsOfTwoLaunches) {
  check_expanded<64>({{62, 2, 1}, {1'300, 1, 2}}, 3, 40, 80);
  check_expanded<256>({{100, 1, 1}}, 3, 256, 128);
  check_expanded<512>({{70, 2, 1}}, 2, 488, 128);
}

}  // namespace
}  // namespace fourfold::mla
