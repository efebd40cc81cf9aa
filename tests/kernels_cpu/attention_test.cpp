// attend, merge_run, delta_rule and move_anchor: every instruction set against plain C++. What they mean is
// tested where they are used, against the reference backend.
#include "kernels/cpu/attention.h"

#include "base/bf16.h"
#include "kernels/cpu/delta.h"
#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

std::vector<float> attended(const Kernels& kernels, std::int64_t queries, std::int64_t head_dim,
                            bool is_bf16) {
  constexpr std::int64_t page_tokens = 7, positions = 300;
  const std::int64_t stride = 2 * head_dim;
  const std::vector<float> wide = normals(2 * 50 * page_tokens * stride, 1);
  std::vector<std::uint16_t> narrow;
  for (const float x : wide) narrow.push_back(to_bf16(x).bits);
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page < 50; ++page) pages.push_back((page * 7 + 3) % 50);
  const std::vector<float> query = normals(queries * head_dim, 2);
  std::vector<float> largest(16), total(16), sums(static_cast<std::size_t>(queries * head_dim));
  AttendJob job;
  job.queries = query.data();
  job.query_count = queries;
  job.head_dim = head_dim;
  job.scale = 0.3f;
  job.is_bf16 = is_bf16;
  const std::int64_t half = 50 * page_tokens * stride;
  job.keys = is_bf16 ? static_cast<const void*>(narrow.data() + head_dim) : wide.data() + head_dim;
  job.values = is_bf16 ? static_cast<const void*>(narrow.data() + half) : wide.data() + half;
  job.row_stride = stride;
  job.pages = pages.data();
  job.page_tokens = page_tokens;
  job.position_begin = kAttendPositions;
  job.position_end = positions;
  job.largest = largest.data();
  job.total = total.data();
  job.sums = sums.data();
  kernels.attend(job);
  std::vector<float> before = normals(head_dim, 3);
  float before_largest = 0.1f, before_total = 2;
  kernels.merge_run(before_largest, before_total, before.data(), largest[0], total[0], sums.data(), head_dim);
  std::vector<float> all = sums;
  all.insert(all.end(), largest.begin(), largest.end());
  all.insert(all.end(), total.begin(), total.end());
  all.insert(all.end(), before.begin(), before.end());
  all.push_back(before_largest), all.push_back(before_total);
  return all;
}

TEST(Attend, GivesTheSameBitsEverywhere) {
  for (const std::int64_t head_dim : {16, 20, 64, 256})
    for (const std::int64_t queries : {1, 3, 8, 13})
      for (const bool is_bf16 : {true, false})
        for_each_isa([&](const Kernels& k) {
          EXPECT_EQ(attended(k, queries, head_dim, is_bf16), attended(plain(), queries, head_dim, is_bf16))
              << queries << " x " << head_dim;
        });
}

std::vector<float> stepped(const Kernels& kernels, std::int64_t key_dim, std::int64_t value_dim,
                           std::int64_t rows) {
  constexpr std::int64_t heads = 2;
  const std::vector<float> query = normals(key_dim, 1), key = normals(key_dim, 2);
  const std::vector<float> values = normals(heads * value_dim, 3), beta = normals(heads, 4);
  const std::vector<float> anchor = normals(heads * key_dim * value_dim, 5);
  const std::vector<float> keys = normals(64 * key_dim, 6), deltas = normals(64 * heads * value_dim, 7);
  const std::vector<float> decay = normals(heads * 64, 8);
  std::vector<float> out(static_cast<std::size_t>(2 * heads * value_dim));
  std::vector<float> scratch(static_cast<std::size_t>(2 * ((value_dim + 15) / 16 * 16)));
  DeltaJob job;
  job.key_dim = key_dim;
  job.value_dim = value_dim;
  job.value_head_count = heads;
  job.query = query.data();
  job.key = key.data();
  job.values = values.data();
  job.beta = beta.data();
  job.anchor = anchor.data();
  job.row_count = rows;
  job.keys = keys.data();
  job.key_stride = key_dim;
  job.deltas = deltas.data();
  job.delta_stride = heads * value_dim;
  job.decay = decay.data();
  job.delta = out.data();
  job.out = out.data() + heads * value_dim;
  kernels.delta_rule(job, scratch.data());
  std::vector<float> moved(static_cast<std::size_t>(key_dim * value_dim));
  MoveAnchorJob move;
  move.key_dim = key_dim;
  move.value_dim = value_dim;
  move.from = anchor.data();
  move.to = moved.data();
  move.from_factor = 0.7f;
  move.row_count = 64;
  move.keys = keys.data();
  move.key_stride = key_dim;
  move.deltas = deltas.data();
  move.delta_stride = heads * value_dim;
  move.factors = decay.data();
  kernels.move_anchor(move);
  out.insert(out.end(), moved.begin(), moved.end());
  return out;
}

TEST(DeltaRule, GivesTheSameBitsEverywhere) {
  for (const auto& [key_dim, value_dim] :
       {std::pair<std::int64_t, std::int64_t>(16, 16), {20, 36}, {128, 128}, {32, 80}})
    for (const std::int64_t rows : {0, 1, 17, 63})
      for_each_isa([&](const Kernels& k) {
        EXPECT_EQ(stepped(k, key_dim, value_dim, rows), stepped(plain(), key_dim, value_dim, rows))
            << key_dim << " x " << value_dim << " after " << rows;
      });
}

}  // namespace
}  // namespace fourfold::cpu
