#include "backend/cuda/prepared.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "backend/cuda/memory_plan.h"
#include "backend/cuda/runner.h"
#include "base/check.h"
#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

// The widest of each kind of row, over all layers.
struct Widths {
  int input = 0;       // of a matrix
  int projection = 0;  // of a mixer or a router
  int query = 0;
  int mixed = 0;
  int inner = 64;
};

void see(Widths& widths, const DeviceLayer& layer) {
  const auto take = [&](const DenseGroup& group) {
    for (const DenseMatrix& matrix : group.matrices) widths.input = std::max(widths.input, matrix.columns());
    widths.projection = std::max(widths.projection, group.width);
  };
  if (const auto* mixer = std::get_if<DeviceDelta>(&layer.mixer)) {
    take(mixer->in), take(mixer->out);
    widths.mixed = std::max(widths.mixed, mixer->layout.value_dim);
  } else {
    const auto& full = std::get<DeviceAttention>(layer.mixer);
    take(full.in), take(full.out);
    widths.query = std::max(widths.query, full.heads * full.head_dim);
    widths.mixed = std::max(widths.mixed, full.heads * full.head_dim);
  }
  if (const auto* moe = std::get_if<DeviceMoe>(&layer.mlp)) {
    take(moe->in), take(moe->shared_down);
    widths.inner = std::max(widths.inner, moe->shared_columns);
  } else {
    const auto& mlp = std::get<DeviceMlp>(layer.mlp);
    take(mlp.gate_up), take(mlp.down);
    widths.inner = std::max(widths.inner, mlp.inner);
  }
}

Widths widths_of(const DeviceModel& model) {
  Widths widths;
  for (const DeviceLayer& layer : model.layers) see(widths, layer);
  if (model.draft) {
    see(widths, model.draft->layer);
    widths.mixed = std::max(widths.mixed, 2 * model.hidden);
  }
  widths.input = std::max(widths.input, model.hidden);
  return widths;
}

Buffers make_buffers(const DeviceModel& model, kernels::Machine& machine, kernels::Arena& arena,
                     const Capacity& capacity) {
  const Widths widths = widths_of(model);
  const auto rows = static_cast<std::size_t>(capacity.row_count);
  const auto hidden = static_cast<std::size_t>(model.hidden);
  const auto bf16 = [&](int width, const char* name) {
    return arena.take<std::uint16_t>(rows * static_cast<std::size_t>(width), name);
  };
  Buffers buffers;
  buffers.x = arena.take<float>(rows * hidden, "residual stream");
  buffers.normed = bf16(widths.input, "normed rows");
  buffers.staged = bf16(widths.input, "staged rows");
  buffers.projection = arena.take<float>(rows * static_cast<std::size_t>(widths.projection), "projections");
  buffers.query = bf16(widths.query, "queries");
  buffers.mixed = bf16(widths.mixed, "mixed rows");
  buffers.inner = bf16(widths.inner, "inner rows");
  buffers.added = arena.take<float>(rows * hidden, "added rows");
  buffers.logits =
      arena.take<float>(kLogitsRows * static_cast<std::size_t>(model.head.matrix.width), "logits");
  const auto bytes = [&](std::int64_t count, const char* name) {
    return arena.take<unsigned char>(static_cast<std::size_t>(count), name);
  };
  buffers.group_keys = reinterpret_cast<std::uint32_t*>(
      bytes(sampling::group_keys_bytes(kLogitsRows, model.head.vocab), "choice of tokens"));
  buffers.parts = reinterpret_cast<sampling::PartBest*>(
      bytes(sampling::parts_bytes(kLogitsRows, model.head.vocab), "choice of tokens"));
  buffers.chosen = arena.take<std::int32_t>(2 * kLogitsRows, "chosen tokens");
  machine.memory().clear(buffers.chosen, 2 * kLogitsRows * sizeof(std::int32_t));  // read whole
  for (float*& rows_kept : buffers.hidden) rows_kept = arena.take<float>(rows * hidden, "hidden rows");
  buffers.workspace_bytes = Runner::workspace_bytes(machine, model, capacity);
  buffers.workspace = arena.take<unsigned char>(buffers.workspace_bytes, "workspace");
  return buffers;
}

class PreparedGpu final : public Prepared {
 public:
  PreparedGpu(Program program, const Capacity& capacity, kernels::Machine& machine, const GpuOptions& options)
      : program_(std::move(program)),
        capacity_(capacity),
        options_(options),
        machine_(machine),
        arena_(machine.memory()),
        tables_(machine.memory(), arena_, capacity),
        model_(load()),
        buffers_(make_buffers(model_, machine, arena_, capacity)),
        multiplier_(machine, tables_, buffers_),
        runner_(machine, model_, buffers_, tables_, multiplier_),
        slots_(static_cast<std::size_t>(capacity.state_slot_count)) {
    if (options.keep_values) {
      kept_.resize(program_.layer_outputs.size());
      for (auto& rows : kept_)
        rows =
            arena_.take<float>(static_cast<std::size_t>(capacity.row_count * program_.hidden_size), "kept");
    }
    machine.memory().wait();
  }

  const Program& program() const override { return program_; }
  const Capacity& capacity() const override { return capacity_; }
  void run(Pass pass, const Batch& batch, std::span<float> logits) override;
  bool run_greedy(Pass pass, const Batch& batch, std::int64_t token_limit,
                  std::span<std::int32_t> tokens) override;
  std::span<const float> value(ValueId id) const override;
  std::int64_t resumable_from(std::int32_t slot) const override {
    return slots_[static_cast<std::size_t>(slot)].resumable_from();
  }
  std::span<const std::string> notices() const override { return notices_; }
  std::span<const MemoryUse> memory() const override { return memory_; }
  bool roles_agree() const override { return false; }
  std::vector<StageTime> time_stages(int rounds);
  void assume_position(std::int32_t slot, std::int64_t position) {
    slots_[static_cast<std::size_t>(slot)].assume(position);
  }

 private:
  DeviceModel load() {
    const std::vector<std::string> problems = problems_of(program_);
    check(problems.empty(), "the program is sound", problems.empty() ? "" : problems.front().c_str());
    if (capacity_.page_tokens != step::kPageTokens)
      fail(Code::invalid_request, "pages of {} tokens; the GPU backend has pages of {}",
           capacity_.page_tokens, step::kPageTokens);
    const Layers layers = read_layers(program_);
    memory_ = plan_memory(program_, capacity_);
    require_memory(memory_, machine_.memory());
    WeightLoader loader(machine_, arena_, program_, {options_.checkpoint, options_.progress}, notices_);
    DeviceModel model = load_model(layers, program_, capacity_, loader, arena_, machine_.memory());
    loader.finish();
    return model;
  }
  // What is wanted of the rows asked: one of the two.
  struct Wanted {
    std::span<float> logits;
    std::span<std::int32_t> tokens;
    int token_limit = 0;  // of the tokens
  };
  void run_pass(Pass pass, const Batch& batch, const Wanted& wanted);
  void run_rows(Pass pass, const RowGroup& group, int begin, int count, const Wanted& wanted);
  void launch(const PassShape& shape);
  void keep_rows(const RowGroup& group, int begin, int count);
  void read_logits(std::span<const std::int32_t> places, std::span<float> logits);
  void read_tokens(std::span<const std::int32_t> places, std::span<std::int32_t> tokens);

  Program program_;
  Capacity capacity_;
  GpuOptions options_;
  std::vector<std::string> notices_;
  std::vector<MemoryUse> memory_;
  kernels::Machine& machine_;
  kernels::Arena arena_;
  BatchTables tables_;
  DeviceModel model_;
  Buffers buffers_;
  Multiplier multiplier_;
  Runner runner_;
  std::vector<SlotPast> slots_;
  PassShape last_shape_;  // of the main pass
  int hidden_ = 0;        // which of the hidden buffers holds the last pass's rows
  std::int64_t hidden_count_ = 0;
  std::vector<float*> kept_;                           // by layer output, on the machine
  std::map<std::int32_t, std::vector<float>> values_;  // by ValueId, of the last run
  std::map<std::pair<PassShape, int>, std::unique_ptr<kernels::Recording>> recordings_;
  std::vector<float> row_;
};

void PreparedGpu::run(Pass pass, const Batch& batch, std::span<float> logits) {
  check(logits.size() == batch.logits_rows.size() * static_cast<std::size_t>(program_.vocab_size),
        "there is room for the logits that were asked", logits.size(), batch.logits_rows.size());
  run_pass(pass, batch, {logits, {}, 0});
}

bool PreparedGpu::run_greedy(Pass pass, const Batch& batch, std::int64_t token_limit,
                             std::span<std::int32_t> tokens) {
  check(token_limit > 0 && token_limit <= program_.vocab_size, "tokens are of the vocabulary", token_limit);
  check(tokens.size() == batch.logits_rows.size(), "there is room for the tokens that were asked",
        tokens.size(), batch.logits_rows.size());
  run_pass(pass, batch, {{}, tokens, static_cast<int>(token_limit)});
  return true;
}

void PreparedGpu::run_pass(Pass pass, const Batch& batch, const Wanted& wanted) {
  require_valid(batch, program_, capacity_, pass, hidden_count_);
  const auto slot = [&](const SequenceRows& rows) -> SlotPast& {
    return slots_[static_cast<std::size_t>(rows.state_slot)];
  };
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences)
      slot(rows).require_resumable(rows.position, rows.state_slot);
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slot(rows).begin(rows);
  const std::size_t numbers = batch.tokens.size() * static_cast<std::size_t>(model_.hidden);
  if (pass == Pass::main && options_.keep_values)
    for (const ValueId id : program_.layer_outputs) values_[id.index].resize(numbers);
  for (const RowGroup& group : groups_of(batch)) {
    // Prompts go whole: the batch's rows fit by the capacity.
    const int most = group.role == Role::prompt ? group.row_count() : kGeneratedRows;
    for (int begin = 0; begin < group.row_count(); begin += most)
      run_rows(pass, group, begin, std::min(most, group.row_count() - begin), wanted);
  }
  const bool leaves_hidden = pass == Pass::draft || model_.keeps_hidden;
  if (leaves_hidden) {
    hidden_ ^= 1;
    hidden_count_ = static_cast<std::int64_t>(batch.tokens.size());
    if (options_.keep_values && pass == Pass::main) {
      std::vector<float>& rows = values_[program_.final_hidden.index];
      rows.resize(numbers);
      machine_.memory().read(rows.data(), buffers_.hidden[hidden_], numbers * 4);
    }
  }
  if (pass == Pass::main)
    for (const SequenceRows& rows : batch.sequences) slot(rows).finish(rows);
}

void PreparedGpu::run_rows(Pass pass, const RowGroup& group, int begin, int count, const Wanted& wanted) {
  machine_.memory().wait();  // the tables of the piece before have been read
  tables_.send(group, begin, count);
  const auto logits_count = static_cast<int>(tables_.logits_places().size());
  const int first = std::min(logits_count, kLogitsRows);
  const PassShape shape{
      pass,           group.role,        count, tables_.sequence_count(), tables_.sequence_rows(), first,
      first == count, wanted.token_limit};
  launch(shape);
  if (options_.keep_values && pass == Pass::main) keep_rows(group, begin, count);
  for (int at = 0; at < logits_count; at += kLogitsRows) {
    const int more = std::min(kLogitsRows, logits_count - at);
    if (at > 0) runner_.more_logits(shape, at, more);
    const auto places =
        tables_.logits_places().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(more));
    wanted.tokens.empty() ? read_logits(places, wanted.logits) : read_tokens(places, wanted.tokens);
  }
}

void PreparedGpu::launch(const PassShape& shape) {
  if (shape.pass == Pass::main) last_shape_ = shape;
  const auto launches = [&] {
    runner_.run(shape, hidden_, [&](int index) {
      if (kept_.empty()) return;
      const auto bytes = static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(model_.hidden) * 4;
      machine_.memory().copy(kept_[static_cast<std::size_t>(index)], buffers_.x, bytes);
    });
  };
  // The first run of a shape prepares what it needs (tables of tiles, chosen rows); the second is recorded.
  const auto [entry, is_new] = recordings_.try_emplace({shape, hidden_});
  // Prompts come in too many shapes, and their kernels are long enough to launch one by one.
  if (is_new || shape.role == Role::prompt || !options_.graphs || options_.keep_values) return launches();
  if (entry->second == nullptr) entry->second = machine_.record(launches);
  if (entry->second == nullptr) return launches();
  machine_.replay(*entry->second);
}

std::vector<StageTime> PreparedGpu::time_stages(int rounds) {
  constexpr auto count = static_cast<unsigned>(Stage::count);
  const auto time = [&](unsigned mask) {
    runner_.keep_stages(mask);
    const auto launches = [&] { runner_.run(last_shape_, hidden_, [](int) {}); };
    const auto recording = machine_.record(launches);
    runner_.keep_stages(~0u);
    if (recording == nullptr) return 0.0;
    machine_.replay(*recording);
    machine_.memory().wait();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) machine_.replay(*recording);
    machine_.memory().wait();
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    return passed.count() / rounds;
  };
  std::vector<StageTime> times;
  unsigned so_far = 0;
  for (unsigned stage = 0; stage < count; ++stage) {
    so_far |= 1u << stage;
    times.push_back({std::string(stage_name(static_cast<Stage>(stage))), time(1u << stage), time(so_far)});
  }
  return times;
}

// The rows' residual streams after the embedding and every layer, to their places in the batch.
void PreparedGpu::keep_rows(const RowGroup& group, int begin, int count) {
  const auto width = static_cast<std::size_t>(model_.hidden);
  row_.resize(static_cast<std::size_t>(count) * width);
  for (std::size_t layer = 0; layer < kept_.size(); ++layer) {
    float* to = values_[program_.layer_outputs[layer].index].data();
    machine_.memory().read(row_.data(), kept_[layer], row_.size() * 4);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::copy_n(
          row_.data() + i * width, width,
          to + static_cast<std::size_t>(group.batch_row[static_cast<std::size_t>(begin) + i]) * width);
  }
}

void PreparedGpu::read_logits(std::span<const std::int32_t> places, std::span<float> logits) {
  const auto vocab = static_cast<std::size_t>(program_.vocab_size);
  const auto width = static_cast<std::size_t>(model_.head.matrix.width);
  for (std::size_t i = 0; i < places.size(); ++i)
    machine_.memory().read(logits.data() + static_cast<std::size_t>(places[i]) * vocab,
                           buffers_.logits + i * width, vocab * 4);
}

void PreparedGpu::read_tokens(std::span<const std::int32_t> places, std::span<std::int32_t> tokens) {
  std::int32_t chosen[2 * kLogitsRows];
  machine_.memory().read(chosen, buffers_.chosen, sizeof chosen);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (chosen[kLogitsRows + i] != 0)
      fail(Code::internal, "logits of row {} are not finite: no token can be chosen from them", places[i]);
    tokens[static_cast<std::size_t>(places[i])] = chosen[i];
  }
}

std::span<const float> PreparedGpu::value(ValueId id) const {
  const auto found = values_.find(id.index);
  if (found == values_.end()) return {};
  return found->second;
}

}  // namespace

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, kernels::Machine& machine,
                                  const GpuOptions& options) {
  return std::make_unique<PreparedGpu>(std::move(program), capacity, machine, options);
}

std::vector<StageTime> time_stages(Prepared& prepared, int rounds) {
  return dynamic_cast<PreparedGpu&>(prepared).time_stages(rounds);
}

void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position) {
  dynamic_cast<PreparedGpu&>(prepared).assume_position(state_slot, position);
}

}  // namespace fourfold::backend::cuda
