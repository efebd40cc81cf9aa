#include "kernels/all_reduce/nccl_member.h"

#include <algorithm>
#include <cstdlib>

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

void NcclMember::connect(const Id& id, int rank, int rank_count) {
  check(comm_ == nullptr, "one group at a time");
  NcclUniqueId given{};
  std::copy(id.begin(), id.end(), given.bytes);
  void* made = nullptr;
  library_.require(library_.comm_init_rank(&made, rank_count, given, rank), "connecting the ranks");
  comm_ = made;
}

void NcclMember::all_gather(const float* in, float* out, std::size_t count, void* stream) {
  void* comm = comm_;
  if (comm == nullptr) fail(Code::device_lost, "NCCL: the group was left");
  library_.require(library_.all_gather(in, out, count, kNcclFloat32, comm, stream),
                   "gathering the ranks' parts");
}

void NcclMember::require_well() const {
  const std::lock_guard lock(asking_);
  void* comm = comm_;
  if (comm == nullptr) return;
  int status = kNcclSuccess;
  library_.require(library_.comm_get_async_error(comm, &status), "asking how the ranks are");
  if (status != kNcclInProgress) library_.require(status, "behind a call");
}

// Not ncclCommDestroy, which waits for what was launched, and so for a rank that is gone.
void NcclMember::leave() {
  const std::lock_guard lock(asking_);
  if (void* comm = comm_.exchange(nullptr)) (void)library_.comm_abort(comm);
}

std::string nccl_file() {
  const char* given = std::getenv("FOURFOLD_NCCL");
  return given != nullptr && *given != '\0' ? given : "libnccl.so.2";
}

}  // namespace fourfold::all_reduce
