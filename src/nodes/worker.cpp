#include "nodes/worker.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "nodes/handshake.h"

namespace fourfold::nodes {
namespace {

constexpr std::chrono::milliseconds kConnectTime{5000}, kRetryTime{500}, kLastWordTime{2000};

// What a step meets the other ranks with: the leader.
class LeaderCollective final : public backend::Collective {
 public:
  explicit LeaderCollective(int rank_count) : rank_count_(rank_count) {}
  void use(std::shared_ptr<Link> link) {
    const std::lock_guard lock(mutex_);
    link_ = std::move(link);
    ++generation_;
  }
  void begin_anew() { ++generation_; }
  // What the next call gathers under this name only the leader reads; empty: nothing is so.
  void leave_to_leader(std::string_view where) { of_leader_ = where; }

  int rank_count() const override { return rank_count_; }
  void all_reduce(int rank, std::string_view where, std::span<const float> in,
                  std::span<float> out) override {
    ask(rank, {.gathers = false, .is_last = false, .row_count = 0, .where = std::string(where)}, in, out);
  }
  void all_gather(int rank, std::string_view where, std::int64_t row_count, std::span<const float> in,
                  std::span<float> out) override {
    const bool is_last = !of_leader_.empty() && where == of_leader_;
    ask(rank, {.gathers = true, .is_last = is_last, .row_count = row_count, .where = std::string(where)}, in,
        out);
  }
  // In a step that meets the others without the leader nothing is heard of it but that the step ends.
  void require_all_there(int rank) override {
    if (link()->next() == Frame::give_up) throw others_failed(rank);
  }
  std::uint64_t generation() const override { return generation_; }
  // There is one rank here, and the leader sees when it goes.
  void give_up(int, const std::string&) override {}
  void mend() override {}

 private:
  static backend::RankLost others_failed(int rank) {
    return {rank, "another rank failed, and the step ends"};
  }
  // Whoever watches over a step of NCCL's asks from a thread of its own, also when the leader is lost.
  std::shared_ptr<Link> link() const {
    const std::lock_guard lock(mutex_);
    if (link_ == nullptr) throw LinkLost("there is no connection to the leader");
    return link_;
  }
  void ask(int rank, const PartHead& head, std::span<const float> in, std::span<float> out) {
    const std::shared_ptr<Link> link = this->link();
    link->send(Frame::part, head.bytes(), std::as_bytes(in));
    if (head.is_last) return;
    const Message message = link->receive();
    if (message.kind == Frame::give_up) throw others_failed(rank);
    if (message.kind != Frame::result || message.bytes.size() != out.size_bytes())
      throw LinkLost(fourfold::format("the leader sent {} bytes for {} at {}", message.bytes.size(),
                                      out.size_bytes(), head.where));
    if (!out.empty()) std::memcpy(out.data(), message.bytes.data(), out.size_bytes());
  }

  int rank_count_;
  mutable std::mutex mutex_;  // of the link
  std::shared_ptr<Link> link_;
  std::string of_leader_;
  std::atomic<std::uint64_t> generation_ = 0;
};

// The logits of a step that is only run are sampled by the leader; nobody reads those of a worker. In other
// tasks each rank chooses its tokens from them.
std::string_view of_leader(const backend::Program& program, const Call& call) {
  const backend::ValueId logits = program.logits(call.pass);
  if (call.task != Task::run || logits.index < 0 || logits.index >= std::ssize(program.values)) return {};
  return program.value(logits).name;
}

Answer do_call(backend::Prepared& prepared, const Call& call, std::vector<float>& logits) {
  Answer answer;
  answer.tokens.assign(call.token_count, backend::kNoToken);
  logits.resize(call.logit_count);
  const backend::Choices choices{call.token_limit, call.choices};
  switch (call.task) {
    case Task::run: prepared.run(call.pass, call.batch(), logits); break;
    case Task::run_sampled:
      answer.done = prepared.run_sampled(call.pass, call.batch(), choices, {answer.tokens, logits});
      break;
    case Task::run_drafts:
      answer.done = prepared.run_drafts(call.batch(), choices, call.counts, answer.tokens);
      break;
    case Task::set_history: prepared.set_history(call.slot, call.history); break;
    case Task::save_anchor: prepared.save_anchor(call.slot, call.position, call.anchor); break;
    case Task::restore_anchor: prepared.restore_anchor(call.anchor, call.slot, call.position); break;
  }
  return answer;
}

Answer error_answer(Code code, const std::string& message, const std::string& hint = {}) {
  Answer answer{.done = false, .is_error = true};
  answer.code = code, answer.message = message, answer.hint = hint;
  return answer;
}

// What is said to all is not meant for one that loads.
Message next_word(Link& link) {
  for (;;) {
    Message message = link.receive();
    if (message.kind != Frame::give_up && message.kind != Frame::anew) return message;
  }
}

// False: the leader ends.
bool is_word(const Message& message, Frame wanted) {
  if (message.kind == Frame::bye) return false;
  if (message.kind == wanted) return true;
  if (message.kind != Frame::refuse) throw LinkLost("the leader says what no leader says");
  ByteReader in(message.bytes);
  const bool later = in.get<std::uint8_t>() != 0;
  throw Refused(later, in.get_text());
}

class Worker {
 public:
  Worker(const WorkerOptions& options, const RankModel& model) : options_(options), model_(model) {}
  void run();

 private:
  bool stay(Socket socket, const Settings& settings);
  bool load(const Settings& settings, const std::shared_ptr<Link>& link);
  bool serve(Link& link);
  void say(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  const WorkerOptions& options_;
  const RankModel& model_;
  // Of the leader before, for one that wants the same.
  Bytes settings_;
  ModelSums sums_;
  TensorSums tensor_sums_;
  std::shared_ptr<LeaderCollective> collective_;
  std::shared_ptr<backend::Prepared> prepared_;
  std::vector<float> logits_;
};

void Worker::run() {
  auto until = Clock::now() + options_.patience;
  std::string said;
  for (;;) {
    try {
      Socket socket = Socket::connect(options_.leader, kConnectTime);
      const Settings settings = join_leader(
          socket, {.token = options_.token, .version = options_.version, .wanted = options_.rank});
      if (!stay(std::move(socket), settings)) return;
      until = Clock::now() + options_.patience;
    } catch (const Refused& refused) {
      if (!refused.later() || Clock::now() >= until) throw;
      if (said != refused.what()) say(said = refused.what());
    } catch (const LinkLost& lost) {
      if (Clock::now() >= until) throw;
      if (said != lost.what()) say(fourfold::format("{}; trying again", said = lost.what()));
    }
    std::this_thread::sleep_for(kRetryTime);
  }
}

// False: the leader has ended, as it should.
bool Worker::stay(Socket socket, const Settings& settings) {
  const auto link = std::make_shared<Link>(std::move(socket), options_.timing);
  link->start();
  say(fourfold::format("rank {} of {} of {}", settings.rank, settings.rank_count, settings.model));
  bool goes_on = true;
  try {
    goes_on = load(settings, link) && serve(*link);
  } catch (const LinkLost& lost) {
    say(fourfold::format("the leader is lost: {}; trying again", lost.what()));
  }
  if (collective_) collective_->use(nullptr);
  return goes_on;
}

// False: the leader ended meanwhile.
bool Worker::load(const Settings& settings, const std::shared_ptr<Link>& link) {
  const bool is_kept = prepared_ != nullptr && settings_ == settings.bytes();
  const auto tell = [&](const std::exception& error) {
    link->send(Frame::failed, ByteWriter().put_text(error.what()).take());
  };
  try {
    if (!is_kept) {
      prepared_ = nullptr;
      sums_ = model_.open(settings);
    }
    link->send(Frame::opened, sums_.bytes());
    if (!is_word(next_word(*link), Frame::sum)) return false;
    if (!is_kept) tensor_sums_ = model_.sum();
    link->send(Frame::summed, tensor_sums_.bytes());
    if (!is_word(next_word(*link), Frame::load)) return false;
    if (!is_kept) {
      collective_ = std::make_shared<LeaderCollective>(settings.rank_count);
      prepared_ = model_.load(settings, collective_);
      settings_ = settings.bytes();
    }
  } catch (const LinkLost&) {
    throw;
  } catch (const Refused&) {
    throw;
  } catch (const std::exception& error) {
    tell(error);
    throw;
  }
  collective_->use(link);
  link->send(Frame::loaded, Loaded{prepared_->anchor_bytes(),
                                   {prepared_->memory().begin(), prepared_->memory().end()},
                                   {prepared_->notices().begin(), prepared_->notices().end()}}
                                .bytes());
  return true;
}

bool Worker::serve(Link& link) {
  for (;;) {
    const Message message = link.receive();
    if (message.kind == Frame::give_up) continue;  // of a call that this rank had ended already
    if (message.kind == Frame::anew) {
      collective_->begin_anew();
      continue;
    }
    if (!is_word(message, Frame::call)) return false;
    Answer answer;
    std::exception_ptr end;
    try {
      const Call call = Call::read(message.bytes);
      collective_->leave_to_leader(of_leader(prepared_->program(), call));
      answer = do_call(*prepared_, call, logits_);
    } catch (const LinkLost&) {
      throw;
    } catch (const backend::RankLost& lost) {
      answer = error_answer(lost.code(), lost.what());  // of another, or of none: this one stays
      answer.is_of_no_rank = lost.rank() == backend::kNoRank;
    } catch (const Error& error) {
      answer = error_answer(error.code(), error.what(), error.hint());
      if (error.code() == Code::device_lost || error.code() == Code::internal) end = std::current_exception();
    } catch (const std::exception& error) {
      answer = error_answer(Code::internal, error.what());
      end = std::current_exception();
    }
    link.send(Frame::answer, answer.bytes());
    if (!end) continue;
    link.wait_for_end(kLastWordTime);  // who leaves first is missed before it is heard
    std::rethrow_exception(end);
  }
}

}  // namespace

void run_worker(const WorkerOptions& options, const RankModel& model) { Worker(options, model).run(); }

}  // namespace fourfold::nodes
