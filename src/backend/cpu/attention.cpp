#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/bf16.h"

namespace fourfold::backend::cpu {
namespace {

constexpr std::int64_t kStretch = 4 * kernel::kAttendPositions;
// A block has so many queries (heads of rows) that what is read of the cache serves many of them, and so few
// that they, their scores and their sums stay in the second cache. Fewer than kFewQueries leave the kernels'
// tiles half empty.
constexpr std::int64_t kBlockQueries = 64;
constexpr std::int64_t kFewQueries = 8;
constexpr std::int64_t kFewHeads = 4;

// The begin of the run that a position is in.
std::int64_t run_of(std::int64_t position) {
  return position / kernel::kAttendPositions * kernel::kAttendPositions;
}

struct Block {  // rows that are neighbours of one sequence
  std::int64_t first_row, row_count;
};

struct Item {  // some heads of a block
  Block block;
  std::int64_t kv_head, first_head, head_count;
  std::int64_t position;       // of the block's first row
  std::int64_t first_stretch;  // that it sees something of
  std::int64_t stretch_count;

  std::int64_t query_count() const { return block.row_count * head_count; }
};

std::int64_t softmax_floats(std::int64_t query_count, std::int64_t padded_value_dim) {
  return kernel::kv_padded(query_count) * (padded_value_dim + 2);
}
kernel::Softmax softmax_at(float* at, std::int64_t query_count, std::int64_t padded_value_dim) {
  const std::int64_t count = kernel::kv_padded(query_count);
  return {.largest = at + count * padded_value_dim, .total = at + count * (padded_value_dim + 1), .sums = at};
}

// A thread's memory for an item.
struct Work {
  float *arranged, *queries, *scores, *weights, *panel;
  kernel::Softmax run, stretch, all;

  Work(std::int64_t query_count, std::int64_t padded_dim, std::int64_t padded_value_dim) {
    static thread_local Scratch<float> memory;
    const std::int64_t softmax = softmax_floats(query_count, padded_value_dim);
    const std::int64_t panel_floats = kernel::attend_panel_floats(padded_dim);
    float* at =
        memory.get(2 * query_count * (padded_dim + kernel::kAttendPositions) + panel_floats + 3 * softmax);
    const auto take = [&](std::int64_t floats) { return std::exchange(at, at + floats); };
    arranged = take(query_count * padded_dim);
    queries = take(query_count * padded_dim);
    scores = take(query_count * kernel::kAttendPositions);
    weights = take(query_count * kernel::kAttendPositions);
    panel = take(panel_floats);
    for (kernel::Softmax* one : {&run, &stretch, &all})
      *one = softmax_at(take(softmax), query_count, padded_value_dim);
  }
};

float stored_as(float x, float) { return x; }
std::uint16_t stored_as(float x, std::uint16_t) { return to_bf16(x).bits; }

// What fills a head up to whole panels is zero: it is multiplied and added like the rest. `keys` and `values`
// are the head's in the page.
template <class Element>
void write_key(const std::vector<std::int64_t>& key_rows, std::span<const float> key, std::int64_t in_page,
               Element* keys) {
  keys += in_page / 16 * 16 * std::ssize(key_rows) + in_page % 16;
  for (std::size_t d = 0; d < key_rows.size(); ++d)
    keys[key_rows[d] * 16] = d < key.size() ? stored_as(key[d], Element{}) : Element{};
}
template <class Element>
void write_value(std::int64_t padded_dim, std::span<const float> value, std::int64_t page_tokens,
                 std::int64_t in_page, Element* values) {
  values += in_page * 16;
  for (std::int64_t d = 0; d < padded_dim; ++d)
    values[d / 16 * page_tokens * 16 + d % 16] =
        d < std::ssize(value) ? stored_as(value[static_cast<std::size_t>(d)], Element{}) : Element{};
}

}  // namespace

KvPages::KvPages(const KvCache& cache, std::int64_t page_count, std::int64_t page_tokens)
    : kv_head_count_(cache.kv_head_count),
      head_dim_(cache.head_dim),
      padded_dim_(kernel::kv_padded(cache.head_dim)),
      value_dim_(cache.value_dim()),
      padded_value_dim_(kernel::kv_padded(cache.value_dim())),
      page_tokens_(page_tokens),
      is_latent_(cache.is_latent()),
      has_window_(cache.window != 0),
      format_(cache.format) {
  for (std::int64_t d = 0; d < padded_dim_; ++d) key_rows_.push_back(kernel::key_row(d, padded_dim_));
  const std::int64_t position_bytes = kv_head_count_ * padded_dim_ * element_bytes(format_);
  key_page_bytes_ = position_bytes * kernel::kv_padded(page_tokens);
  value_page_bytes_ = is_latent_ ? 0 : position_bytes * page_tokens;
  const std::int64_t pages = page_count + (has_window_ ? 1 : 0);
  keys_ = kernel::AlignedBytes(static_cast<std::size_t>(pages * key_page_bytes_));
  if (!is_latent_) values_ = kernel::AlignedBytes(static_cast<std::size_t>(pages * value_page_bytes_));
  if (!has_window_) return;
  std::memset(keys_.data() + page_count * key_page_bytes_, 0, static_cast<std::size_t>(key_page_bytes_));
  if (is_latent_) return;
  std::memset(values_.data() + page_count * value_page_bytes_, 0,
              static_cast<std::size_t>(value_page_bytes_));
}

void KvPages::save_page(std::int32_t page, float* to) const {
  auto* bytes = reinterpret_cast<std::uint8_t*>(to);
  std::memcpy(bytes, keys_.data() + page * key_page_bytes_, static_cast<std::size_t>(key_page_bytes_));
  std::memcpy(bytes + key_page_bytes_, values_.data() + page * value_page_bytes_,
              static_cast<std::size_t>(value_page_bytes_));
}

void KvPages::restore_page(const float* from, std::int32_t page) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
  std::memcpy(keys_.data() + page * key_page_bytes_, bytes, static_cast<std::size_t>(key_page_bytes_));
  std::memcpy(values_.data() + page * value_page_bytes_, bytes + key_page_bytes_,
              static_cast<std::size_t>(value_page_bytes_));
}

void KvPages::write(const RowPlace& place, const float* key, const float* value) {
  const std::int64_t page = pages_of(place)[static_cast<std::size_t>(place.position / page_tokens_)];
  const std::int64_t in_page = place.position % page_tokens_;
  const auto write_as = [&](auto element, std::int64_t head, std::span<const float> whole_key) {
    using Element = decltype(element);
    const std::int64_t before = (page * kv_head_count_ + head) * padded_dim_;
    write_key(key_rows_, whole_key, in_page,
              reinterpret_cast<Element*>(keys_.data()) + before * kernel::kv_padded(page_tokens_));
    if (!is_latent_)
      write_value(padded_value_dim_,
                  std::span(value + head * value_dim_, static_cast<std::size_t>(value_dim_)), page_tokens_,
                  in_page, reinterpret_cast<Element*>(values_.data()) + before * page_tokens_);
  };
  static thread_local Scratch<float> memory;
  for (std::int64_t head = 0; head < kv_head_count_; ++head) {
    const float* whole_key = key + head * head_dim_;
    if (is_latent_) {
      float* to = memory.get(head_dim_);
      whole_key = to;
      to = std::copy_n(value + head * value_dim_, value_dim_, to);
      std::copy_n(key + head * (head_dim_ - value_dim_), head_dim_ - value_dim_, to);
    }
    const std::span dimensions(whole_key, static_cast<std::size_t>(head_dim_));
    if (format_ == KvFormat::f32)
      write_as(float{}, head, dimensions);
    else
      write_as(std::uint16_t{}, head, dimensions);
  }
}

// One call of attend(). Items share nothing, and a head's arithmetic is its own: how rows and heads are put
// into items is a question of speed alone.
class AttendCall {
 public:
  AttendCall(Machine& machine, const KvPages& cache, std::span<const RowPlace> places, const Attention& op,
             std::span<const float> sinks, const float* queries, float* out)
      : machine_(machine),
        cache_(cache),
        places_(places),
        op_(op),
        head_count_(op.head_count),
        heads_per_kv_(op.head_count / cache.kv_head_count_),
        sinks_(sinks),
        queries_(queries),
        out_(out) {
    divide();
  }

  void run(Scratch<float>& partial) const {
    const int threads = machine_.pool.thread_count();
    if (threads > 1 && item_count() < 2 * threads && stretches_ > 1) return run_stretches(partial);
    // The last rows, which look back furthest, first.
    machine_.pool.run(item_count(), [&](std::int64_t i) { attend_item(item_at(item_count() - 1 - i)); });
  }

 private:
  std::int64_t item_count() const {
    return static_cast<std::int64_t>(blocks_.size()) * cache_.kv_head_count_ * groups_per_kv_;
  }

  std::int64_t first_stretch(std::int64_t position) const { return op_.first_seen(position) / kStretch; }
  static std::int64_t stretch_end(std::int64_t position) { return position / kStretch + 1; }

  // Chooses the size of blocks: the largest that gives every thread several.
  void divide() {
    group_ = heads_per_kv_;
    groups_per_kv_ = 1;
    const std::int64_t enough = 4 * machine_.pool.thread_count();
    std::int64_t rows = kBlockQueries;
    while (rows > 1 && rows * heads_per_kv_ > kBlockQueries) rows /= 2;
    for (find_blocks(rows); item_count() < enough && rows > 1 && rows * heads_per_kv_ > kFewQueries;)
      find_blocks(rows /= 2);
    for (const RowPlace& place : places_)
      stretches_ = std::max(stretches_, stretch_end(place.position) - first_stretch(place.position));
    while (item_count() * stretches_ < enough && group_ > kFewHeads) {
      group_ = (group_ + 1) / 2;
      groups_per_kv_ = (heads_per_kv_ + group_ - 1) / group_;
    }
  }

  // Blocks end at multiples of `rows`, a power of two: so the rows of a block see the same runs.
  void find_blocks(std::int64_t rows) {
    blocks_.clear();
    const auto is_next = [&](const RowPlace& place, const RowPlace& before) {
      return place.position == before.position + 1 && place.pages.data() == before.pages.data() &&
             place.position % rows != 0;
    };
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (i > 0 && is_next(places_[i], places_[i - 1]))
        ++blocks_.back().row_count;
      else
        blocks_.push_back({static_cast<std::int64_t>(i), 1});
  }

  Item item_at(std::int64_t index) const {
    const std::int64_t pieces = cache_.kv_head_count_ * groups_per_kv_;
    Item item{};
    item.block = blocks_[static_cast<std::size_t>(index / pieces)];
    item.kv_head = index % pieces / groups_per_kv_;
    item.first_head = item.kv_head * heads_per_kv_ + index % groups_per_kv_ * group_;
    item.head_count = std::min(group_, (item.kv_head + 1) * heads_per_kv_ - item.first_head);
    item.position = places_[static_cast<std::size_t>(item.block.first_row)].position;
    item.first_stretch = first_stretch(item.position);
    item.stretch_count = stretch_end(item.position) - item.first_stretch;
    return item;
  }

  Work work_for(const Item& item) const {
    return {item.query_count(), cache_.padded_dim_, cache_.padded_value_dim_};
  }

  // [row, head, padded_dim], dimensions in the keys' order; then as the kernel wants them.
  void arrange_queries(const Item& item, const Work& work) const {
    float* to = work.queries;
    for (std::int64_t query = 0; query < item.query_count(); ++query, to += cache_.padded_dim_) {
      const std::int64_t row = item.block.first_row + query / item.head_count;
      const std::int64_t head = item.first_head + query % item.head_count;
      const float* from = queries_ + (row * head_count_ + head) * cache_.head_dim_;
      // A scale that grows is the query's: a block's rows have one scale otherwise.
      const auto growth = static_cast<float>(op_.growth_at(places_[static_cast<std::size_t>(row)].position));
      for (std::int64_t d = 0; d < cache_.padded_dim_; ++d)
        to[cache_.key_rows_[static_cast<std::size_t>(d)]] = d < cache_.head_dim_ ? growth * from[d] : 0.0f;
    }
    machine_.kernels.arrange_queries(work.queries, item.query_count(), cache_.padded_dim_, work.arranged);
  }

  kernel::AttendJob job_of(const Item& item, const Work& work) const {
    kernel::AttendJob job;
    job.queries = work.arranged;
    job.row_count = item.block.row_count;
    job.head_count = item.head_count;
    job.padded_dim = cache_.padded_dim_;
    job.padded_value_dim = cache_.padded_value_dim_;
    job.key_rows = cache_.key_rows_.data();
    job.scale = static_cast<float>(op_.scale);
    if (op_.window != 0) job.seen_begin = item.position - op_.window + 1;
    job.is_bf16 = cache_.format_ == KvFormat::bf16;
    job.page_tokens = cache_.page_tokens_;
    const std::int64_t key_head = cache_.padded_dim_ * kernel::kv_padded(job.page_tokens);
    const std::int64_t value_head = cache_.padded_dim_ * job.page_tokens;
    const std::int64_t element = element_bytes(cache_.format_);
    job.keys = cache_.keys_.data() + item.kv_head * key_head * element;
    job.values = cache_.is_latent_ ? nullptr : cache_.values_.data() + item.kv_head * value_head * element;
    job.key_page_stride = cache_.kv_head_count_ * key_head;
    job.value_page_stride = cache_.kv_head_count_ * value_head;
    job.pages = cache_.pages_of(places_[static_cast<std::size_t>(item.block.first_row)]).data();
    job.scores = work.scores;
    job.weights = work.weights;
    job.panel = work.panel;
    return job;
  }

  // `stretch` counts from the item's first.
  void attend_stretch(const Item& item, std::int64_t stretch, const Work& work,
                      const kernel::Softmax& result) const {
    kernel::AttendJob job = job_of(item, work);
    const std::int64_t begin = (item.first_stretch + stretch) * kStretch;
    const std::int64_t end = std::min(begin + kStretch, item.position + 1);
    // Runs that the block's first row, which sees furthest back, does not see are passed over.
    const std::int64_t seen = std::max(begin, run_of(op_.first_seen(item.position)));
    for (std::int64_t position = seen; position < end; position += kernel::kAttendPositions) {
      job.position_begin = position;
      job.position_end = std::min(position + kernel::kAttendPositions, end);
      job.run = position == seen ? result : work.run;
      machine_.kernels.attend(job);
      if (position > seen)
        machine_.kernels.merge_run(result, work.run, item.query_count(), cache_.padded_value_dim_);
    }
  }

  void attend_item(const Item& item) const {
    const Work work = work_for(item);
    arrange_queries(item, work);
    for (std::int64_t stretch = 0; stretch < item.stretch_count; ++stretch) {
      attend_stretch(item, stretch, work, stretch == 0 ? work.all : work.stretch);
      if (stretch > 0)
        machine_.kernels.merge_run(work.all, work.stretch, item.query_count(), cache_.padded_value_dim_);
    }
    finish(item, work.all);
  }

  // Few rows that look back far: threads share a row's stretches, and its softmaxes are merged afterwards.
  void run_stretches(Scratch<float>& partial) const {
    std::int64_t queries = 0;
    for (std::int64_t i = 0; i < item_count(); ++i) queries = std::max(queries, item_at(i).query_count());
    const std::int64_t softmax = softmax_floats(queries, cache_.padded_value_dim_);
    constexpr std::int64_t floats_at_a_time = std::int64_t{16} << 20;
    const std::int64_t items = std::max<std::int64_t>(floats_at_a_time / (stretches_ * softmax), 1);
    float* memory = partial.get(std::min(items, item_count()) * stretches_ * softmax);
    const auto result = [&](std::int64_t index) {
      return softmax_at(memory + index * softmax, queries, cache_.padded_value_dim_);
    };
    for (std::int64_t first = 0; first < item_count(); first += items) {
      const std::int64_t count = std::min(items, item_count() - first);
      machine_.pool.run(count * stretches_, [&](std::int64_t i) {
        const Item item = item_at(first + i / stretches_);
        if (i % stretches_ >= item.stretch_count) return;
        const Work work = work_for(item);
        arrange_queries(item, work);
        attend_stretch(item, i % stretches_, work, result(i));
      });
      machine_.pool.run(count, [&](std::int64_t i) {
        const Item item = item_at(first + i);
        for (std::int64_t stretch = 1; stretch < item.stretch_count; ++stretch)
          machine_.kernels.merge_run(result(i * stretches_), result(i * stretches_ + stretch),
                                     item.query_count(), cache_.padded_value_dim_);
        finish(item, result(i * stretches_));
      });
    }
  }

  void finish(const Item& item, const kernel::Softmax& result) const {
    for (std::int64_t query = 0; query < item.query_count(); ++query) {
      const std::int64_t row = item.block.first_row + query / item.head_count;
      const std::int64_t head = item.first_head + query % item.head_count;
      const float* sums = result.sums + query * cache_.padded_value_dim_;
      float* to = out_ + (row * head_count_ + head) * cache_.value_dim_;
      float keep = 1, total = result.total[query];
      if (!sinks_.empty()) {
        const float largest = result.largest[query];
        const float sink = sinks_[static_cast<std::size_t>(head)];
        const float most = std::max(largest, sink);
        // In double and rounded: a float's exp differs between libraries in its last bit.
        const auto power = [&](float x) { return static_cast<float>(std::exp(double{x} - double{most})); };
        keep = power(largest);
        total = total * keep + power(sink);
      }
      for (std::int64_t d = 0; d < cache_.value_dim_; ++d) to[d] = sums[d] * keep / total;
    }
  }

  Machine& machine_;
  const KvPages& cache_;
  std::span<const RowPlace> places_;
  const Attention& op_;
  std::int64_t head_count_, heads_per_kv_;
  std::span<const float> sinks_;
  const float* queries_;
  float* out_;

  std::int64_t group_ = 0, groups_per_kv_ = 0;  // heads of an item, and how many items share a key head
  std::int64_t stretches_ = 1;                  // of the row that sees most of them
  std::vector<Block> blocks_;
};

void KvPages::attend(Machine& machine, std::span<const RowPlace> places, const Attention& op,
                     std::span<const float> sinks, const float* queries, float* out) {
  if (places.empty()) return;
  AttendCall(machine, *this, places, op, sinks, queries, out).run(partial_);
}

}  // namespace fourfold::backend::cpu
