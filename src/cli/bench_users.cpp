#include "cli/bench_users.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "backend/cuda/cuda.h"
#include "base/check.h"
#include "base/token_grain.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Users::Users(backend::Prepared& prepared, int count, std::int64_t context, std::int64_t room)
    : prepared_(prepared), position_(context) {
  const auto pages = static_cast<std::int32_t>((room + kTokenGrain - 1) / kTokenGrain);
  for (int i = 0; i < count; ++i) {
    sequences_.push_back({.row_count = 1,
                          .position = context,
                          .state_slot = i,
                          .page_begin = i * pages,
                          .page_count = pages,
                          .role = backend::Role::decode});
    assume_position(prepared, i, context);
  }
  pages_.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(pages));
  std::iota(pages_.begin(), pages_.end(), 0);
  // Pages of the pool in random order, as they lie after a while.
  for (std::size_t i = pages_.size(); i > 1; --i) std::swap(pages_[i - 1], pages_[random_.below(i)]);
  tokens_.resize(static_cast<std::size_t>(count));
  for (auto& token : tokens_) token = random_token();
}

std::int32_t Users::random_token() {
  return static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(prepared_.program().vocab_size)));
}

backend::Batch Users::rows_of(int count, std::vector<std::int32_t>& asked, bool last_alone) {
  asked.clear();
  for (std::size_t user = 0; user < sequences_.size(); ++user) {
    sequences_[user].position = position_;
    sequences_[user].row_count = count;
    const auto first = static_cast<std::int32_t>(user) * count;
    for (std::int32_t row = last_alone ? count - 1 : 0; row < count; ++row) asked.push_back(first + row);
  }
  choices_.resize(asked.size());
  return {row_tokens_, sequences_, pages_, asked, {}};
}

double Users::decode() {
  const double seconds = verify(0);
  for (auto& token : tokens_) token = random_token();
  return seconds;
}

double Users::verify(int drafts) {
  const auto rows = static_cast<std::size_t>(drafts) + 1;
  drafts_.resize(tokens_.size() * static_cast<std::size_t>(drafts));
  row_tokens_.clear();
  for (std::size_t user = 0; user < tokens_.size(); ++user) {
    row_tokens_.push_back(tokens_[user]);
    for (std::size_t i = 0; i + 1 < rows; ++i) row_tokens_.push_back(drafts_[user * (rows - 1) + i]);
  }
  const backend::Batch batch = rows_of(static_cast<int>(rows), rows_, false);
  for (auto& sequence : sequences_) sequence.draft_row_count = drafts;
  chosen_.resize(rows_.size());
  const auto start = Clock::now();
  const bool ran = prepared_.run_sampled(backend::Pass::main, batch,
                                         {prepared_.program().vocab_size, choices_}, {chosen_, {}});
  const double seconds = seconds_since(start);
  check(ran, "the backend chooses tokens itself");
  for (std::size_t user = 0; user < tokens_.size(); ++user) tokens_[user] = chosen_[(user + 1) * rows - 1];
  position_ += static_cast<std::int64_t>(rows);
  return seconds;
}

double Users::draft(int drafts) {
  const int rows = drafts + 1;  // the verification's
  position_ -= rows;
  row_tokens_ = chosen_;
  backend::Batch batch = rows_of(rows, rows_, true);
  for (auto& sequence : sequences_) sequence.draft_row_count = 0;
  hidden_rows_.resize(row_tokens_.size());
  std::iota(hidden_rows_.begin(), hidden_rows_.end(), 0);
  batch.hidden_rows = hidden_rows_;
  const std::vector<int> counts(tokens_.size(), drafts);
  drafts_.resize(tokens_.size() * static_cast<std::size_t>(drafts));
  const auto start = Clock::now();
  const bool ran = prepared_.run_drafts(batch, {prepared_.program().vocab_size, choices_}, counts, drafts_);
  const double seconds = seconds_since(start);
  check(ran, "the backend makes drafts in a row itself");
  position_ += rows;
  return seconds;
}

double Users::prompt(int count, int chunk) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = random_token();
  std::int32_t chosen = 0;
  choices_.resize(1);
  const auto start = Clock::now();
  for (int done = 0; done < count; done += chunk) {
    const int rows = std::min(chunk, count - done);
    backend::SequenceRows sequence = sequences_.front();
    sequence.row_count = rows;
    sequence.position = done;
    sequence.role = backend::Role::prefill;
    const std::int32_t asked = rows - 1;
    const std::size_t asks = done + rows == count ? 1 : 0;
    prepared_.run_sampled(
        backend::Pass::main,
        {std::span(tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)),
         {&sequence, 1},
         pages_,
         {&asked, asks},
         {}},
        {prepared_.program().vocab_size, std::span(choices_).first(asks)}, {{&chosen, asks}, {}});
  }
  return seconds_since(start);
}

}  // namespace fourfold::cli
