// The proofs of attention over pages and of the sum of its splits. Pages and query rows are made on the host,
// so that each kernel is proved by itself (attend together with combine, which has a proof of its own).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/attention/reference.h"
#include "kernels/attention/softmax.h"
#include "kernels/verify/attention_inputs.h"
#include "kernels/verify/split_sums.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using attention::kPageTokens;

// ---- softmax over pages ----

struct AttentionInputs {
  AttentionShape shape;
  AttentionBatch batch;
  PageCache cache;
  std::vector<float> query;  // [rows, heads, head_dim], bf16 numbers
  std::vector<float> gates;  // the same, behind each other; bf16 numbers for prompts
  std::uint16_t* device_query = nullptr;
  unsigned char* keys = nullptr;
  unsigned char* values = nullptr;

  AttentionInputs(StepRun& run, AttentionShape of)
      : shape(std::move(of)), batch(make_batch(run, shape)), cache(shape, batch) {
    describe(run, shape);
    cache.fill(run, batch);
    // Sharper than a mean: scores of a few units.
    query = run.normals(size(), 1.5);
    for (std::size_t i = 0; i < shape.parts.size(); ++i)
      if (shape.parts[i].planted)
        for (int r = 0; r < shape.parts[i].rows; ++r)
          for (int h = 0; h < shape.heads; ++h)
            for (int d = 0; d < shape.head_dim; ++d) {
              float& value = query[at(i, r, h) + static_cast<std::size_t>(d)];
              value = 0.3f * value + kPlantedQuery * planted_sign(d);
            }
    std::vector<std::uint16_t> halves;
    for (float& value : query) {
      value = to_float(to_bf16(value));
      halves.push_back(to_bf16(value).bits);
    }
    device_query = run.upload(halves, "query");
    keys = run.upload(cache.keys, "keys");
    values = run.upload(cache.values, "values");
    gates = run.normals(size(), 2.0);
  }
  std::size_t size() const {
    return batch.rows.size() * static_cast<std::size_t>(shape.heads * shape.head_dim);
  }
  std::size_t at(std::size_t part, int row, int head) const {
    return static_cast<std::size_t>(((batch.first_row[part] + row) * shape.heads + head) * shape.head_dim);
  }
};

float scale_log2(int head_dim) { return static_cast<float>(1.4426950408889634 / std::sqrt(head_dim)); }

template <class Sums>
void check_attended(StepRun& run, const AttentionInputs& in, const std::uint16_t* out, const Sums& sums) {
  const AttentionShape& shape = in.shape;
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (const int r : run.sample(shape.parts[i].rows, 12))
      for (const int h : run.sample(shape.heads, 4)) {
        const int position = shape.parts[i].context + r, kv_head = h / (shape.heads / shape.kv_heads);
        const std::size_t at = in.at(i, r, h);
        const auto page = [&](int p) { return in.batch.pages[i][p / kPageTokens]; };
        const auto want = attention::attended(
            in.query.data() + at, shape.head_dim, position,
            [&](int p, int d) { return in.cache.key(page(p), kv_head, p % kPageTokens, d); },
            [&](int p, int d) { return in.cache.value(page(p), kv_head, p % kPageTokens, d); },
            sums(position), shape.gated ? in.gates.data() + at : nullptr,
            {shape.window, shape.sinks.empty() ? nullptr : &shape.sinks[static_cast<std::size_t>(h)]});
        const auto got = run.written(out + at, static_cast<std::size_t>(shape.head_dim));
        for (int d = 0; d < shape.head_dim; ++d)
          run.compare_bound(bf16_value(got[d]), want[d].value, want[d].error);
      }
}

void shape_large(StepRun& run, AttentionShape& shape, std::vector<AttentionPart> parts) {
  shape.heads = run.large_shape().heads;
  shape.kv_heads = run.large_shape().kv_heads;
  shape.parts = std::move(parts);
}

}  // namespace

void prove_attend(StepRun& run) {
  // Drafts across the border of a page and split, and a row alone. 16, 32 and 64 query vectors a block: the
  // larger rows get more than one row's heads.
  const int tile = run.test().row.m;
  AttentionShape shape = shape_of(run, {{62, 4}, {0, 1}, {130, 1}});
  shape.heads = tile == 16 ? 4 : 8;
  shape.kv_heads = tile == 16 ? 2 : 1;
  if (tile == 64) shape.parts = {{60, 7}, {3, 1}};
  if (run.test().variant == 1) shape.parts = {{1'150, 3}, {1'022, 4}};  // splits of several pages
  if (run.test().variant > 1) shape.parts = {{run.below(300), 1 + run.below(8)}, {run.below(100), 1}};
  if (run.test().variant == 1) shape.heads = shape.kv_heads;
  if (is_long_context(run.test())) {
    shape.parts = {
        {.context = is_longest_context(run.test()) ? 262'142 : 33'000, .rows = 2, .planted = true}};
    shape.heads = shape.kv_heads = 1;
  }
  if (run.test().large)
    shape_large(run, shape,
                {{8'191, 1}, {4'095, 4}, {2'047, 8}, {40, 1}, {6'000, 1}, {1'023, 2}, {3'333, 1}});
  give_bounds(run, shape);
  const AttentionInputs in(run, shape);
  std::int64_t slots = 0, units = 0;
  for (const AttentionPart& part : shape.parts) {
    slots += attention::slots_of(part.last(), part.rows, shape.window);
    units += attention::attend_units(part.last(), part.rows, shape.heads, shape.kv_heads, tile, shape.window);
  }
  const std::size_t vectors = static_cast<std::size_t>(slots * shape.heads);
  attention::AttendParams attend{};
  attend.tables = in.batch.tables;
  attend.query = in.device_query;
  attend.keys = in.keys;
  attend.values = in.values;
  attend.partial = run.take<float>(vectors * static_cast<std::size_t>(shape.head_dim), "partial");
  attend.partial_scale = run.take<float>(2 * vectors, "partial scale");
  attend.heads = shape.heads;
  attend.kv_heads = shape.kv_heads;
  attend.heads_per_kv = shape.heads / shape.kv_heads;
  attend.scale_log2 = scale_log2(shape.head_dim);
  attend.window = shape.window;
  const bool few_blocks = run.test().variant % 2 == 1 && !run.test().large;
  run.launch(run.test().row.row, few_blocks ? std::min<std::int64_t>(units, 3) : units, attend);
  attention::CombineParams combine{};
  combine.tables = in.batch.tables;
  combine.partial = attend.partial;
  combine.partial_scale = attend.partial_scale;
  combine.gate = shape.gated ? run.upload(in.gates, "gates") : nullptr;
  combine.gate_stride = shape.heads * shape.head_dim;
  combine.gate_head_stride = shape.head_dim;
  combine.heads = shape.heads;
  combine.out = run.take<std::uint16_t>(in.size(), "out");
  combine.window = shape.window;
  if (!shape.sinks.empty()) combine.sinks = run.upload(shape.sinks, "sinks");
  run.launch(attention::combine_row(shape.head_dim, run.test().row.is_windowed),
             attention::combine_blocks(in.batch.tables.row_limit, shape.heads), combine);
  check_attended(run, in, combine.out, attention::decode_sums);
}

void prove_attend_prompt(StepRun& run) {
  // A tile that begins inside, a border, a last tile that is not full; a row alone.
  AttentionShape shape = shape_of(run, {{50, 40}, {70, 1}});
  shape.heads = 2 + run.test().variant % 2;
  // Tiles of one page that is not full follow each other: the next one's tail waits for this one's.
  if (run.test().variant == 1) shape.parts = {{0, 130}, {64, 20}, {0, 20}, {5, 7}, {0, 33}};
  if (run.test().variant == 2) shape.parts = {{run.below(130), 1 + run.below(100)}, {run.below(70), 2}};
  // More pages than a warp holds the numbers of, twice over.
  if (run.test().variant > 2)
    shape.parts = {{.context = 2'100 + run.below(60), .rows = 20, .planted = true},
                   {.context = 4'100, .rows = 1, .planted = true}};
  // A prompt whole, and the end of one whose beginning is cached.
  if (run.test().large) shape_large(run, shape, {{0, 8'192}, {7'000, 1'000}, {0, 1}});
  give_bounds(run, shape);
  AttentionInputs in(run, shape);
  std::vector<std::uint16_t> gates;
  for (float& gate : in.gates) {
    gates.push_back(to_bf16(gate).bits);
    gate = bf16_value(gates.back());
  }
  const bool two_heads = run.test().row.m > run.test().row.n;
  std::int64_t units = 0;
  for (const AttentionPart& part : shape.parts)
    units += attention::prompt_units(part.context, part.rows, shape.heads, shape.kv_heads, two_heads ? 2 : 1);
  attention::PromptParams params{};
  params.tables = in.batch.tables;
  params.query = in.device_query;
  params.keys = in.keys;
  params.values = in.values;
  params.gate = shape.gated ? run.upload(gates, "gates") : nullptr;
  params.gate_stride = shape.heads * shape.head_dim;
  params.gate_head_stride = shape.head_dim;
  params.heads = shape.heads;
  params.kv_heads = shape.kv_heads;
  params.heads_per_kv = shape.heads / shape.kv_heads;
  params.scale_log2 = scale_log2(shape.head_dim);
  params.out = run.take<std::uint16_t>(in.size(), "out");
  params.window = shape.window;
  if (!shape.sinks.empty()) params.sinks = run.upload(shape.sinks, "sinks");
  std::int64_t blocks = units;
  if (run.test().large)
    blocks = std::min<std::int64_t>(units, run.machine().sm_count());
  else if (run.test().variant % 2 == 1)
    blocks = std::min<std::int64_t>(units, 3);
  run.launch(run.test().row.row, blocks, params);
  check_attended(run, in, params.out, attention::prompt_sums);
}

// ---- combine ----

void prove_combine(StepRun& run) {
  // Splits of one warp, of several, and more than eight groups.
  AttentionShape shape = shape_of(run, {{62, 4}, {1'300, 1}});
  shape.head_dim = run.test().row.head_dim;
  if (run.test().variant == 1) shape.parts = {{12'000, 2}, {0, 1}};
  if (run.test().variant > 1) shape.parts = {{run.below(3'000), 1 + run.below(4)}, {run.below(200), 1}};
  give_bounds(run, shape);
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  const SplitSums sums(run, shape);
  const auto gates =
      run.normals(batch.rows.size() * static_cast<std::size_t>(shape.heads * shape.head_dim), 2.0);
  attention::CombineParams params{};
  params.tables = batch.tables;
  params.partial = sums.device_partial;
  params.partial_scale = sums.device_scale;
  params.gate = shape.gated ? run.upload(gates, "gates") : nullptr;
  params.gate_stride = shape.heads * shape.head_dim;
  params.gate_head_stride = shape.head_dim;
  params.heads = shape.heads;
  params.window = shape.window;
  if (!shape.sinks.empty()) params.sinks = run.upload(shape.sinks, "sinks");
  params.out = run.take<std::uint16_t>(gates.size(), "out");
  run.launch(run.test().row.row, attention::combine_blocks(batch.tables.row_limit, shape.heads), params);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r)
      for (int h = 0; h < shape.heads; ++h) {
        const Combined want = sums.merged(shape, i, r, h);
        const std::size_t at =
            static_cast<std::size_t>(((batch.first_row[i] + r) * shape.heads + h) * shape.head_dim);
        const auto got = run.written(params.out + at, static_cast<std::size_t>(shape.head_dim));
        for (int d = 0; d < shape.head_dim; ++d) {
          const float gate = gates[at + static_cast<std::size_t>(d)];
          const double open = shape.gated ? 1 / (1 + std::exp(-double{gate})) : 1.0;
          const float bits =
              shape.gated ? Host::mul(want.bits[d], attention::gate_factor<Host>(gate)) : want.bits[d];
          compare_bf16(
              run.result(), got[d],
              {bits, open * want.value[d], open * want.size[d] * combine_error(want.splits, shape.gated)});
        }
      }
}

}  // namespace fourfold::verify
