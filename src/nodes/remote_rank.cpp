#include "nodes/remote_rank.h"

#include "base/check.h"

namespace fourfold::nodes {
namespace {

using backend::Batch;
using backend::Choices;
using backend::Chosen;
using backend::Pass;
using backend::RankLost;

class RemotePrepared final : public backend::Prepared {
 public:
  RemotePrepared(RemoteRank rank, backend::Program program, const backend::Capacity& capacity, Loaded loaded)
      : me_(std::move(rank)), program_(std::move(program)), capacity_(capacity), loaded_(std::move(loaded)) {}

  const backend::Program& program() const override { return program_; }
  const backend::Capacity& capacity() const override { return capacity_; }
  std::span<const float> value(backend::ValueId) const override { return {}; }
  std::int64_t anchor_bytes() const override { return loaded_.anchor_bytes; }
  std::span<const backend::MemoryUse> memory() const override { return loaded_.memory; }
  std::span<const std::string> notices() const override { return loaded_.notices; }
  // Rank 0 is asked.
  std::int64_t resumable_from(std::int32_t) const override { return 0; }

  void run(Pass pass, const Batch& batch, std::span<float> logits) override {
    Call call{.task = Task::run, .pass = pass, .logit_count = logits.size()};
    call.take(batch);
    ask(call);
  }
  bool run_sampled(Pass pass, const Batch& batch, const Choices& choices, const Chosen& chosen) override {
    Call call{.task = Task::run_sampled, .pass = pass};
    call.take(batch);
    take(call, choices);
    call.token_count = chosen.tokens.size();
    call.logit_count = chosen.logits.size();
    return take_tokens(ask(call), chosen.tokens);
  }
  bool run_drafts(const Batch& batch, const Choices& choices, std::span<const int> counts,
                  std::span<std::int32_t> drafts) override {
    Call call{.task = Task::run_drafts, .pass = Pass::draft};
    call.take(batch);
    take(call, choices);
    call.counts.assign(counts.begin(), counts.end());
    call.token_count = drafts.size();
    return take_tokens(ask(call), drafts);
  }
  void set_history(std::int32_t slot, std::span<const backend::SeenToken> seen) override {
    ask({.task = Task::set_history, .history = {seen.begin(), seen.end()}, .slot = slot});
  }
  void save_anchor(std::int32_t slot, std::int64_t position, std::int32_t anchor) override {
    ask({.task = Task::save_anchor, .slot = slot, .anchor = anchor, .position = position});
  }
  void restore_anchor(std::int32_t anchor, std::int32_t slot, std::int64_t position) override {
    ask({.task = Task::restore_anchor, .slot = slot, .anchor = anchor, .position = position});
  }

 private:
  static void take(Call& call, const Choices& choices) {
    call.choices.assign(choices.rows.begin(), choices.rows.end());
    call.token_limit = choices.token_limit;
  }
  bool take_tokens(const Answer& answer, std::span<std::int32_t> tokens) {
    if (!answer.done) return false;
    if (answer.tokens.size() != tokens.size())
      lose(*me_.group->link(me_.rank),
           format("it chose {} tokens where {} were asked", answer.tokens.size(), tokens.size()));
    std::ranges::copy(answer.tokens, tokens.begin());
    return true;
  }
  [[noreturn]] void lose(Link& link, const std::string& why) {
    link.close(why);
    throw RankLost(me_.rank, format("rank {} of {} was lost: {}", me_.rank, me_.group->rank_count(), why));
  }

  Answer ask(const Call& call) {
    const std::shared_ptr<Link> link = me_.group->link(me_.rank);
    Answer answer;
    try {
      link->send(Frame::call, call.bytes());
      answer = attend(*link);
    } catch (const RankLost&) {
      throw;
    } catch (const Error& error) {  // the connection, or a message that does not add up
      lose(*link, error.what());
    }
    if (!answer.is_error) return answer;
    me_.collective->require_all_there(me_.rank);  // where another was lost this one stopped, and stays
    if (answer.is_of_no_rank) throw RankLost(backend::kNoRank, answer.message);
    // What all ranks refuse is no failure; anything else is this rank's end, which it knows.
    if (answer.code == Code::device_lost || answer.code == Code::internal) lose(*link, answer.message);
    throw Error(answer.code, answer.message, answer.hint);
  }

  // Stands for the rank at every sum until it is done.
  Answer attend(Link& link) {
    // Another may have failed before this one had its call, and nobody tells it once more.
    try {
      me_.collective->require_all_there(me_.rank);
    } catch (const RankLost&) {
      end_call(link);
      throw;
    }
    for (;;) {
      const Message message = link.receive();
      if (message.kind == Frame::answer) return Answer::read(message.bytes);
      if (message.kind != Frame::part) throw LinkLost("it answers what it was not asked");
      const Part part = Part::read(message.bytes);
      try {
        meet(part);
      } catch (const RankLost&) {
        end_call(link);
        throw;
      }
      if (!part.head.is_last) link.send(Frame::result, std::as_bytes(std::span(sums_)));
    }
  }

  void meet(const Part& part) {
    if (part.head.gathers) {
      sums_.resize(part.values.size() * static_cast<std::size_t>(me_.group->rank_count()));
      me_.collective->all_gather(me_.rank, part.head.where, part.head.row_count, part.values, sums_);
    } else {
      sums_.resize(part.values.size());
      me_.collective->all_reduce(me_.rank, part.head.where, part.values, sums_);
    }
  }

  // Another rank failed: this one stops where it is, and is ready for another call then.
  static void end_call(Link& link) {
    try {
      link.send(Frame::give_up);
      while (link.receive().kind != Frame::answer) {
      }
    } catch (const LinkLost&) {  // it is lost, too
    }
  }

  RemoteRank me_;
  backend::Program program_;
  backend::Capacity capacity_;
  Loaded loaded_;
  std::vector<float> sums_;
};

class RemoteBackend final : public backend::Backend {
 public:
  explicit RemoteBackend(RemoteRank rank) : me_(std::move(rank)) {}
  std::string_view name() const override { return "remote"; }
  std::unique_ptr<backend::Prepared> prepare(backend::Program program,
                                             const backend::Capacity& capacity) override {
    Loaded loaded = me_.group->wait_until_ready(me_.rank, me_.join_patience, me_.join_hint);
    return std::make_unique<RemotePrepared>(me_, std::move(program), capacity, std::move(loaded));
  }

 private:
  RemoteRank me_;
};

}  // namespace

std::shared_ptr<backend::Backend> make_remote_rank(RemoteRank rank) {
  check(rank.rank > 0, "rank 0 is of this process", rank.rank);
  return std::make_shared<RemoteBackend>(std::move(rank));
}

}  // namespace fourfold::nodes
