// The proofs of latent attention (kernels/mla): the softmax over latent pages, for generated rows (together
// with combine, which has a proof of its own) and for prompts; the kernels that make its inputs; the matrix
// of each head. Unwritten places of a page hold NaN.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention/attention_params.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/reference.h"
#include "kernels/verify/latent_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using mla::kPageTokens;
using mla::kPanelColumns;

constexpr double kLog2E = 1.4426950408889634;

// ---- softmax over pages ----

struct LatentInputs {
  AttentionShape shape;
  int latent, width;
  double scale;
  int growth_positions;       // 0: the scale does not grow
  std::vector<float> scales;  // else: log2's, of every so many positions
  AttentionBatch batch;
  LatentCache cache;
  std::vector<float> query;  // [rows, heads, width], bf16 numbers
  std::uint16_t* device_query = nullptr;
  const float* device_scales = nullptr;
  unsigned char* pages = nullptr;

  LatentInputs(StepRun& run, AttentionShape of)
      : shape(std::move(of)),
        latent(run.test().row.head_dim),
        width(latent + kPanelColumns),
        scale(1.0 / std::sqrt(width)),
        growth_positions(run.test().variant == 2 ? 48 : 0),
        batch(make_batch(run, shape)),
        cache(latent, batch.page_count) {
    describe(run, shape);
    for (std::size_t i = 0; i < shape.parts.size(); ++i) fill(run, i);
    query = run.normals(size(width), 1.5);
    // The turned columns look for the planted positions, whose latents differ: a position that is missed, by
    // a wrong page number or a wrong split, is an error far beyond the bound.
    for (std::size_t i = 0; i < shape.parts.size(); ++i)
      if (shape.parts[i].planted)
        for (int r = 0; r < shape.parts[i].rows; ++r)
          for (int h = 0; h < shape.heads; ++h)
            for (int d = 0; d < width; ++d)
              query[at(i, r, h, width) + static_cast<std::size_t>(d)] *= d < latent ? 0.01f : 0.1f;
    for (std::size_t i = 0; i < shape.parts.size(); ++i)
      if (shape.parts[i].planted)
        for (int r = 0; r < shape.parts[i].rows; ++r)
          for (int h = 0; h < shape.heads; ++h)
            for (int d = latent; d < width; ++d)
              query[at(i, r, h, width) + static_cast<std::size_t>(d)] += kPlantedQuery * planted_sign(d);
    std::vector<std::uint16_t> halves;
    for (float& value : query) {
      value = to_float(to_bf16(value));
      halves.push_back(to_bf16(value).bits);
    }
    device_query = run.upload(halves, "query");
    for (const AttentionPart& part : shape.parts)
      for (int step = static_cast<int>(scales.size());
           growth_positions > 0 && step <= part.last() / growth_positions; ++step)
        scales.push_back(static_cast<float>(kLog2E * scale * (1 + 0.3 * std::log(1.0 + step))));
    device_scales = run.upload(scales, "scales");
    pages = run.upload(cache.bytes, "pages");
  }
  std::size_t size(int columns) const {
    return batch.rows.size() * static_cast<std::size_t>(shape.heads * columns);
  }
  std::size_t at(std::size_t part, int row, int head, int columns) const {
    return static_cast<std::size_t>(((batch.first_row[part] + row) * shape.heads + head) * columns);
  }
  mla::AttendParams params() const {
    mla::AttendParams params{};
    params.tables = batch.tables;
    params.query = device_query;
    params.pages = pages;
    params.heads = shape.heads;
    params.scale_log2 = static_cast<float>(kLog2E * scale);
    params.growth_positions = growth_positions;
    params.grown_scale = device_scales;
    return params;
  }
  double scale_at(int position) const {
    return growth_positions == 0
               ? scale
               : double{scales[static_cast<std::size_t>(position / growth_positions)]} / kLog2E;
  }

 private:
  // Between plants one page is as good as another: the first is drawn, the others are copies of it.
  void fill(StepRun& run, std::size_t index) {
    const AttentionPart& part = shape.parts[index];
    const std::vector<std::int32_t>& numbers = batch.pages[index];
    for (int p = 0; p <= part.last(); ++p) {
      const int page = p / kPageTokens;
      if (part.planted && page > 0 && page < part.last() / kPageTokens) {
        if (p % kPageTokens == 0)
          std::copy_n(
              cache.bytes.data() + static_cast<std::size_t>(numbers[0]) * cache.offsets.page_bytes,
              cache.offsets.page_bytes,
              cache.bytes.data() + static_cast<std::size_t>(numbers[page]) * cache.offsets.page_bytes);
        continue;
      }
      for (int d = 0; d < width; ++d)
        cache.put(numbers, p, d, (part.planted && d >= latent ? 0.5 : 1.0) * run.random.normal());
    }
    if (!part.planted) return;
    // Their score is 12: e^12 outweighs a quarter of a million positions of usual scores.
    const double planted = 12.0 / (kPlantedQuery * kPanelColumns * scale);
    for (const int p : planted_positions(run, part))
      for (int d = 0; d < width; ++d)
        cache.put(numbers, p, d, d < latent ? 4.0 * run.random.normal() : planted * planted_sign(d));
  }
};

// roundings_at(position, width): mla::Roundings.
template <class RoundingsAt>
void check_attended(StepRun& run, const LatentInputs& in, const std::uint16_t* out,
                    const RoundingsAt& roundings_at) {
  const auto width = static_cast<std::size_t>(in.width);
  for (std::size_t i = 0; i < in.shape.parts.size(); ++i) {
    // Read once: every row and head asks for all of it, twice.
    std::vector<float> numbers;
    numbers.reserve(static_cast<std::size_t>(in.shape.parts[i].last() + 1) * width);
    for (int p = 0; p <= in.shape.parts[i].last(); ++p)
      for (int d = 0; d < in.width; ++d) numbers.push_back(in.cache.number(in.batch.pages[i], p, d));
    for (const int r : run.sample(in.shape.parts[i].rows, 6))
      for (const int h : run.sample(in.shape.heads, 4)) {
        const int position = in.shape.parts[i].context + r;
        const auto want = mla::attended(
            in.query.data() + in.at(i, r, h, in.width), in.latent, in.width, in.scale_at(position), position,
            [&](int p, int d) {
              return numbers[static_cast<std::size_t>(p) * width + static_cast<std::size_t>(d)];
            },
            roundings_at(position, in.width));
        const auto got = run.written(out + in.at(i, r, h, in.latent), static_cast<std::size_t>(in.latent));
        for (int d = 0; d < in.latent; ++d)
          run.compare_bound(bf16_value(got[static_cast<std::size_t>(d)]),
                            want[static_cast<std::size_t>(d)].value, want[static_cast<std::size_t>(d)].error);
      }
  }
}

// All heads of DeepSeek-V3, and those of a rank of eight.
int large_heads(const StepRun& run) { return run.test().variant == 0 ? 128 : 16; }

std::int64_t blocks_for(const StepRun& run, std::int64_t units) {
  return run.test().variant % 2 == 1 && !run.test().large ? std::min<std::int64_t>(units, 3) : units;
}

}  // namespace

void prove_attend_latent(StepRun& run) {
  // Drafts across the border of a page and split, a row alone, a last tile that is not full.
  const int tile = run.test().row.m;
  AttentionShape shape = latent_shape(run, {{62, 4}, {0, 1}, {130, 1}});
  shape.heads = tile == 16 ? 5 : 11;  // tiles of vectors begin inside a row
  if (run.test().variant == 1) {      // splits of several pages
    shape.parts = {{1'150, 3}, {1'022, 4}};
    shape.heads = 2;
  }
  if (run.test().variant > 1) shape.parts = {{run.below(300), 1 + run.below(8)}, {run.below(100), 1}};
  if (is_long_context(run.test())) {
    shape.parts = {{.context = 33'000, .rows = 2, .planted = true}};
    shape.heads = 1;
  }
  if (run.test().large) {
    shape.parts = {{8'191, 1}, {4'095, 4}, {2'047, 8}, {40, 1}, {1'023, 2}};
    shape.heads = large_heads(run);
  }
  const LatentInputs in(run, shape);
  std::int64_t slots = 0, units = 0;
  for (const AttentionPart& part : shape.parts) {
    slots += attention::slots_of(part.last(), part.rows);
    units += mla::attend_units(part.last(), part.rows, shape.heads, tile);
  }
  const std::size_t vectors = static_cast<std::size_t>(slots * shape.heads);
  mla::AttendParams attend = in.params();
  attend.partial = run.take<float>(vectors * static_cast<std::size_t>(in.latent), "partial");
  attend.partial_scale = run.take<float>(2 * vectors, "partial scale");
  run.launch(run.test().row.row, blocks_for(run, units), attend);
  attention::CombineParams combine{};
  combine.tables = in.batch.tables;
  combine.partial = attend.partial;
  combine.partial_scale = attend.partial_scale;
  combine.heads = shape.heads;
  combine.out = run.take<std::uint16_t>(in.size(in.latent), "out");
  run.launch(attention::combine_row(in.latent),
             attention::combine_blocks(in.batch.tables.row_limit, shape.heads), combine);
  check_attended(run, in, combine.out, mla::decode_roundings);
}

void prove_attend_latent_prompt(StepRun& run) {
  // Rows across a border of pages; a row alone; blocks that begin inside a row's heads.
  const bool wgmma = run.test().row.producer_warps > 0;
  AttentionShape shape = latent_shape(run, {{50, 20}, {70, 1}});
  shape.heads = 3;
  if (run.test().variant == 1) shape.parts = {{0, 70}, {5, 7}, {0, 3}};
  // Blocks of more vectors, whose ring of whole pages wraps inside a unit and between units.
  if (wgmma && run.test().variant < 2) {
    shape.parts = {{290, 20}, {70, 1}};
    if (run.test().variant == 1) shape.parts = {{170, 70}, {5, 7}, {0, 3}};
    shape.heads = 7;
  }
  if (run.test().variant == 2) shape.parts = {{run.below(130), 1 + run.below(40)}, {run.below(70), 2}};
  // More pages than a warp holds the numbers of.
  if (run.test().variant > 2) {
    shape.parts = {{.context = 2'100 + run.below(60), .rows = 5, .planted = true}};
    shape.heads = 5;
  }
  if (run.test().large) {
    shape.parts = {{0, 1'500}, {7'000, 200}, {0, 1}};
    shape.heads = large_heads(run);
  }
  const LatentInputs in(run, shape);
  std::int64_t units = 0;
  for (const AttentionPart& part : shape.parts)
    units += mla::vector_tiles(part.rows, shape.heads, run.test().row.m);
  mla::AttendParams params = in.params();
  params.out = run.take<std::uint16_t>(in.size(in.latent), "out");
  run.launch(run.test().row.row, blocks_for(run, units), params);
  check_attended(run, in, params.out,
                 [wgmma](int position, int width) { return mla::prompt_roundings(position, width, wgmma); });
}

}  // namespace fourfold::verify
