// arrange_queries, attend, merge_run, delta_rule and move_anchor: every instruction set against plain C++.
// What they mean is tested where they are used, against the reference backend.
#include "kernels/cpu/attention.h"

#include "base/bf16.h"
#include "kernels/cpu/delta.h"
#include "kernels/cpu/kv_panels.h"
#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

// Sums, largest and total of a run, and of that run merged with another.
// padded_value_dim: of values apart, or, where it is less, of values in the keys.
std::vector<float> attended(const Kernels& kernels, std::int64_t rows, std::int64_t heads,
                            std::int64_t padded_dim, std::int64_t padded_value_dim, bool is_bf16,
                            bool in_window) {
  constexpr std::int64_t page_tokens = 24, page_count = 20;
  const std::int64_t queries = rows * heads;
  const std::int64_t elements = page_count * kv_padded(page_tokens) * padded_dim;
  const std::vector<float> wide = normals(2 * elements, 1);
  std::vector<std::uint16_t> narrow;
  for (const float x : wide) narrow.push_back(to_bf16(x).bits);
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page < page_count; ++page) pages.push_back((page * 7 + 3) % page_count);
  const std::vector<float> given = normals(queries * padded_dim, 2);
  std::vector<float> arranged(given.size()), work(static_cast<std::size_t>(2 * queries * kAttendPositions));
  std::vector<float> panel(static_cast<std::size_t>(attend_panel_floats(padded_dim)));
  const auto softmax_of = [&](std::vector<float>& memory) {
    return Softmax{memory.data(), memory.data() + queries, memory.data() + 2 * queries};
  };
  std::vector<float> result(static_cast<std::size_t>(queries * (padded_value_dim + 2)));
  kernels.arrange_queries(given.data(), queries, padded_dim, arranged.data());
  AttendJob job;
  job.queries = arranged.data();
  job.row_count = rows;
  job.head_count = heads;
  job.padded_dim = padded_dim;
  job.padded_value_dim = padded_value_dim;
  job.scale = 0.3f;
  job.is_bf16 = is_bf16;
  job.keys = is_bf16 ? static_cast<const void*>(narrow.data()) : wide.data();
  job.values = is_bf16 ? static_cast<const void*>(narrow.data() + elements) : wide.data() + elements;
  std::vector<std::int64_t> key_rows;
  for (std::int64_t d = 0; d < padded_dim; ++d) key_rows.push_back(key_row(d, padded_dim));
  job.key_rows = key_rows.data();
  if (padded_value_dim < padded_dim) job.values = nullptr;
  job.key_page_stride = kv_padded(page_tokens) * padded_dim;
  job.value_page_stride = page_tokens * padded_dim;
  job.pages = pages.data();
  job.page_tokens = page_tokens;
  job.position_begin = kAttendPositions;
  job.position_end = kAttendPositions + 170;
  if (in_window) job.seen_begin = job.position_end - 37;
  job.scores = work.data();
  job.weights = work.data() + queries * kAttendPositions;
  job.panel = panel.data();
  job.run = softmax_of(result);
  kernels.attend(job);
  std::vector<float> before = normals(queries * (padded_value_dim + 2), 3);
  kernels.merge_run(softmax_of(before), job.run, queries, padded_value_dim);
  result.insert(result.end(), before.begin(), before.end());
  return result;
}

TEST(Attend, GivesTheSameBitsEverywhere) {
  for (const auto& [padded_dim, value_dim] :
       {std::pair<std::int64_t, std::int64_t>(16, 16), {64, 64}, {256, 256}, {80, 48}})
    for (const auto& [rows, heads] :
         {std::pair<std::int64_t, std::int64_t>(1, 1), {1, 3}, {1, 8}, {3, 5}, {40, 1}})
      for (const bool is_bf16 : {true, false})
        for (const bool in_window : {true, false})
          for_each_isa(
              [&, rows = rows, heads = heads, dim = padded_dim, value = value_dim](const Kernels& k) {
                EXPECT_EQ(attended(k, rows, heads, dim, value, is_bf16, in_window),
                          attended(plain(), rows, heads, dim, value, is_bf16, in_window))
                    << rows << " rows, " << heads << " heads of " << dim;
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
