#include "kernels/all_reduce/nccl.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace fourfold::all_reduce {
namespace {

constexpr int kSuccess = 0, kFloat32 = 7, kSum = 0;  // as nccl.h has them since version 2.0

template <class Function>
void find(void* library, const std::string& file, const char* name, Function*& entry) {
  entry = reinterpret_cast<Function*>(dlsym(library, name));
  if (entry == nullptr) fail(Code::unsupported_op, "{} has no {}", file, name);
}

}  // namespace

struct Nccl::Entries {
  struct Close {
    void operator()(void* opened) const { dlclose(opened); }
  };
  std::unique_ptr<void, Close> library;
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  int (*comm_init_all)(void** ranks, int count, const int* devices) = nullptr;
  int (*comm_destroy)(void* rank) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* in, void* out, std::size_t count, int type, int op, void* rank,
                    void* stream) = nullptr;
};

Nccl::Nccl(const std::string& file) : file_(file), entries_(std::make_unique<Entries>()) {
  entries_->library.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (entries_->library == nullptr)
    fail_with_hint(Code::unsupported_op, "Install NCCL, or give the path of its libnccl.so.2.",
                   "NCCL cannot be opened: {}", dlerror());
  void* opened = entries_->library.get();
  find(opened, file, "ncclGetVersion", entries_->get_version);
  find(opened, file, "ncclGetErrorString", entries_->get_error_string);
  find(opened, file, "ncclCommInitAll", entries_->comm_init_all);
  find(opened, file, "ncclCommDestroy", entries_->comm_destroy);
  find(opened, file, "ncclGroupStart", entries_->group_start);
  find(opened, file, "ncclGroupEnd", entries_->group_end);
  find(opened, file, "ncclAllReduce", entries_->all_reduce);
}

Nccl::~Nccl() {
  for (void* rank : ranks_) (void)entries_->comm_destroy(rank);
}

void Nccl::require(int status, const char* what) const {
  if (status != kSuccess)
    fail(Code::device_lost, "NCCL, {}: {} ({})", what, entries_->get_error_string(status), status);
}

std::string Nccl::version() const {
  int number = 0;
  require(entries_->get_version(&number), "asking for its version");
  // 22703; before 2.9 it was 2708.
  const int major = number >= 10000 ? number / 10000 : number / 1000;
  const int rest = number >= 10000 ? number % 10000 : number % 1000;
  return format("{}.{}.{}", major, rest / 100, rest % 100);
}

void Nccl::connect(const std::vector<int>& devices) {
  check(ranks_.empty(), "ranks are connected once", ranks_.size());
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1)
      fail_with_hint(Code::unsupported_op, "Give every rank a GPU of its own (--each-gpu).",
                     "NCCL wants a GPU for each rank; {} of {} ranks are on GPU {}",
                     std::count(devices.begin(), devices.end(), devices[i]), devices.size(), devices[i]);
  std::vector<void*> made(devices.size());
  require(entries_->comm_init_all(made.data(), static_cast<int>(devices.size()), devices.data()),
          "connecting the GPUs");
  ranks_ = std::move(made);
}

void Nccl::all_reduce(const std::vector<Member>& members, std::size_t count) {
  check(members.size() == ranks_.size(), "every rank adds its part", members.size(), ranks_.size());
  require(entries_->group_start(), "beginning a sum");
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    require(entries_->all_reduce(members[rank].in, members[rank].out, count, kFloat32, kSum, ranks_[rank],
                                 members[rank].stream),
            "adding a part");
  require(entries_->group_end(), "a sum");
}

}  // namespace fourfold::all_reduce
