#include "schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace fourfold::schedule {

std::int64_t Scheduler::Sequence::generated_rows() const {
  if (behind() == 0) return 1 + draft_count;
  const std::int64_t block_end = (position / kAnchorTokens + 1) * kAnchorTokens;
  return std::min({behind(), kReplayRows, block_end - position});
}

std::int64_t Scheduler::Sequence::anchor_stride() const {
  constexpr std::int64_t most = kAnchorStride * kAnchorsAlong;
  return kAnchorStride * ((prompt_count + most - 1) / most);
}

Scheduler::Scheduler(const Limits& limits)
    : limits_(limits),
      pool_(limits.page_count),
      index_(pool_, limits.page_tokens, limits.overlap, limits.recurrent, limits.anchor_count) {
  check(limits.page_count > 0 && limits.page_tokens > 0 && limits.sequence_count > 0 && limits.step_rows > 0,
        "there is room for something", limits.page_count, limits.page_tokens, limits.sequence_count,
        limits.step_rows);
  for (std::int64_t slot = limits.sequence_count; slot > 0; --slot)
    free_slots_.push_back(static_cast<std::int32_t>(slot - 1));
}

std::int64_t Scheduler::pages_for(std::int64_t token_count) const {
  return (token_count + limits_.page_tokens - 1) / limits_.page_tokens;
}

bool Scheduler::fits(std::int64_t end_limit) const { return pages_for(end_limit) <= limits_.page_count; }

void Scheduler::arrive(Arrival arrival) {
  check(!arrival.prompt.empty() && fits(arrival.end_limit) && arrival.end_limit >= std::ssize(arrival.prompt),
        "a request could run alone", arrival.end_limit);
  Sequence sequence;
  sequence.prompt_count = std::ssize(arrival.prompt);
  sequence.tokens = std::move(arrival.prompt);
  sequence.end_limit = arrival.end_limit;
  sequence.salt = std::move(arrival.salt);
  sequence.measures_prompt = arrival.measures_prompt;
  sequence.client = arrival.client;
  check(sequences_.emplace(arrival.id, std::move(sequence)).second, "ids are used once", arrival.id);
  begin_waiting(arrival.id);
}

void Scheduler::begin_waiting(Id id) {
  waiting_.insert(id);
  waiting_of_[sequences_.at(id).client].insert(id);
}

void Scheduler::end_waiting(Id id) {
  if (waiting_.erase(id) == 0) return;
  const auto of = waiting_of_.find(sequences_.at(id).client);
  of->second.erase(id);
  if (of->second.empty()) waiting_of_.erase(of);
}

std::optional<AnchorSave> Scheduler::leave(Id id, bool keeps_state) {
  const auto found = sequences_.find(id);
  check(found != sequences_.end(), "it is here", id);
  Sequence& sequence = found->second;
  std::optional<AnchorSave> save;
  if (running_.erase(id) > 0) {
    // The next turn of a talk begins with this answer.
    if (keeps_state && limits_.shares_answers && !sequence.in_prompt())
      save = keep_state(sequence, sequence.position / kAnchorTokens * kAnchorTokens);
    give_up_home(sequence);
  }
  end_waiting(id);
  sequences_.erase(found);
  return save;
}

void Scheduler::distrust() {
  while (index_.evict()) {
  }
}

void Scheduler::give_up_home(Sequence& sequence) {
  for (const std::int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.position = sequence.furthest = sequence.draft_count = sequence.stop = 0;
  sequence.node = PrefixIndex::kNone;
  sequence.indexed_pages = 0;
}

const StepPlan& Scheduler::plan(std::int64_t draft_room) {
  // Whoever was preempted would take back what it was preempted for.
  const bool is_crowded = !plan_.preempted.empty() || pages_short_;
  plan_.preempted.clear();
  plan_.admitted.clear();
  plan_.work.clear();
  served_.clear();
  ++step_;
  rows_left_ = limits_.step_rows;
  measured_left_ = limits_.measured_rows > 0 ? limits_.measured_rows : limits_.step_rows;
  pages_short_ = false;
  if (!is_crowded || running_.empty()) admit();
  if (prompt_waited_) serve_prompts(draft_room, /*one_block=*/true);
  serve_generated(draft_room);
  serve_prompts(draft_room, /*one_block=*/false);
  // Only when no prompt got on: otherwise prompts in a row would leave nothing to generated tokens.
  bool waits = false, gets_on = false;
  for (const Id id : running_)
    if (sequences_.at(id).in_prompt()) (served_.contains(id) ? gets_on : waits) = true;
  prompt_waited_ = waits && !gets_on;
  return plan_;
}

void Scheduler::serve_generated(std::int64_t draft_room) {
  std::vector<std::pair<std::uint64_t, Id>> order;
  for (const Id id : running_)
    if (const Sequence& sequence = sequences_.at(id); !sequence.in_prompt())
      order.emplace_back(sequence.last_step, id);
  std::ranges::sort(order);
  for (const auto& [last_step, id] : order) {
    if (!running_.contains(id)) continue;  // preempted for one before it
    Entry& entry = *sequences_.find(id);
    std::int64_t rows = entry.second.generated_rows();
    if (entry.second.behind() > 0) rows = std::min(rows, rows_left_);
    serve(entry, rows, draft_room);
  }
}

void Scheduler::serve_prompts(std::int64_t draft_room, bool one_block) {
  const std::vector<Id> order(running_.begin(), running_.end());
  for (const Id id : order) {
    if (!running_.contains(id) || served_.contains(id)) continue;
    Entry& entry = *sequences_.find(id);
    if (!entry.second.in_prompt()) continue;
    std::int64_t limit = one_block ? std::min(rows_left_, kAnchorTokens) : rows_left_;
    if (entry.second.measures_prompt) limit = std::min(limit, measured_left_);
    serve(entry, prompt_rows(entry.second, limit), draft_room);
    if (one_block) return;
  }
}

// Where the next piece of a prompt ends: all that is left, a place where the state is to be kept, or a
// multiple of 64. Steps too small for 64 rows cut anywhere.
std::int64_t Scheduler::prompt_rows(const Sequence& sequence, std::int64_t row_limit) const {
  std::int64_t end = sequence.prompt_count;
  if (keeping_states()) {
    const std::int64_t stride = sequence.anchor_stride();
    end = std::min(end, (sequence.position / stride + 1) * stride);
    if (sequence.stop > sequence.position) end = std::min(end, sequence.stop);
  }
  if (end - sequence.position <= row_limit) return end - sequence.position;
  const std::int64_t block = (sequence.position + row_limit) / kAnchorTokens * kAnchorTokens;
  if (block > sequence.position) return block - sequence.position;
  return limits_.step_rows < kAnchorTokens ? row_limit : 0;
}

void Scheduler::serve(Entry& entry, std::int64_t row_count, std::int64_t draft_room) {
  Sequence& sequence = entry.second;
  if (row_count < 1 || row_count > rows_left_) return;
  const std::int64_t end = std::min(sequence.position + row_count + draft_room, sequence.end_limit);
  if (!grow(entry, std::max(end, sequence.position + row_count))) {
    pages_short_ = true;
    return;
  }
  rows_left_ -= row_count;
  if (sequence.measures_prompt && sequence.in_prompt()) measured_left_ -= row_count;
  sequence.last_step = step_;
  served_.insert(entry.first);
  plan_.work.push_back({entry.first, row_count});
}

bool Scheduler::grow(Entry& entry, std::int64_t end) {
  Sequence& sequence = entry.second;
  while (std::ssize(sequence.pages) < pages_for(end)) {
    if (const auto page = pool_.acquire())
      sequence.pages.push_back(*page);
    else if (!index_.evict() && !drop_younger(entry.first))
      return false;
  }
  return true;
}

bool Scheduler::drop_younger(Id id) {
  const Id youngest = *running_.rbegin();
  if (youngest <= id) return false;
  running_.erase(youngest);
  begin_waiting(youngest);
  give_up_home(sequences_.at(youngest));
  if (served_.erase(youngest) > 0) {
    const auto work = std::ranges::find(plan_.work, youngest, &Work::id);
    rows_left_ += work->row_count;
    plan_.work.erase(work);
  }
  if (std::erase_if(plan_.admitted, [&](const Admission& one) { return one.id == youngest; }) > 0)
    return true;
  plan_.preempted.push_back(youngest);
  ++counts_.preempted;
  return true;
}

// Pages for all its tokens and for one more of each that runs: fewer would soon be taken away again.
bool Scheduler::can_admit(const Sequence& sequence, const PrefixIndex::Hit& hit) const {
  if (running_.empty()) return true;
  std::int64_t pinned = 0;  // pages of the hit that could be let go, but not if it is used
  for (const std::int32_t page : hit.pages) pinned += pool_.holders(page) == 1 ? 1 : 0;
  std::int64_t promised = 0;  // to those whose prompts are on their way
  for (const Id id : running_) {
    const Sequence& other = sequences_.at(id);
    promised += std::max<std::int64_t>(pages_for(std::ssize(other.tokens) + 1) - std::ssize(other.pages), 0);
  }
  const std::int64_t available = pool_.free_count() + index_.idle_pages() - pinned - promised;
  return pages_for(std::ssize(sequence.tokens) + 1) - std::ssize(hit.pages) + running_count() <= available;
}

// The oldest of the client that has the fewest running: whoever asks for much at once waits behind the
// others.
Id Scheduler::next_waiting() const {
  if (waiting_of_.size() == 1) return *waiting_.begin();
  std::map<std::uint64_t, std::int64_t> running;
  for (const Id id : running_) ++running[sequences_.at(id).client];
  std::pair<std::int64_t, Id> best{std::numeric_limits<std::int64_t>::max(), 0};
  for (const auto& [client, ids] : waiting_of_) {
    const auto found = running.find(client);
    best = std::min(best, {found == running.end() ? 0 : found->second, *ids.begin()});
  }
  return best.second;
}

void Scheduler::admit() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const Id id = next_waiting();
    Sequence& sequence = sequences_.at(id);
    // Of a sequence that is computed again the answer's pages may be used too, where they are as good.
    std::int64_t limit = (limits_.shares_answers ? std::ssize(sequence.tokens) : sequence.prompt_count) - 1;
    if (sequence.measures_prompt && sequence.measured < sequence.prompt_count)
      limit = std::min(limit, sequence.measured);
    PrefixIndex::Hit hit;
    if (sharing()) hit = index_.find(sequence.salt, sequence.tokens, limit);
    if (!can_admit(sequence, hit)) return;
    end_waiting(id);
    running_.insert(id);
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    sequence.last_step = step_;
    if (!std::exchange(sequence.counted, true) && sharing() && !sequence.measures_prompt) {
      ++counts_.lookups;
      counts_.hits += hit.position > 0 ? 1 : 0;
      counts_.cached_tokens += hit.position;
    }
    if (hit.position > 0) {
      index_.take(hit);
      sequence.pages = hit.pages;
      sequence.node = hit.node;
      sequence.indexed_pages = std::ssize(hit.pages);
      sequence.position = sequence.furthest = hit.position;
    }
    // A beginning that was seen before, but without its state: from now on with it. The state before the
    // prompt's last block is kept in any case; a cut there would be a step for nothing.
    const std::int64_t common = hit.matched / kAnchorTokens * kAnchorTokens;
    sequence.stop = keeping_states() && common > hit.position && common < sequence.last_anchor() ? common : 0;
    plan_.admitted.push_back({id, sequence.slot, hit.position, hit.anchor});
  }
}

std::span<const std::int32_t> Scheduler::pages(Id id) const { return sequences_.at(id).pages; }

std::optional<AnchorSave> Scheduler::advance(Id id, const Progress& progress) {
  Sequence& sequence = sequences_.at(id);
  check(running_.contains(id), "only who runs gets on", id);
  const bool was_in_prompt = sequence.in_prompt();
  sequence.position = progress.position;
  sequence.furthest = std::max(sequence.furthest, progress.furthest);
  sequence.measured = std::max(sequence.measured, std::min(progress.position, sequence.prompt_count));
  sequence.tokens.insert(sequence.tokens.end(), progress.appended.begin(), progress.appended.end());
  sequence.draft_count = progress.draft_count;
  if (!sharing()) return std::nullopt;
  index_pages(sequence, progress.shareable);
  if (!was_in_prompt) return std::nullopt;
  if (!sequence.in_prompt()) return keep_state(sequence, sequence.last_anchor());
  if (sequence.position == sequence.stop || sequence.position % sequence.anchor_stride() == 0)
    return keep_state(sequence, sequence.position);
  return std::nullopt;
}

void Scheduler::index_pages(Sequence& sequence, std::int64_t shareable) {
  shareable = std::min(shareable, sequence.position);
  if (!limits_.shares_answers) shareable = std::min(shareable, sequence.prompt_count);
  for (;;) {
    const std::int64_t begin = sequence.indexed_pages * limits_.page_tokens;
    const std::int64_t count = limits_.page_tokens + limits_.overlap;
    if (begin + limits_.page_tokens > shareable || begin + count > std::ssize(sequence.tokens)) return;
    std::int32_t& page = sequence.pages[static_cast<std::size_t>(sequence.indexed_pages)];
    sequence.node = index_.insert(
        sequence.salt, sequence.node,
        std::span(sequence.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        page);
    // Two had the same beginning at the same time: one page is enough for both.
    if (const std::int32_t kept = index_.page(sequence.node); kept != page) {
      pool_.share(kept);
      pool_.release(page);
      page = kept;
    }
    ++sequence.indexed_pages;
  }
}

std::optional<AnchorSave> Scheduler::keep_state(Sequence& sequence, std::int64_t position) {
  // A slot has the states of the two newest multiples of 64 it has reached.
  const std::int64_t oldest = (sequence.furthest / kAnchorTokens - 1) * kAnchorTokens;
  if (!keeping_states() || position < kAnchorTokens || position < oldest || position > sequence.position)
    return std::nullopt;
  if (position % limits_.page_tokens != 0) return std::nullopt;
  std::int64_t depth = sequence.indexed_pages;
  PrefixIndex::Node node = sequence.node;
  for (; depth * limits_.page_tokens > position; --depth) node = index_.parent(node);
  if (depth * limits_.page_tokens != position || index_.has_anchor(node)) return std::nullopt;
  const auto anchor = index_.give_anchor(node);
  if (!anchor) return std::nullopt;
  return AnchorSave{*anchor, sequence.slot, position};
}

std::string Scheduler::problem() const {
  std::vector<std::int32_t> held(static_cast<std::size_t>(limits_.page_count));
  std::set<std::int32_t> slots(free_slots_.begin(), free_slots_.end());
  if (std::ssize(slots) != std::ssize(free_slots_)) return "a slot is free twice";
  for (const auto& [id, sequence] : sequences_) {
    if (waiting_.contains(id) == running_.contains(id)) return format("{} is in two places or none", id);
    if (waiting_.contains(id) && (!sequence.pages.empty() || sequence.slot >= 0))
      return format("{} waits and holds something", id);
    if (running_.contains(id) && !slots.insert(sequence.slot).second)
      return format("slot {} is used twice", sequence.slot);
    for (std::size_t i = 0; i < sequence.pages.size(); ++i) {
      ++held[static_cast<std::size_t>(sequence.pages[i])];
      // What may still be written belongs to one.
      if (static_cast<std::int64_t>(i) >= sequence.indexed_pages && pool_.holders(sequence.pages[i]) != 1)
        return format("page {} of {} can be written and is shared", sequence.pages[i], id);
    }
  }
  if (std::ssize(slots) != limits_.sequence_count) return "a slot is lost";
  std::int64_t index_holds = 0, free = 0;
  for (std::int32_t page = 0; page < limits_.page_count; ++page) {
    const std::int32_t rest = pool_.holders(page) - held[static_cast<std::size_t>(page)];
    if (rest < 0 || rest > 1) return format("page {} has {} holders too many", page, rest);
    index_holds += rest;
    free += pool_.holders(page) == 0 ? 1 : 0;
  }
  if (index_holds != index_.node_count())
    return format("{} pages are held by nobody, the index has {}", index_holds, index_.node_count());
  if (free != pool_.free_count()) return "the free pages are not those without holders";
  return {};
}

}  // namespace fourfold::schedule
