// Softmax attention of a block of queries over one run of positions, and how runs are put together. Runs
// begin at absolute multiples of kAttendPositions and are merged in order, so a row's arithmetic follows from
// its position; how many queries share a block, and what else is in it, cannot be seen.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/jobs.h"
#include "kernels/cpu/tile.h"

namespace fourfold::cpu {

template <class L, class Element>
struct Attend {
  using V = typename L::V;
  // Of a panel's sixteen columns, how many a tile has.
  template <int Rows>
  static constexpr int tile_columns = L::template tile_vectors<Rows>* L::vector;

  const AttendJob& job;

  std::int64_t query_count() const { return job.row_count * job.head_count; }
  // Positions of the run that a query sees, and the last row's: the most.
  std::int64_t count_of(std::int64_t query) const {
    const std::int64_t count = job.position_end + query / job.head_count - job.position_begin;
    return count < kAttendPositions ? count : kAttendPositions;
  }
  std::int64_t count_of_all() const { return count_of(query_count() - 1); }
  // Positions of the run that lie before a query's window.
  std::int64_t hidden_of(std::int64_t query) const {
    const std::int64_t hidden = job.seen_begin + query / job.head_count - job.position_begin;
    const std::int64_t count = count_of(query);
    return hidden < 0 ? 0 : hidden < count ? hidden : count;
  }

  // Panels that several tiles of queries read are widened to f32 once. Keys and values are then the same loop
  // over floats.
  const float* widened(const float* panel, std::int64_t) const { return panel; }
  const float* widened(const std::uint16_t* panel, std::int64_t rows) const {
    float* to = job.panel;
    for (std::int64_t i = 0; i < rows * 16; i += 32) {
      __builtin_prefetch(panel + rows * 16 + i);  // the next one, which lies behind this one
      L::store(to + i, L::load_bf16(panel + i));
      if (i + 16 < rows * 16) L::store(to + i + 16, L::load_bf16(panel + i + 16));
    }
    return to;
  }
  bool widens() const { return query_count() > L::tile_rows; }

  // Scores of a tile's queries with a group of positions: lanes one after the other, each added to its
  // neighbours as soon as both halves are there.
  template <int Rows, class Columns>
  void score_tile(std::int64_t query, const Columns* keys, float* scores, std::int64_t stride) const {
    const std::int64_t steps = job.padded_dim / 16;
    constexpr int vectors = L::template tile_vectors<Rows>;
    const float* queries = job.queries + query * job.padded_dim;
    V halves[4][Rows][vectors];
    for (int lane = 0; lane < 16; ++lane, queries += steps * Rows, keys += steps * 16) {
      V sum[Rows][vectors];
      // A lane starts from its first product, not from zero: that can be seen in the sign of a zero alone,
      // and exp takes no notice of it.
      add_product<L, First::yes>(queries, keys, sum);
      add_products<L>(queries + Rows, Rows, keys + 16, steps - 1, sum);
      int level = 0;
      for (; (lane >> level & 1) != 0; ++level)
        unrolled<Rows * vectors>([&](auto at) __attribute__((always_inline)) {
          constexpr int r = at / vectors, v = at % vectors;
          sum[r][v] = L::add_vector(halves[level][r][v], sum[r][v]);
        });
      unrolled<Rows * vectors>([&](auto at) __attribute__((always_inline)) {
        constexpr int r = at / vectors, v = at % vectors;
        if (lane < 15)
          halves[level][r][v] = sum[r][v];
        else
          L::store_vector(scores + r * stride + v * L::vector,
                          L::mul_vector(sum[r][v], L::broadcast_vector(job.scale)));
      });
    }
  }

  // A panel's scores. Where pages are no whole panels only some are wanted, and they take a way round.
  template <class Columns>
  struct ScoreTile {
    const Attend& attend;
    const Columns* keys;
    std::int64_t lane, count;  // those that are wanted
    float* scores;             // of the first query and wanted position
    template <int Rows>
    void run(std::int64_t query) const {
      float some[Rows * 16];
      float* to = scores + query * kAttendPositions;
      const bool whole = count == 16;
      for (int column = 0; column < 16; column += tile_columns<Rows>)
        attend.template score_tile<Rows>(query, keys + column, (whole ? to : some) + column,
                                         whole ? kAttendPositions : 16);
      if (whole) return;
      for (int r = 0; r < Rows; ++r)
        std::memcpy(to + r * kAttendPositions, some + r * 16 + lane,
                    static_cast<std::size_t>(count) * sizeof(float));
    }
  };
  template <class Columns>
  void score_panel(const Columns* keys, std::int64_t lane, std::int64_t count, float* scores) const {
    for_tiles<L::tile_rows>(0, query_count(), ScoreTile<Columns>{*this, keys, lane, count, scores});
  }

  void score() const {
    const auto* keys = static_cast<const Element*>(job.keys);
    const std::int64_t all = count_of_all();
    for (std::int64_t at = 0; at < all;) {
      const std::int64_t position = job.position_begin + at;
      const std::int64_t in_page = position % job.page_tokens;
      const std::int64_t lane = in_page % 16;
      std::int64_t count = 16 - lane < all - at ? 16 - lane : all - at;
      if (count > job.page_tokens - in_page) count = job.page_tokens - in_page;
      const Element* panel = keys + job.pages[position / job.page_tokens] * job.key_page_stride +
                             (in_page - lane) * job.padded_dim;
      if (widens())
        score_panel(widened(panel, job.padded_dim), lane, count, job.scores + at);
      else
        score_panel(panel, lane, count, job.scores + at);
      at += count;
    }
  }

  // A score below all others, whose differences are still finite.
  static constexpr float kHidden = -3e38f;
  static typename L::F without_first(typename L::F weights, std::int64_t count) {
    float all[16];
    L::store(all, weights);
    for (std::int64_t i = 0; i < 16 && i < count; ++i) all[i] = 0;
    return L::load(all);
  }

  // scores become exp(score - largest), and those of hidden positions 0.
  void soften(std::int64_t query) const {
    float* scores = job.scores + query * kAttendPositions;
    const std::int64_t count = count_of(query);
    const std::int64_t hidden = hidden_of(query);
    for (std::int64_t i = 0; i < hidden; ++i) scores[i] = kHidden;
    auto lanes = L::broadcast(scores[0]);
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) lanes = L::larger(L::load(scores + i), lanes);
    float most = L::largest(lanes);
    for (; i < count; ++i) most = scores[i] > most ? scores[i] : most;
    auto total = L::zero();
    const auto weight = [&](auto score) __attribute__((always_inline)) {
      return exponential_up_to_88<L>(L::sub(score, L::broadcast(most)));
    };
    for (i = 0; i + 16 <= count; i += 16) {
      auto weights = weight(L::load(scores + i));
      if (i < hidden) weights = without_first(weights, hidden - i);
      L::store(scores + i, weights);
      total = L::add(total, weights);
    }
    if (i < count) {
      auto weights = weight(load_some<L>(scores + i, count - i));
      if (i < hidden) weights = without_first(weights, hidden - i);
      store_some<L>(scores + i, count - i, weights);
      total = L::add(total, load_some<L>(scores + i, count - i));
    }
    job.run.largest[query] = most;
    job.run.total[query] = L::sum(total);
  }

  // The weights of a tile's queries, in the form add_products reads.
  struct TransposeTile {
    const Attend& attend;
    template <int Rows>
    void run(std::int64_t query) const {
      transpose_rows<L, Rows>(attend.job.scores + query * kAttendPositions, kAttendPositions,
                              attend.count_of(query + Rows - 1),
                              attend.job.weights + query * kAttendPositions);
    }
  };

  // sums += weights times `depth` rows of a panel of values.
  template <int Rows, class Columns>
  void weigh_tile(const float* weights, std::int64_t stride, const Columns* values, std::int64_t depth,
                  float* sums) const {
    constexpr int vectors = L::template tile_vectors<Rows>;
    for (int column = 0; column < 16; column += tile_columns<Rows>) {
      V sum[Rows][vectors];
      unrolled<Rows * vectors>([&](auto at) __attribute__((always_inline)) {
        constexpr int r = at / vectors, v = at % vectors;
        sum[r][v] = L::load_vector(sums + r * job.padded_value_dim + column + v * L::vector);
      });
      add_products<L>(weights, stride, values + column, depth, sum);
      unrolled<Rows * vectors>([&](auto at) __attribute__((always_inline)) {
        constexpr int r = at / vectors, v = at % vectors;
        L::store_vector(sums + r * job.padded_value_dim + column + v * L::vector, sum[r][v]);
      });
    }
  }
  template <class Columns>
  struct WeighTile {
    const Attend& attend;
    const Columns* values;
    std::int64_t at, count;  // positions: from the run's begin, and how many
    float* sums;             // of the first query
    std::int64_t depth_of(std::int64_t query) const {
      const std::int64_t seen = attend.count_of(query) - at;
      return seen < 0 ? 0 : seen < count ? seen : count;
    }
    template <int Rows>
    void run(std::int64_t query) const {
      const float* weights = attend.job.weights + query * kAttendPositions + at * Rows;
      float* tile_sums = sums + query * attend.job.padded_value_dim;
      // What all of them see, and then, where the run ends, each what it sees beyond.
      const std::int64_t common = depth_of(query);
      attend.template weigh_tile<Rows>(weights, Rows, values, common, tile_sums);
      for (std::int64_t r = 1; r < Rows; ++r)
        if (const std::int64_t more = depth_of(query + r) - common; more > 0)
          attend.template weigh_tile<1>(weights + common * Rows + r, Rows, values + common * 16, more,
                                        tile_sums + r * attend.job.padded_value_dim);
    }
  };
  template <class Columns>
  void weigh_panel(const Columns* values, std::int64_t at, std::int64_t count, float* sums) const {
    for_tiles<L::tile_rows>(0, query_count(), WeighTile<Columns>{*this, values, at, count, sums});
  }

  // Where values are in the keys: a panel of sixteen of their dimensions, made of the keys' panels. `page` is
  // the keys' page.
  static typename L::F load_wide(const float* from) { return L::load(from); }
  static typename L::F load_wide(const std::uint16_t* from) { return L::load_bf16(from); }
  const float* panel_of_keys(const Element* page, std::int64_t first, std::int64_t in_page,
                             std::int64_t count) const {
    for (std::int64_t d = 0; d < 16; ++d) {
      const Element* row = page + job.key_rows[first + d] * 16;
      float* to = job.panel + d;
      for (std::int64_t at = in_page; at < in_page + count;) {
        const std::int64_t lane = at % 16;
        float wide[16];
        L::store(wide, load_wide(row + (at - lane) * job.padded_dim));
        for (std::int64_t i = lane; i < 16 && at < in_page + count; ++i, ++at, to += 16) *to = wide[i];
      }
    }
    return job.panel;
  }

  void weigh() const {
    const auto* values = static_cast<const Element*>(job.values);
    const std::int64_t all = count_of_all();
    std::memset(job.run.sums, 0,
                static_cast<std::size_t>(query_count() * job.padded_value_dim) * sizeof(float));
    for (std::int64_t at = 0, count = 0; at < all; at += count) {
      const std::int64_t position = job.position_begin + at;
      const std::int64_t in_page = position % job.page_tokens;
      count = job.page_tokens - in_page < all - at ? job.page_tokens - in_page : all - at;
      const std::int64_t number = job.pages[position / job.page_tokens];
      if (values == nullptr) {
        const Element* page = static_cast<const Element*>(job.keys) + number * job.key_page_stride;
        for (std::int64_t first = 0; first < job.padded_value_dim; first += 16)
          weigh_panel(panel_of_keys(page, first, in_page, count), at, count, job.run.sums + first);
        continue;
      }
      const Element* page = values + number * job.value_page_stride;
      for (std::int64_t first = 0; first < job.padded_value_dim; first += 16) {
        const Element* panel = page + (first / 16 * job.page_tokens + in_page) * 16;
        if (widens())
          weigh_panel(widened(panel, count), at, count, job.run.sums + first);
        else
          weigh_panel(panel, at, count, job.run.sums + first);
      }
    }
  }
};

template <class L, class Element>
void attend_elements(const AttendJob& job) {
  const Attend<L, Element> attend{job};
  attend.score();
  for (std::int64_t query = 0; query < attend.query_count(); ++query) attend.soften(query);
  for_tiles<L::tile_rows>(0, attend.query_count(), typename Attend<L, Element>::TransposeTile{attend});
  attend.weigh();
}

// Queries in the form of AttendJob: tile by tile, a tile's queries side by side.
template <class L>
struct ArrangeTile {
  const float* from;
  std::int64_t padded_dim;
  float* to;
  template <int Rows>
  void run(std::int64_t query) const {
    transpose_rows<L, Rows>(from + query * padded_dim, padded_dim, padded_dim, to + query * padded_dim);
  }
};
template <class L>
void arrange_queries(const float* from, std::int64_t query_count, std::int64_t padded_dim, float* to) {
  for_tiles<L::tile_rows>(0, query_count, ArrangeTile<L>{from, padded_dim, to});
}

template <class L>
void attend(const AttendJob& job) {
  if (job.is_bf16)
    attend_elements<L, std::uint16_t>(job);
  else
    attend_elements<L, float>(job);
}

// The softmax of the positions before, and of the run after them, into one.
template <class L>
void merge_run(const Softmax& before, const Softmax& run, std::int64_t query_count, std::int64_t padded_dim) {
  for (std::int64_t first = 0; first < query_count; first += 16) {
    const std::int64_t count = query_count - first;
    const auto largest = load_some<L>(before.largest + first, count);
    const auto run_largest = load_some<L>(run.largest + first, count);
    const auto most = L::larger(run_largest, largest);
    const auto keep = exponential<L>(L::sub(largest, most));
    const auto add = exponential<L>(L::sub(run_largest, most));
    const auto total = L::add(L::mul(load_some<L>(before.total + first, count), keep),
                              L::mul(load_some<L>(run.total + first, count), add));
    store_some<L>(before.largest + first, count, most);
    store_some<L>(before.total + first, count, total);
    float keeps[16], adds[16];
    L::store(keeps, keep);
    L::store(adds, add);
    for (std::int64_t i = 0; i < 16 && i < count; ++i) {
      float* sums = before.sums + (first + i) * padded_dim;
      const auto keep_all = L::broadcast(keeps[i]);
      const auto add_all = L::broadcast(adds[i]);
      each_pair<L>(sums, run.sums + (first + i) * padded_dim, padded_dim, sums,
                   [&](auto old, auto more) { return L::fma(more, add_all, L::mul(old, keep_all)); });
    }
  }
}

}  // namespace fourfold::cpu
