// What the proofs of the kernels around latent attention share: rows of the cache, turned queries, the matrix
// of each head. Each is arguments and a comparison, for a kernel that does one of them or several.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/reference.h"
#include "kernels/mla/mla_params.h"
#include "kernels/mla/reference.h"
#include "kernels/verify/latent_inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {

inline constexpr float kLatentEpsilon = 1e-6f;

// Rows of f32 or bf16, as the kernel under proof reads them.
inline std::vector<float> projection_of(StepRun& run, std::size_t count, const void*& on_device) {
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
    exact = 1.0 / std::sqrt(square / columns + double{kLatentEpsilon});
    const float mean = Host::mul(attention::row_square_sum<Host>(in, columns),
                                 Host::reciprocal(static_cast<float>(columns)));
    inverse = Host::reciprocal(Host::sqrt(Host::add(mean, kLatentEpsilon)));
  }
  void compare(StepRun& run, std::size_t d, std::uint16_t got) const {
    const double value = double{in[d]} * exact * double{weight[d]};
    run.result().compare(bf16_value(got), value, mla::norm_bound(value),
                         got == bf16_bits(Host::mul(Host::mul(in[d], inverse), weight[d])));
  }
};

// The 64 columns of a turned head; zeros behind the pairs.
inline void compare_turned(StepRun& run, const float* in, int pairs, int position, int column,
                           std::uint16_t got) {
  if (column >= 2 * pairs) return run.compare_exact(bf16_value(got), 0.0);
  const auto head =
      attention::prepared_head<Host>(in, nullptr, attention::HeadNorm{}, 2 * pairs, pairs, position);
  const auto d = static_cast<std::size_t>(column);
  run.result().compare(bf16_value(got), head.value[d],
                       attention::prepare_bound(false, head.value[d], head.size[d]),
                       got == bf16_bits(head.bits[d]));
}

inline std::vector<float> weights_of(StepRun& run, int columns) {
  std::vector<float> weight;
  for (int d = 0; d < columns; ++d) weight.push_back(static_cast<float>(1.0 + 0.2 * run.random.normal()));
  return weight;
}

// The cache's half of latent_rows. Odd variants are narrower than the page by so many columns.
struct CacheRows {
  const AttentionShape& shape;
  const AttentionBatch& batch;
  int latent, latent_columns, pairs, latent_at, key_at, stride;
  LatentCache cache;
  std::vector<float> weight, rows;
  mla::LatentRowsParams params{};

  // first: the column its own begin at.
  CacheRows(StepRun& run, const AttentionShape& of, const AttentionBatch& in, int first, int narrower)
      : shape(of),
        batch(in),
        latent(run.test().row.head_dim),
        latent_columns(run.test().variant % 2 == 1 ? latent - narrower : latent),
        pairs(run.test().variant % 2 == 1 ? 8 : 32),
        latent_at(first),
        key_at(first + latent_columns),
        stride(key_at + 64),
        cache(latent, in.page_count),
        weight(weights_of(run, latent_columns)) {
    params.tables = batch.tables;
    rows = projection_of(run, batch.rows.size() * static_cast<std::size_t>(stride), params.projection);
    params.projection_stride = stride;
    params.latent_column = latent_at;
    params.latent_columns = latent_columns;
    params.latent_weight = run.upload(weight, "latent weight");
    params.latent_epsilon = kLatentEpsilon;
    params.key_column = key_at;
    params.rotary_pairs = pairs;
    params.rotary = upload_turns(run, shape, pairs);
    params.pages = run.upload(cache.bytes, "pages");
  }
  void check(StepRun& run) {
    cache.bytes = run.written(params.pages, cache.bytes.size());
    for (std::size_t i = 0; i < shape.parts.size(); ++i)
      for (int r = 0; r < shape.parts[i].rows; ++r) {
        const int position = shape.parts[i].context + r;
        const float* from = rows.data() + (batch.first_row[i] + r) * stride;
        const auto bits = [&](int column) {
          std::uint16_t value;
          std::memcpy(&value, cache.at(batch.pages[i], position, column), 2);
          return value;
        };
        const NormedRow normed(from + latent_at, weight);
        for (int d = 0; d < latent; ++d)
          if (d < latent_columns)
            normed.compare(run, static_cast<std::size_t>(d), bits(d));
          else
            run.compare_exact(bf16_value(bits(d)), 0.0);
        for (int d = 0; d < mla::kPanelColumns; ++d)
          compare_turned(run, from + key_at, pairs, position, d, bits(latent + d));
      }
  }
};

// The turned part of every query head, from column `column` on of rows that are there already.
struct TurnedQueries {
  const AttentionShape& shape;
  const AttentionBatch& batch;
  const std::vector<float>& rows;
  mla::TurnQueriesParams params{};

  TurnedQueries(StepRun& run, const AttentionShape& of, const AttentionBatch& in,
                const std::vector<float>& from, const void* on_device, int stride, int column, int pairs,
                int latent, int latent_columns)
      : shape(of), batch(in), rows(from) {
    params.tables = batch.tables;
    params.projection = on_device;
    params.projection_stride = stride;
    params.column = column;
    params.heads = shape.heads;
    params.rotary_pairs = pairs;
    params.rotary = upload_turns(run, shape, pairs);
    params.query = run.upload(std::vector<std::uint16_t>(size(latent), 0xFFFF), "query");
    params.latent_columns = latent_columns;
    params.page_latent = latent;
  }
  std::size_t size(int latent) const {
    return batch.rows.size() * static_cast<std::size_t>(shape.heads * (latent + mla::kPanelColumns));
  }
  // absorbed(row, head, columns): of the part in front.
  template <class Absorbed>
  void check(StepRun& run, const Absorbed& absorbed) {
    const int width = params.page_latent + mla::kPanelColumns;
    const auto got = run.written(params.query, size(params.page_latent));
    for (std::size_t i = 0; i < shape.parts.size(); ++i)
      for (int r = 0; r < shape.parts[i].rows; ++r)
        for (int h = 0; h < shape.heads; ++h) {
          const int row = batch.first_row[i] + r;
          const std::uint16_t* head = got.data() + (row * shape.heads + h) * width;
          absorbed(row, h, head);
          for (int d = params.latent_columns; d < params.page_latent; ++d) run.compare_exact(head[d], 0);
          const float* from =
              rows.data() + row * params.projection_stride + params.column + h * 2 * params.rotary_pairs;
          for (int d = 0; d < mla::kPanelColumns; ++d)
            compare_turned(run, from, params.rotary_pairs, shape.parts[i].context + r, d,
                           head[params.page_latent + d]);
        }
  }
};

// The matrices of some heads in bf16, rows wider than they need be on odd variants.
struct HeadMatrices {
  bool transposed;
  int heads, in, out, stride;
  std::vector<float> weight;
  const std::uint16_t* on_device = nullptr;

  HeadMatrices(StepRun& run, bool is_transposed, int head_count, int in_columns, int out_columns)
      : transposed(is_transposed),
        heads(head_count),
        in(in_columns),
        out(out_columns),
        stride((transposed ? out : in) + 8 * (run.test().variant % 2)) {
    weight = run.normals(static_cast<std::size_t>(heads * (transposed ? in : out) * stride));
    std::vector<std::uint16_t> halves;
    for (float& value : weight) {
      halves.push_back(to_bf16(value).bits);
      value = bf16_value(halves.back());
    }
    on_device = run.upload(halves, "weight");
  }
  mla::HeadLinearParams params() const {
    mla::HeadLinearParams params{};
    params.in_columns = in;
    params.weight = on_device;
    params.weight_stride = stride;
    params.heads = heads;
    params.out_columns = out;
    return params;
  }
  double at(int head, int i, int j) const {  // of output i, input j
    return double{weight[static_cast<std::size_t>(transposed ? (head * in + j) * stride + i
                                                             : (head * out + i) * stride + j)]};
  }
  // One head's result, from numbers that were off by `error` when they were rounded; null: they were not.
  void compare(StepRun& run, int head, const double* from, const double* error,
               const std::uint16_t* got) const {
    for (int i = 0; i < out; ++i) {
      double value = 0, total = 0, moved = 0;
      for (int j = 0; j < in; ++j) {
        const double w = at(head, i, j), off = error != nullptr ? error[j] : 0.0;
        value += w * from[j];
        total += std::abs(w) * (std::abs(from[j]) + off);
        moved += std::abs(w) * off;
      }
      run.compare_bound(bf16_value(got[i]), value,
                        moved * (1 + 0x1p-8) + mla::head_linear_bound(in, value, total));
    }
  }
};

}  // namespace fourfold::verify
