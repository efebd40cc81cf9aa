// What the proofs of the attention kernels share: a ragged batch in pages drawn without order, and the cache
// of a layer on the host. Unwritten places of a page hold NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/e4m3.h"
#include "base/format.h"
#include "base/random.h"
#include "kernels/attention/page_layout.h"
#include "kernels/attention/reference.h"
#include "kernels/attention/splits.h"
#include "kernels/step/step_tables.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {

// New rows of a sequence stand at positions context to context + rows - 1.
struct AttentionPart {
  int context = 0;
  int rows = 1;
  // For long contexts: all weight lies on a few positions (planted_positions), so that missing a single one
  // of them, by a wrong page number or a wrong split, is an error far beyond the bound.
  bool planted = false;
  int last() const { return context + rows - 1; }
  int pages() const { return last() / attention::kPageTokens + 1; }
};

// Both sides of every border a kernel has to get right: pages, the page numbers a warp holds at once (32),
// tiers and single splits of decode; then some positions without a reason.
inline std::vector<int> planted_positions(StepRun& run, const AttentionPart& part) {
  std::vector<int> borders{attention::kPageTokens, 32 * attention::kPageTokens, 64 * attention::kPageTokens,
                           attention::split_begin(attention::split_of(part.context))};
  for (const attention::SplitTier& tier : attention::kSplitTiers) {
    borders.push_back(tier.first_position);
    borders.push_back(attention::split_begin(tier.first_split + 1));
  }
  std::vector<int> out;
  for (const int border : borders)
    for (const int position : {border - 1, border})
      if (position >= 0 && position < part.context) out.push_back(position);
  for (int i = 0; i < 8; ++i) out.push_back(run.below(part.context));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Planted keys are this sign pattern; rows that look for them have it in their query vectors.
inline float planted_sign(int dim) {
  return mix_bits(static_cast<std::uint64_t>(dim) + 1) & 1 ? 1.0f : -1.0f;
}
// A query has kPlantedQuery times the pattern. The planted keys' factor makes their score 12: e^12 outweighs
// 262,144 positions of usual scores.
inline constexpr float kPlantedQuery = 1.5f;
inline float planted_key(int head_dim) {
  return 12.0f / (kPlantedQuery * std::sqrt(static_cast<float>(head_dim)));
}

struct AttentionShape {
  int heads = 2;
  int kv_heads = 1;
  int head_dim = 64;
  bool fp8 = false;
  bool gated = true;
  int window = 0;                 // 0: none
  std::vector<float> sinks = {};  // of each head, or none
  std::vector<AttentionPart> parts;
  int gap = 0;  // rows and sequences without anything, between the parts

  int head_stride() const { return gated ? 2 * head_dim : head_dim; }
  int columns() const { return heads * head_stride() + 2 * kv_heads * head_dim; }
};

// "256 bf16 x16" of a row's name decides head and cached numbers: facts have them as k and format.
inline AttentionShape shape_of(StepRun& run, std::vector<AttentionPart> parts) {
  AttentionShape shape;
  shape.head_dim = run.test().row.k;
  shape.fp8 = run.test().row.format == "fp8";
  shape.parts = std::move(parts);
  shape.gap = run.test().variant % 3 == 1 ? 2 : 0;
  shape.gated = run.test().variant % 2 == 0;
  return shape;
}

// Of rows that take windows and sinks: windows that end inside a page, beside its border, or at none; sinks
// below, among and above the scores. Heads must be known.
inline void give_bounds(StepRun& run, AttentionShape& shape) {
  if (!run.test().row.is_windowed) return;
  constexpr int windows[] = {65, 600, 0, 20'000};
  const int variant = run.test().variant;
  shape.window = run.test().large ? 128 : variant < 4 ? windows[variant] : 1 + run.below(200);
  shape.sinks = run.normals(static_cast<std::size_t>(shape.heads), 4.0);
}

inline void describe(StepRun& run, const AttentionShape& shape) {
  std::string rows;
  for (const AttentionPart& part : shape.parts)
    rows += fourfold::format("{}{}@{}", rows.empty() ? "" : " ", part.rows, part.context);
  run.result().shape = fourfold::format("heads {}/{} rows {}", shape.heads, shape.kv_heads, rows);
  if (shape.window > 0) run.result().shape += fourfold::format(" window {}", shape.window);
}

// Tables over the parts, in pages drawn without order.
struct AttentionBatch {
  step::Tables tables{};
  std::vector<step::RowPlace> rows;
  std::vector<step::SequencePlace> sequences;
  std::vector<int> first_row;                    // of each part
  std::vector<std::vector<std::int32_t>> pages;  // of each part
  int page_count = 0;
};

inline AttentionBatch make_batch(StepRun& run, const AttentionShape& shape) {
  AttentionBatch batch;
  std::vector<std::int32_t> pool;
  for (const AttentionPart& part : shape.parts) batch.page_count += part.pages();
  batch.page_count += 2;
  for (int i = 0; i < batch.page_count; ++i) pool.push_back(i);
  for (std::size_t i = pool.size() - 1; i > 0; --i) std::swap(pool[i], pool[run.random.below(i + 1)]);
  std::vector<std::int32_t> numbers{-1};
  for (const AttentionPart& part : shape.parts) {
    const auto index = static_cast<std::int32_t>(batch.sequences.size());
    const auto page_begin = static_cast<std::int32_t>(numbers.size());
    batch.pages.emplace_back(pool.end() - part.pages(), pool.end());
    pool.resize(pool.size() - static_cast<std::size_t>(part.pages()));
    numbers.insert(numbers.end(), batch.pages.back().begin(), batch.pages.back().end());
    batch.first_row.push_back(static_cast<int>(batch.rows.size()));
    batch.sequences.push_back({batch.first_row.back(), part.rows, part.context, 0, page_begin, {}});
    for (int r = 0; r < part.rows; ++r) batch.rows.push_back({index, part.context + r, 0, page_begin});
    for (int g = 0; g < shape.gap; ++g) {
      batch.rows.push_back({-1, 0, 0, 0});
      batch.sequences.push_back({0, 0, 0, 0, 0, {}});
    }
  }
  batch.tables = {run.upload(batch.rows, "row places"), run.upload(batch.sequences, "sequences"),
                  run.upload(numbers, "pages"), static_cast<std::int32_t>(batch.rows.size()),
                  static_cast<std::int32_t>(batch.sequences.size())};
  return batch;
}

// Where a number of a page lies, for every layout a row can have.
struct PageOffsets {
  std::size_t page_bytes;
  std::uint32_t (*key)(int position, int dim);
  std::uint32_t (*value)(int position, int dim);
};
template <class Kv, int HeadDim>
PageOffsets offsets_of() {
  using Layout = attention::PageLayout<Kv, HeadDim>;
  return {Layout::page_bytes, [](int p, int d) { return Layout::key_offset(p, d); },
          [](int p, int d) { return Layout::value_offset(p, d); }};
}
inline PageOffsets offsets_of(const AttentionShape& shape) {
  switch (shape.head_dim) {
    case 64: return shape.fp8 ? offsets_of<attention::E4m3Kv, 64>() : offsets_of<attention::Bf16Kv, 64>();
    case 128: return shape.fp8 ? offsets_of<attention::E4m3Kv, 128>() : offsets_of<attention::Bf16Kv, 128>();
    case 256: return shape.fp8 ? offsets_of<attention::E4m3Kv, 256>() : offsets_of<attention::Bf16Kv, 256>();
  }
  fail(Code::internal, "no page layout for heads of {}", shape.head_dim);
}

inline float cached_value(const unsigned char* at, bool fp8) {
  if (fp8) return to_float(E4m3{*at});
  Bf16 value;
  std::memcpy(&value, at, 2);
  return to_float(value);
}
inline float rounded(float value, bool fp8) {
  return fp8 ? to_float(to_e4m3(value)) : to_float(to_bf16(value));
}

// The cache of a layer on the host.
class PageCache {
 public:
  PageCache(const AttentionShape& shape, const AttentionBatch& batch)
      : shape_(shape), offsets_(offsets_of(shape)) {
    const std::size_t bytes = static_cast<std::size_t>(batch.page_count) *
                              static_cast<std::size_t>(shape.kv_heads) * offsets_.page_bytes;
    keys.assign(bytes, 0xFF);
    values.assign(bytes, 0xFF);
  }
  std::vector<unsigned char> keys, values;

  float key(int page, int head, int position, int dim) const {
    return cached_value(keys.data() + start(page, head) + offsets_.key(position, dim), shape_.fp8);
  }
  float value(int page, int head, int position, int dim) const {
    return cached_value(values.data() + start(page, head) + offsets_.value(position, dim), shape_.fp8);
  }
  // Every position the parts have gets a key and a value.
  void fill(StepRun& run, const AttentionBatch& batch) {
    for (std::size_t i = 0; i < shape_.parts.size(); ++i) {
      const AttentionPart& part = shape_.parts[i];
      for (int p = 0; p <= part.last(); ++p) {
        // Between plants one page is as good as another: the first is drawn, the others are copies of it.
        const bool copied = part.planted && p >= attention::kPageTokens &&
                            p / attention::kPageTokens < part.last() / attention::kPageTokens;
        if (!copied) {
          put_position(run, batch.pages[i], p, part.planted ? 0.5 : 1.0);
        } else if (p % attention::kPageTokens == 0) {
          copy_page(batch.pages[i].front(), batch.pages[i][p / attention::kPageTokens]);
        }
      }
      if (part.planted)
        for (const int p : planted_positions(run, part)) plant(run, batch.pages[i], p);
    }
  }

 private:
  void put_position(StepRun& run, const std::vector<std::int32_t>& pages, int p, double key_size) {
    for (int h = 0; h < shape_.kv_heads; ++h)
      for (int d = 0; d < shape_.head_dim; ++d) {
        put(key_at(pages, h, p, d), key_size * run.random.normal());
        put(value_at(pages, h, p, d), run.random.normal());
      }
  }
  void plant(StepRun& run, const std::vector<std::int32_t>& pages, int p) {
    for (int h = 0; h < shape_.kv_heads; ++h)
      for (int d = 0; d < shape_.head_dim; ++d) {
        put(key_at(pages, h, p, d), planted_key(shape_.head_dim) * planted_sign(d));
        put(value_at(pages, h, p, d), 4.0 * run.random.normal());
      }
  }
  void copy_page(int from, int to) {
    const std::size_t bytes = static_cast<std::size_t>(shape_.kv_heads) * offsets_.page_bytes;
    std::copy_n(keys.data() + start(from, 0), bytes, keys.data() + start(to, 0));
    std::copy_n(values.data() + start(from, 0), bytes, values.data() + start(to, 0));
  }
  unsigned char* key_at(const std::vector<std::int32_t>& pages, int head, int p, int d) {
    return keys.data() + start(pages[p / attention::kPageTokens], head) +
           offsets_.key(p % attention::kPageTokens, d);
  }
  unsigned char* value_at(const std::vector<std::int32_t>& pages, int head, int p, int d) {
    return values.data() + start(pages[p / attention::kPageTokens], head) +
           offsets_.value(p % attention::kPageTokens, d);
  }
  std::size_t start(int page, int head) const {
    return (static_cast<std::size_t>(page) * static_cast<std::size_t>(shape_.kv_heads) +
            static_cast<std::size_t>(head)) *
           offsets_.page_bytes;
  }
  void put(unsigned char* to, double value) const {
    const Bf16 half = to_bf16(static_cast<float>(value));
    if (shape_.fp8)
      *to = to_e4m3(static_cast<float>(value)).bits;
    else
      std::memcpy(to, &half, 2);
  }
  const AttentionShape& shape_;
  PageOffsets offsets_;
};

// cos and sin of every position of the batch.
inline const float* upload_turns(StepRun& run, const AttentionShape& shape, int pairs) {
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

}  // namespace fourfold::verify
