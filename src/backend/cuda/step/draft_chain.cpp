#include "backend/cuda/step/draft_chain.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace fourfold::backend::cuda {
namespace {

// A sequence that wants drafts, and where its last row stands in the batch.
struct Member {
  const SequenceRows* rows;
  std::int32_t last_row;
};

std::vector<Member> members_of(const Batch& batch) {
  std::vector<Member> members;
  std::size_t asked = 0;
  std::int32_t end = 0;
  for (const SequenceRows& rows : batch.sequences) {
    end += rows.row_count;
    if (asked == batch.logits_rows.size() || batch.logits_rows[asked] >= end) continue;
    if (batch.logits_rows[asked] != end - 1)
      fail(Code::invalid_request, "drafts begin behind the last row of a sequence, {}; row {} was asked",
           end - 1, batch.logits_rows[asked]);
    members.push_back({&rows, end - 1});
    ++asked;
  }
  return members;
}

void require_counts(const std::vector<Member>& members, std::span<const int> counts,
                    std::int64_t position_limit) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const SequenceRows& rows = *members[i].rows;
    const std::int64_t room =
        std::min<std::int64_t>(position_limit, std::int64_t{rows.page_count} * step::kPageTokens);
    const std::int64_t end = rows.position + rows.row_count + counts[i] - 1;
    if (counts[i] < 1 || counts[i] > kDraftPassesMost || end > room)
      fail(Code::invalid_request, "{} drafts behind position {}: 1 to {} are possible, and {} positions",
           counts[i], rows.position + rows.row_count - 1, kDraftPassesMost, room);
  }
}

}  // namespace

DraftChain::DraftChain(kernels::Machine& machine, kernels::Arena& arena, const Program& program,
                       const Capacity& capacity)
    : machine_(machine),
      slots_(static_cast<std::size_t>(capacity.state_slot_count)),
      page_limit_(page_entries(program, capacity)) {
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += (bytes + 15) / 16 * 16;
    return at;
  };
  sampling_at_ = take(slots_ * sizeof(sampling::SampleRow));
  hidden_at_ = take(slots_ * 4);
  logits_at_ = take(slots_ * 4);
  pass_bytes_ = slots_ * (sizeof(step::RowPlace) + sizeof(step::SequencePlace));
  passes_at_ = take((kDraftPassesMost - 1) * pass_bytes_);  // last: passes that are not run are not sent
  host_ = static_cast<unsigned char*>(machine.memory().allocate_host(bytes_));
  host_pages_ = static_cast<std::int32_t*>(machine.memory().allocate_host(page_limit_ * 4));
  device_ = arena.take<unsigned char>(bytes_, "draft tables");
  pages_ = arena.take<std::int32_t>(page_limit_, "draft tables");
  results_ = arena.take<std::int32_t>(kDraftPassesMost * 2 * slots_, "drafts");
  machine.memory().clear(results_, kDraftPassesMost * 2 * slots_ * 4);  // read whole
}

DraftChain::~DraftChain() {
  machine_.memory().release_host(host_);
  machine_.memory().release_host(host_pages_);
}

void DraftChain::send(const Batch& batch, const Choices& choices, std::span<const int> counts,
                      std::int64_t position_limit) {
  const std::vector<Member> members = members_of(batch);
  require_counts(members, counts, position_limit);
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Not stable_sort: libstdc++ 12's does not compile cleanly with clang 19.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
  });
  kind_ = {};
  rows_of_asked_.resize(members.size());
  faults_of_asked_.resize(members.size());
  std::int32_t fault = 0;  // the first pass leaves them group by group, as row_group.h orders them
  for (const Role role : {Role::decode, Role::prefill})
    for (std::size_t asked = 0; asked < members.size(); ++asked)
      if (members[asked].rows->role == role) faults_of_asked_[asked] = fault++;
  pass_count_ = 0;
  std::fill(std::begin(row_counts_), std::end(row_counts_), 0);
  std::int32_t page_count = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t asked = order[i];
    const Member& member = members[asked];
    rows_of_asked_[asked] = static_cast<std::int32_t>(i);
    need(kind_, choices.rows[asked], choices.token_limit);
    pass_count_ = std::max(pass_count_, counts[asked]);
    for (int pass = 2; pass <= counts[asked]; ++pass) ++row_counts_[pass];
    const auto pages = batch.pages.subspan(static_cast<std::size_t>(member.rows->page_begin),
                                           static_cast<std::size_t>(member.rows->page_count));
    std::copy(pages.begin(), pages.end(), host_pages_ + page_count);
    fill(static_cast<int>(i), *member.rows, member.last_row, page_count,
         sample_row(choices.rows[asked], choices.token_limit, member.rows->state_slot, 0));
    page_count += member.rows->page_count;
  }
  if (pass_count_ < 2) return;
  machine_.memory().send(pages_, host_pages_, static_cast<std::size_t>(page_count) * 4);
  machine_.memory().send(device_, host_, pass_at(pass_count_ + 1));
}

// A row of every pass behind the first; places are those within its piece of kLogitsRows.
void DraftChain::fill(int row, const SequenceRows& rows, std::int32_t last_row, std::int32_t page_begin,
                      const sampling::SampleRow& sampling) {
  const std::int32_t place = row % kLogitsRows;
  host<sampling::SampleRow>(sampling_at_)[row] = sampling;
  host<std::int32_t>(hidden_at_)[row] = last_row;
  host<std::int32_t>(logits_at_)[row] = place;
  for (int pass = 2; pass <= kDraftPassesMost; ++pass) {
    const auto position = static_cast<std::int32_t>(rows.position) + rows.row_count - 2 + pass;
    host<step::RowPlace>(pass_at(pass))[row] = {place, position, rows.state_slot, page_begin};
    host<step::SequencePlace>(pass_at(pass) + slots_ * sizeof(step::RowPlace))[row] = {
        place, 1, position, rows.state_slot, page_begin, {0, 0, 0}};
  }
}

void DraftChain::leave_first(ChoicePlaces& places, int asked_before) const {
  places.draft_tokens = tokens_of(1);
  places.faults = reinterpret_cast<std::uint32_t*>(tokens_of(1) + slots_) + asked_before;
}

PassPlaces DraftChain::places(int pass, int begin, int count, float* hidden) const {
  PassPlaces out;
  out.tables = {device<step::RowPlace>(pass_at(pass)) + begin,
                device<step::SequencePlace>(pass_at(pass) + slots_ * sizeof(step::RowPlace)) + begin, pages_,
                count, count};
  out.tokens = tokens_of(pass - 1) + begin;
  out.batch_rows = out.hidden_rows = device<std::int32_t>(hidden_at_) + begin;
  out.logits_rows = device<std::int32_t>(logits_at_) + begin;
  out.hidden = out.hidden_out = hidden;
  out.choices.choice_rows = out.logits_rows;
  out.choices.sampling = device<sampling::SampleRow>(sampling_at_) + begin;
  out.choices.chosen = tokens_of(pass) + begin;
  out.choices.faults = reinterpret_cast<std::uint32_t*>(tokens_of(pass) + slots_) + begin;
  return out;
}

void DraftChain::read(std::span<const int> counts, std::span<std::int32_t> drafts) {
  read_.resize(static_cast<std::size_t>(pass_count_) * 2 * slots_);
  machine_.memory().read(read_.data(), results_, read_.size() * 4);
  const auto tokens_read = [&](int pass) {
    return read_.data() + static_cast<std::size_t>(pass - 1) * 2 * slots_;
  };
  const auto is_bad = [&](int pass, std::size_t asked) {
    const std::int32_t row = pass == 1 ? faults_of_asked_[asked] : rows_of_asked_[asked];
    return tokens_read(pass)[slots_ + static_cast<std::size_t>(row)] != 0;
  };
  std::size_t at = 0;
  for (std::size_t asked = 0; asked < counts.size(); ++asked)
    for (int pass = 1; pass <= counts[asked]; ++pass)
      drafts[at++] = is_bad(pass, asked) ? kNoToken : tokens_read(pass)[rows_of_asked_[asked]];
}

}  // namespace fourfold::backend::cuda
