// The proof of the kernel that writes pages: bias, norm, rotation and rounding of query, key and value heads,
// bit for bit, in pages that hold NaN before; and of the one that sums squares for norms over all heads.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/attention/attention_params.h"
#include "kernels/attention/reference.h"
#include "kernels/dense/norm.h"
#include "kernels/verify/attention_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using attention::kPageTokens;

constexpr float kEpsilon = 1e-6f;
// Of a norm over all heads: this rank's squares and another's.
constexpr int kParts = 2;

struct PrepareInputs {
  bool from_f32 = false, normed = true;
  bool biased = false;      // all three
  bool whole_norm = false;  // over all heads of a row, of two ranks
  int pairs = 0;
  std::vector<float> projection;                // [rows, columns] as the kernel reads them
  std::vector<float> query_weight, key_weight;  // [head_dim], or of whole rows [heads][head_dim]
  std::vector<float> bias;                      // [columns], zeros for none
  std::vector<device::F32x4> squares;           // [rows][kParts]
};

PrepareInputs prepare_inputs(StepRun& run, const AttentionShape& shape, const AttentionBatch& batch) {
  PrepareInputs in;
  in.from_f32 = run.test().row.from_f32;
  in.biased = run.test().op == "biased";
  in.whole_norm = run.test().op == "whole_norm";
  in.normed = run.test().variant != 2 || in.whole_norm;
  in.pairs = run.test().variant == 2 ? 0 : shape.head_dim / (run.test().variant % 2 ? 2 : 8);
  in.projection = run.normals(batch.rows.size() * static_cast<std::size_t>(shape.columns()));
  if (!in.from_f32)
    for (float& value : in.projection) value = to_float(to_bf16(value));
  for (auto* weight : {&in.query_weight, &in.key_weight}) {
    const int heads = !in.whole_norm ? 1 : weight == &in.query_weight ? shape.heads : shape.kv_heads;
    for (int d = 0; d < heads * shape.head_dim; ++d)
      weight->push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  }
  in.bias.resize(static_cast<std::size_t>(shape.columns()));
  if (in.biased) in.bias = run.normals(in.bias.size());
  for (std::size_t row = 0; in.whole_norm && row < batch.rows.size(); ++row) {
    const float* from = in.projection.data() + row * static_cast<std::size_t>(shape.columns());
    const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
    in.squares.push_back({{attention::row_square_sum<Host>(from, queries),
                           attention::row_square_sum<Host>(from + queries, keys), 0.0f, 0.0f}});
    in.squares.push_back({{static_cast<float>(run.random.uniform(0.5, 2.0) * queries),
                           static_cast<float>(run.random.uniform(0.5, 2.0) * keys), 0.0f, 0.0f}});
  }
  return in;
}

// What attention is to find of a head: its columns, with the bias, from `from` and `bias` on.
attention::PreparedHead head_of(const AttentionShape& shape, const PrepareInputs& in, std::size_t row,
                                int head, bool is_query, int position) {
  const int column =
      is_query ? head * shape.head_stride() : shape.heads * shape.head_stride() + head * shape.head_dim;
  const float* from = in.projection.data() + row * static_cast<std::size_t>(shape.columns()) + column;
  std::vector<float> values(from, from + shape.head_dim);
  for (std::size_t d = 0; in.biased && d < values.size(); ++d)
    values[d] = Host::add(values[d], in.bias[static_cast<std::size_t>(column) + d]);
  const std::vector<float>& weight = is_query ? in.query_weight : in.key_weight;
  if (!in.whole_norm)
    return attention::prepared_head<Host>(values.data(), in.normed ? weight.data() : nullptr, shape.head_dim,
                                          in.pairs, position, kEpsilon);
  std::vector<float> squares;
  for (int part = 0; part < kParts; ++part)
    squares.push_back(in.squares[kParts * row + static_cast<std::size_t>(part)].v[is_query ? 0 : 1]);
  const int columns = kParts * (is_query ? shape.heads : shape.kv_heads) * shape.head_dim;
  return attention::prepared_head<Host>(values.data(), weight.data() + head * shape.head_dim,
                                        attention::row_norm<Host>(squares, columns, kEpsilon), shape.head_dim,
                                        in.pairs, position);
}

const void* upload_rows(StepRun& run, const std::vector<float>& values, bool as_f32) {
  if (as_f32) return run.upload(values, "projections");
  std::vector<Bf16> halves;
  for (const float value : values) halves.push_back(to_bf16(value));
  return run.upload(halves, "projections");
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
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r) {
      const int position = shape.parts[i].context + r, within = position % kPageTokens;
      const int page = batch.pages[i][position / kPageTokens];
      const std::size_t row = static_cast<std::size_t>(batch.first_row[i] + r);
      const float* from = in.projection.data() + row * static_cast<std::size_t>(shape.columns());
      std::vector<float> got(dim);
      for (int h = 0; h < shape.heads; ++h) {
        const std::size_t at =
            (row * static_cast<std::size_t>(shape.heads) + static_cast<std::size_t>(h)) * dim;
        for (std::size_t d = 0; d < dim; ++d) got[d] = bf16_value(query[at + d]);
        compare_head(run, head_of(shape, in, row, h, true, position), false, got);
      }
      const int key_column = shape.heads * shape.head_stride();
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int d = 0; d < shape.head_dim; ++d) got[d] = cache.key(page, h, within, d);
        compare_head(run, head_of(shape, in, row, h, false, position), shape.fp8, got);
        const int values = key_column + (shape.kv_heads + h) * shape.head_dim;
        for (int d = 0; d < shape.head_dim; ++d) {
          const float bias = in.bias[static_cast<std::size_t>(values + d)];
          run.compare_exact(
              cache.value(page, h, within, d),
              rounded(in.biased ? Host::add(from[values + d], bias) : from[values + d], shape.fp8));
        }
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
  if (run.test().op != "both") shape.gated = false;
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
  params.epsilon = kEpsilon;
  if (in.biased) {
    params.query_bias = run.upload(in.bias, "biases");
    params.key_bias = params.query_bias + params.key_column;
    params.value_bias = params.query_bias + params.value_column;
  }
  if (in.whole_norm) {
    params.squares = run.upload(in.squares, "squares");
    params.square_parts = kParts;
    params.per_query_column = 1.0f / static_cast<float>(kParts * shape.heads * shape.head_dim);
    params.per_key_column = 1.0f / static_cast<float>(kParts * shape.kv_heads * shape.head_dim);
  }
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

// Rows with queries and keys that fill their pieces, that do not, and that are many; a row in three has no
// sequence, and numbers that must not count.
void prove_row_squares(StepRun& run) {
  const bool from_f32 = run.test().row.from_f32;
  const int variant = run.test().variant;
  const int queries = variant == 0 ? 256 : variant == 1 ? 8 * (1 + run.below(200)) : 6144;
  const int keys = variant == 0 ? 64 : variant == 1 ? 8 * (1 + run.below(40)) : 1024;
  const int gap = 8 * variant, stride = queries + gap + keys, rows = 5;
  run.result().shape = fourfold::format("{} rows of {} and {}", rows, queries, keys);
  std::vector<float> values = run.normals(static_cast<std::size_t>(rows * stride));
  if (!from_f32)
    for (float& value : values) value = to_float(to_bf16(value));
  std::vector<step::RowPlace> places;
  for (int row = 0; row < rows; ++row) places.push_back({row % 3 == 2 ? -1 : 0, row, 0, 0});
  attention::SquaresParams params{};
  params.tables.rows = run.upload(places, "row places");
  params.tables.row_limit = rows;
  params.projection = upload_rows(run, values, from_f32);
  params.projection_stride = stride;
  params.query_columns = queries;
  params.key_column = queries + gap;
  params.key_columns = keys;
  params.squares = run.take<device::F32x4>(static_cast<std::size_t>(rows), "squares");
  run.launch(run.test().row.row, rows, params);
  const std::vector<device::F32x4> got = run.written(params.squares, static_cast<std::size_t>(rows));
  // Of squares: a chain of four and an addition, a butterfly of five, then a rounding a piece.
  const auto expected = [&](const float* from, int columns) -> Scaled {
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += static_cast<double>(from[i]) * from[i];
    return {attention::row_square_sum<Host>(from, columns), sum,
            sum * (10 + dense::pieces_of(columns)) * 0x1p-24};
  };
  for (int row = 0; row < rows; ++row) {
    const float* from = values.data() + row * stride;
    const bool counts = places[static_cast<std::size_t>(row)].sequence >= 0;
    const device::F32x4& quad = got[static_cast<std::size_t>(row)];
    run.compare_f32(quad.v[0], counts ? expected(from, queries) : Scaled{});
    run.compare_f32(quad.v[1], counts ? expected(from + queries + gap, keys) : Scaled{});
    run.compare_exact(quad.v[2], 0.0);
    run.compare_exact(quad.v[3], 0.0);
  }
}

}  // namespace fourfold::verify
