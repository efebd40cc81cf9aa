#include "backend/cuda/prepared.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "backend/collective.h"
#include "backend/cuda/memory_plan.h"
#include "backend/cuda/step/decision.h"
#include "backend/cuda/step/short_grid.h"
#include "backend/cuda/step/step_buffers.h"
#include "base/check.h"
#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

// Rows of a group from `begin` on that are run together. Prompts go whole: the batch's rows fit by the
// capacity. Of generated rows as many whole sequences as fit, since tokens that are chosen may depend on the
// drafts before them.
int piece_of(const RowGroup& group, int begin) {
  const int left = group.row_count() - begin;
  if (group.role == Role::prefill || left <= kGeneratedRows) return left;
  const auto sequence = [&](int row) { return group.rows[static_cast<std::size_t>(row)].sequence; };
  int end = begin + kGeneratedRows;
  while (end > begin && sequence(end - 1) == sequence(end)) --end;
  return end > begin ? end - begin : kGeneratedRows;
}

// What ranks exchange has a number (Runner): the names in the program, in that order.
std::vector<std::string> exchange_names(const Program& program) {
  std::vector<std::string> names;
  for (const Pass pass : {Pass::main, Pass::draft})
    for (const Op& op : program.ops(pass)) {
      const auto* sum = std::get_if<AllReduce>(&op);
      const auto* gathered = std::get_if<AllGather>(&op);
      if (sum == nullptr && gathered == nullptr) continue;
      names.push_back(program.value(sum != nullptr ? sum->out : gathered->out).name);
    }
  return names;
}

std::string exchange_name(const Program& program, int place) {
  const std::vector<std::string> names = exchange_names(program);
  return place < std::ssize(names) ? names[static_cast<std::size_t>(place)]
                                   : "an exchange that the program does not have";
}

}  // namespace

PreparedGpu::PreparedGpu(Program program, const Capacity& capacity, kernels::Machine& machine,
                         const GpuOptions& options)
    : program_(std::move(program)),
      capacity_(capacity),
      options_(options),
      machine_(machine),
      arena_(machine.memory()),
      window_pages_(program_, capacity),
      tables_(machine.memory(), arena_, program_, capacity),
      model_(load()),
      anchors_(machine.memory(), arena_, model_, capacity,
               WindowPages::seen_count(program_, capacity.page_tokens)),
      selector_(machine, options.tuning),
      buffers_(make_buffers(model_, selector_, arena_, capacity)),
      multiplier_(machine, tables_, buffers_, selector_, options.ways),
      sampler_(machine, arena_, capacity, model_.head.vocab, kLogitsRows),
      chain_(machine, arena_, program_, capacity),
      runner_(machine, model_, buffers_, tables_, multiplier_, sampler_, options_.exchange.get(),
              options_.ways),
      slots_(static_cast<std::size_t>(capacity.state_slot_count)) {
  if (options.keep_values) {
    kept_.resize(program_.layer_outputs.size());
    for (auto& rows : kept_)
      rows = arena_.take<float>(static_cast<std::size_t>(capacity.row_count * program_.hidden_size), "kept");
  }
  // Columns beyond a narrow mixer's own are multiplied with zeros: they must be numbers.
  machine.memory().clear(buffers_.mixed, static_cast<std::size_t>(capacity.row_count) *
                                             static_cast<std::size_t>(buffers_.mixed_columns) * 2);
  join_ranks();
  machine.memory().wait();
}

void PreparedGpu::join_ranks() {
  const PartOf& part = program_.part;
  const int met = options_.exchange != nullptr ? options_.exchange->rank_count() : 1;
  check(met == part.count, "a part of a program has an exchange for all of them", met, part.count);
  if (part.count == 1) return;
  options_.exchange->join(part.rank, machine_, model_.hidden, static_cast<int>(capacity_.row_count),
                          model_.head.matrix.width);
  options_.exchange->name_places(exchange_names(program_));
  clear_part();
}

void PreparedGpu::clear_part() {
  machine_.memory().clear(buffers_.part, static_cast<std::size_t>(capacity_.row_count) *
                                             static_cast<std::size_t>(model_.hidden) * sizeof(float));
}

// Ranks of other processes come back, and whoever asks for a step knows that all are there.
void PreparedGpu::mend_ranks() {
  if (!options_.exchange->has_failed()) return;
  machine_.memory().wait();
  in_flight_ = false;
  clear_part();  // what a sum that did not come about has left
  // Nor does a slot go on from a pass that did not end: its pages would be missing to others.
  for (std::int32_t slot = 0; slot < std::ssize(slots_); ++slot) window_pages_.hold(slot, 0, 0);
  std::ranges::fill(slots_, SlotPast{});  // so that whoever would go on is refused
  options_.exchange->begin_anew();
}

// With ranks of other processes nothing is on its way behind a call: whoever carries what they exchange
// belongs to one call at a time. A kernel that reads what a lost rank did not bring may be refused (the
// simulator does): whom it missed is what counts then.
void PreparedGpu::run_call(const std::function<void()>& call) {
  if (options_.exchange == nullptr || !options_.exchange->is_carried()) return call();
  mend_ranks();
  read_results([&] { call(), settle(); });
}

void PreparedGpu::settled() {
  in_flight_ = false;
  if (options_.exchange != nullptr) options_.exchange->end_work();
}

void PreparedGpu::require_ranks() const {
  if (options_.exchange == nullptr) return;
  options_.exchange->rethrow_failure();
  if (const auto lost = options_.exchange->unanswered(program_.part.rank))
    throw RankLost(lost->source, format("rank {} had no answer from rank {} at {}: {}", program_.part.rank,
                                        lost->source, exchange_name(program_, lost->place), lost->why));
}

// Results are looked at after this alone: a rank that gave another one up has computed nonsense since, or
// nothing, so that reading fails as well; whom it missed is what counts then.
void PreparedGpu::read_results(const std::function<void()>& read) const {
  try {
    read();
  } catch (const std::exception&) {
    require_ranks();
    throw;
  }
  require_ranks();
}

// Making a graph may wait for the whole device inside the driver. So nothing of this rank is on its way then,
// and no rank goes on before all have made theirs: its kernels would wait for others that nobody launches.
std::unique_ptr<kernels::Recording> PreparedGpu::record_step(const std::function<void()>& launches) {
  if (options_.exchange == nullptr) return machine_.record(launches);
  settle();
  auto recording = machine_.record(launches);
  if (const auto lost = options_.exchange->meet(program_.part.rank))
    throw RankLost(lost->source, format("rank {} has not recorded its step, rank {} has: {}", lost->source,
                                        program_.part.rank, lost->why));
  return recording;
}

DeviceModel PreparedGpu::load() {
  const std::vector<std::string> problems = problems_of(program_);
  check(problems.empty(), "the program is sound", problems.empty() ? "" : problems.front().c_str());
  if (capacity_.page_tokens != step::kPageTokens)
    fail(Code::invalid_request, "pages of {} tokens; the GPU backend has pages of {}", capacity_.page_tokens,
         step::kPageTokens);
  const Layers layers = read_layers(program_);
  memory_ = plan_memory(program_, capacity_, machine_, options_.load.dense, options_.tuning,
                        options_.exchange != nullptr ? options_.exchange->meets() : all_reduce::Meets::here);
  require_memory(memory_, program_, capacity_, machine_, options_);
  WeightLoader loader(machine_, arena_, program_, options_.load, notices_);
  DeviceModel model = load_model(layers, program_, capacity_, loader, arena_, machine_.memory());
  loader.finish();
  return model;
}

void PreparedGpu::run(Pass pass, const Batch& batch, std::span<float> logits) {
  check(logits.size() == batch.logits_rows.size() * static_cast<std::size_t>(program_.vocab_size),
        "there is room for the logits that were asked", logits.size(), batch.logits_rows.size());
  logits_index_.resize(batch.logits_rows.size());
  std::iota(logits_index_.begin(), logits_index_.end(), 0);
  run_call([&] { run_pass(pass, batch, {.chosen = {{}, logits}}); });
}

bool PreparedGpu::can_choose(const Choices& choices, std::size_t asked) const {
  check(choices.token_limit > 0 && choices.token_limit <= program_.vocab_size, "tokens are of the vocabulary",
        choices.token_limit);
  check(choices.rows.size() == asked, "every row asked has a choice", choices.rows.size(), asked);
  return choices.token_limit <= sampling::kTokensMost;
}

bool PreparedGpu::run_sampled(Pass pass, const Batch& batch, const Choices& choices, const Chosen& chosen) {
  if (!can_choose(choices, batch.logits_rows.size())) return false;
  logits_index_.clear();
  std::int32_t wanting = 0;
  for (const Choice& choice : choices.rows) logits_index_.push_back(choice.wants_logits ? wanting++ : -1);
  check(chosen.tokens.size() == choices.rows.size() &&
            chosen.logits.size() ==
                static_cast<std::size_t>(wanting) * static_cast<std::size_t>(program_.vocab_size),
        "there is room for the tokens and logits that were asked", chosen.tokens.size(),
        chosen.logits.size());
  run_call([&] { run_pass(pass, batch, {choices, chosen}); });
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
  if (pass == Pass::main) {
    window_pages_.begin(batch, slots_);
    for (const SequenceRows& rows : batch.sequences) slot(rows).begin(rows);
  }
  const std::size_t numbers = batch.tokens.size() * static_cast<std::size_t>(model_.hidden);
  if (pass == Pass::main && options_.keep_values)
    for (const ValueId id : program_.layer_outputs) values_[id.index].resize(numbers);
  asked_before_ = 0;
  const std::span<const std::int32_t> window_pages =
      pass == Pass::main ? window_pages_.table() : std::span<const std::int32_t>{};
  for (const RowGroup& group : groups_of(batch, window_pages)) {
    for (int begin = 0, count = 0; begin < group.row_count(); begin += count) {
      count = piece_of(group, begin);
      run_rows(pass, group, begin, count, wanted);
    }
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

PassPlaces PreparedGpu::batch_places(const ChoiceKind& kind, int asked_before, bool chains) const {
  PassPlaces places;
  places.tables = tables_.tables();
  places.window_pages = tables_.window_pages();
  places.tokens = tables_.tokens();
  places.batch_rows = tables_.batch_rows();
  places.hidden_rows = tables_.hidden_rows();
  places.logits_rows = tables_.logits_rows();
  places.hidden = buffers_.hidden[hidden_];
  places.hidden_out = buffers_.hidden[hidden_ ^ 1];
  places.choices = sampler_.places(kind, places.logits_rows);
  if (chains) chain_.leave_first(places.choices, asked_before);
  return places;
}

void PreparedGpu::run_rows(Pass pass, const RowGroup& group, int begin, int count, const Wanted& wanted) {
  settle();
  tables_.send(group, begin, count);
  ChoiceKind kind;
  if (!wanted.choices.rows.empty())
    kind = sampler_.send(group, begin, count, wanted.choices, pass == Pass::main,
                         wanted.chains ? chain_.rows_of_asked() : std::span<const std::int32_t>{});
  const auto asked = static_cast<int>(tables_.logits_places().size());
  const int first = std::min(asked, kLogitsRows);
  PassShape shape{
      pass,           group.role,    count, tables_.sequence_count(), tables_.sequence_rows(), first,
      first == count, asked > first, kind};
  if (wanted.chains) shape.chain = 1, shape.chain_begin = asked_before_;
  shape.is_short = options_.ways.grids_by_context && group.role == Role::decode &&
                   shape.sequences <= kShortSequences && tables_.last_position() < kShortContext;
  const PassPlaces places = batch_places(kind, asked_before_, wanted.chains);
  launch(shape, places);
  if (options_.keep_values && pass == Pass::main) keep_rows(group, begin, count);
  for (int at = 0; at < asked; at += kLogitsRows) {
    const int more = std::min(kLogitsRows, asked - at);
    if (at > 0) runner_.more_logits(shape, places, at, more, at + more == asked);
    if (!wanted.chosen.logits.empty())
      read_logits(
          tables_.logits_places().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(more)),
          wanted);
  }
  if (kind.token_limit > 0 && !wanted.chains && asked > 0) {
    read_results([&] { sampler_.read(tables_.logits_places(), wanted.choices, wanted.chosen.tokens); });
    settled();  // a read waits for all that was launched
  }
  asked_before_ += asked;
}

void PreparedGpu::settle() {
  if (in_flight_) machine_.memory().wait(), require_ranks();
  settled();
}

void PreparedGpu::launch(const PassShape& shape, const PassPlaces& places) {
  if (shape.pass == Pass::main) last_shape_ = shape, last_places_ = places;
  std::optional<LaunchNotes> notes;
  const auto launches = [&] {
    runner_.run(shape, places, [&](int index) {
      if (notes) notes->cut(index);
      if (kept_.empty()) return;
      const auto bytes = static_cast<std::size_t>(shape.rows) * static_cast<std::size_t>(model_.hidden) * 4;
      machine_.memory().copy(kept_[static_cast<std::size_t>(index)], buffers_.x, bytes);
    });
  };
  // The first run of a shape prepares what it needs (tables of tiles, chosen rows); the second is recorded.
  // Places are a function of the shape and of which hidden rows are the last.
  // Prompts come in too many shapes, and their kernels are long enough to launch one by one.
  const bool records = shape.role != Role::prefill && options_.graphs && !options_.keep_values;
  const auto [entry, is_new] = recordings_.try_emplace({shape, hidden_});
  const bool is_first = is_new && records;
  const bool is_known =
      is_first || entry->second != nullptr || !options_.on_new_shape || !told_.insert(shape).second;
  if (!is_known) notes.emplace(machine_);
  if (records && !is_first && entry->second == nullptr) entry->second = record_step(launches);
  in_flight_ = true;
  if (options_.exchange != nullptr) options_.exchange->begin_work();
  entry->second != nullptr ? machine_.replay(*entry->second) : launches();
  if (!is_known) options_.on_new_shape(notes->decision(shape, entry->second.get()));
}

bool PreparedGpu::run_drafts(const Batch& batch, const Choices& choices, std::span<const int> counts,
                             std::span<std::int32_t> drafts) {
  if (!can_choose(choices, batch.logits_rows.size())) return false;
  check(counts.size() == choices.rows.size(), "every row asked has a count", counts.size());
  check(drafts.size() == std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
        "there is room for the drafts", drafts.size());
  for (const Choice& choice : choices.rows)
    check(choice.temperature == 0 && !choice.wants_logits, "drafts are the most probable tokens");
  require_valid(batch, program_, capacity_, Pass::draft, hidden_count_);
  run_call([&] { run_draft_passes(batch, choices, counts, drafts); });
  return true;
}

void PreparedGpu::run_draft_passes(const Batch& batch, const Choices& choices, std::span<const int> counts,
                                   std::span<std::int32_t> drafts) {
  settle();
  chain_.send(batch, choices, counts, program_.position_limit);
  run_pass(Pass::draft, batch, {.choices = choices, .chains = true});
  for (int pass = 2; pass <= chain_.pass_count(); ++pass)
    for (int begin = 0; begin < chain_.row_count(pass); begin += kLogitsRows) {
      const int count = std::min(kLogitsRows, chain_.row_count(pass) - begin);
      const PassShape shape{Pass::draft, Role::decode, count,         count, 1,    count,
                            true,        false,        chain_.kind(), pass,  begin};
      launch(shape, chain_.places(pass, begin, count, buffers_.hidden[hidden_]));
    }
  if (!counts.empty()) read_results([&] { chain_.read(counts, drafts); }), settled();
}

// The rows' residual streams after the embedding and every layer, to their places in the batch.
void PreparedGpu::keep_rows(const RowGroup& group, int begin, int count) {
  const auto width = static_cast<std::size_t>(model_.hidden);
  row_.resize(static_cast<std::size_t>(count) * width);
  for (std::size_t layer = 0; layer < kept_.size(); ++layer) {
    float* to = values_[program_.layer_outputs[layer].index].data();
    read_results([&] { machine_.memory().read(row_.data(), kept_[layer], row_.size() * 4); });
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::copy_n(
          row_.data() + i * width, width,
          to + static_cast<std::size_t>(group.batch_row[static_cast<std::size_t>(begin) + i]) * width);
  }
}

void PreparedGpu::read_logits(std::span<const std::int32_t> places, const Wanted& wanted) {
  const auto vocab = static_cast<std::size_t>(program_.vocab_size);
  const auto width = static_cast<std::size_t>(model_.head.logits_stride);
  read_results([&] {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int32_t index = logits_index_[static_cast<std::size_t>(places[i])];
      if (index < 0) continue;
      machine_.memory().read(wanted.chosen.logits.data() + static_cast<std::size_t>(index) * vocab,
                             buffers_.logits + i * width, vocab * 4);
    }
  });
}

std::span<const float> PreparedGpu::value(ValueId id) const {
  const auto found = values_.find(id.index);
  if (found == values_.end()) return {};
  return found->second;
}

std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity, kernels::Machine& machine,
                                  const GpuOptions& options) {
  return std::make_unique<PreparedGpu>(std::move(program), capacity, machine, options);
}

std::vector<StageTime> time_stages(Prepared& prepared, int rounds) {
  return dynamic_cast<PreparedGpu&>(prepared).time_stages(rounds);
}

std::vector<int> distinct_experts(Prepared& prepared, int rows) {
  return dynamic_cast<PreparedGpu&>(prepared).distinct_experts(rows);
}

void assume_position(Prepared& prepared, std::int32_t state_slot, std::int64_t position) {
  dynamic_cast<PreparedGpu&>(prepared).assume_position(state_slot, position);
}

}  // namespace fourfold::backend::cuda
