#include "kernels/all_reduce/nccl_member.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::all_reduce {
namespace {

// As nccl.h has them since version 2.0.
constexpr int kSuccess = 0, kInProgress = 7, kFloat32 = 7;
struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == sizeof(NcclMember::Id));

// ncclCommAbort and ncclCommGetAsyncError are there since 2.4; the number has its present form since 2.9.
constexpr int kVersionLeast = 20900, kVersionMajor = 2;

template <class Function>
void find(void* library, const std::string& file, const char* name, Function*& entry) {
  entry = reinterpret_cast<Function*>(dlsym(library, name));
  if (entry == nullptr) fail(Code::unsupported_op, "{} has no {}", file, name);
}

}  // namespace

struct NcclMember::Entries {
  struct Close {
    void operator()(void* opened) const { dlclose(opened); }
  };
  std::unique_ptr<void, Close> library;
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank)(void** comm, int count, UniqueId id, int rank) = nullptr;
  int (*comm_abort)(void* comm) = nullptr;
  int (*comm_get_async_error)(void* comm, int* status) = nullptr;
  int (*all_gather)(const void* in, void* out, std::size_t count, int type, void* comm,
                    void* stream) = nullptr;
};

NcclMember::NcclMember(const std::string& file) : file_(file), entries_(std::make_unique<Entries>()) {
  entries_->library.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (entries_->library == nullptr)
    fail_with_hint(Code::unsupported_op,
                   "Install NCCL on every machine, say where its libnccl.so.2 is (FOURFOLD_NCCL=path), or "
                   "--collective tcp.",
                   "NCCL cannot be opened: {}", dlerror());
  void* opened = entries_->library.get();
  find(opened, file, "ncclGetVersion", entries_->get_version);
  find(opened, file, "ncclGetErrorString", entries_->get_error_string);
  int number = 0;
  require(entries_->get_version(&number), "asking for its version");
  if (number < kVersionLeast || number / 10000 != kVersionMajor)
    fail_with_hint(
        Code::unsupported_op, "Another NCCL, or --collective tcp.",
        "{} calls itself NCCL {}; 2.9 and newer ones of major version 2 can be used (20900 to 29999)", file,
        number);
  version_ = format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  find(opened, file, "ncclGetUniqueId", entries_->get_unique_id);
  find(opened, file, "ncclCommInitRank", entries_->comm_init_rank);
  find(opened, file, "ncclCommAbort", entries_->comm_abort);
  find(opened, file, "ncclCommGetAsyncError", entries_->comm_get_async_error);
  find(opened, file, "ncclAllGather", entries_->all_gather);
}

NcclMember::~NcclMember() { leave(); }

void NcclMember::require(int status, const char* what) const {
  if (status != kSuccess)
    fail(Code::device_lost, "NCCL, {}: {} ({})", what, entries_->get_error_string(status), status);
}

NcclMember::Id NcclMember::make_id() const {
  UniqueId made{};
  require(entries_->get_unique_id(&made), "making a group's id");
  return std::to_array(made.bytes);
}

void NcclMember::connect(const Id& id, int rank, int rank_count) {
  check(comm_ == nullptr, "one group at a time");
  UniqueId given{};
  std::copy(id.begin(), id.end(), given.bytes);
  void* made = nullptr;
  require(entries_->comm_init_rank(&made, rank_count, given, rank), "connecting the ranks");
  comm_ = made;
}

void NcclMember::all_gather(const float* in, float* out, std::size_t count, void* stream) {
  void* comm = comm_;
  if (comm == nullptr) fail(Code::device_lost, "NCCL: the group was left");
  require(entries_->all_gather(in, out, count, kFloat32, comm, stream), "gathering the ranks' parts");
}

void NcclMember::require_well() const {
  const std::lock_guard lock(asking_);
  void* comm = comm_;
  if (comm == nullptr) return;
  int status = kSuccess;
  require(entries_->comm_get_async_error(comm, &status), "asking how the ranks are");
  if (status != kInProgress) require(status, "behind a call");
}

// Not ncclCommDestroy, which waits for what was launched, and so for a rank that is gone.
void NcclMember::leave() {
  const std::lock_guard lock(asking_);
  if (void* comm = comm_.exchange(nullptr)) (void)entries_->comm_abort(comm);
}

std::string nccl_file() {
  const char* given = std::getenv("FOURFOLD_NCCL");
  return given != nullptr && *given != '\0' ? given : "libnccl.so.2";
}

}  // namespace fourfold::all_reduce
