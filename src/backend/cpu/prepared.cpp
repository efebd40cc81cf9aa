#include "backend/cpu/prepared.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/anchor_shelf.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/delta.h"
#include "backend/cpu/known.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/plan.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/weights.h"
#include "backend/window_pages.h"
#include "base/check.h"
#include "base/error.h"

namespace fourfold::backend::cpu {
namespace {

class PreparedCpu final : public Prepared {
 public:
  PreparedCpu(Program program, const Capacity& capacity, const CpuOptions& options, int thread_count,
              const kernel::Kernels& kernels);

  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass pass, const Batch& batch, std::span<float> logits) override;
  std::span<const float> value(ValueId id) const override;
  std::int64_t resumable_from(std::int32_t slot) const override {
    return slots_[static_cast<std::size_t>(slot)].resumable_from();
  }
  std::int64_t anchor_bytes() const override { return 4 * anchor_floats_; }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override;
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override;
  std::span<const std::string> notices() const override { return notices_; }

 private:
  std::int64_t row_count(ValueId id) const {
    const bool is_tokens = program_.value(id).rows == RowSet::tokens;
    return static_cast<std::int64_t>(is_tokens ? batch_->tokens.size() : batch_->logits_rows.size());
  }
  std::int64_t columns(ValueId id) const { return program_.value(id).columns; }
  float* at(ValueId id) {
    const std::int32_t buffer = places_.buffer[static_cast<std::size_t>(id.index)];
    if (buffer == ValuePlaces::kCaller) return logits_;
    return reinterpret_cast<float*>(buffers_[static_cast<std::size_t>(buffer)].data());
  }
  std::span<float> cells(ValueId id);
  const float* vector(VectorId id) const { return program_.vector(id).values.data(); }
  std::span<const float> vector_if_any(OptionalVectorId id) const {
    return id.is_there() ? program_.vector(id).values : std::span<const float>();
  }
  SlotPast& slot(const SequenceRows& rows) { return slots_[static_cast<std::size_t>(rows.state_slot)]; }
  void place_rows(Pass pass);
  void turn_rows();
  // Calls visit(cache, page) for what rows at `position` see of earlier ones, in the caches that have a
  // window.
  template <class Visit>
  void each_window_page(std::int32_t slot, std::int64_t position, const Visit& visit) {
    for (std::size_t i = 0; i < kv_.size(); ++i)
      if (program_.kv_caches[i].window != 0)
        for (const std::int32_t page : window_pages_.seen(slot, position)) visit(kv_[i], page);
  }
  // Calls work(row) for the rows of a value.
  template <class Work>
  void each_row(ValueId id, const Work& work) {
    machine_.each_row(row_count(id), columns(id), work);
  }

  void run_step(const Step& step);
  void multiply_all(const std::vector<Linear>& linears);
  void apply(const Embed& op);
  void apply(const RmsNorm& op);
  void apply(const Linear&) {}  // multiply_all
  void apply(const Add& op);
  void apply(const Concat& op);
  void apply(const TakeColumns& op);
  void apply(const AllReduce& op);
  void apply(const AllGather& op);
  void apply(const TakeLogitsRows& op) { take(at(op.in), batch_->logits_rows, columns(op.in), at(op.out)); }
  void apply(const KeepHidden& op);
  void apply(const TakeHidden& op) {
    take(hidden_.data(), batch_->hidden_rows, program_.hidden_size, at(op.out));
  }
  void apply(const HeadNormRope& op);
  void apply(const WriteKv& op);
  void apply(const Attention& op);
  void apply(const HeadLinear& op);
  void apply(const HeadGate& op);
  void apply(const CausalConv& op);
  void apply(const DeltaRule& op);
  void apply(const GatedHeadNorm& op);
  void apply(const SwiGlu& op);
  void apply(const TopKExperts& op);
  void apply(const RunExperts& op);
  void apply(const AddGated& op);
  static void take(const float* from, std::span<const std::int32_t> rows, std::int64_t columns, float* to);

  Program program_;
  Capacity capacity_;
  bool keeps_values_;
  std::shared_ptr<Collective> collective_;  // with several ranks
  std::vector<std::string> notices_;
  Machine machine_;
  std::vector<Weight> weights_;                   // by MatrixId
  std::vector<std::vector<ExpertWeights>> sets_;  // by ExpertSetId
  std::vector<Step> main_steps_, draft_steps_;
  ValuePlaces places_;
  std::vector<kernel::AlignedBytes> buffers_;
  std::vector<std::vector<std::int32_t>> choices_;  // by ValueId: experts, [rows, count]
  std::vector<KvPages> kv_;                         // by KvCacheId
  std::vector<DeltaStore> delta_;                   // by DeltaStateId
  std::vector<SlotPast> slots_;
  WindowPages window_pages_;
  AnchorShelf anchors_;
  std::int64_t anchor_floats_ = 0;  // at most: near its begin a sequence has fewer pages
  std::vector<float> hidden_;       // [hidden_count_, hidden_size]
  std::int64_t hidden_count_ = 0;
  InputRows inputs_;
  std::vector<Product> products_;
  ExpertRunner experts_;

  const Batch* batch_ = nullptr;
  float* logits_ = nullptr;
  std::vector<RowPlace> rows_;             // of the batch
  std::vector<std::vector<float>> turns_;  // by RopeId: [rows, 2, pairs], cosines and sines
  std::vector<std::int64_t> value_rows_;   // of the last run, by value
};

PreparedCpu::PreparedCpu(Program program, const Capacity& capacity, const CpuOptions& options,
                         int thread_count, const kernel::Kernels& kernels)
    : program_(std::move(program)),
      capacity_(capacity),
      keeps_values_(options.keep_values),
      collective_(options.collective),
      machine_{kernels, ThreadPool(thread_count, options.first_cpu)},
      window_pages_(program_, capacity) {
  const std::vector<std::string> problems = problems_of(program_);
  check(problems.empty(), "the program is sound", problems.empty() ? "" : problems.front().c_str());
  if (capacity.page_tokens < 1 || capacity.page_count < 1 || capacity.state_slot_count < 1 ||
      capacity.row_count < 1)
    fail(Code::invalid_request,
         "capacity of {} pages of {} tokens, {} slots, {} rows: each must be at least 1", capacity.page_count,
         capacity.page_tokens, capacity.state_slot_count, capacity.row_count);
  check(program_.part.count == 1 || collective_ != nullptr, "several ranks have something to meet with",
        program_.part.count);
  require_known(program_);
  if (const std::string notice = thread_notice(thread_count, machine_.pool.thread_count()); !notice.empty())
    notices_.push_back(notice);
  weights_ = pack_weights(program_, options, kernels, notices_);
  for (const ExpertSet& set : program_.expert_sets) sets_.push_back(expert_weights(program_, set, weights_));
  main_steps_ = plan_steps(program_, Pass::main);
  draft_steps_ = plan_steps(program_, Pass::draft);
  places_ =
      place_values(program_, main_steps_, draft_steps_, keeps_values_ ? Sharing::apart : Sharing::shared);
  for (const std::int64_t width : places_.buffer_columns)
    buffers_.emplace_back(static_cast<std::size_t>(width * capacity_.row_count) * sizeof(float));
  for (const KvCache& cache : program_.kv_caches)
    kv_.emplace_back(cache, cache.window != 0 ? window_pages_.page_count() : capacity_.page_count,
                     capacity_.page_tokens);
  for (const DeltaState& state : program_.delta_states)
    delta_.emplace_back(state, capacity_.state_slot_count);
  slots_.resize(static_cast<std::size_t>(capacity_.state_slot_count));
  anchors_.resize(capacity_.anchor_count);
  for (const DeltaStore& store : delta_) anchor_floats_ += store.kept_floats();
  const std::int64_t seen = WindowPages::seen_count(program_, capacity_.page_tokens);
  for (std::size_t i = 0; i < kv_.size(); ++i)
    if (program_.kv_caches[i].window != 0) anchor_floats_ += seen * kv_[i].page_floats();
  choices_.resize(program_.values.size());
  value_rows_.resize(program_.values.size());
  turns_.resize(program_.ropes.size());
}

void PreparedCpu::run(Pass pass, const Batch& batch, std::span<float> logits) {
  require_valid(batch, program_, capacity_, pass, hidden_count_);
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences)
      slot(rows).require_resumable(rows.position, rows.state_slot);
  check(logits.size() == batch.logits_rows.size() * static_cast<std::size_t>(program_.vocab_size),
        "there is room for the logits that were asked", logits.size(), batch.logits_rows.size());
  batch_ = &batch;
  logits_ = logits.data();
  if (pass == Pass::main) window_pages_.begin(batch, slots_);
  place_rows(pass);
  turn_rows();
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slot(rows).begin(rows);
  for (const Step& step : pass == Pass::main ? main_steps_ : draft_steps_) run_step(step);
  if (keeps_values_) std::copy_n(at(program_.logits(pass)), logits.size(), logits.begin());
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slot(rows).finish(rows);
  batch_ = nullptr;
}

void PreparedCpu::save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) {
  slots_.at(static_cast<std::size_t>(slot)).require_state(position, slot);
  float* to = anchors_.put(anchor, position, anchor_floats_);
  for (DeltaStore& store : delta_) {
    store.save(slot, position, to);
    to += store.kept_floats();
  }
  each_window_page(slot, position, [&](KvPages& pages, std::int32_t page) {
    pages.save_page(page, to);
    to += pages.page_floats();
  });
}

void PreparedCpu::restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) {
  const float* from = anchor_floats_ == 0 ? nullptr : anchors_.get(anchor, position);
  for (DeltaStore& store : delta_) {
    store.restore(from, slot, position);
    from += store.kept_floats();
  }
  window_pages_.hold(slot, position, position);
  each_window_page(slot, position, [&](KvPages& pages, std::int32_t page) {
    pages.restore_page(from, page);
    from += pages.page_floats();
  });
  slots_.at(static_cast<std::size_t>(slot)).restore(position);
}

std::span<const float> PreparedCpu::value(ValueId id) const {
  if (!keeps_values_) return {};
  const auto index = static_cast<std::size_t>(id.index);
  if (places_.buffer[index] < 0) return {};
  const auto& bytes = buffers_[static_cast<std::size_t>(places_.buffer[index])];
  return {reinterpret_cast<const float*>(bytes.data()),
          static_cast<std::size_t>(value_rows_[index] * columns(id))};
}

void PreparedCpu::place_rows(Pass pass) {
  rows_.clear();
  for (const SequenceRows& sequence : batch_->sequences) {
    const auto pages = batch_->pages.subspan(static_cast<std::size_t>(sequence.page_begin),
                                             static_cast<std::size_t>(sequence.page_count));
    std::span<const std::int32_t> window_pages;
    if (pass == Pass::main && window_pages_.page_count() > 0)
      window_pages = window_pages_.table().subspan(static_cast<std::size_t>(sequence.page_begin),
                                                   static_cast<std::size_t>(sequence.page_count));
    for (std::int32_t i = 0; i < sequence.row_count; ++i)
      rows_.push_back({sequence.position + i, sequence.state_slot, pages, window_pages});
  }
}

// Cosines and sines are the same for all heads and layers.
void PreparedCpu::turn_rows() {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const Rope& rope = program_.ropes[i];
    const std::size_t pairs = rope.inverse_frequency.size();
    turns_[i].resize(rows_.size() * 2 * pairs);
    const auto row_count = static_cast<std::int64_t>(rows_.size());
    machine_.each_row(row_count, 64 * static_cast<std::int64_t>(pairs), [&](std::int64_t row) {
      float* cosines = turns_[i].data() + static_cast<std::size_t>(row) * 2 * pairs;
      const auto position = static_cast<double>(rows_[static_cast<std::size_t>(row)].position);
      for (std::size_t j = 0; j < pairs; ++j) {
        const double angle = position * rope.inverse_frequency[j];
        cosines[j] = static_cast<float>(std::cos(angle) * rope.amplitude);
        cosines[pairs + j] = static_cast<float>(std::sin(angle) * rope.amplitude);
      }
    });
  }
}

void PreparedCpu::run_step(const Step& step) {
  if (!step.linears.empty()) return multiply_all(step.linears);
  std::visit([&](const auto& op) { apply(op); }, step.op);
  if (!keeps_values_) return;
  const auto note = [&](std::string_view, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, ResultId>)
      value_rows_[static_cast<std::size_t>(field.index)] = row_count(field);
  };
  std::visit([&](const auto& op) { op.fields(note); }, step.op);
}

void PreparedCpu::multiply_all(const std::vector<Linear>& linears) {
  products_.clear();
  for (const Linear& linear : linears) {
    products_.push_back({&weights_[static_cast<std::size_t>(linear.weight.index)], at(linear.out),
                         vector_if_any(linear.bias).data()});
    value_rows_[static_cast<std::size_t>(linear.out.index)] = row_count(linear.out);
  }
  const ValueId in = linears.front().in;
  multiply(machine_, inputs_, products_, at(in), row_count(in), columns(in));
}

void PreparedCpu::apply(const Embed& op) {
  const checkpoint::Matrix& table = weights_[static_cast<std::size_t>(op.table.index)].table.matrix;
  const auto width = static_cast<std::size_t>(table.columns);
  float* out = at(op.out);
  each_row(op.out, [&](std::int64_t row) {
    checkpoint::read_row(table, batch_->tokens[static_cast<std::size_t>(row)],
                         {out + row * table.columns, width});
  });
}

void PreparedCpu::apply(const RmsNorm& op) {
  const float* in = at(op.in);
  float* out = at(op.out);
  const std::int64_t width = columns(op.in);
  each_row(op.out, [&](std::int64_t row) {
    norm_row(machine_.kernels, in + row * width, {vector(op.weight), op.adds_one, op.epsilon}, width,
             out + row * width);
  });
}

void PreparedCpu::apply(const Add& op) {
  const float* first = at(op.first);
  const float* second = at(op.second);
  float* out = at(op.out);
  const std::int64_t width = columns(op.out);
  each_row(op.out, [&](std::int64_t row) {
    machine_.kernels.add_rows(first + row * width, second + row * width, width, out + row * width);
  });
}

void PreparedCpu::apply(const Concat& op) {
  const std::int64_t first = columns(op.first) / op.head_count;
  const std::int64_t second = columns(op.second) / op.head_count;
  each_row(op.out, [&](std::int64_t row) {
    float* to = at(op.out) + row * columns(op.out);
    for (std::int64_t head = row * op.head_count; head < (row + 1) * op.head_count; ++head) {
      to = std::copy_n(at(op.first) + head * first, first, to);
      to = std::copy_n(at(op.second) + head * second, second, to);
    }
  });
}

void PreparedCpu::apply(const TakeColumns& op) {
  const float* in = at(op.in);
  float* out = at(op.out);
  const std::int64_t width = columns(op.out);
  each_row(op.out, [&](std::int64_t row) {
    std::copy_n(in + row * columns(op.in) + op.first, width, out + row * width);
  });
}

std::span<float> PreparedCpu::cells(ValueId id) {
  return {at(id), static_cast<std::size_t>(row_count(id) * columns(id))};
}

void PreparedCpu::apply(const AllReduce& op) {
  if (program_.part.count == 1)
    std::ranges::copy(cells(op.in), at(op.out));
  else
    collective_->all_reduce(program_.part.rank, program_.value(op.out).name, cells(op.in), cells(op.out));
}

void PreparedCpu::apply(const AllGather& op) {
  if (program_.part.count == 1)
    std::ranges::copy(cells(op.in), at(op.out));
  else
    collective_->all_gather(program_.part.rank, program_.value(op.out).name, row_count(op.in), cells(op.in),
                            cells(op.out));
}

void PreparedCpu::apply(const KeepHidden& op) {
  hidden_count_ = row_count(op.in);
  hidden_.assign(at(op.in), at(op.in) + hidden_count_ * columns(op.in));
}

void PreparedCpu::take(const float* from, std::span<const std::int32_t> rows, std::int64_t columns,
                       float* to) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(from + rows[i] * columns, columns, to + static_cast<std::int64_t>(i) * columns);
}

void PreparedCpu::apply(const HeadNormRope& op) {
  const float* in = at(op.in);
  float* out = at(op.out);
  const auto index = static_cast<std::size_t>(op.rope.index);
  const auto pairs = static_cast<std::int64_t>(program_.rope(op.rope).inverse_frequency.size());
  each_row(op.out, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < op.head_count; ++head) {
      float* to = out + row * columns(op.out) + head * op.head_dim;
      const float* from = in + row * columns(op.in) + head * op.head_stride;
      if (op.weight.is_there())
        norm_row(machine_.kernels, from, {vector(op.weight), op.adds_one, op.epsilon}, op.head_dim, to);
      else
        std::copy_n(from, op.head_dim, to);
      turn_head(turns_[index].data() + row * 2 * pairs, pairs, to);
    }
  });
}

void PreparedCpu::apply(const WriteKv& op) {
  KvPages& pages = kv_[static_cast<std::size_t>(op.cache.index)];
  each_row(op.key, [&](std::int64_t row) {
    pages.write(rows_[static_cast<std::size_t>(row)], at(op.key) + row * columns(op.key),
                at(op.value) + row * columns(op.value));
  });
}

void PreparedCpu::apply(const Attention& op) {
  kv_[static_cast<std::size_t>(op.cache.index)].attend(machine_, rows_, op, vector_if_any(op.sinks),
                                                       at(op.query), at(op.out));
}

void PreparedCpu::apply(const HeadLinear& op) {
  multiply_heads(machine_, inputs_, weights_[static_cast<std::size_t>(op.weight.index)].heads, at(op.in),
                 row_count(op.in), at(op.out));
}

void PreparedCpu::apply(const HeadGate& op) {
  const float* in = at(op.in);
  const float* gate = at(op.gate);
  float* out = at(op.out);
  const std::int64_t width = columns(op.in);
  each_row(op.out, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < width / op.head_dim; ++head) {
      const std::int64_t first = row * width + head * op.head_dim;
      machine_.kernels.sigmoid_times(gate + 2 * first + op.head_dim, in + first, op.head_dim, out + first);
    }
  });
}

void PreparedCpu::apply(const CausalConv& op) {
  delta_[static_cast<std::size_t>(op.state.index)].convolve(
      machine_, batch_->sequences, program_.vector(op.taps).values, at(op.in), at(op.out));
}

void PreparedCpu::apply(const DeltaRule& op) {
  delta_[static_cast<std::size_t>(op.state.index)].apply(
      machine_, batch_->sequences,
      {at(op.qkv), at(op.beta), at(op.decay), program_.vector(op.a_log).values,
       program_.vector(op.dt_bias).values, at(op.out)});
}

void PreparedCpu::apply(const GatedHeadNorm& op) {
  const float* in = at(op.in);
  const float* gate = at(op.gate);
  float* out = at(op.out);
  const std::int64_t width = columns(op.in);
  const auto head_width = static_cast<std::int64_t>(program_.vector(op.weight).values.size());
  const auto open = op.kind == GateKind::silu ? machine_.kernels.silu_times : machine_.kernels.sigmoid_times;
  each_row(op.out, [&](std::int64_t row) {
    for (std::int64_t first = row * width; first < (row + 1) * width; first += head_width) {
      norm_row(machine_.kernels, in + first, {vector(op.weight), false, op.epsilon}, head_width, out + first);
      open(gate + first, out + first, head_width, out + first);
    }
  });
}

void PreparedCpu::apply(const SwiGlu& op) {
  const float* gate = at(op.gate);
  const float* up = at(op.up);
  float* out = at(op.out);
  const std::int64_t width = columns(op.out);
  each_row(op.out, [&](std::int64_t row) {
    machine_.kernels.silu_times(gate + row * width, up + row * width, width, out + row * width);
  });
}

void PreparedCpu::apply(const TopKExperts& op) {
  auto& chosen = choices_[static_cast<std::size_t>(op.experts.index)];
  const std::int64_t rows = row_count(op.logits);
  const std::int64_t width = columns(op.logits);
  chosen.resize(static_cast<std::size_t>(rows * op.count));
  const float* logits = at(op.logits);
  float* weights = at(op.weights);
  machine_.each_row(rows, 16 * width, [&](std::int64_t row) {
    top_k_experts(op, {logits + row * width, static_cast<std::size_t>(width)},
                  std::span(chosen).subspan(static_cast<std::size_t>(row * op.count),
                                            static_cast<std::size_t>(op.count)),
                  {weights + row * op.count, static_cast<std::size_t>(op.count)},
                  vector_if_any(op.choice_bias));
  });
  if (keeps_values_)  // as numbers, for value()
    std::ranges::transform(chosen, at(op.experts), [](std::int32_t x) { return static_cast<float>(x); });
}

void PreparedCpu::apply(const RunExperts& op) {
  experts_.run(machine_, op, sets_[static_cast<std::size_t>(op.set.index)], program_.expert_set(op.set).first,
               at(op.in), choices_[static_cast<std::size_t>(op.experts.index)].data(), at(op.weights),
               row_count(op.in), columns(op.experts), at(op.out));
}

void PreparedCpu::apply(const AddGated& op) {
  const float* in = at(op.in);
  const float* other = at(op.other);
  const float* gate = at(op.gate);
  float* out = at(op.out);
  const std::int64_t width = columns(op.out);
  each_row(op.out, [&](std::int64_t row) {
    const double open = 1 / (1 + std::exp(-static_cast<double>(gate[row])));
    machine_.kernels.add_scaled(in + row * width, other + row * width, static_cast<float>(open), width,
                                out + row * width);
  });
}

}  // namespace

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, const CpuOptions& options,
                                  int thread_count, const fourfold::cpu::Kernels& kernels) {
  return std::make_unique<PreparedCpu>(std::move(program), capacity, options, thread_count, kernels);
}

}  // namespace fourfold::backend::cpu
