// The proofs of the kernels around latent attention: what makes its inputs, bit for bit, and the matrix of
// each head; then the launches of few rows that do several of these, against bounds as each alone and bit for
// bit against the launches they replace (docs/decisions/0047).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/step/step_params.h"
#include "kernels/verify/latent_checks.h"
#include "kernels/verify/split_sums.h"

namespace fourfold::verify {

using mla::kPanelColumns;

void prove_latent_rows(StepRun& run) {
  AttentionShape shape = latent_shape(run, {{7, 30}, {63, 2}, {100, 1}});
  if (run.test().variant > 1) shape.parts = {{run.below(70), 1 + run.below(30)}, {run.below(200), 1}};
  // A query without a latent on the third variant.
  const int query_columns = run.test().variant == 2 ? 0 : run.test().variant % 2 == 1 ? 40 : 1'536;
  const int query_stride = (query_columns + 63) / 64 * 64;
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  const std::vector<float> query_weight = weights_of(run, query_columns);
  CacheRows cached(run, shape, batch, query_columns + 8, 24);
  mla::LatentRowsParams params = cached.params;
  params.query_columns = query_columns;
  params.query_weight = query_columns == 0 ? nullptr : run.upload(query_weight, "query weight");
  params.query_epsilon = kLatentEpsilon;
  const std::size_t query_size = batch.rows.size() * static_cast<std::size_t>(query_stride);
  params.query_latent = run.upload(std::vector<std::uint16_t>(query_size + 1, 0xFFFF), "query latent");
  params.query_stride = query_stride;
  run.launch(run.test().row.row, mla::latent_rows_blocks(batch.tables.row_limit), params);
  cached.check(run);
  const auto queries = run.written(params.query_latent, query_size);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r) {
      const auto row = static_cast<std::size_t>(batch.first_row[i] + r);
      const NormedRow query(cached.rows.data() + row * static_cast<std::size_t>(cached.stride), query_weight);
      for (int d = 0; d < query_stride; ++d) {
        const std::uint16_t got =
            queries[row * static_cast<std::size_t>(query_stride) + static_cast<std::size_t>(d)];
        if (d < query_columns)
          query.compare(run, static_cast<std::size_t>(d), got);
        else
          run.compare_exact(bf16_value(got), 0.0);
      }
    }
}

void prove_turn_queries(StepRun& run) {
  AttentionShape shape = latent_shape(run, {{7, 9}, {63, 2}, {100, 1}});
  shape.heads = 3 + run.test().variant;
  const bool narrow = run.test().variant % 2 == 1;
  const int latent = 64, latent_columns = narrow ? 40 : 64, pairs = narrow ? 8 : 32, column = 16;
  const int stride = column + shape.heads * 2 * pairs;
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  const void* projection = nullptr;
  const std::vector<float> rows =
      projection_of(run, batch.rows.size() * static_cast<std::size_t>(stride), projection);
  TurnedQueries turned(run, shape, batch, rows, projection, stride, column, pairs, latent, latent_columns);
  run.launch(run.test().row.row, mla::turn_queries_blocks(batch.tables.row_limit, shape.heads),
             turned.params);
  turned.check(run, [&](int, int, const std::uint16_t* head) {  // what head_linear writes is not touched
    for (int d = 0; d < latent_columns; ++d) run.compare_exact(head[d], 0xFFFF);
  });
}

void prove_head_linear(StepRun& run) {
  const bool transposed = run.test().row.row.find("transposed") != std::string::npos;
  const int variant = run.test().variant;
  // 128 -> 512 and 512 -> 128 in a large case; else sizes with parts of steps and of tiles, and more steps
  // than are on their way at once.
  int rows = variant == 0 ? 3 : 21 + run.below(60), heads = 2 + variant % 2;
  int in = variant % 2 == 0 ? 64 : 232, out = variant % 2 == 0 ? 128 : 80;
  if (run.test().large) {
    rows = variant == 0 ? 1'000 : 16;
    heads = 128;
    in = transposed ? 128 : 512;
    out = transposed ? 512 : 128;
  }
  const int in_head = in + 8, out_head = out + 16;
  run.result().shape = fourfold::format("{} rows, {} heads of {} to {}", rows, heads, in, out);
  const void* on_device = nullptr;
  const std::vector<float> input =
      projection_of(run, static_cast<std::size_t>(rows * heads * in_head), on_device);
  const HeadMatrices matrices(run, transposed, heads, in, out);
  mla::HeadLinearParams params = matrices.params();
  params.in = on_device;
  params.in_stride = heads * in_head;
  params.in_head_stride = in_head;
  const int pad = 24 * (variant % 2), out_row = heads * out_head + pad;
  const std::size_t size = static_cast<std::size_t>(rows * out_row);
  params.out = run.upload(std::vector<std::uint16_t>(size, 0xFFFF), "out");
  params.out_stride = out_row;
  params.out_head_stride = out_head;
  params.pad_columns = pad;
  params.row_count = rows;
  run.launch(run.test().row.row, mla::head_linear_blocks(rows, heads, out, run.test().row.m), params);
  const auto got = run.written(params.out, size);
  for (const int row : run.sample(rows, 8))
    for (const int head : run.sample(heads, 8)) {
      const float* from = input.data() + (row * heads + head) * in_head;
      std::vector<double> numbers;
      for (int j = 0; j < in; ++j) numbers.push_back(double{to_float(to_bf16(from[j]))});
      const std::uint16_t* to = got.data() + row * out_row + head * out_head;
      matrices.compare(run, head, numbers.data(), nullptr, to);
      for (int i = out; i < out_head; ++i) run.compare_exact(to[i], 0xFFFF);
      for (int i = 0; i < pad; ++i)
        run.compare_exact(got[static_cast<std::size_t>((row + 1) * out_row - 1 - i)], 0);
    }
}

namespace {

std::string_view element_of(const StepRun& run) { return run.test().row.from_f32 ? "f32" : "bf16"; }

template <class T>
void compare_same(StepRun& run, const std::vector<T>& got, const T* alone) {
  const std::vector<T> wanted = run.read(alone, got.size());
  for (std::size_t i = 0; i < got.size(); ++i) run.compare_exact(got[i], wanted[i]);
}

// The same inputs through latent_rows, turn_queries and head_linear.
void compare_absorbed(StepRun& run, const mla::AbsorbParams& joined, std::size_t page_bytes,
                      std::size_t queries) {
  const int latent = run.test().row.head_dim, rows = joined.absorb.row_count;
  const auto pages = run.read(joined.cache.pages, page_bytes);
  const auto query = run.read(joined.turn.query, queries);
  if (joined.cache_blocks > 0) {
    mla::LatentRowsParams cache = joined.cache;
    cache.pages = run.upload(std::vector<unsigned char>(page_bytes, 0xFF), "pages of latent_rows");
    run.launch(mla::latent_rows_row(latent, element_of(run)), mla::latent_rows_blocks(rows), cache);
    compare_same(run, pages, cache.pages);
  }
  mla::TurnQueriesParams turn = joined.turn;
  mla::HeadLinearParams absorb = joined.absorb;
  turn.query = absorb.out = run.upload(std::vector<std::uint16_t>(queries, 0xFFFF), "queries of two");
  run.launch(mla::turn_queries_row(element_of(run)), mla::turn_queries_blocks(rows, turn.heads), turn);
  run.launch(mla::head_linear_row(true, element_of(run), 16),
             mla::head_linear_blocks(rows, absorb.heads, absorb.out_columns, 16), absorb);
  compare_same(run, query, turn.query);
}

// The same splits through combine and head_linear. Rows without a sequence, which combine leaves as they are,
// head_linear multiplies as well; nobody reads what comes of them.
void compare_expanded(StepRun& run, const mla::CombineExpandParams& joined, const AttentionBatch& batch,
                      const std::vector<std::uint16_t>& got) {
  const int latent = run.test().row.head_dim, rows = joined.expand.row_count;
  const std::int64_t width = std::int64_t{joined.expand.heads} * latent;
  attention::CombineParams combine = joined.combine;
  combine.out =
      run.upload(std::vector<std::uint16_t>(static_cast<std::size_t>(rows * width), 0xFFFF), "merged heads");
  run.launch(attention::combine_row(latent), attention::combine_blocks(rows, combine.heads), combine);
  mla::HeadLinearParams expand = joined.expand;
  expand.in = combine.out;
  expand.in_head_stride = latent;
  expand.in_stride = width;
  expand.out = run.upload(std::vector<std::uint16_t>(got.size(), 0xFFFF), "out of two");
  run.launch(mla::head_linear_row(false, "bf16", 16),
             mla::head_linear_blocks(rows, expand.heads, expand.out_columns, 16), expand);
  const std::vector<std::uint16_t> wanted = run.read(expand.out, got.size());
  for (std::size_t row = 0; row < batch.rows.size(); ++row)
    for (std::int64_t i = 0; i < expand.out_stride; ++i) {
      const std::size_t at = row * static_cast<std::size_t>(expand.out_stride) + static_cast<std::size_t>(i);
      run.compare_exact(got[at], batch.rows[row].sequence < 0 ? 0xFFFF : wanted[at]);
    }
}

}  // namespace

void prove_absorb_queries(StepRun& run) {
  const int variant = run.test().variant, latent = run.test().row.head_dim;
  AttentionShape shape = latent_shape(run, {{62, 4}, {100, 1}});
  shape.heads = 3;
  if (variant > 1) shape.parts = {{run.below(70), 1 + run.below(12)}, {run.below(200), 1}};
  int plain = variant % 2 == 0 ? 64 : 24;
  if (run.test().large) {  // a rank of eight of DeepSeek-V3, and all of Mistral-Small-4
    shape.parts = {{variant == 0 ? 8'191 : 130, 1}};
    shape.heads = latent == 512 ? 16 : 32;
    plain = latent == 512 ? 128 : 64;
  }
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  // Of each row: the plain queries of all heads, the turned ones, and behind them what the cache gets.
  const int pairs = variant % 2 == 1 ? 8 : 32, turned_at = shape.heads * plain;
  CacheRows cached(run, shape, batch, turned_at + shape.heads * 2 * pairs, 48);
  TurnedQueries turned(run, shape, batch, cached.rows, cached.params.projection, cached.stride, turned_at,
                       pairs, latent, cached.latent_columns);
  const HeadMatrices matrices(run, true, shape.heads, plain, cached.latent_columns);
  mla::AbsorbParams params{};
  params.cache = cached.params;
  params.turn = turned.params;
  params.absorb = matrices.params();
  params.absorb.in = cached.params.projection;
  params.absorb.in_stride = cached.stride;
  params.absorb.in_head_stride = plain;
  params.absorb.out = turned.params.query;
  params.absorb.out_head_stride = latent + kPanelColumns;
  params.absorb.out_stride = shape.heads * (latent + kPanelColumns);
  params.absorb.row_count = batch.tables.row_limit;
  // The rows of the cache are another launch's on the third variant.
  const bool caches = variant != 2;
  if (caches) params.cache_blocks = static_cast<int>(mla::warp_blocks(batch.tables.row_limit));
  params.turn_blocks = static_cast<int>(mla::turn_queries_blocks(batch.tables.row_limit, shape.heads));
  // A kernel in front that writes the rows, so that each kind of block is seen to wait for it.
  const std::vector<float> nothing(static_cast<std::size_t>(cached.stride), 0.0f);
  run.launch(step::kAddBias, step::add_blocks(batch.tables.row_limit, cached.stride),
             step::AddBiasParams{static_cast<float*>(const_cast<void*>(cached.params.projection)),
                                 run.upload(nothing, "nothing"), cached.stride, batch.tables.row_limit,
                                 cached.stride});
  run.launch(run.test().row.row, mla::absorb_blocks(params), params);
  if (caches) cached.check(run);
  turned.check(run, [&](int row, int head, const std::uint16_t* got) {
    std::vector<double> numbers;
    const float* from = cached.rows.data() + row * cached.stride + head * plain;
    for (int j = 0; j < plain; ++j) numbers.push_back(double{to_float(to_bf16(from[j]))});
    matrices.compare(run, head, numbers.data(), nullptr, got);
  });
  compare_absorbed(run, params, cached.cache.bytes.size(), turned.size(latent));
}

void prove_combine_expand(StepRun& run) {
  const int variant = run.test().variant, latent = run.test().row.head_dim;
  // Splits of one warp and of several; outputs of more than a block, and of less.
  AttentionShape shape = latent_shape(run, {{62, 2}, {1'300, 1}});
  shape.heads = 2;
  shape.head_dim = latent;
  if (variant == 1) shape.parts = {{12'000, 1}, {0, 1}};
  if (variant > 1) shape.parts = {{run.below(3'000), 1 + run.below(3)}, {run.below(200), 1}};
  int out = variant % 2 == 0 ? 80 : 32;
  if (run.test().large) {
    shape.parts = {{variant == 0 ? 32'767 : 130, 1}};
    shape.heads = latent == 512 ? 16 : 32;
    out = 128;
  }
  const int in = latent - 24 * (variant % 2), out_head = out + 16, pad = 24 * (variant % 2);
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  const SplitSums sums(run, shape);
  const HeadMatrices matrices(run, false, shape.heads, in, out);
  mla::CombineExpandParams params{};
  params.combine.tables = batch.tables;
  params.combine.partial = sums.device_partial;
  params.combine.partial_scale = sums.device_scale;
  params.combine.heads = shape.heads;
  params.expand = matrices.params();
  const int out_row = shape.heads * out_head + pad;
  const std::size_t size = batch.rows.size() * static_cast<std::size_t>(out_row);
  params.expand.out = run.upload(std::vector<std::uint16_t>(size, 0xFFFF), "out");
  params.expand.out_stride = out_row;
  params.expand.out_head_stride = out_head;
  params.expand.pad_columns = pad;
  params.expand.row_count = batch.tables.row_limit;
  run.launch(run.test().row.row, mla::combine_expand_blocks(batch.tables.row_limit, shape.heads, out),
             params);
  const auto got = run.written(params.expand.out, size);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r)
      for (int h = 0; h < shape.heads; ++h) {
        const Combined merged = sums.merged(shape, i, r, h);
        std::vector<double> error;
        for (std::size_t d = 0; d < merged.value.size(); ++d) {
          const double bound = merged.size[d] * combine_error(merged.splits, false);
          error.push_back(bound + (std::abs(merged.value[d]) + bound) * 0x1p-8);
        }
        const std::uint16_t* row = got.data() + (batch.first_row[i] + r) * out_row;
        matrices.compare(run, h, merged.value.data(), error.data(), row + h * out_head);
        for (int d = out; d < out_head; ++d) run.compare_exact(row[h * out_head + d], 0xFFFF);
        for (int d = 0; d < pad; ++d) run.compare_exact(row[out_row - 1 - d], 0);
      }
  compare_expanded(run, params, batch, got);
}

}  // namespace fourfold::verify
