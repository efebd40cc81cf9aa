// The CPU's attention against its definition, written down row by row: which number is added to which, and
// in which order. Blocks, tiles, threads and instruction sets may not be seen in a single bit.
#include "backend/cpu/attention.h"

#include <cmath>
#include <cstring>
#include <map>

#include "base/bf16.h"
#include "kernels/cpu/isa.h"
#include "tests/backend/support.h"

namespace fourfold::backend::cpu {
namespace {

constexpr std::int64_t kRun = 256, kStretch = 1024;

float exponential(float x) {
  float result;
  kernel::kernels_of(kernel::Isa::plain).exponentials(&x, 1, &result);
  return result;
}

// Sixteen lanes, halves added to halves.
float sum_lanes(std::vector<float> lanes) {
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

struct OneSoftmax {
  float largest = 0, total = 0;
  std::vector<float> sums;

  void merge(const OneSoftmax& after) {
    const float most = after.largest > largest ? after.largest : largest;
    const float keep = exponential(largest - most), add = exponential(after.largest - most);
    total = total * keep + after.total * add;
    largest = most;
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] = std::fma(after.sums[d], add, sums[d] * keep);
  }
};

struct Heads {
  std::int64_t count, kv_count, dim;
};

// Keys, values and queries of one sequence: [position][head][dim].
struct Sequence {
  Sequence(std::int64_t length, const Heads& sizes, KvFormat format, std::uint64_t seed)
      : heads(sizes),
        queries(random_floats(static_cast<std::size_t>(length * heads.count * heads.dim), seed)),
        keys(random_floats(static_cast<std::size_t>(length * heads.kv_count * heads.dim), seed + 1)),
        values(random_floats(static_cast<std::size_t>(length * heads.kv_count * heads.dim), seed + 2)) {
    kept_keys = keys, kept_values = values;
    if (format == KvFormat::bf16)
      for (auto* numbers : {&kept_keys, &kept_values})
        for (float& x : *numbers) x = to_float(to_bf16(x));
  }

  OneSoftmax run(std::int64_t position, std::int64_t head, std::int64_t begin, std::int64_t end) const {
    const auto at = [&](std::int64_t p) {
      return static_cast<std::size_t>((p * heads.kv_count + head / (heads.count / heads.kv_count)) *
                                      heads.dim);
    };
    const float* query = queries.data() + (position * heads.count + head) * heads.dim;
    std::vector<float> scores;
    for (std::int64_t p = begin; p < end; ++p) {
      std::vector<float> lanes(16);
      for (std::int64_t d = 0; d < heads.dim; ++d) {
        float& lane = lanes[static_cast<std::size_t>(d % 16)];
        lane = std::fma(query[d], kept_keys[at(p) + static_cast<std::size_t>(d)], lane);
      }
      scores.push_back(sum_lanes(lanes) * scale);
    }
    OneSoftmax result{scores[0], 0, std::vector<float>(static_cast<std::size_t>(heads.dim))};
    for (const float score : scores) result.largest = score > result.largest ? score : result.largest;
    std::vector<float> lanes(16);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const float weight = exponential(scores[i] - result.largest);
      lanes[i % 16] += weight;
      for (std::size_t d = 0; d < result.sums.size(); ++d)
        result.sums[d] =
            std::fma(weight, kept_values[at(begin + static_cast<std::int64_t>(i)) + d], result.sums[d]);
    }
    result.total = sum_lanes(lanes);
    return result;
  }

  // What a head of the row at `position` answers; kept, because every machine is asked for it.
  const std::vector<float>& answer(std::int64_t position, std::int64_t head) {
    std::vector<float>& kept = answers[{position, head}];
    if (kept.empty()) kept = make_answer(position, head);
    return kept;
  }
  std::vector<float> make_answer(std::int64_t position, std::int64_t head) const {
    OneSoftmax all;
    for (std::int64_t stretch = 0; stretch <= position; stretch += kStretch) {
      OneSoftmax part;
      const std::int64_t end = std::min(stretch + kStretch, position + 1);
      for (std::int64_t begin = stretch; begin < end; begin += kRun) {
        const OneSoftmax one = run(position, head, begin, std::min(begin + kRun, end));
        if (begin == stretch)
          part = one;
        else
          part.merge(one);
      }
      if (stretch == 0)
        all = part;
      else
        all.merge(part);
    }
    for (float& x : all.sums) x /= all.total;
    return all.sums;
  }

  Heads heads;
  float scale = 0.11f;
  std::vector<float> queries, keys, values, kept_keys, kept_values;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> answers;
};

// Sequences in one cache; each call attends with some rows of each.
class Cache {
 public:
  Cache(std::vector<Sequence> sequences, std::int64_t length, KvFormat format, std::int64_t page_tokens)
      : sequences_(std::move(sequences)),
        kv_({"cache", sequences_[0].heads.kv_count, sequences_[0].heads.dim, format},
            static_cast<std::int64_t>(sequences_.size()) * (length / page_tokens + 1), page_tokens) {
    const auto pages_each = static_cast<std::int32_t>(length / page_tokens + 1);
    const auto count = static_cast<std::int32_t>(sequences_.size());
    const std::int64_t columns = sequences_[0].heads.kv_count * sequences_[0].heads.dim;
    for (std::int32_t s = 0; s < count; ++s) {
      pages_.emplace_back();
      for (std::int32_t page = pages_each; page > 0; --page) pages_.back().push_back((page - 1) * count + s);
      for (std::int64_t p = 0; p < length; ++p)
        kv_.write({p, s, pages_.back()}, sequences_[static_cast<std::size_t>(s)].keys.data() + p * columns,
                  sequences_[static_cast<std::size_t>(s)].values.data() + p * columns);
    }
  }

  // rows: (sequence, position). Compares every bit of every head.
  void expect_answers(Machine& machine, const std::vector<std::pair<std::int32_t, std::int64_t>>& rows) {
    const std::int64_t width = sequences_[0].heads.count * sequences_[0].heads.dim;
    std::vector<RowPlace> places;
    std::vector<float> queries;
    for (const auto& [s, position] : rows) {
      const auto at = static_cast<std::size_t>(s);
      places.push_back({position, s, pages_[at]});
      const auto begin = sequences_[at].queries.begin() + position * width;
      queries.insert(queries.end(), begin, begin + width);
    }
    std::vector<float> out(queries.size());
    const Attention op{{}, {}, sequences_[0].heads.count, sequences_[0].scale, {}};
    kv_.attend(machine, places, op, {}, queries.data(), out.data());
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::int64_t head = 0; head < sequences_[0].heads.count; ++head) {
        const std::vector<float>& wanted =
            sequences_[static_cast<std::size_t>(rows[i].first)].answer(rows[i].second, head);
        const float* got = out.data() + static_cast<std::int64_t>(i) * width + head * sequences_[0].heads.dim;
        ASSERT_EQ(std::memcmp(got, wanted.data(), wanted.size() * sizeof(float)), 0)
            << "sequence " << rows[i].first << ", position " << rows[i].second << ", head " << head;
      }
  }

 private:
  std::vector<Sequence> sequences_;
  KvPages kv_;
  std::vector<std::vector<std::int32_t>> pages_;
};

template <class Test>
void for_each_machine(const Test& test) {
  for (const kernel::Isa isa : kernel::available_isas())
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(kernel::isa_name(isa)) + ", threads: " + std::to_string(threads));
      Machine machine{kernel::kernels_of(isa), ThreadPool(threads)};
      test(machine);
    }
}

std::vector<std::pair<std::int32_t, std::int64_t>> rows_of(std::int32_t sequence, std::int64_t begin,
                                                           std::int64_t end) {
  std::vector<std::pair<std::int32_t, std::int64_t>> rows;
  for (std::int64_t position = begin; position < end; ++position) rows.push_back({sequence, position});
  return rows;
}

// Every number of heads that share a key head, with rows that begin and end anywhere.
TEST(CpuAttention, HasTheBitsOfItsDefinitionForAnyHeads) {
  for (const Heads heads :
       {Heads{1, 1, 16}, {2, 1, 20}, {6, 2, 32}, {8, 1, 48}, {10, 2, 24}, {13, 1, 16}, {70, 1, 16}})
    for (const KvFormat format : {KvFormat::bf16, KvFormat::f32}) {
      SCOPED_TRACE(std::to_string(heads.count) + " heads, " + std::to_string(heads.dim) + " wide");
      Cache cache({Sequence(330, heads, format, 1)}, 330, format, 64);
      for_each_machine([&](Machine& machine) {
        cache.expect_answers(machine, rows_of(0, 0, 19));
        cache.expect_answers(machine, rows_of(0, 250, 262));  // across the end of a run
        cache.expect_answers(machine, rows_of(0, 329, 330));
      });
    }
}

TEST(CpuAttention, HasTheBitsOfItsDefinitionForAnyPages) {
  for (const std::int64_t page_tokens : {1, 7, 16, 24, 64, 300}) {
    SCOPED_TRACE(page_tokens);
    Cache cache({Sequence(300, {4, 2, 32}, KvFormat::bf16, 5)}, 300, KvFormat::bf16, page_tokens);
    for_each_machine([&](Machine& machine) { cache.expect_answers(machine, rows_of(0, 240, 300)); });
  }
}

// Past 1,024 positions softmaxes are merged twice; one row alone is shared out by stretches, many are not.
TEST(CpuAttention, HasTheBitsOfItsDefinitionFarBack) {
  Cache cache({Sequence(2100, {2, 1, 16}, KvFormat::bf16, 9)}, 2100, KvFormat::bf16, 64);
  for_each_machine([&](Machine& machine) {
    cache.expect_answers(machine, rows_of(0, 2099, 2100));
    cache.expect_answers(machine, rows_of(0, 2040, 2060));
    cache.expect_answers(machine, rows_of(0, 1000, 1060));
  });
}

// Rows of several sequences, some with one row and some with many, in one call.
TEST(CpuAttention, RowsOfOtherSequencesChangeNothing) {
  Cache cache({Sequence(300, {4, 2, 16}, KvFormat::bf16, 1), Sequence(300, {4, 2, 16}, KvFormat::bf16, 2),
               Sequence(300, {4, 2, 16}, KvFormat::bf16, 3)},
              300, KvFormat::bf16, 16);
  std::vector<std::pair<std::int32_t, std::int64_t>> rows = rows_of(2, 299, 300);
  for (const auto& more : {rows_of(0, 100, 170), rows_of(1, 256, 257), rows_of(1, 0, 3)})
    rows.insert(rows.end(), more.begin(), more.end());
  for_each_machine([&](Machine& machine) { cache.expect_answers(machine, rows); });
}

// A number that is none stays with the rows that see it.
TEST(CpuAttention, NanIsSeenByLaterRowsAlone) {
  Sequence sequence(40, {2, 1, 16}, KvFormat::f32, 3);
  sequence.keys[20 * 16 + 3] = std::nanf("");
  sequence.values[30 * 16 + 5] = INFINITY;
  sequence.kept_keys = sequence.keys, sequence.kept_values = sequence.values;
  Cache cache({sequence}, 40, KvFormat::f32, 16);
  for_each_machine([&](Machine& machine) { cache.expect_answers(machine, rows_of(0, 0, 20)); });
}

// Values that are the first columns of their keys are stored once, and give what values apart give. Pages
// that are no whole panels, runs that end inside of one, few queries and many.
TEST(CpuAttention, ALatentCacheHasTheBitsOfOneWithItsValuesApart) {
  constexpr std::int64_t length = 300, dim = 52;
  for (const auto& [format, latent, heads, page_tokens] :
       {std::tuple<KvFormat, std::int64_t, std::int64_t, std::int64_t>(KvFormat::bf16, 32, 3, 64),
        {KvFormat::bf16, 40, 20, 24},
        {KvFormat::f32, 48, 70, 7}}) {
    const auto keys = random_floats(static_cast<std::size_t>(length * dim), 1);
    const auto queries = random_floats(static_cast<std::size_t>(4 * heads * dim), 2);
    const std::int64_t page_count = length / page_tokens + 1;
    KvPages apart({"apart", 1, dim, format}, page_count, page_tokens);
    KvPages inside({"inside", 1, dim, format, latent}, page_count, page_tokens);
    std::vector<std::int32_t> pages;
    for (std::int64_t page = page_count; page > 0; --page)
      pages.push_back(static_cast<std::int32_t>(page - 1));
    for (std::int64_t p = 0; p < length; ++p) {
      const float* key = keys.data() + p * dim;
      apart.write({p, 0, pages}, key, key);
      inside.write({p, 0, pages}, key + latent, key);
    }
    const std::vector<RowPlace> places{{17, 0, pages}, {297, 0, pages}, {298, 0, pages}, {299, 0, pages}};
    const Attention op{.query = {}, .cache = {}, .head_count = heads, .scale = 0.1, .out = {}};
    for_each_machine([&, latent = latent, heads = heads](Machine& machine) {
      std::vector<float> wide(queries.size()), narrow(static_cast<std::size_t>(4 * heads * latent));
      apart.attend(machine, places, op, {}, queries.data(), wide.data());
      inside.attend(machine, places, op, {}, queries.data(), narrow.data());
      for (std::int64_t i = 0; i < 4 * heads; ++i)
        ASSERT_EQ(std::memcmp(wide.data() + i * dim, narrow.data() + i * latent,
                              static_cast<std::size_t>(latent) * sizeof(float)),
                  0)
            << "row " << i / heads << ", head " << i % heads;
    });
  }
}

}  // namespace
}  // namespace fourfold::backend::cpu
