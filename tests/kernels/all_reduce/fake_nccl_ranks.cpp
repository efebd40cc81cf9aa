// The part of the stand-in for NCCL (fake_nccl.cpp) that ranks of several processes call: they meet in a file
// of shared memory named by the group's id. Host memory is gathered. As with NCCL, a call on a communicator
// that does not block is under way when it returns (a thread does it), ncclCommAbort ends that and frees the
// communicator, and one thread at a time may call. Who breaks these rules is counted.
//
// $FAKE_NCCL_LOG gets a line for each call. $FAKE_NCCL_NEVER_JOINS: this process calls, and never comes.
// $FAKE_NCCL_FAILS: while there is a file of this name, a gathering takes it away and fails.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace {

constexpr int kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr std::size_t kNumbersMost = 1 << 18;
constexpr int kRanksMost = 8;

struct Room {
  std::atomic<int> joined;
  std::atomic<int> written[kRanksMost], read[kRanksMost];  // calls, by rank
  float numbers[kRanksMost][kNumbersMost];
};

struct Comm {
  Room* room;
  int rank, count;
  int calls = 0;
  std::atomic<bool> aborted = false;
  std::atomic<int> status = kInProgress;
  std::thread thread = {};  // of what is under way
};

std::mutex table;  // of all below
std::set<Comm*> alive;
std::set<Comm*> called;  // by somebody, now
std::atomic<int> misuses = 0, told_status = 0;

// For as long as a thread is in a call. False: there is no such communicator, or another thread is in it.
class Call {
 public:
  explicit Call(void* given) : comm_(static_cast<Comm*>(given)) {
    const std::lock_guard lock(table);
    may_ = alive.contains(comm_) && called.insert(comm_).second;
    if (!may_) ++misuses;
  }
  ~Call() {
    const std::lock_guard lock(table);
    if (may_) called.erase(comm_);
  }
  explicit operator bool() const { return may_; }
  Comm& operator*() const { return *comm_; }
  Comm* operator->() const { return comm_; }

 private:
  Comm* comm_;
  bool may_ = false;
};

void note(const std::string& line) {
  const char* file = std::getenv("FAKE_NCCL_LOG");
  if (file == nullptr) return;
  if (std::FILE* out = std::fopen(file, "a")) {
    std::fprintf(out, "%s\n", line.c_str());
    std::fclose(out);
  }
}

// Whether all ranks have come so far; not when the group was left, or nobody came for a minute.
template <class Counts>
bool wait_for_all(const Comm& comm, const Counts& counts, int wanted) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (int rank = 0; rank < comm.count;) {
    if (counts[rank] >= wanted) {
      ++rank;
      continue;
    }
    if (comm.aborted || std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void join(Comm& comm, const std::string& name) {
  if (std::getenv("FAKE_NCCL_NEVER_JOINS") == nullptr) ++comm.room->joined;
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (comm.room->joined < comm.count) {
    if (comm.aborted || std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  shm_unlink(name.c_str());  // the first of them: all have it, or nobody waits any more
  comm.status = comm.room->joined < comm.count ? kSystemError : 0;
}

int gather(Comm& comm, const void* in, void* out, std::size_t count) {
  const char* fails = std::getenv("FAKE_NCCL_FAILS");
  if (fails != nullptr && unlink(fails) == 0) return kSystemError;
  Room& room = *comm.room;
  const int call = ++comm.calls;
  if (!wait_for_all(comm, room.read, call - 1)) return kSystemError;
  std::memcpy(room.numbers[comm.rank], in, count * sizeof(float));
  room.written[comm.rank] = call;
  if (!wait_for_all(comm, room.written, call)) return kSystemError;
  for (int rank = 0; rank < comm.count; ++rank)
    std::memcpy(static_cast<float*>(out) + static_cast<std::size_t>(rank) * count, room.numbers[rank],
                count * sizeof(float));
  room.read[comm.rank] = call;
  return 0;
}

}  // namespace

struct UniqueId {
  char bytes[128];
};
// As in 2.14.
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};

#define NCCL __attribute__((visibility("default")))

extern "C" {

NCCL int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made = 0;
  std::memset(id->bytes, 0x5A, sizeof id->bytes);  // all of it must arrive
  std::snprintf(id->bytes, 64, "/fake-nccl-%d-%d", static_cast<int>(getpid()), ++made);
  note("id");
  return 0;
}

NCCL int ncclCommInitRankConfig(void** out, int count, UniqueId id, int rank, const Config* config) {
  note("init " + std::to_string(rank) + " of " + std::to_string(count));
  if (config == nullptr || config->magic != 0xcafebeef || config->size < sizeof(Config) ||
      config->version < 21400 || config->blocking != 0)
    return kInvalidArgument;
  if (count > kRanksMost || rank >= count || id.bytes[127] != 0x5A || id.bytes[0] != '/')
    return kInvalidArgument;
  const int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Room)) != 0) return kSystemError;
  void* mapped = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return kSystemError;
  auto* comm = new Comm{static_cast<Room*>(mapped), rank, count};
  {
    const std::lock_guard lock(table);
    alive.insert(comm);
  }
  comm->thread = std::thread([comm, name = std::string(id.bytes)] { join(*comm, name); });
  *out = comm;
  return kInProgress;
}

NCCL int ncclAllGather(const void* in, void* out, std::size_t count, int type, void* given, void* stream) {
  const Call comm(given);
  if (!comm || comm->status == kInProgress) return kInvalidUsage;
  note("gather " + std::to_string(count) + " of type " + std::to_string(type) + " by " +
       std::to_string(comm->rank) + (stream != nullptr ? " with a stream" : ""));
  if (type != 7 || count > kNumbersMost) return kInvalidArgument;
  if (comm->status != 0) return comm->status;
  comm->thread.join();
  comm->status = kInProgress;
  comm->thread = std::thread([=, &comm = *comm] { comm.status = gather(comm, in, out, count); });
  return kInProgress;
}

NCCL int ncclCommGetAsyncError(void* given, int* status) {
  const Call comm(given);
  if (!comm) return kInvalidUsage;
  *status = told_status != 0 ? told_status.load() : comm->status.load();
  return 0;
}

NCCL int ncclCommAbort(void* given) {
  auto* comm = static_cast<Comm*>(given);
  {
    const Call call(given);
    if (!call) return kInvalidUsage;
    note("abort by " + std::to_string(comm->rank));
    comm->aborted = true;
    comm->thread.join();
    const std::lock_guard lock(table);
    alive.erase(comm);
  }
  munmap(comm->room, sizeof(Room));
  delete comm;
  return 0;
}

// From now on that is how every communicator of this process is; 0: as it is.
NCCL void fake_nccl_tell(int status) { told_status = status; }
NCCL int fake_nccl_misuses() { return misuses; }
}
