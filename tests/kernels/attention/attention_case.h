// A layer of attention on the simulator: projections of several sequences go through prepare, and what the
// kernels leave is read back. Two runs of the same sequences in other batches can be compared bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/random.h"
#include "kernels/attention/reference.h"
#include "kernels/attention/rows.h"
#include "kernels/launch/sim_row.h"
#include "plan/arch.h"
#include "sim/device.h"

namespace fourfold::attention {

using Arch = plan::Sm120;

struct Shape {
  int heads = 2;
  int kv_heads = 1;
  int pairs = 8;
  bool gated = true;
  bool normed = true;
  double spread = 1.0;  // of the norm's factors: larger, sharper softmax
  float epsilon = 1e-6f;
  // Of rows that take them.
  int window = 0;
  std::vector<float> sinks = {};  // [heads], or none
};

// The new rows of a sequence stand at positions context to context + rows - 1. What its tokens project to is
// a function of `seed` and the position alone.
struct Sequence {
  int context = 0;
  int rows = 1;
  std::uint64_t seed = 1;
};

// The value a cached number stands for.
template <class Kv>
float read_number(const unsigned char* at) {
  if constexpr (Kv::bytes == 2) {
    Bf16 value;
    std::memcpy(&value, at, 2);
    return to_float(value);
  } else {
    return to_float(E4m3{*at});
  }
}
template <class Kv>
float rounded(float value) {
  return Kv::bytes == 2 ? to_float(to_bf16(value)) : to_float(to_e4m3(value));
}

template <class T>
T* upload(sim::Device& device, const std::vector<T>& values, const char* name) {
  T* to = device.allocate_array<T>(std::max<std::size_t>(values.size(), 1), name);
  device.write_from_host(to, values.data(), values.size() * sizeof(T));
  return to;
}

template <class Kv, int HeadDim>
class Layer {
 public:
  using Layout = PageLayout<Kv, HeadDim>;

  Layer(Shape shape, int page_count, std::uint64_t seed) : shape_(shape), page_count_(page_count) {
    device_.set_seed(seed);
    Random random(99);
    for (int i = 0; i < HeadDim; ++i) {
      query_weight_.push_back(static_cast<float>(shape.spread * (1.0 + 0.2 * random.normal())));
      key_weight_.push_back(static_cast<float>(1.0 + 0.2 * random.normal()));
    }
    const std::size_t bytes = static_cast<std::size_t>(page_count) * shape.kv_heads * Layout::page_bytes;
    // Bytes nobody has written yet are NaN: a kernel that lets one of them into a sum is seen.
    const std::vector<unsigned char> garbage(bytes, 0xFF);
    keys_ = upload(device_, garbage, "keys");
    values_ = upload(device_, garbage, "values");
  }

  sim::Device& device() { return device_; }
  const Shape& shape() const { return shape_; }
  int columns() const { return shape_.heads * head_stride() + 2 * shape_.kv_heads * HeadDim; }
  int head_stride() const { return shape_.gated ? 2 * HeadDim : HeadDim; }
  int key_column() const { return shape_.heads * head_stride(); }
  int value_column() const { return key_column() + shape_.kv_heads * HeadDim; }
  const std::vector<float>& query_weight() const { return query_weight_; }
  const std::vector<float>& key_weight() const { return key_weight_; }

  std::vector<float> projection(const Sequence& sequence, int position) const {
    Random random(sequence.seed * 1'000'003 + static_cast<std::uint64_t>(position));
    std::vector<float> row;
    for (int i = 0; i < columns(); ++i) row.push_back(static_cast<float>(random.normal()));
    return row;
  }
  // Tables over `parts`, whose rows follow each other with `gap` unused rows and sequences between them.
  // pages[i] are the physical pages of part i.
  struct Batch {
    step::Tables tables{};
    std::vector<step::RowPlace> rows;
    std::vector<step::SequencePlace> sequences;
  };
  Batch make_batch(const std::vector<Sequence>& parts, const std::vector<std::vector<std::int32_t>>& pages,
                   int gap = 0) {
    Batch batch;
    std::vector<std::int32_t> numbers{-1};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto index = static_cast<std::int32_t>(batch.sequences.size());
      const auto page_begin = static_cast<std::int32_t>(numbers.size());
      numbers.insert(numbers.end(), pages[i].begin(), pages[i].end());
      batch.sequences.push_back(
          {static_cast<std::int32_t>(batch.rows.size()), parts[i].rows, parts[i].context, 0, page_begin, {}});
      for (int r = 0; r < parts[i].rows; ++r)
        batch.rows.push_back({index, parts[i].context + r, 0, page_begin});
      for (int g = 0; g < gap; ++g) {
        batch.rows.push_back({-1, 0, 0, 0});
        batch.sequences.push_back({0, 0, 0, 0, 0, {}});
      }
    }
    batch.tables = {upload(device_, batch.rows, "row places"), upload(device_, batch.sequences, "sequences"),
                    upload(device_, numbers, "page numbers"), static_cast<std::int32_t>(batch.rows.size()),
                    static_cast<std::int32_t>(batch.sequences.size())};
    return batch;
  }

  // Projections of the batch's rows on the device; unused rows stay unwritten.
  template <class Element>
  Element* upload_projections(const std::vector<Sequence>& parts, const Batch& batch) {
    const std::size_t stride = static_cast<std::size_t>(columns());
    auto* to = device_.allocate_array<Element>(batch.rows.size() * stride, "projections");
    for (std::size_t i = 0, s = 0; i < parts.size(); ++i, ++s) {
      while (batch.sequences[s].row_count == 0) ++s;
      for (int r = 0; r < parts[i].rows; ++r) {
        std::vector<Element> row;
        for (const float value : projection(parts[i], parts[i].context + r))
          if constexpr (std::is_same_v<Element, float>)
            row.push_back(value);
          else
            row.push_back(to_bf16(value).bits);
        device_.write_from_host(to + (static_cast<std::size_t>(batch.sequences[s].first_row) + r) * stride,
                                row.data(), stride * sizeof(Element));
      }
    }
    return to;
  }

  const float* rotary(int positions) {
    if (positions > rotary_positions_) {
      std::vector<float> table;
      for (int p = 0; p < positions; ++p)
        for (int j = 0; j < shape_.pairs; ++j) {
          const auto [c, s] = turn_of(p, j, shape_.pairs);
          table.push_back(c);
          table.push_back(s);
        }
      rotary_ = upload(device_, table, "rotary");
      rotary_positions_ = positions;
    }
    return rotary_;
  }

  // Runs prepare; returns the device's query rows.
  template <class Element>
  std::uint16_t* prepare_rows(const std::vector<Sequence>& parts, const Batch& batch,
                              const Element* projection) {
    int positions = 1;
    for (const Sequence& part : parts) positions = std::max(positions, part.context + part.rows);
    PrepareParams params{};
    params.tables = batch.tables;
    params.projection = projection;
    params.projection_stride = columns();
    params.query_column = 0;
    params.head_stride = head_stride();
    params.key_column = key_column();
    params.value_column = value_column();
    params.heads = shape_.heads;
    params.kv_heads = shape_.kv_heads;
    params.query_weight = shape_.normed ? upload(device_, query_weight_, "query weight") : nullptr;
    params.key_weight = shape_.normed ? upload(device_, key_weight_, "key weight") : nullptr;
    params.epsilon = shape_.epsilon;
    params.rotary_pairs = shape_.pairs;
    params.rotary = rotary(positions);
    params.query = device_.allocate_array<std::uint16_t>(
        batch.rows.size() * static_cast<std::size_t>(shape_.heads * HeadDim), "query");
    params.keys = keys_;
    params.values = values_;
    using Row = PrepareRow<Arch, Kv, HeadDim, Element>;
    kernels::run_on_sim<Row>(
        device_, static_cast<int>(prepare_blocks(batch.tables.row_limit, shape_.heads, shape_.kv_heads)),
        params);
    return params.query;
  }

  // Positions 0 to context - 1 of every part go to their pages.
  void write_contexts(const std::vector<Sequence>& parts,
                      const std::vector<std::vector<std::int32_t>>& pages) {
    std::vector<Sequence> past;
    std::vector<std::vector<std::int32_t>> past_pages;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (parts[i].context > 0) {
        past.push_back({0, parts[i].context, parts[i].seed});
        past_pages.push_back(pages[i]);
      }
    if (past.empty()) return;
    const Batch batch = make_batch(past, past_pages);
    prepare_rows(past, batch, upload_projections<std::uint16_t>(past, batch));
  }

  float key(int page, int kv_head, int position, int dim) const {
    return read_number<Kv>(page_of(keys_, page, kv_head) + Layout::key_offset(position, dim));
  }
  float value(int page, int kv_head, int position, int dim) const {
    return read_number<Kv>(page_of(values_, page, kv_head) + Layout::value_offset(position, dim));
  }
  const unsigned char* keys() const { return keys_; }
  const unsigned char* values() const { return values_; }
  int page_count() const { return page_count_; }

 private:
  const unsigned char* page_of(const unsigned char* cache, int page, int kv_head) const {
    return cache + (static_cast<std::size_t>(page) * shape_.kv_heads + kv_head) * Layout::page_bytes;
  }

  sim::Device device_;
  Shape shape_;
  int page_count_;
  std::vector<float> query_weight_;
  std::vector<float> key_weight_;
  unsigned char* keys_ = nullptr;
  unsigned char* values_ = nullptr;
  const float* rotary_ = nullptr;
  int rotary_positions_ = 0;
};

// Pages for every sequence, drawn without order from a pool.
inline std::vector<std::vector<std::int32_t>> draw_pages(const std::vector<Sequence>& parts, int page_count,
                                                         std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> pool;
  for (int i = 0; i < page_count; ++i) pool.push_back(i);
  for (std::size_t i = pool.size() - 1; i > 0; --i) std::swap(pool[i], pool[random.below(i + 1)]);
  std::vector<std::vector<std::int32_t>> pages;
  for (const Sequence& part : parts) {
    const int count = (part.context + part.rows + kPageTokens - 1) / kPageTokens;
    std::vector<std::int32_t> mine;
    for (int i = 0; i < count; ++i) {
      mine.push_back(pool.back());
      pool.pop_back();
    }
    pages.push_back(mine);
  }
  return pages;
}

inline std::vector<float> read_bf16(sim::Device& device, const std::uint16_t* from, std::size_t count) {
  std::vector<Bf16> bits(count);
  device.read_to_host(bits.data(), from, count * 2);
  std::vector<float> values;
  for (const Bf16 b : bits) values.push_back(to_float(b));
  return values;
}

// Every row and head against softmax over what the pages hold, in double precision; reference.h has the
// bound.
template <class Kv, int HeadDim, class SumsError>
void check_rows(Layer<Kv, HeadDim>& layer, const std::vector<Sequence>& parts,
                const std::vector<std::vector<std::int32_t>>& pages, const std::vector<float>& query,
                const std::vector<float>& out, const SumsError& sums_error, bool bf16_gate = false) {
  const Shape& shape = layer.shape();
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (int r = 0; r < parts[i].rows; ++r)
      for (int h = 0; h < shape.heads; ++h, at += HeadDim) {
        const int position = parts[i].context + r, kv_head = h / (shape.heads / shape.kv_heads);
        const auto page_of = [&](int p) { return pages[i][static_cast<std::size_t>(p / kPageTokens)]; };
        const auto in = layer.projection(parts[i], position);
        std::vector<float> gate;
        for (int d = 0; shape.gated && d < HeadDim; ++d) {
          const float x = in[static_cast<std::size_t>(h * layer.head_stride() + HeadDim + d)];
          gate.push_back(bf16_gate ? to_float(to_bf16(x)) : x);
        }
        Bounds bounds{shape.window,
                      shape.sinks.empty() ? nullptr : &shape.sinks[static_cast<std::size_t>(h)]};
        const auto want = attended(
            query.data() + at, HeadDim, position,
            [&](int p, int d) { return layer.key(page_of(p), kv_head, p % kPageTokens, d); },
            [&](int p, int d) { return layer.value(page_of(p), kv_head, p % kPageTokens, d); },
            sums_error(position), shape.gated ? gate.data() : nullptr, bounds);
        for (int d = 0; d < HeadDim; ++d)
          ASSERT_LE(std::abs(out[at + static_cast<std::size_t>(d)] - want[d].value), want[d].error)
              << "part " << i << " row " << r << " head " << h << " column " << d;
      }
}

inline std::vector<float> floats(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values;
  for (const std::uint16_t b : bits) values.push_back(to_float(Bf16{b}));
  return values;
}

}  // namespace fourfold::attention
