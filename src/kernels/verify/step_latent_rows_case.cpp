// The proofs of the kernels around latent attention: what makes its inputs, bit for bit, and the matrix of
// each head.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/attention/reference.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/reference.h"
#include "kernels/verify/latent_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

using mla::kPanelColumns;

constexpr float kEpsilon = 1e-6f;

std::vector<float> projection_of(StepRun& run, std::size_t count, const void*& on_device) {
  std::vector<float> values = run.normals(count);
  if (run.test().row.from_f32) {
    on_device = run.upload(values, "projections");
    return values;
  }
  std::vector<std::uint16_t> halves;
  for (float& value : values) {
    halves.push_back(to_bf16(value).bits);
    value = bf16_value(halves.back());
  }
  on_device = run.upload(halves, "projections");
  return values;
}

// Column d of a normed row.
struct NormedRow {
  const float* in;
  const std::vector<float>& weight;
  double exact;
  float inverse;
  NormedRow(const float* row, const std::vector<float>& its_weight) : in(row), weight(its_weight) {
    const int columns = std::max(1, static_cast<int>(weight.size()));
    double square = 0;
    for (int d = 0; d < columns; ++d) square += double{in[d]} * double{in[d]};
    exact = 1.0 / std::sqrt(square / columns + double{kEpsilon});
    const float mean = Host::mul(attention::row_square_sum<Host>(in, columns),
                                 Host::reciprocal(static_cast<float>(columns)));
    inverse = Host::reciprocal(Host::sqrt(Host::add(mean, kEpsilon)));
  }
  void compare(StepRun& run, std::size_t d, std::uint16_t got) const {
    const double value = double{in[d]} * exact * double{weight[d]};
    run.result().compare(bf16_value(got), value, mla::norm_bound(value),
                         got == bf16_bits(Host::mul(Host::mul(in[d], inverse), weight[d])));
  }
};

// The 64 columns of a turned head; zeros behind the pairs.
void compare_turned(StepRun& run, const float* in, int pairs, int position, int column, std::uint16_t got) {
  if (column >= 2 * pairs) return run.compare_exact(bf16_value(got), 0.0);
  const auto head =
      attention::prepared_head<Host>(in, nullptr, attention::HeadNorm{}, 2 * pairs, pairs, position);
  const auto d = static_cast<std::size_t>(column);
  run.result().compare(bf16_value(got), head.value[d],
                       attention::prepare_bound(false, head.value[d], head.size[d]),
                       got == bf16_bits(head.bits[d]));
}

std::vector<float> weights_of(StepRun& run, int columns) {
  std::vector<float> weight;
  for (int d = 0; d < columns; ++d) weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  return weight;
}

}  // namespace

void prove_latent_rows(StepRun& run) {
  AttentionShape shape = latent_shape(run, {{7, 30}, {63, 2}, {100, 1}});
  if (run.test().variant > 1) shape.parts = {{run.below(70), 1 + run.below(30)}, {run.below(200), 1}};
  const int latent = run.test().row.head_dim;
  // Narrower than the page on odd variants; a query without a latent on the third.
  const bool narrow = run.test().variant % 2 == 1;
  const int latent_columns = narrow ? latent - 24 : latent, pairs = narrow ? 8 : 32;
  const int query_columns = run.test().variant == 2 ? 0 : narrow ? 40 : 1'536;
  const int query_stride = (query_columns + 63) / 64 * 64;
  const int latent_at = query_columns + 8, key_at = latent_at + latent_columns, stride = key_at + 64;
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  LatentCache cache(latent, batch.page_count);
  const std::vector<float> query_weight = weights_of(run, query_columns),
                           latent_weight = weights_of(run, latent_columns);
  mla::LatentRowsParams params{};
  params.tables = batch.tables;
  const std::vector<float> rows =
      projection_of(run, batch.rows.size() * static_cast<std::size_t>(stride), params.projection);
  params.projection_stride = stride;
  params.query_columns = query_columns;
  params.query_weight = query_columns == 0 ? nullptr : run.upload(query_weight, "query weight");
  params.query_epsilon = params.latent_epsilon = kEpsilon;
  const std::size_t query_size = batch.rows.size() * static_cast<std::size_t>(query_stride);
  params.query_latent = run.upload(std::vector<std::uint16_t>(query_size + 1, 0xFFFF), "query latent");
  params.query_stride = query_stride;
  params.latent_column = latent_at;
  params.latent_columns = latent_columns;
  params.latent_weight = run.upload(latent_weight, "latent weight");
  params.key_column = key_at;
  params.rotary_pairs = pairs;
  params.rotary = upload_turns(run, shape, pairs);
  params.pages = run.upload(cache.bytes, "pages");
  run.launch(run.test().row.row, mla::latent_rows_blocks(batch.tables.row_limit), params);
  cache.bytes = run.written(params.pages, cache.bytes.size());
  const auto queries = run.written(params.query_latent, query_size);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r) {
      const int position = shape.parts[i].context + r;
      const auto row = static_cast<std::size_t>(batch.first_row[i] + r);
      const float* from = rows.data() + row * static_cast<std::size_t>(stride);
      const auto bits = [&](int column) {
        std::uint16_t value;
        std::memcpy(&value, cache.at(batch.pages[i], position, column), 2);
        return value;
      };
      const NormedRow query(from, query_weight), normed(from + latent_at, latent_weight);
      for (int d = 0; d < query_stride; ++d) {
        const std::uint16_t got =
            queries[row * static_cast<std::size_t>(query_stride) + static_cast<std::size_t>(d)];
        if (d < query_columns)
          query.compare(run, static_cast<std::size_t>(d), got);
        else
          run.compare_exact(bf16_value(got), 0.0);
      }
      for (int d = 0; d < latent; ++d)
        if (d < latent_columns)
          normed.compare(run, static_cast<std::size_t>(d), bits(d));
        else
          run.compare_exact(bf16_value(bits(d)), 0.0);
      for (int d = 0; d < kPanelColumns; ++d)
        compare_turned(run, from + key_at, pairs, position, d, bits(latent + d));
    }
}

void prove_turn_queries(StepRun& run) {
  AttentionShape shape = latent_shape(run, {{7, 9}, {63, 2}, {100, 1}});
  shape.heads = 3 + run.test().variant;
  const bool narrow = run.test().variant % 2 == 1;
  const int latent = 64, latent_columns = narrow ? 40 : 64, pairs = narrow ? 8 : 32, column = 16;
  const int stride = column + shape.heads * 2 * pairs, width = latent + kPanelColumns;
  describe(run, shape);
  const AttentionBatch batch = make_batch(run, shape);
  mla::TurnQueriesParams params{};
  params.tables = batch.tables;
  const std::vector<float> rows =
      projection_of(run, batch.rows.size() * static_cast<std::size_t>(stride), params.projection);
  params.projection_stride = stride;
  params.column = column;
  params.heads = shape.heads;
  params.rotary_pairs = pairs;
  params.rotary = upload_turns(run, shape, pairs);
  const std::size_t size = batch.rows.size() * static_cast<std::size_t>(shape.heads * width);
  params.query = run.upload(std::vector<std::uint16_t>(size, 0xFFFF), "query");
  params.latent_columns = latent_columns;
  params.page_latent = latent;
  run.launch(run.test().row.row, mla::turn_queries_blocks(batch.tables.row_limit, shape.heads), params);
  const auto got = run.written(params.query, size);
  for (std::size_t i = 0; i < shape.parts.size(); ++i)
    for (int r = 0; r < shape.parts[i].rows; ++r)
      for (int h = 0; h < shape.heads; ++h) {
        const int row = batch.first_row[i] + r;
        const std::uint16_t* head = got.data() + (row * shape.heads + h) * width;
        for (int d = 0; d < latent; ++d)  // what head_linear writes is not touched
          if (d < latent_columns)
            run.compare_exact(head[d], 0xFFFF);
          else
            run.compare_exact(head[d], 0);
        for (int d = 0; d < kPanelColumns; ++d)
          compare_turned(run, rows.data() + row * stride + column + h * 2 * pairs, pairs,
                         shape.parts[i].context + r, d, head[latent + d]);
      }
}

void prove_head_linear(StepRun& run) {
  const bool transposed = run.test().row.row.find("transposed") != std::string::npos;
  const int variant = run.test().variant;
  // 128 -> 512 and 512 -> 128 in a large case; else sizes with parts of steps and of tiles.
  int rows = variant == 0 ? 3 : 21 + run.below(60), heads = 2 + variant % 2;
  int in = variant % 2 == 0 ? 64 : 40, out = variant % 2 == 0 ? 128 : 80;
  if (run.test().large) {
    rows = variant == 0 ? 1'000 : 16;
    heads = 128;
    in = transposed ? 128 : 512;
    out = transposed ? 512 : 128;
  }
  const int in_head = in + 8, out_head = out + 16;
  run.result().shape = fourfold::format("{} rows, {} heads of {} to {}", rows, heads, in, out);
  mla::HeadLinearParams params{};
  const std::vector<float> input =
      projection_of(run, static_cast<std::size_t>(rows * heads * in_head), params.in);
  const int weight_columns = transposed ? out : in, weight_rows = heads * (transposed ? in : out);
  const int stride = weight_columns + 8 * (variant % 2);
  std::vector<float> weight = run.normals(static_cast<std::size_t>(weight_rows * stride));
  std::vector<std::uint16_t> halves;
  for (float& value : weight) {
    halves.push_back(to_bf16(value).bits);
    value = bf16_value(halves.back());
  }
  params.in_stride = heads * in_head;
  params.in_head_stride = in_head;
  params.in_columns = in;
  params.weight = run.upload(halves, "weight");
  params.weight_stride = stride;
  params.heads = heads;
  params.out_columns = out;
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
      const std::uint16_t* to = got.data() + row * out_row + head * out_head;
      for (int i = 0; i < out; ++i) {
        double value = 0, total = 0;
        for (int j = 0; j < in; ++j) {
          const float w = weight[static_cast<std::size_t>(transposed ? (head * in + j) * stride + i
                                                                     : (head * out + i) * stride + j)];
          const double product = double{w} * double{to_float(to_bf16(from[j]))};
          value += product;
          total += std::abs(product);
        }
        run.compare_bound(bf16_value(to[i]), value, mla::head_linear_bound(in, value, total));
      }
      for (int i = out; i < out_head; ++i) run.compare_exact(to[i], 0xFFFF);
      for (int i = 0; i < pad; ++i)
        run.compare_exact(got[static_cast<std::size_t>((row + 1) * out_row - 1 - i)], 0);
    }
}

}  // namespace fourfold::verify
