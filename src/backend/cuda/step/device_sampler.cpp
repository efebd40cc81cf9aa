#include "backend/cuda/step/device_sampler.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

// Entries of all histories together, 16 bytes each; a sequence has at least the second number.
constexpr std::int64_t kHistoryEntries = std::int64_t{1} << 20;
constexpr std::int64_t kHistoryLeast = 4096;

}  // namespace

sampling::SampleRow sample_row(const Choice& choice, std::int64_t token_limit, std::int32_t state_slot,
                               std::int32_t draft_count) {
  sampling::SampleRow row{};
  row.seed = choice.seed;
  row.temperature = choice.temperature;
  row.top_p = choice.top_p;
  row.min_p = choice.min_p;
  row.repetition_penalty = choice.repetition_penalty;
  row.presence_penalty = choice.presence_penalty;
  row.frequency_penalty = choice.frequency_penalty;
  // The best of all tokens are all tokens.
  row.top_k = static_cast<std::int32_t>(choice.top_k < token_limit ? choice.top_k : 0);
  row.history = choice.has_history ? state_slot : -1;
  row.draft_count = choice.has_history ? draft_count : 0;
  return row;
}

void need(ChoiceKind& kind, const Choice& choice, std::int64_t token_limit) {
  const bool draws = choice.temperature > 0;
  if (choice.wants_logits || choice.has_history || draws) kind.tables = true;
  if (choice.wants_logits) return;
  kind.token_limit = static_cast<int>(token_limit);
  kind.scores |= choice.has_history;
  kind.draws |= draws;
  kind.weighs |= draws && (choice.top_k == 0 || choice.top_k >= token_limit);
}

DeviceSampler::DeviceSampler(kernels::Machine& machine, kernels::Arena& arena, const Capacity& capacity,
                             int vocab, int logits_rows)
    : machine_(machine),
      few_rows_(static_cast<std::size_t>(logits_rows)),
      row_limit_(std::max(few_rows_, static_cast<std::size_t>(capacity.row_count))),
      slots_(static_cast<std::size_t>(capacity.state_slot_count)),
      room_(few_rows_) {
  const std::size_t slots = slots_, bytes = layout_of(row_limit_).bytes;
  device_ = arena.take<unsigned char>(bytes, "choices");
  histories_.limit = static_cast<std::int32_t>(
      std::min<std::int64_t>({vocab, capacity.page_count * capacity.page_tokens,
                              std::max(kHistoryLeast, kHistoryEntries / capacity.state_slot_count)}));
  const auto entries = static_cast<std::size_t>(histories_.limit);
  histories_.seen = arena.take<sampling::Seen>(slots * entries, "histories");
  histories_.counts = arena.take<std::int32_t>(slots, "histories");
  machine.memory().clear(histories_.counts, slots * 4);
  group_keys_ = arena.take<std::uint32_t>(
      static_cast<std::size_t>(sampling::group_keys_bytes(logits_rows, vocab)) / 4, "choice of tokens");
  group_weights_ = arena.take<std::uint64_t>(
      static_cast<std::size_t>(sampling::group_weights_bytes(logits_rows, vocab)) / 8, "choice of tokens");
  parts_ = arena.take<sampling::PartBest>(
      static_cast<std::size_t>(sampling::parts_bytes(logits_rows, vocab)) / sizeof(sampling::PartBest),
      "choice of tokens");
  chosen_ = arena.take<std::int32_t>(2 * row_limit_, "chosen tokens");
  machine.memory().clear(chosen_, 2 * row_limit_ * sizeof(std::int32_t));  // read whole
  accept_.places = reinterpret_cast<const sampling::AcceptPlace*>(device_);
  accept_.chosen = chosen_;
  accept_.histories = histories_;
  accept_.emitted = arena.take<std::int32_t>(slots * (sampling::kDraftsMost + 1), "accepted tokens");
  auto* next = arena.take<std::int32_t>(4 * slots, "accepted tokens");
  accept_.accepted = next;
  accept_.next_tokens = next + slots;
  accept_.next_rows = next + 2 * slots;
  accept_.next_positions = next + 3 * slots;
  host_ = static_cast<unsigned char*>(machine.memory().allocate_host(bytes));
  staged_history_ =
      static_cast<unsigned char*>(machine.memory().allocate_host(entries * sizeof(sampling::Seen) + 16));
}

DeviceSampler::Layout DeviceSampler::layout_of(std::size_t rows) const {
  Layout out{};
  out.sampling = slots_ * sizeof(sampling::AcceptPlace);  // the places come first
  out.rows = out.sampling + rows * sizeof(sampling::SampleRow);
  out.draft_places = out.rows + rows * sizeof(std::int32_t);
  out.bytes = out.draft_places + rows * sizeof(std::int32_t);
  return out;
}

DeviceSampler::~DeviceSampler() {
  machine_.memory().release_host(host_);
  machine_.memory().release_host(staged_history_);
}

void DeviceSampler::set_history(std::int32_t state_slot, std::span<const SeenToken> entries) {
  check(std::ssize(entries) <= histories_.limit, "there is room for the history", entries.size(),
        histories_.limit);
  machine_.memory().wait();  // the history before has been sent
  auto* count = reinterpret_cast<std::int32_t*>(staged_history_);
  auto* seen = reinterpret_cast<sampling::Seen*>(staged_history_ + 16);
  *count = static_cast<std::int32_t>(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i)
    seen[i] = {entries[i].token, entries[i].count, entries[i].bias};
  const auto slot = static_cast<std::size_t>(state_slot);
  machine_.memory().send(histories_.counts + slot, count, sizeof *count);
  if (!entries.empty())
    machine_.memory().send(histories_.seen + slot * static_cast<std::size_t>(histories_.limit), seen,
                           entries.size() * sizeof *seen);
}

// A sequence's tokens are noted together: its choices follow each other, for its last rows.
void DeviceSampler::add_place(const RowGroup& group, std::int32_t row, std::int32_t first_row, int choice,
                              bool has_history) {
  if (!has_history) return;
  auto* places = host<sampling::AcceptPlace>(0);
  const step::RowPlace& place = group.rows[static_cast<std::size_t>(row)];
  if (sequence_count_ == 0 || places[sequence_count_ - 1].history != place.state_slot)
    places[sequence_count_++] = {choice, 0, row - first_row, place.state_slot};
  sampling::AcceptPlace& last = places[sequence_count_ - 1];
  const bool follows = last.first_choice + last.choice_count == choice &&
                       last.first_row + last.choice_count == row - first_row;
  if (!follows || last.choice_count > sampling::kDraftsMost)
    fail(Code::invalid_request,
         "tokens with a history are asked of up to {} rows of a sequence that follow each other; row {} does "
         "not",
         sampling::kDraftsMost + 1, group.batch_row[static_cast<std::size_t>(row)]);
  ++last.choice_count;
}

ChoiceKind DeviceSampler::send(const RowGroup& group, int begin, int count, const Choices& choices,
                               bool notes, std::span<const std::int32_t> chain_rows) {
  ChoiceKind kind;
  sequence_count_ = 0;
  const auto asked = std::count_if(group.logits_row.begin(), group.logits_row.end(),
                                   [&](std::int32_t row) { return row >= begin && row < begin + count; });
  room_ = static_cast<std::size_t>(asked) <= few_rows_ ? few_rows_ : row_limit_;
  const Layout layout = layout_of(room_);
  int at = 0;
  for (std::size_t i = 0; i < group.logits_row.size(); ++i) {
    const std::int32_t row = group.logits_row[i];
    if (row < begin || row >= begin + count) continue;
    const auto place = static_cast<std::size_t>(group.logits_place[i]);
    const Choice& choice = choices.rows[place];
    need(kind, choice, choices.token_limit);
    host<std::int32_t>(layout.rows)[at] = choice.wants_logits ? -1 : row - begin;
    host<sampling::SampleRow>(layout.sampling)[at] =
        sample_row(choice, choices.token_limit, group.rows[static_cast<std::size_t>(row)].state_slot,
                   group.draft_count[static_cast<std::size_t>(row)]);
    host<std::int32_t>(layout.draft_places)[at] = chain_rows.empty() ? -1 : chain_rows[place];
    if (notes) add_place(group, row, begin, at, choice.has_history && !choice.wants_logits);
    ++at;
  }
  kind.noted = sequence_count_;
  if (kind.tables || !chain_rows.empty()) machine_.memory().send(device_, host_, layout.bytes);
  return kind;
}

ChoicePlaces DeviceSampler::places(const ChoiceKind& kind, const std::int32_t* rows) const {
  const Layout layout = layout_of(room_);
  ChoicePlaces out;
  out.choice_rows = kind.tables ? reinterpret_cast<const std::int32_t*>(device_ + layout.rows) : rows;
  out.sampling = reinterpret_cast<const sampling::SampleRow*>(device_ + layout.sampling);
  out.chosen = chosen_;
  out.faults = reinterpret_cast<std::uint32_t*>(chosen_ + room_);
  out.draft_places = reinterpret_cast<const std::int32_t*>(device_ + layout.draft_places);
  return out;
}

void DeviceSampler::launch(const ChoiceKind& kind, const ChoicePlaces& places, const ChoiceRows& rows,
                           Multiplier& multiplier) {
  sampling::ChoiceParams params{};
  params.logits = rows.logits;
  params.stride = rows.stride;
  params.tokens = kind.token_limit;
  params.choices = rows.count;
  params.choice_rows = places.choice_rows + rows.begin;
  params.sampling = places.sampling + rows.begin;
  params.rows = rows.rows;
  params.step_tokens = rows.step_tokens;
  params.histories = histories_;
  params.group_keys = group_keys_;
  params.parts = parts_;
  params.group_weights = group_weights_;
  params.chosen = places.chosen + rows.begin;
  params.faults = places.faults + rows.begin;
  params.draft_tokens = places.draft_tokens;
  if (places.draft_tokens != nullptr) params.draft_places = places.draft_places + rows.begin;
  const auto launch = [&](const char* row, int blocks) {
    machine_.launch(multiplier.step_row(row), blocks, params);
  };
  if (kind.scores) launch(sampling::kScoresRow, sampling::choice_blocks(params));
  launch(sampling::kPeaksRow, sampling::part_blocks(params));
  if (kind.weighs) launch(sampling::kWeighRow, sampling::part_blocks(params));
  launch(kind.draws ? sampling::kChooseRow : sampling::kArgmaxRow, sampling::choice_blocks(params));
  if (kind.noted == 0 || !rows.last) return;
  sampling::AcceptParams accept = accept_;
  accept.step_tokens = rows.step_tokens;
  accept.rows = rows.rows;
  machine_.launch(multiplier.step_row(sampling::kAcceptRow), kind.noted, accept);
}

void DeviceSampler::read(std::span<const std::int32_t> places, const Choices& choices,
                         std::span<std::int32_t> tokens) {
  // Few rows have their faults close behind their tokens.
  read_.resize(2 * room_);
  machine_.memory().read(read_.data(), chosen_, read_.size() * sizeof(std::int32_t));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto place = static_cast<std::size_t>(places[i]);
    if (choices.rows[place].wants_logits) continue;
    tokens[place] = read_[room_ + i] != 0 ? kNoToken : read_[i];
  }
}

}  // namespace fourfold::backend::cuda
