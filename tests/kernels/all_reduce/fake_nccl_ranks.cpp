// The part of the stand-in for NCCL (fake_nccl.cpp) that ranks of several processes call: they meet in a file
// of shared memory named by the group's id. Host memory is gathered. $FAKE_NCCL_LOG gets a line for each
// call.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr int kSystemError = 2, kInvalidArgument = 4;
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

}  // namespace

struct UniqueId {
  char bytes[128];
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

NCCL int ncclCommInitRank(void** out, int count, UniqueId id, int rank) {
  note("init " + std::to_string(rank) + " of " + std::to_string(count));
  if (count > kRanksMost || rank >= count || id.bytes[127] != 0x5A || id.bytes[0] != '/')
    return kInvalidArgument;
  const int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Room)) != 0) return kSystemError;
  void* mapped = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return kSystemError;
  auto* comm = new Comm{static_cast<Room*>(mapped), rank, count};
  ++comm->room->joined;
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (comm->room->joined < count) {
    if (std::chrono::steady_clock::now() > until) return kSystemError;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  shm_unlink(id.bytes);  // the first of them; all have it
  *out = comm;
  return 0;
}

NCCL int ncclAllGather(const void* in, void* out, std::size_t count, int type, void* given, void* stream) {
  auto& comm = *static_cast<Comm*>(given);
  note("gather " + std::to_string(count) + " of type " + std::to_string(type) + " by " +
       std::to_string(comm.rank) + (stream != nullptr ? " with a stream" : ""));
  if (type != 7 || count > kNumbersMost) return kInvalidArgument;
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

NCCL int ncclCommGetAsyncError(void* given, int* status) {
  const char* told = std::getenv("FAKE_NCCL_ASYNC_ERROR");
  *status = told != nullptr ? std::atoi(told) : static_cast<Comm*>(given)->aborted ? kSystemError : 0;
  return 0;
}

// It stays where it is: whoever waits in it returns.
NCCL int ncclCommAbort(void* given) {
  auto& comm = *static_cast<Comm*>(given);
  note("abort by " + std::to_string(comm.rank));
  comm.aborted = true;
  return 0;
}
}
