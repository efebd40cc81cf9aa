#include "kernels/all_reduce/nccl_member.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::all_reduce {

static_assert(sizeof(NcclUniqueId) == sizeof(NcclMember::Id));

NcclMember::NcclMember(const std::string& file)
    : library_(file,
               "Install NCCL on every machine, say where its libnccl.so.2 is (FOURFOLD_NCCL=path), or "
               "--collective tcp.") {}

NcclMember::~NcclMember() { leave(); }

NcclMember::Id NcclMember::make_id() const {
  NcclUniqueId made{};
  library_.require(library_.get_unique_id(&made), "making a group's id");
  return std::to_array(made.bytes);
}

bool NcclMember::is_connected() const {
  const std::lock_guard lock(calling_);
  return comm_ != nullptr;
}

void NcclMember::connect(const Id& id, int rank, int rank_count, const Wait& wait) {
  constexpr const char* kWhat = "connecting the ranks";
  const auto until = std::chrono::steady_clock::now() + wait.patience;
  try {
    {
      const std::lock_guard lock(calling_);
      check(comm_ == nullptr, "one group at a time");
      NcclUniqueId given{};
      std::copy(id.begin(), id.end(), given.bytes);
      NcclConfig config;
      const int status = library_.comm_init_rank_config(&comm_, rank_count, given, rank, &config);
      if (status != kNcclInProgress) library_.require(status, kWhat);
    }
    finish(kWhat, [&] {
      wait.look();
      if (std::chrono::steady_clock::now() < until) return;
      fail(
          Code::device_lost,
          "NCCL has not connected the {} ranks within {} ms (NCCL_DEBUG=INFO on all machines says how far it "
          "gets, NCCL_SOCKET_IFNAME names the network it takes)",
          rank_count, wait.patience.count());
    });
  } catch (...) {
    leave();
    throw;
  }
}

void NcclMember::all_gather(const float* in, float* out, std::size_t count, void* stream) {
  constexpr const char* kWhat = "gathering the ranks' parts";
  {
    const std::lock_guard lock(calling_);
    if (comm_ == nullptr) fail(Code::device_lost, "NCCL: the group was left");
    const int status = library_.all_gather(in, out, count, kNcclFloat32, comm_, stream);
    if (status != kNcclInProgress) return library_.require(status, kWhat);
  }
  finish(kWhat, [] {});
}

// A first call connects GPUs, later ones are in the stream at once: mostly there is nothing to wait for.
void NcclMember::finish(const char* what, const std::function<void()>& meanwhile) {
  constexpr int kLooksAtOnce = 1000;
  constexpr std::chrono::microseconds kNap{100};
  for (int looks = 0;; ++looks) {
    {
      const std::lock_guard lock(calling_);
      if (comm_ == nullptr) fail(Code::device_lost, "NCCL: the group was left");
      const int status = status_now(what);
      if (status != kNcclInProgress) return library_.require(status, what);
    }
    meanwhile();
    if (looks < kLooksAtOnce)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
}

// With the lock, and a group.
int NcclMember::status_now(const char* what) const {
  int status = kNcclSuccess;
  library_.require(library_.comm_get_async_error(comm_, &status), what);
  return status;
}

void NcclMember::require_well() const {
  const std::lock_guard lock(calling_);
  if (comm_ == nullptr) return;
  const int status = status_now("asking how the ranks are");
  if (status != kNcclInProgress) library_.require(status, "behind a call");
}

// Not ncclCommDestroy, which waits for what was launched, and so for a rank that is gone.
void NcclMember::leave() {
  const std::lock_guard lock(calling_);
  if (void* comm = std::exchange(comm_, nullptr)) (void)library_.comm_abort(comm);
}

std::string nccl_file() {
  const char* given = std::getenv("FOURFOLD_NCCL");
  return given != nullptr && *given != '\0' ? given : "libnccl.so.2";
}

}  // namespace fourfold::all_reduce
