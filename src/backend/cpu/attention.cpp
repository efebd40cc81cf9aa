#include "backend/cpu/attention.h"

#include <algorithm>

#include "base/bf16.h"

namespace fourfold::backend::cpu {
namespace {

constexpr std::int64_t kStretch = 4 * kernel::kAttendPositions;

void store(KvFormat format, const float* from, std::int64_t count, std::uint8_t* to) {
  if (format == KvFormat::f32) {
    std::copy_n(from, count, reinterpret_cast<float*>(to));
    return;
  }
  auto* narrow = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < count; ++i) narrow[i] = to_bf16(from[i]).bits;
}

}  // namespace

// The softmax of `count` heads so far: largest, total and sums lie one after another.
struct KvPages::Piece {
  std::int64_t kv_head;
  std::int64_t first, count;  // query heads
  std::int64_t position_begin, position_end;
  float* largest;  // [count]
  float* total;    // [count]
  float* sums;     // [count, head_dim]
};

KvPages::KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens)
    : kv_head_count_(cache.kv_head_count),
      head_dim_(cache.head_dim),
      page_tokens_(page_tokens),
      format_(cache.format) {
  const auto bytes =
      static_cast<std::size_t>(page_count * page_tokens * cache.columns() * element_bytes(format_));
  keys_ = kernel::AlignedBytes(bytes);
  values_ = kernel::AlignedBytes(bytes);
}

void KvPages::write(const RowPlace& place, const float* key, const float* value) {
  const std::int64_t page = place.pages[static_cast<std::size_t>(place.position / page_tokens_)];
  const std::int64_t row = page * page_tokens_ + place.position % page_tokens_;
  const std::int64_t columns = kv_head_count_ * head_dim_;
  const std::size_t at = static_cast<std::size_t>(row * columns * element_bytes(format_));
  store(format_, key, columns, keys_.data() + at);
  store(format_, value, columns, values_.data() + at);
}

void KvPages::attend_piece(Machine& machine, const RowPlace& place, const Piece& piece, float scale,
                           const float* queries) const {
  float run_largest[kernel::kAttendQueries], run_total[kernel::kAttendQueries];
  float run_sums[kHeadDimMax];  // of piece.count heads
  kernel::AttendJob job;
  job.queries = queries + piece.first * head_dim_;
  job.query_count = piece.count;
  job.head_dim = head_dim_;
  job.scale = scale;
  job.is_bf16 = format_ == KvFormat::bf16;
  const std::size_t offset = static_cast<std::size_t>(piece.kv_head * head_dim_ * element_bytes(format_));
  job.keys = keys_.data() + offset;
  job.values = values_.data() + offset;
  job.row_stride = kv_head_count_ * head_dim_;
  job.pages = place.pages.data();
  job.page_tokens = page_tokens_;
  for (std::int64_t begin = piece.position_begin; begin < piece.position_end;
       begin += kernel::kAttendPositions) {
    const bool is_first = begin == piece.position_begin;
    job.position_begin = begin;
    job.position_end = std::min(begin + kernel::kAttendPositions, piece.position_end);
    job.largest = is_first ? piece.largest : run_largest;
    job.total = is_first ? piece.total : run_total;
    job.sums = is_first ? piece.sums : run_sums;
    machine.kernels.attend(job);
    for (std::int64_t q = 0; q < piece.count && !is_first; ++q)
      machine.kernels.merge_run(piece.largest[q], piece.total[q], piece.sums + q * head_dim_, run_largest[q],
                                run_total[q], run_sums + q * head_dim_, head_dim_);
  }
}

void KvPages::attend(Machine& machine, std::span<const RowPlace> places, std::int64_t head_count, float scale,
                     const float* queries, float* out) {
  const auto row_count = static_cast<std::int64_t>(places.size());
  if (row_count == 0) return;
  const std::int64_t heads_per_kv = head_count / kv_head_count_;
  std::int64_t stretches = 1;
  for (const RowPlace& place : places) stretches = std::max(stretches, place.position / kStretch + 1);
  // Few rows: more, smaller pieces. A head's arithmetic is its own, so groups may have any size.
  const bool few = row_count * kv_head_count_ * stretches < 4 * machine.pool.thread_count();
  const std::int64_t group =
      std::min({heads_per_kv, std::int64_t{few ? 4 : 8}, std::max<std::int64_t>(kHeadDimMax / head_dim_, 1)});
  const std::int64_t groups_per_kv = (heads_per_kv + group - 1) / group;
  const std::int64_t pieces = kv_head_count_ * groups_per_kv;
  // Each stretch of each head keeps its softmax until the row's are merged, in order.
  const std::int64_t head_floats = head_dim_ + 2;
  const std::int64_t row_floats = stretches * head_count * head_floats;
  const std::int64_t rows_at_a_time =
      std::clamp<std::int64_t>((std::int64_t{64} << 20) / (4 * row_floats), 1, row_count);
  float* partial = partial_.get(rows_at_a_time * row_floats);
  for (std::int64_t first = 0; first < row_count; first += rows_at_a_time) {
    const std::int64_t rows = std::min(rows_at_a_time, row_count - first);
    // Stretch by stretch within a row; the last rows, which look back furthest, first.
    machine.pool.run(rows * pieces * stretches, [&](std::int64_t item) {
      const std::int64_t row = first + rows - 1 - item / (pieces * stretches);
      const std::int64_t stretch = item / pieces % stretches;
      const std::int64_t kv_head = item % pieces / groups_per_kv;
      const RowPlace& place = places[static_cast<std::size_t>(row)];
      if (stretch * kStretch > place.position) return;
      Piece piece{};
      piece.kv_head = kv_head;
      piece.first = kv_head * heads_per_kv + item % groups_per_kv * group;
      piece.count = std::min(group, (kv_head + 1) * heads_per_kv - piece.first);
      piece.position_begin = stretch * kStretch;
      piece.position_end = std::min(piece.position_begin + kStretch, place.position + 1);
      float* at = partial + ((row - first) * stretches + stretch) * head_count * head_floats;
      piece.largest = at + piece.first;
      piece.total = at + head_count + piece.first;
      piece.sums = at + 2 * head_count + piece.first * head_dim_;
      attend_piece(machine, place, piece, scale, queries + row * head_count * head_dim_);
    });
    machine.each_row(rows, head_count * head_dim_, [&](std::int64_t row) {
      const std::int64_t count = places[static_cast<std::size_t>(first + row)].position / kStretch + 1;
      float* at = partial + row * row_floats;
      float* row_out = out + (first + row) * head_count * head_dim_;
      for (std::int64_t head = 0; head < head_count; ++head) {
        float* sums = at + 2 * head_count + head * head_dim_;
        for (std::int64_t stretch = 1; stretch < count; ++stretch) {
          const float* next = at + stretch * head_count * head_floats;
          machine.kernels.merge_run(at[head], at[head_count + head], sums, next[head],
                                    next[head_count + head], next + 2 * head_count + head * head_dim_,
                                    head_dim_);
        }
        const float total = at[head_count + head];
        for (std::int64_t i = 0; i < head_dim_; ++i) row_out[head * head_dim_ + i] = sums[i] / total;
      }
    });
  }
}

}  // namespace fourfold::backend::cpu
