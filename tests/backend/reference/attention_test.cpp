#include "backend/reference/attention.h"

#include "base/bf16.h"
#include "base/e4m3.h"
#include "tests/backend/support.h"

namespace fourfold::backend::reference {
namespace {

constexpr std::int64_t kDim = 3;

// Two kv heads for four heads: head h reads kv head h / 2.
TEST(Attention, IsTheSoftmaxOverAllPositionsUpToItsOwn) {
  const KvCache cache{"cache", 2, kDim, KvFormat::f32};
  KvPages pages(cache, 4, 4);
  const std::vector<std::int32_t> order{2, 0, 3};
  const PageTable table{order, 4};
  std::vector<std::vector<float>> keys, values;
  for (std::int64_t t = 0; t < 11; ++t) {
    keys.push_back(random_floats(2 * kDim, 10 + t));
    values.push_back(random_floats(2 * kDim, 50 + t));
    write_kv(cache, table, t, keys.back(), values.back(), pages);
  }
  const auto query = random_floats(4 * kDim, 3);
  std::vector<float> out(4 * kDim);
  const std::int64_t last = 8;  // positions 9 and 10 are there and must not be seen
  attend(Attention{{}, {}, 4, 0.7, {}}, cache, table, pages, last, query, out);
  for (std::int64_t h = 0; h < 4; ++h) {
    double total = 0;
    std::vector<double> sum(kDim);
    for (std::int64_t t = 0; t <= last; ++t) {
      double score = 0;
      for (std::int64_t i = 0; i < kDim; ++i)
        score += 0.7 * query[h * kDim + i] * static_cast<double>(keys[t][h / 2 * kDim + i]);
      total += std::exp(score);
      for (std::int64_t i = 0; i < kDim; ++i) sum[i] += std::exp(score) * values[t][h / 2 * kDim + i];
    }
    // One rounding to f32 of a mean of values below 4.
    for (std::int64_t i = 0; i < kDim; ++i) EXPECT_NEAR(out[h * kDim + i], sum[i] / total, 4 * 0x1p-24);
  }
}

// A window of three, and a logit beside the scores that takes its share and gives nothing. Positions before
// the window were never written, and NaN would show.
TEST(Attention, SeesItsWindowAndASink) {
  const KvCache cache{"cache", 1, kDim, KvFormat::f32};
  KvPages pages(cache, 2, 4);
  const std::vector<std::int32_t> order{1, 0};
  const PageTable table{order, 4};
  std::vector<std::vector<float>> keys(8), values(8);
  for (std::int64_t t = 3; t < 8; ++t) {
    keys[t] = random_floats(kDim, 10 + t);
    values[t] = random_floats(kDim, 50 + t);
    write_kv(cache, table, t, keys[t], values[t], pages);
  }
  const auto query = random_floats(2 * kDim, 3);
  const std::vector<float> sinks{0.5f, 90.0f};  // the second is the largest by far, and must not overflow
  std::vector<float> out(2 * kDim);
  const Attention op{{}, {}, 2, 0.7, {}, {}, 3};
  attend(op, cache, table, pages, 5, query, out, sinks);
  for (std::int64_t h = 0; h < 2; ++h) {
    double total = std::exp(static_cast<double>(sinks[h]));
    std::vector<double> sum(kDim);
    for (std::int64_t t = 3; t <= 5; ++t) {
      double score = 0;
      for (std::int64_t i = 0; i < kDim; ++i)
        score += 0.7 * query[h * kDim + i] * static_cast<double>(keys[t][i]);
      total += std::exp(score);
      for (std::int64_t i = 0; i < kDim; ++i) sum[i] += std::exp(score) * values[t][i];
    }
    for (std::int64_t i = 0; i < kDim; ++i) EXPECT_NEAR(out[h * kDim + i], sum[i] / total, 4 * 0x1p-24);
  }
}

TEST(Attention, AnUnwrittenPageShows) {
  const KvCache cache{"cache", 1, kDim, KvFormat::f32};
  KvPages pages(cache, 1, 4);
  const std::vector<std::int32_t> order{0};
  const auto one = random_floats(kDim, 1);
  write_kv(cache, {order, 4}, 1, one, one, pages);  // position 0 is missing
  std::vector<float> out(kDim);
  attend(Attention{{}, {}, 1, 1, {}}, cache, {order, 4}, pages, 1, one, out);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(WriteKv, RoundsAsTheCacheIs) {
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8}) {
    const KvCache cache{"cache", 1, kDim, format};
    KvPages pages(cache, 1, 1);
    const std::vector<std::int32_t> order{0};
    const auto rounded = [&](float x) {
      return format == KvFormat::fp8 ? to_float(to_e4m3(x)) : to_float(to_bf16(x));
    };
    auto key = random_floats(kDim, 1);
    key[0] = 1000;  // fp8: saturated
    const auto value = random_floats(kDim, 2);
    write_kv(cache, {order, 1}, 0, key, value, pages);
    for (std::int64_t i = 0; i < kDim; ++i) {
      EXPECT_EQ(pages.keys.row(0)[i], rounded(key[i]));
      EXPECT_EQ(pages.values.row(0)[i], rounded(value[i]));
    }
    EXPECT_EQ(pages.keys.row(0)[0], format == KvFormat::fp8 ? 448 : 1000);
  }
}

// Two heads of two columns and one: a key is its value's columns and then its own, and the value is in it.
TEST(Attention, OfALatentCache) {
  const KvCache cache{"cache", 2, 3, KvFormat::f32, 2};
  const std::vector<std::int32_t> order{0};
  const PageTable table{order, 4};
  KvPages latent(cache, 1, 4);
  EXPECT_TRUE(latent.values.cells.empty());
  const KvCache whole{"whole", 2, 3, KvFormat::f32};
  KvPages apart(whole, 1, 4);
  for (std::int64_t t = 0; t < 4; ++t) {
    const auto n = random_floats(6, 20 + t);
    write_kv(cache, table, t, std::vector<float>{n[2], n[5]}, std::vector<float>{n[0], n[1], n[3], n[4]},
             latent);
    write_kv(whole, table, t, n, n, apart);
  }
  const auto query = random_floats(12, 3);
  std::vector<float> out(8), wide(12);
  const Attention op{{}, {}, 4, 0.7, {}};
  attend(op, cache, table, latent, 3, query, out);
  attend(op, whole, table, apart, 3, query, wide);
  for (std::size_t head = 0; head < 4; ++head)
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(out[head * 2 + i], wide[head * 3 + i]) << head;
}

// For the first five positions the scale stays; behind them it is that of 1 + growth log(1 + 1).
TEST(Attention, WithAScaleThatGrows) {
  const KvCache cache{"cache", 1, kDim, KvFormat::f32};
  const std::vector<std::int32_t> order{0};
  const PageTable table{order, 8};
  KvPages pages(cache, 1, 8);
  for (std::int64_t t = 0; t < 8; ++t)
    write_kv(cache, table, t, random_floats(kDim, 10 + t), random_floats(kDim, 50 + t), pages);
  const auto query = random_floats(kDim, 3);
  Attention grows{{}, {}, 1, 0.7, {}};
  grows.growth = 0.4, grows.growth_positions = 5;
  for (const auto& [position, factor] :
       {std::pair<std::int64_t, double>(4, 1), {5, 1 + 0.4 * std::log(2.0)}, {7, 1 + 0.4 * std::log(2.0)}}) {
    std::vector<float> out(kDim), wanted(kDim);
    attend(grows, cache, table, pages, position, query, out);
    attend(Attention{{}, {}, 1, 0.7 * factor, {}}, cache, table, pages, position, query, wanted);
    EXPECT_EQ(out, wanted) << position;
  }
}

}  // namespace
}  // namespace fourfold::backend::reference
