// The proof of the kernel that writes pages: norm, rotation and rounding of query, key and value heads, bit
// for bit, in pages that hold NaN before.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/attention/attention_params.h"
#include "kernels/attention/reference.h"
#include "kernels/verify/attention_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using attention::kPageTokens;

struct PrepareInputs {
  bool from_f32 = false, normed = true;
  int pairs = 0;
  std::vector<float> projection;  // [rows, columns] as the kernel reads them
  std::vector<float> query_weight, key_weight;
};

PrepareInputs prepare_inputs(StepRun& run, const AttentionShape& shape, const AttentionBatch& batch) {
  PrepareInputs in;
  in.from_f32 = run.test().row.from_f32;
  in.normed = run.test().variant != 2;
  in.pairs = run.test().variant == 2 ? 0 : shape.head_dim / (run.test().variant % 2 ? 2 : 8);
  in.projection = run.normals(batch.rows.size() * static_cast<std::size_t>(shape.columns()));
  if (!in.from_f32)
    for (float& value : in.projection) value = to_float(to_bf16(value));
  for (auto* weight : {&in.query_weight, &in.key_weight})
    for (int d = 0; d < shape.head_dim; ++d)
      weight->push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  return in;
}

const void* upload_rows(StepRun& run, const std::vector<float>& values, bool as_f32) {
  if (as_f32) return run.upload(values, "projections");
  std::vector<Bf16> halves;
  for (const float value : values) halves.push_back(to_bf16(value));
  return run.upload(halves, "projections");
}

const float* upload_turns(StepRun& run, const AttentionShape& shape, int pairs) {
  int positions = 1;
  for (const AttentionPart& part : shape.parts) positions = std::max(positions, part.last() + 1);
  std::vector<float> table;
  for (int p = 0; p < positions; ++p)
    for (int j = 0; j < pairs; ++j) {
      const auto [c, s] = attention::turn_of(p, j, pairs);
      table.push_back(c);
      table.push_back(s);
    }
  return run.upload(table, "rotary");
}

void compare_head(StepRun& run, const attention::PreparedHead& want, bool fp8,
                  const std::vector<float>& got) {
  for (std::size_t d = 0; d < got.size(); ++d)
    run.result().compare(got[d], want.value[d], attention::prepare_bound(fp8, want.value[d], want.size[d]),
                         got[d] == rounded(want.bits[d], fp8));
}

void check_prepared(StepRun& run, const AttentionShape& shape, const AttentionBatch& batch,
                    const PrepareInputs& in, const std::vector<std::uint16_t>& query,
                    const PageCache& cache) {
  constexpr float epsilon = 1e-6f;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r) {
      const int position = shape.parts[i].context + r, within = position % kPageTokens;
      const int page = batch.pages[i][position / kPageTokens];
      const std::size_t row = static_cast<std::size_t>(batch.first_row[i] + r);
      const float* from = in.projection.data() + row * static_cast<std::size_t>(shape.columns());
      const auto head = [&](int column, const std::vector<float>& weight) {
        return attention::prepared_head<Host>(from + column, in.normed ? weight.data() : nullptr,
                                              shape.head_dim, in.pairs, position, epsilon);
      };
      std::vector<float> got(dim);
      for (int h = 0; h < shape.heads; ++h) {
        const std::size_t at =
            (row * static_cast<std::size_t>(shape.heads) + static_cast<std::size_t>(h)) * dim;
        for (std::size_t d = 0; d < dim; ++d) got[d] = bf16_value(query[at + d]);
        compare_head(run, head(h * shape.head_stride(), in.query_weight), false, got);
      }
      const int key_column = shape.heads * shape.head_stride();
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int d = 0; d < shape.head_dim; ++d) got[d] = cache.key(page, h, within, d);
        compare_head(run, head(key_column + h * shape.head_dim, in.key_weight), shape.fp8, got);
        const float* values = from + key_column + (shape.kv_heads + h) * shape.head_dim;
        for (int d = 0; d < shape.head_dim; ++d)
          run.compare_exact(cache.value(page, h, within, d), rounded(values[d], shape.fp8));
      }
    }
}

}  // namespace

void prove_prepare(StepRun& run) {
  // Runs of rows that fill chunks of V, straddle them and cross a page.
  AttentionShape shape = shape_of(run, {{7, 30}, {63, 2}, {100, 1}});
  shape.head_dim = run.test().row.head_dim;
  shape.heads = 2 + run.test().variant % 2;
  shape.kv_heads = 1 + run.test().variant % 2;
  if (run.test().variant > 1) shape.parts = {{run.below(70), 1 + run.below(80)}, {run.below(200), 1}};
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  const PrepareInputs in = prepare_inputs(run, shape, batch);
  PageCache cache(shape, batch);
  attention::PrepareParams params{};
  params.tables = batch.tables;
  params.projection = upload_rows(run, in.projection, in.from_f32);
  params.projection_stride = shape.columns();
  params.head_stride = shape.head_stride();
  params.key_column = shape.heads * shape.head_stride();
  params.value_column = params.key_column + shape.kv_heads * shape.head_dim;
  params.heads = shape.heads;
  params.kv_heads = shape.kv_heads;
  params.query_weight = in.normed ? run.upload(in.query_weight, "query weight") : nullptr;
  params.key_weight = in.normed ? run.upload(in.key_weight, "key weight") : nullptr;
  params.epsilon = 1e-6f;
  params.rotary_pairs = in.pairs;
  params.rotary = upload_turns(run, shape, in.pairs);
  const std::size_t count = batch.rows.size() * static_cast<std::size_t>(shape.heads * shape.head_dim);
  params.query = run.upload(std::vector<std::uint16_t>(count, 0xFFFF), "query");
  params.keys = run.upload(cache.keys, "keys");
  params.values = run.upload(cache.values, "values");
  run.launch(run.test().row.row,
             attention::prepare_blocks(batch.tables.row_limit, shape.heads, shape.kv_heads), params);
  cache.keys = run.written(params.keys, cache.keys.size());
  cache.values = run.written(params.values, cache.values.size());
  check_prepared(run, shape, batch, in, run.written(params.query, count), cache);
}

}  // namespace fourfold::verify
