// The proof of attention from the projection on: what it leaves of every split and in every page, bit for bit
// what the two kernels leave that it stands for (each with a proof of its own).
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/attention/attention_params.h"
#include "kernels/attention/softmax.h"
#include "kernels/verify/attention_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

// Sequences of one row each. Their own position holds NaN before.
struct HeadsInputs {
  AttentionShape shape, contexts;
  AttentionBatch batch;
  PageCache cache;
  attention::AttendHeadsParams params{};
  std::int64_t slots = 0, units = 0;

  HeadsInputs(StepRun& run, AttentionShape of)
      : shape(std::move(of)),
        contexts(without_rows(shape)),
        batch(make_batch(run, shape)),
        cache(contexts, batch) {
    describe(run, shape);
    cache.fill(run, batch);
    for (const AttentionPart& part : shape.parts) {
      slots += attention::slots_of(part.last(), 1, shape.window);
      units += attention::attend_units(part.last(), 1, shape.heads, shape.kv_heads, attention::kHeadsAtOnce,
                                       shape.window);
    }
    const int variant = run.test().variant, dim = shape.head_dim;
    const bool normed = variant != 2, biased = run.test().row.role == "biased";
    const auto weights = [&] {
      std::vector<float> values = run.normals(static_cast<std::size_t>(dim), 0.2);
      for (float& value : values) value += 1.0f;
      return run.upload(values, "head weights");
    };
    attention::PrepareParams& heads = params.heads;
    heads.tables = batch.tables;
    heads.projection =
        run.upload(run.normals(batch.rows.size() * static_cast<std::size_t>(shape.columns())), "projection");
    heads.projection_stride = shape.columns();
    heads.head_stride = shape.head_stride();
    heads.key_column = shape.heads * shape.head_stride();
    heads.value_column = heads.key_column + shape.kv_heads * dim;
    heads.heads = shape.heads;
    heads.kv_heads = shape.kv_heads;
    heads.query_weight = normed ? weights() : nullptr;
    heads.key_weight = normed ? weights() : nullptr;
    heads.epsilon = 1e-6f;
    if (biased) {
      heads.query_bias = run.upload(run.normals(static_cast<std::size_t>(shape.columns())), "biases");
      heads.key_bias = heads.query_bias + heads.key_column;
      heads.value_bias = heads.query_bias + heads.value_column;
    }
    heads.rotary_pairs = variant == 2 ? 0 : dim / (variant % 2 ? 2 : 8);
    heads.rotary = upload_turns(run, shape, heads.rotary_pairs);
    attention::AttendParams& attend = params.attend;
    attend.tables = batch.tables;
    attend.heads = shape.heads;
    attend.kv_heads = shape.kv_heads;
    attend.heads_per_kv = shape.heads / shape.kv_heads;
    attend.scale_log2 = attention::kLog2E / std::sqrt(static_cast<float>(dim));
    attend.window = shape.window;
  }
  // Pages and results of its own.
  attention::AttendHeadsParams fresh(StepRun& run) const {
    attention::AttendHeadsParams out = params;
    out.heads.keys = run.upload(cache.keys, "keys");
    out.heads.values = run.upload(cache.values, "values");
    out.attend.keys = out.heads.keys;
    out.attend.values = out.heads.values;
    out.attend.partial = run.take<float>(partials(), "partial");
    out.attend.partial_scale = run.take<float>(scales(), "partial scale");
    return out;
  }
  std::size_t partials() const {
    return static_cast<std::size_t>(slots) * static_cast<std::size_t>(shape.heads * shape.head_dim);
  }
  std::size_t scales() const { return 2 * static_cast<std::size_t>(slots * shape.heads); }

 private:
  static AttentionShape without_rows(AttentionShape shape) {
    for (AttentionPart& part : shape.parts) part.rows = 0;
    return shape;
  }
};

AttentionShape heads_shape(StepRun& run) {
  // The first position of all, the last of a page, the first of the next; heads that leave vectors empty.
  AttentionShape shape = shape_of(run, {{62}, {0}, {63}, {128}});
  shape.heads = 6, shape.kv_heads = 2;
  const int variant = run.test().variant;
  // As many heads as there is room for, several pages in a split, and blocks that go on with another unit,
  // also from one sequence's own position to another's.
  if (variant == 1) {
    shape.parts = {{1'150}, {64}, {1'024}, {5}, {9}, {3}, {17}, {30}, {2}};
    shape.heads = 16, shape.kv_heads = 1;
  }
  if (variant > 1) shape.parts = {{run.below(300)}, {run.below(70)}, {run.below(1'300)}};
  if (variant > 1) shape.heads = shape.kv_heads * (1 + run.below(attention::kHeadsAtOnce / 2));
  if (is_long_context(run.test())) {
    shape.parts = {{.context = 33'000, .planted = true}};
    shape.heads = shape.kv_heads = 1;
  }
  if (run.test().large) {
    shape.heads = run.large_shape().heads;
    shape.kv_heads = run.large_shape().kv_heads;
    shape.parts = {{8'191}, {4'095}, {40}, {6'000}, {1'023}, {3'333}};
  }
  // Projections with biases have no gates.
  if (run.test().row.role == "biased") shape.gated = false;
  give_bounds(run, shape);
  return shape;
}

template <class T>
void compare_all(StepRun& run, const std::vector<T>& got, const std::vector<T>& want) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if constexpr (std::is_same_v<T, float>)
      run.compare_bits(got[i], want[i]);
    else
      run.compare_exact(got[i], want[i]);
}

}  // namespace

void prove_attend_heads(StepRun& run) {
  const HeadsInputs in(run, heads_shape(run));
  const AttentionShape& shape = in.shape;
  const plan::RowFacts& row = run.test().row;
  // Both run on the same machine; first the two kernels.
  attention::AttendHeadsParams two = in.fresh(run);
  two.heads.query = run.take<std::uint16_t>(
      in.batch.rows.size() * static_cast<std::size_t>(shape.heads * shape.head_dim), "query");
  two.attend.query = two.heads.query;
  run.launch(attention::prepare_row(shape.head_dim, row.format, "f32", row.role == "biased"),
             attention::prepare_blocks(in.batch.tables.row_limit, shape.heads, shape.kv_heads), two.heads);
  run.launch(attention::attend_row(shape.head_dim, row.format, attention::kHeadsAtOnce, row.is_windowed),
             in.units, two.attend);
  const attention::AttendHeadsParams one = in.fresh(run);
  const bool few_blocks = run.test().variant % 2 == 1 && !run.test().large;
  run.launch(row.row, few_blocks ? std::min<std::int64_t>(in.units, 3) : in.units, one);
  compare_all(run, run.written(one.attend.partial, in.partials()),
              run.read(two.attend.partial, in.partials()));
  compare_all(run, run.written(one.attend.partial_scale, in.scales()),
              run.read(two.attend.partial_scale, in.scales()));
  compare_all(run, run.written(one.heads.keys, in.cache.keys.size()),
              run.read(two.heads.keys, in.cache.keys.size()));
  compare_all(run, run.written(one.heads.values, in.cache.values.size()),
              run.read(two.heads.values, in.cache.values.size()));
}

}  // namespace fourfold::verify
