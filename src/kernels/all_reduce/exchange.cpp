#include "kernels/all_reduce/exchange.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::all_reduce {
namespace {

using Place = kernels::Memory::Place;

// Rows of one call; more go in pieces. Decode goes one_shot, prompts two_shot.
constexpr int kOneShotRows = 128;
constexpr int kTwoShotRows = 2048;
constexpr int kHostRows = 256;

std::int64_t quads(int rows, int columns) { return std::int64_t{rows} * columns / 4; }
std::int64_t slice_quads(int rows, int columns, int ranks) {
  return (quads(rows, columns) + ranks - 1) / ranks;
}

void write_words(kernels::Memory& memory, std::uint32_t* to, std::size_t count, std::uint32_t value) {
  const std::vector<std::uint32_t> values(count, value);
  memory.write(to, values.data(), count * sizeof(std::uint32_t));
}

bool uses(const ExchangeOptions& options, Way way) {
  // Logits never go two_shot.
  if (options.way) return *options.way == way || (way == Way::one_shot && *options.way == Way::two_shot);
  return options.peers ? way != Way::host : way == Way::host;
}

}  // namespace

Exchange::Exchange(const ExchangeOptions& options)
    : options_(options),
      members_(static_cast<std::size_t>(options.ranks)),
      meetings_(static_cast<std::size_t>(options.ranks)) {
  if (options.ranks < 1 || options.ranks > kRanksMost)
    fail(Code::invalid_request, "{} ranks; 1 to {} can exchange", options.ranks, kRanksMost);
  if (options.blocks < 1 || options.blocks > kBlocksMost)
    fail(Code::invalid_request, "{} blocks for an all-reduce; 1 to {} are possible", options.blocks,
         kBlocksMost);
}

Exchange::~Exchange() {
  try {
    for (const Member& member : members_)
      if (member.machine != nullptr) member.machine->memory().release(member.epochs);
    for (const Shared& shared : taken_) shared.machine->memory().release_shared(shared.pointer, shared.place);
  } catch (const Error&) {  // of a device that is lost: what lost it is already on its way
  }
}

template <class T>
T* Exchange::take(kernels::Machine& machine, std::size_t count, Place place, const char* name) {
  void* pointer = machine.memory().allocate_shared(count * sizeof(T), place, name);
  taken_.push_back({&machine, place, pointer});
  return static_cast<T*>(pointer);
}

// What all ranks share, in the host's memory: taken by the first to come.
void Exchange::take_common(kernels::Machine& machine) {
  first_ = &machine;
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  const std::size_t flags = 2 * ranks * static_cast<std::size_t>(options_.blocks);
  stop_ = take<std::uint32_t>(machine, 1, Place::host, "stop");
  machine.memory().poke(stop_, 0);
  if (!uses(options_, Way::host) || elsewhere_ == Elsewhere::no_mailbox) return;
  const std::int64_t capacity = capacity_for(Way::host);
  box_ = take<device::F32x4>(machine, 2 * ranks * static_cast<std::size_t>(capacity), Place::host, "mailbox");
  box_flags_ = take<std::uint32_t>(machine, flags, Place::host, "mailbox flags");
  for (std::size_t i = 0; i < flags; ++i) machine.memory().poke(box_flags_ + i, 0);
  if (elsewhere_ == Elsewhere::carried)
    carried_ = take<CarriedCall>(machine, 2, Place::host, "carried calls");
}

void Exchange::join(int rank, kernels::Machine& machine, int columns, int rows, int gathered) {
  const std::lock_guard lock(mutex_);
  Member& member = members_.at(static_cast<std::size_t>(rank));
  check(member.machine == nullptr, "a rank joins once", rank);
  if (columns % 8 != 0)
    fail(Code::unsupported_op, "rows of {} columns cannot be exchanged; multiples of 8 can", columns);
  if (first_ != nullptr && (columns != columns_ || rows != rows_ || gathered != gathered_))
    fail(Code::invalid_request, "rank {} joins with {} rows of {}, the others with {} rows of {}", rank, rows,
         columns, rows_, columns_);
  columns_ = columns, rows_ = rows, gathered_ = gathered;
  if (first_ == nullptr) take_common(machine);
  const auto ranks = static_cast<std::size_t>(options_.ranks),
             blocks = static_cast<std::size_t>(options_.blocks);
  kernels::Memory& memory = machine.memory();
  const auto buffer = [&](std::int64_t capacity, const char* name) {
    return take<device::F32x4>(machine, 2 * ranks * static_cast<std::size_t>(capacity), Place::device, name);
  };
  if (uses(options_, Way::one_shot)) member.received = buffer(capacity_for(Way::one_shot), "received parts");
  if (uses(options_, Way::two_shot)) {
    const std::int64_t slice = capacity_for(Way::two_shot);
    member.slices = buffer(slice, "received slices");
    member.sums = buffer(slice, "received sums");
  }
  member.flags = take<std::uint32_t>(machine, 2 * ranks * blocks, Place::device, "flags");
  write_words(memory, member.flags, 2 * ranks * blocks, 0);
  member.epochs = static_cast<std::uint32_t*>(memory.allocate(blocks * 4, "epochs"));
  write_words(memory, member.epochs, blocks, 1);
  member.report = take<std::uint32_t>(machine, ranks, Place::host, "report");
  for (std::size_t i = 0; i < ranks; ++i) memory.poke(member.report + i, 0);
  member.machine = &machine;
}

device::F32x4* Exchange::mailbox(int rank, std::uint32_t epoch) const {
  return box_ + ((epoch & 1u) * options_.ranks + rank) * capacity_for(Way::host);
}

void Exchange::reset(int rank) {
  const std::lock_guard lock(mutex_);
  const Member& member = members_[static_cast<std::size_t>(rank)];
  kernels::Memory& memory = member.machine->memory();
  write_words(memory, member.epochs, static_cast<std::size_t>(options_.blocks), 1);
  for (int r = 0; r < options_.ranks; ++r) {
    memory.poke(member.report + r, 0);
    for (int flag = 0; box_flags_ != nullptr && flag < 2 * options_.blocks; ++flag)
      memory.poke(box_flags_ + 2 * options_.blocks * r + flag, 0);
  }
  memory.poke(stop_, 0);
  stopped_ = false;
}

std::int64_t Exchange::device_bytes(const ExchangeOptions& options, int columns, int rows, int gathered) {
  Exchange sizes(options);
  sizes.columns_ = columns, sizes.rows_ = rows, sizes.gathered_ = gathered;
  std::int64_t total = 0;
  if (uses(options, Way::one_shot)) total += sizes.capacity_for(Way::one_shot);
  if (uses(options, Way::two_shot)) total += 2 * sizes.capacity_for(Way::two_shot);
  return 2 * options.ranks * total * std::int64_t{sizeof(device::F32x4)};
}

std::int64_t Exchange::host_piece_bytes(const ExchangeOptions& options, int columns, int rows, int gathered) {
  Exchange sizes(options);
  sizes.columns_ = columns, sizes.rows_ = rows, sizes.gathered_ = gathered;
  return sizes.capacity_for(Way::host) * std::int64_t{sizeof(device::F32x4)};
}

// Quads of a source's place. The same in every call, whatever its size: halves must not overlap.
std::int64_t Exchange::capacity_for(Way way) const {
  if (way == Way::two_shot) return slice_quads(std::min(rows_, kTwoShotRows), columns_, options_.ranks);
  const int rows = std::min(rows_, way == Way::host ? kHostRows : kOneShotRows);
  return std::max(quads(rows, columns_), std::int64_t{gathered_ + 3} / 4);
}

Way Exchange::way_for(int rows) const {
  if (options_.way) return *options_.way;
  const Way way = way_of(options_.peers, options_.ranks, rows, columns_);
  return way == Way::one_shot && rows > kOneShotRows ? Way::two_shot : way;  // one call, not many pieces
}

int Exchange::piece_rows(int rows) const {
  switch (way_for(rows)) {
    case Way::one_shot: return std::min(rows_, kOneShotRows);
    case Way::two_shot: return std::min(rows_, kTwoShotRows);
    case Way::host: break;
  }
  return std::min(rows_, kHostRows);
}

AllReduceParams Exchange::params_for(int rank, Way way, float* x, float* part, int rows, int place) const {
  AllReduceParams params{};
  params.capacity = capacity_for(way);
  for (int r = 0; r < options_.ranks; ++r) {
    const Member& member = members_[static_cast<std::size_t>(r)];
    check(member.machine != nullptr || (elsewhere_ != Elsewhere::no && r != rank), "every rank has joined",
          r);
    RankPlaces& places = params.rank[r];
    places.receive = way == Way::host ? box_ : way == Way::two_shot ? member.slices : member.received;
    places.sums = member.sums;
    places.flags = way == Way::host ? box_flags_ : member.flags;
  }
  const Member& mine = members_[static_cast<std::size_t>(rank)];
  RankPlaces& own = params.rank[rank];
  own.x = x;
  own.part = part;
  own.epochs = mine.epochs;
  own.report = mine.report;
  params.stop = stop_;
  params.carried = carried_;
  params.first_rank = rank;
  params.ranks = options_.ranks;
  params.blocks = options_.blocks;
  params.rows = rows;
  params.columns = columns_;
  params.place = place;
  params.overlaps = options_.overlaps ? 1 : 0;
  params.wait_nanoseconds = static_cast<std::uint64_t>(options_.wait_seconds * 1e9);
  return params;
}

void Exchange::launch_piece(int rank, const std::string& row, const AllReduceParams& params) {
  kernels::Machine& machine = *members_[static_cast<std::size_t>(rank)].machine;
  machine.launch(machine.required(kernels::RowKind::step, row), options_.blocks, params);
}

void Exchange::launch(int rank, float* x, float* part, int rows, int place) {
  const Way way = way_for(rows);
  const int most = piece_rows(rows);
  for (int begin = 0; begin < rows; begin += most) {
    const std::int64_t at = std::int64_t{begin} * columns_;
    AllReduceParams params = params_for(rank, way, x + at, part + at, rows, place);
    params.rows = std::min(most, rows - begin);
    launch_piece(rank, reduce_row(way), params);
  }
}

void Exchange::launch_norm(int rank, float* x, float* part, int rows, const Norm& norm, int place) {
  check(can_norm(rows), "the norm goes along with one piece", rows);
  const Way way = way_for(rows);
  AllReduceParams params = params_for(rank, way, x, part, rows, place);
  params.rank[rank].normed = norm.out;
  params.norm_weight = norm.weight;
  params.epsilon = norm.epsilon;
  launch_piece(rank, reduce_norm_row(way), params);
}

void Exchange::gather(int rank, int rows, const Gathered& gathered, int place) {
  const Way way = way_for(rows) == Way::host ? Way::host : Way::one_shot;
  const auto most = static_cast<int>(std::min<std::int64_t>(rows, 4 * capacity_for(way) / gathered.stride));
  check(most > 0 && gathered.stride % 4 == 0, "a row of logits fits", gathered.stride);
  for (int begin = 0; begin < rows; begin += most) {
    AllReduceParams params = params_for(rank, way, gathered.out + std::int64_t{begin} * gathered.out_stride,
                                        gathered.part + std::int64_t{begin} * gathered.stride,
                                        std::min(most, rows - begin), place);
    params.columns = gathered.stride;
    params.gather_columns = gathered.columns;
    params.out_stride = gathered.out_stride;
    launch_piece(rank, gather_row(way), params);
  }
}

void Exchange::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  came_.notify_all();
  if (stop_ != nullptr) first_->memory().poke(stop_, 1);
}

std::optional<Exchange::Unanswered> Exchange::meet(int rank) {
  std::unique_lock lock(mutex_);
  const std::int64_t mine = ++meetings_[static_cast<std::size_t>(rank)];
  came_.notify_all();
  const auto missing = [&] {
    return std::ranges::find_if(meetings_, [&](std::int64_t count) { return count < mine; }) -
           meetings_.begin();
  };
  came_.wait_for(lock, std::chrono::duration<double>(options_.wait_seconds),
                 [&] { return stopped_ || missing() == options_.ranks; });
  if (missing() == options_.ranks) return std::nullopt;
  return Unanswered{static_cast<int>(missing()), 0, why_locked()};
}

std::string Exchange::why_locked() const {
  return stopped_ ? "the ranks were told to stop" : format("it waited {} s", options_.wait_seconds);
}

std::optional<Exchange::Unanswered> Exchange::unanswered(int rank) const {
  const Member& member = members_[static_cast<std::size_t>(rank)];
  for (int source = 0; source < options_.ranks; ++source) {
    const std::uint32_t report = member.machine->memory().peek(member.report + source);
    if (report == 0) continue;
    const std::lock_guard lock(mutex_);
    return Unanswered{source, static_cast<int>(report - 1), why_locked()};
  }
  return std::nullopt;
}

void Exchange::require_answers(int rank) const {
  if (const auto lost = unanswered(rank))
    fail_with_hint(Code::device_lost, "Start again; if it happens again, look at that rank's GPU.",
                   "rank {} had no answer from rank {}: {}", rank, lost->source, lost->why);
}

}  // namespace fourfold::all_reduce
