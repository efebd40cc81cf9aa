// Walks a program op by op, row by row.
#include "backend/reference/reference.h"

#include <algorithm>

#include "backend/anchor_shelf.h"
#include "backend/reference/attention.h"
#include "backend/reference/delta.h"
#include "backend/reference/dense.h"
#include "backend/reference/experts.h"
#include "backend/window_pages.h"
#include "base/check.h"
#include "base/error.h"

namespace fourfold::backend {
namespace reference {
namespace {

// Where one row of the batch belongs.
struct RowPlace {
  std::int64_t position;
  std::int32_t slot;
  PageTable table;
  PageTable window_table;  // of caches that have a window
  const PageTable& table_of(const KvCache& cache) const { return cache.window != 0 ? window_table : table; }
  Role role;
};

class PreparedReference final : public Prepared {
 public:
  PreparedReference(Program program, const Capacity& capacity, std::shared_ptr<Collective> collective,
                    ChoiceWatcher watcher);

  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass pass, const Batch& batch, std::span<float> logits) override;
  std::span<const float> value(ValueId id) const override { return values_[id.index].cells; }
  std::int64_t resumable_from(std::int32_t slot) const override { return slots_[slot].resumable_from(); }
  bool roles_agree() const override {
    return std::ranges::none_of(program_.matrices, [](const MatrixUse& use) {
      return input_of(use.input, Role::prefill) != input_of(use.input, Role::decode);
    });
  }
  std::int64_t anchor_bytes() const override {
    return backend::anchor_bytes(program_, capacity_.page_tokens);
  }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override;
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override;

 private:
  Rows& in(ValueId id) { return values_[id.index]; }
  Rows& make(ResultId id) {
    const Value& value = program_.value(id);
    const std::size_t count =
        value.rows == RowSet::tokens ? batch_->tokens.size() : batch_->logits_rows.size();
    return values_[id.index] = Rows(static_cast<std::int64_t>(count), value.columns);
  }
  std::span<const float> vector(VectorId id) const { return program_.vector(id).values; }
  std::span<const float> vector(OptionalVectorId id) const {
    return id.is_there() ? program_.vector(id).values : std::span<const float>();
  }
  void place_rows(Pass pass);

  void apply(const Embed& op);
  void apply(const RmsNorm& op);
  void apply(const Linear& op);
  void apply(const Add& op);
  void apply(const Concat& op);
  void apply(const TakeColumns& op);
  void apply(const AllReduce& op);
  void apply(const AllGather& op);
  void apply(const TakeLogitsRows& op) { take(in(op.in), batch_->logits_rows, make(op.out)); }
  void apply(const KeepHidden& op) { hidden_ = in(op.in); }
  void apply(const TakeHidden& op) { take(hidden_, batch_->hidden_rows, make(op.out)); }
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

  static void take(const Rows& from, std::span<const std::int32_t> rows, Rows& to) {
    for (std::size_t i = 0; i < rows.size(); ++i) std::ranges::copy(from.row(rows[i]), to.row(i).begin());
  }
  // The head's few rows are decode rows, whatever asked for them.
  Role role_of(ValueId in, std::int64_t row) const {
    return program_.value(in).rows == RowSet::logits ? Role::decode : places_[row].role;
  }
  // Calls visit(row) for what rows at `position` see of earlier ones, in the caches that have a window.
  template <class Visit>
  void each_window_row(std::int32_t slot, std::int64_t position, const Visit& visit) {
    for (std::size_t i = 0; i < kv_.size(); ++i) {
      if (program_.kv_caches[i].window == 0) continue;
      for (const std::int32_t page : window_pages_.seen(slot, position))
        for (std::int64_t row = page * capacity_.page_tokens; row < (page + 1) * capacity_.page_tokens; ++row)
          visit(kv_[i].keys.row(row)), visit(kv_[i].values.row(row));
    }
  }
  DeltaMemory& delta_memory(DeltaStateId id, std::int32_t slot) {
    return delta_[id.index * capacity_.state_slot_count + slot];
  }

  Program program_;
  Capacity capacity_;
  std::shared_ptr<Collective> collective_;  // with several ranks
  ChoiceWatcher watcher_;                   // or none
  std::vector<Weight> weights_;             // by MatrixId
  std::vector<KvPages> kv_;                 // by KvCacheId
  std::vector<DeltaMemory> delta_;          // by DeltaStateId, then slot
  std::vector<SlotPast> slots_;
  WindowPages window_pages_;
  AnchorShelf anchors_;
  std::vector<Rows> values_;                        // by ValueId
  std::vector<std::vector<std::int32_t>> choices_;  // by ValueId: experts, [rows, count]
  Rows hidden_;
  const Batch* batch_ = nullptr;
  std::vector<RowPlace> places_;
};

PreparedReference::PreparedReference(Program program, const Capacity& capacity,
                                     std::shared_ptr<Collective> collective, ChoiceWatcher watcher)
    : program_(std::move(program)),
      capacity_(capacity),
      collective_(std::move(collective)),
      watcher_(std::move(watcher)),
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
  for (const MatrixUse& use : program_.matrices) weights_.push_back(expand(use));
  for (const KvCache& cache : program_.kv_caches)
    kv_.emplace_back(cache, cache.window != 0 ? window_pages_.page_count() : capacity_.page_count,
                     capacity_.page_tokens);
  for (const DeltaState& state : program_.delta_states)
    for (std::int64_t slot = 0; slot < capacity_.state_slot_count; ++slot) delta_.emplace_back(state);
  slots_.resize(capacity_.state_slot_count);
  anchors_.resize(capacity_.anchor_count);
  values_.resize(program_.values.size());
  choices_.resize(program_.values.size());
}

void PreparedReference::run(Pass pass, const Batch& batch, std::span<float> logits) {
  require_valid(batch, program_, capacity_, pass, hidden_.count());
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences)
      slots_[rows.state_slot].require_resumable(rows.position, rows.state_slot);
  check(logits.size() == batch.logits_rows.size() * static_cast<std::size_t>(program_.vocab_size),
        "there is room for the logits that were asked", logits.size(), batch.logits_rows.size());
  batch_ = &batch;
  if (pass == Pass::main) window_pages_.begin(batch, slots_);
  place_rows(pass);
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slots_[rows.state_slot].begin(rows);
  for (const Op& op : program_.ops(pass)) std::visit([&](const auto& known) { apply(known); }, op);
  std::ranges::copy(in(program_.logits(pass)).cells, logits.begin());
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slots_[rows.state_slot].finish(rows);
  batch_ = nullptr;
}

void PreparedReference::save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) {
  slots_.at(slot).require_state(position, slot);
  std::int64_t count = 0;
  for (const DeltaState& state : program_.delta_states) count += kept_floats(state);
  each_window_row(slot, position, [&](std::span<float> row) { count += std::ssize(row); });
  float* to = anchors_.put(anchor, position, count);
  for (std::int32_t i = 0; i < std::ssize(program_.delta_states); ++i) {
    save_state(program_.delta_states[i], delta_memory({i}, slot), position, to);
    to += kept_floats(program_.delta_states[i]);
  }
  each_window_row(slot, position, [&](std::span<float> row) { to = std::ranges::copy(row, to).out; });
}

void PreparedReference::restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) {
  const float* from = anchor_bytes() == 0 ? nullptr : anchors_.get(anchor, position);
  for (std::int32_t i = 0; i < std::ssize(program_.delta_states); ++i) {
    restore_state(program_.delta_states[i], from, position, delta_memory({i}, slot));
    from += kept_floats(program_.delta_states[i]);
  }
  window_pages_.hold(slot, position, position);
  each_window_row(slot, position, [&](std::span<float> row) {
    std::copy_n(from, row.size(), row.begin());
    from += row.size();
  });
  slots_.at(slot).restore(position);
}

void PreparedReference::place_rows(Pass pass) {
  places_.clear();
  for (const SequenceRows& rows : batch_->sequences) {
    const PageTable table{batch_->pages.subspan(rows.page_begin, rows.page_count), capacity_.page_tokens};
    PageTable window_table{{}, capacity_.page_tokens};
    if (pass == Pass::main && window_pages_.page_count() > 0)
      window_table.pages = window_pages_.table().subspan(rows.page_begin, rows.page_count);
    for (std::int32_t i = 0; i < rows.row_count; ++i)
      places_.push_back({rows.position + i, rows.state_slot, table, window_table, rows.role});
  }
}

void PreparedReference::apply(const Embed& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    std::ranges::copy(weights_[op.table.index].rows.row(batch_->tokens[row]), out.row(row).begin());
}

void PreparedReference::apply(const RmsNorm& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    rms_norm(in(op.in).row(row), vector(op.weight), op.adds_one, op.epsilon, out.row(row));
}

void PreparedReference::apply(const Linear& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    linear(weights_[op.weight.index], role_of(op.in, row), in(op.in).row(row), out.row(row), InputOf::rows,
           vector(op.bias));
}

void PreparedReference::apply(const Add& op) {
  std::ranges::transform(in(op.first).cells, in(op.second).cells, make(op.out).cells.begin(), std::plus<>{});
}

void PreparedReference::apply(const Concat& op) {
  Rows& out = make(op.out);
  const std::int64_t first = in(op.first).columns / op.head_count;
  const std::int64_t second = in(op.second).columns / op.head_count;
  for (std::int64_t row = 0; row < out.count(); ++row)
    for (std::int64_t head = 0; head < op.head_count; ++head) {
      const auto to = out.row(row).subspan(head * (first + second), first + second);
      std::ranges::copy(in(op.first).row(row).subspan(head * first, first), to.begin());
      std::ranges::copy(in(op.second).row(row).subspan(head * second, second), to.begin() + first);
    }
}

void PreparedReference::apply(const TakeColumns& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    std::ranges::copy(in(op.in).row(row).subspan(op.first, out.columns), out.row(row).begin());
}

void PreparedReference::apply(const AllReduce& op) {
  Rows& out = make(op.out);
  if (program_.part.count == 1)
    out.cells = in(op.in).cells;
  else
    collective_->all_reduce(program_.part.rank, program_.value(op.out).name, in(op.in).cells, out.cells);
}

void PreparedReference::apply(const AllGather& op) {
  Rows& out = make(op.out);
  if (program_.part.count == 1)
    out.cells = in(op.in).cells;
  else
    collective_->all_gather(program_.part.rank, program_.value(op.out).name, in(op.in).count(),
                            in(op.in).cells, out.cells);
}

void PreparedReference::apply(const HeadNormRope& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    head_norm_rope(op, program_.rope(op.rope), vector(op.weight), places_[row].position, in(op.in).row(row),
                   out.row(row));
}

void PreparedReference::apply(const WriteKv& op) {
  for (std::int64_t row = 0; row < in(op.key).count(); ++row)
    write_kv(program_.kv_cache(op.cache), places_[row].table_of(program_.kv_cache(op.cache)),
             places_[row].position, in(op.key).row(row), in(op.value).row(row), kv_[op.cache.index]);
}

void PreparedReference::apply(const Attention& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    attend(op, program_.kv_cache(op.cache), places_[row].table_of(program_.kv_cache(op.cache)),
           kv_[op.cache.index], places_[row].position, in(op.query).row(row), out.row(row), vector(op.sinks));
}

void PreparedReference::apply(const HeadLinear& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    head_linear(op, weights_[op.weight.index], in(op.in).row(row), out.row(row));
}

void PreparedReference::apply(const HeadGate& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    head_gate(op.head_dim, in(op.in).row(row), in(op.gate).row(row), out.row(row));
}

void PreparedReference::apply(const CausalConv& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    causal_conv(program_.delta_state(op.state), places_[row].position, vector(op.taps), in(op.in).row(row),
                delta_memory(op.state, places_[row].slot), out.row(row));
}

void PreparedReference::apply(const DeltaRule& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row) {
    const DeltaInput input{in(op.qkv).row(row), in(op.beta).row(row), in(op.decay).row(row), vector(op.a_log),
                           vector(op.dt_bias)};
    delta_rule(program_.delta_state(op.state), places_[row].position, input,
               delta_memory(op.state, places_[row].slot), out.row(row));
  }
}

void PreparedReference::apply(const GatedHeadNorm& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    gated_head_norm(op.kind, op.epsilon, in(op.in).row(row), in(op.gate).row(row), vector(op.weight),
                    out.row(row));
}

void PreparedReference::apply(const SwiGlu& op) {
  swiglu(in(op.gate).cells, in(op.up).cells, make(op.out).cells);
}

void PreparedReference::apply(const TopKExperts& op) {
  Rows& weights = make(op.weights);
  auto& chosen = choices_[op.experts.index];
  chosen.assign(weights.cells.size(), 0);
  for (std::int64_t row = 0; row < weights.count(); ++row) {
    const auto logits = in(op.logits).row(row);
    const auto experts = std::span(chosen).subspan(row * op.count, op.count);
    const std::vector<float> keys = choice_keys(op, logits, vector(op.choice_bias));
    choose_experts(op, keys, experts);
    if (watcher_) watcher_({op, places_[row].position, keys, experts});
    weigh_experts(op, logits, experts, weights.row(row));
  }
  Rows& shown = make(op.experts);  // as numbers, for value()
  std::ranges::transform(chosen, shown.cells.begin(), [](std::int32_t x) { return static_cast<float>(x); });
}

void PreparedReference::apply(const RunExperts& op) {
  const ExpertSet& whole = program_.expert_set(op.set);
  const auto bias = [&](OptionalVectorId id, std::size_t expert, std::int64_t rows) {
    return id.is_there() ? vector(id).subspan(expert * rows, rows) : std::span<const float>();
  };
  std::vector<ExpertWeights> set;
  for (const ExpertMatrices& expert : whole.experts) {
    const Weight& gate = weights_[expert.gate.index];
    const Weight& down = weights_[expert.down.index];
    set.push_back({&gate, &weights_[expert.up.index], &down,
                   bias(whole.gate_bias, set.size(), gate.rows.count()),
                   bias(whole.up_bias, set.size(), gate.rows.count()),
                   bias(whole.down_bias, set.size(), down.rows.count())});
  }
  const std::int64_t count = program_.value(op.experts).columns;
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row)
    run_experts(op, set, whole.first, role_of(op.in, row), in(op.in).row(row),
                std::span(choices_[op.experts.index]).subspan(row * count, count), in(op.weights).row(row),
                out.row(row));
}

void PreparedReference::apply(const AddGated& op) {
  Rows& out = make(op.out);
  for (std::int64_t row = 0; row < out.count(); ++row) {
    const double open = sigmoid(in(op.gate).row(row)[0]);
    for (std::int64_t i = 0; i < out.columns; ++i)
      out.row(row)[i] = static_cast<float>(in(op.in).row(row)[i] + open * in(op.other).row(row)[i]);
  }
}

}  // namespace
}  // namespace reference

std::unique_ptr<Prepared> ReferenceBackend::prepare(Program program, const Capacity& capacity) {
  return std::make_unique<reference::PreparedReference>(std::move(program), capacity, collective_, watcher_);
}

}  // namespace fourfold::backend
