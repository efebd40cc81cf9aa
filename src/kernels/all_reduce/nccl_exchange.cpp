#include "kernels/all_reduce/nccl_exchange.h"

#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "kernels/all_reduce/exchange_flags.h"

namespace fourfold::all_reduce {
namespace {

constexpr std::chrono::milliseconds kLook{20};
// Calls of NCCL's on their way, with our kernels between them. A driver's queue has room for about a thousand
// launches: one that waited for room inside of NCCL would keep everybody else from ending the group.
constexpr int kCallsMost = 16;

}  // namespace

NcclExchange::NcclExchange(const NcclExchangeOptions& options, std::unique_ptr<NcclMember> member,
                           NcclRendezvous rendezvous)
    : Exchange({.ranks = options.ranks, .peers = false, .way = Way::host, .blocks = options.blocks}),
      mine_(options),
      rendezvous_(std::move(rendezvous)),
      member_(std::move(member)) {
  check(options.rank >= 0 && options.rank < options.ranks, "the rank is one of them", options.rank,
        options.ranks);
  meet_elsewhere(Elsewhere::no_mailbox);
}

NcclExchange::~NcclExchange() {
  {
    const std::lock_guard lock(watch_mutex_);
    ends_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
  member_->leave();
  try {
    if (machine_ == nullptr) return;
    machine_->memory().release(gathered_);
  } catch (const Error&) {  // of a device that is lost
  }
}

void NcclExchange::join(int rank, kernels::Machine& machine, int columns, int rows, int gathered) {
  check(rank == mine_.rank, "the others join in their own processes", rank, mine_.rank);
  Exchange::join(rank, machine, columns, rows, gathered);
  const std::int64_t quads = mine_.ranks * piece_quads();
  gathered_ = static_cast<device::F32x4*>(
      machine.memory().allocate(static_cast<std::size_t>(quads) * sizeof(device::F32x4), "gathered parts"));
  machine_ = &machine;
  thread_ = std::thread([this] { watch(); });
}

void NcclExchange::begin_work() {
  const std::lock_guard lock(watch_mutex_);
  is_working_ = true;
  news_.notify_all();
}

void NcclExchange::end_work() {
  std::unique_lock lock(watch_mutex_);
  is_working_ = false;
  news_.wait(lock, [&] { return !is_looking_; });
}

void NcclExchange::rethrow_failure() const {
  const std::lock_guard lock(watch_mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

bool NcclExchange::has_failed() const {
  {
    const std::lock_guard lock(watch_mutex_);
    if (failure_) return true;
  }
  return !member_->is_connected() || rendezvous_.generation() != generation_ ||
         unanswered(mine_.rank).has_value();
}

void NcclExchange::begin_anew() {
  end_work();
  member_->leave();
  generation_ = rendezvous_.generation();
  reset(mine_.rank);
  epoch_ = 1;
  calls_ = 0;
  {
    const std::lock_guard lock(watch_mutex_);
    failure_ = nullptr;
    unwell_since_.reset();
  }
  // Rank 0's id counts. As numbers that nobody computes with: bits are carried as they are.
  NcclMember::Id id{};
  if (mine_.rank == 0) id = member_->make_id();
  std::vector<float> part(sizeof id / sizeof(float)),
      all(part.size() * static_cast<std::size_t>(mine_.ranks));
  std::memcpy(part.data(), id.data(), sizeof id);
  rendezvous_.carry("the id of NCCL's group", part, all);
  std::memcpy(id.data(), all.data(), sizeof id);
  connect(id);
}

// What NCCL says when a rank has gone is mostly its echo, so others are asked for a while.
void NcclExchange::connect(const NcclMember::Id& id) {
  try {
    return member_->connect(id, mine_.rank, mine_.ranks,
                            {.patience = mine_.connecting, .look = rendezvous_.require_all_there});
  } catch (...) {
    const std::exception_ptr own = std::current_exception();
    for (const auto until = std::chrono::steady_clock::now() + mine_.heard;
         std::chrono::steady_clock::now() < until; std::this_thread::sleep_for(kLook))
      rendezvous_.require_all_there();
    std::rethrow_exception(unexplained(own));
  }
}

std::exception_ptr NcclExchange::unexplained(std::exception_ptr own) const {
  try {
    std::rethrow_exception(own);
  } catch (const Error& error) {
    try {
      rendezvous_.fail_group(error.what());
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {  // nothing that NCCL says
  }
  return own;
}

void NcclExchange::gather_parts(const float* part, std::size_t count) {
  if (!mine_.is_staged)
    return member_->all_gather(part, reinterpret_cast<float*>(gathered_), count, mine_.stream);
  staged_in_.resize(count);
  staged_out_.resize(count * static_cast<std::size_t>(mine_.ranks));
  machine_->memory().read(staged_in_.data(), part, count * sizeof(float));
  member_->all_gather(staged_in_.data(), staged_out_.data(), count, mine_.stream);
  machine_->memory().write(gathered_, staged_out_.data(), staged_out_.size() * sizeof(float));
}

void NcclExchange::launch_piece(int rank, const std::string& row, const AllReduceParams& params) {
  const std::int64_t quads = static_cast<std::int64_t>(params.rows) * params.columns / 4;
  if (++calls_ > kCallsMost) {
    machine_->memory().wait();
    calls_ = 1;
  }
  try {
    gather_parts(params.rank[rank].part, static_cast<std::size_t>(quads) * 4);
  } catch (const Error& error) {
    if (error.code() != Code::device_lost) throw;
    fail_call();
  }
  const Member& own = member(rank);
  AllReduceParams gathered = params;
  gathered.capacity = quads;
  // The kernel looks in the half of its epoch; there is one here.
  const std::int64_t half = static_cast<std::int64_t>(epoch_ & 1u) * mine_.ranks * quads;
  for (int r = 0; r < mine_.ranks; ++r) {
    gathered.rank[r].receive =
        reinterpret_cast<device::F32x4*>(reinterpret_cast<std::uintptr_t>(gathered_) -
                                         static_cast<std::uintptr_t>(half) * sizeof(device::F32x4));
    gathered.rank[r].flags = own.flags;
    // The epoch that each block will find.
    if (r != rank)
      machine_->memory().copy(own.flags + r * mine_.blocks, own.epochs,
                              static_cast<std::size_t>(mine_.blocks) * 4);
  }
  Exchange::launch_piece(rank, row, gathered);
  epoch_ = next_epoch(epoch_);
}

// NCCL's error is mostly the echo of a rank that went, which others know better. Where nobody does the group
// ends here: kernels of it would be waited for before a new one is made.
void NcclExchange::fail_call() {
  const std::exception_ptr own = std::current_exception();
  std::unique_lock lock(watch_mutex_);
  if (!news_.wait_for(lock, mine_.heard, [&] { return failure_ != nullptr || ends_; })) {
    lock.unlock();
    lose(unexplained(own));
    lock.lock();
  }
  std::rethrow_exception(failure_ ? failure_ : own);
}

void NcclExchange::watch() {
  mine_.enter();
  std::unique_lock lock(watch_mutex_);
  while (!ends_) {
    if (!is_working_ || failure_) {
      news_.wait(lock, [&] { return ends_ || (is_working_ && !failure_); });
      continue;
    }
    is_looking_ = true;
    lock.unlock();
    look();
    lock.lock();
    is_looking_ = false;
    news_.notify_all();
    news_.wait_for(lock, kLook, [&] { return ends_; });
  }
}

// What NCCL says of itself counts when nobody else has said why for long enough.
void NcclExchange::look() {
  try {
    rendezvous_.require_all_there();
  } catch (...) {
    return lose(std::current_exception());
  }
  try {
    member_->require_well();
    unwell_since_.reset();
  } catch (...) {
    const auto now = std::chrono::steady_clock::now();
    if (!unwell_since_) unwell_since_ = now;
    if (now - *unwell_since_ < mine_.heard) return;
    unwell_since_.reset();
    lose(unexplained(std::current_exception()));
  }
}

void NcclExchange::lose(std::exception_ptr why) {
  {
    const std::lock_guard lock(watch_mutex_);
    if (!failure_) failure_ = std::move(why);
    news_.notify_all();
  }
  member_->leave();
  stop();
}

}  // namespace fourfold::all_reduce
