#include "kernels/all_reduce/nccl_library.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/format.h"

namespace fourfold::all_reduce {
namespace {

// The first with communicators that do not block.
constexpr int kVersionLeast = 21400, kVersionMajor = 2;

}  // namespace

void NcclLibrary::Close::operator()(void* opened) const { dlclose(opened); }

template <class Function>
void NcclLibrary::find(const char* name, Function*& entry) {
  entry = reinterpret_cast<Function*>(dlsym(library_.get(), name));
  if (entry == nullptr) fail(Code::unsupported_op, "{} has no {}", file_, name);
}

NcclLibrary::NcclLibrary(const std::string& file, const std::string& hint) : file_(file) {
  // It keeps threads of its own, which may outlive whoever opened it.
  library_.reset(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (library_ == nullptr) fail_with_hint(Code::unsupported_op, hint, "NCCL cannot be opened: {}", dlerror());
  int (*get_version)(int* version) = nullptr;
  find("ncclGetVersion", get_version);
  find("ncclGetErrorString", get_error_string_);
  int number = 0;
  require(get_version(&number), "asking for its version");
  if (number < kVersionLeast || number / 10000 != kVersionMajor)
    fail_with_hint(
        Code::unsupported_op, hint,
        "{} calls itself NCCL {}; 2.14 and newer ones of major version 2 can be used (21400 to 29999)", file,
        number);
  version_ = format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  find("ncclGetUniqueId", get_unique_id);
  find("ncclCommInitRankConfig", comm_init_rank_config);
  find("ncclCommInitAll", comm_init_all);
  find("ncclCommDestroy", comm_destroy);
  find("ncclCommAbort", comm_abort);
  find("ncclCommGetAsyncError", comm_get_async_error);
  find("ncclGroupStart", group_start);
  find("ncclGroupEnd", group_end);
  find("ncclAllGather", all_gather);
  find("ncclAllReduce", all_reduce);
}

void NcclLibrary::require(int status, const char* what) const {
  if (status != kNcclSuccess)
    fail(Code::device_lost, "NCCL, {}: {} ({})", what, get_error_string_(status), status);
}

}  // namespace fourfold::all_reduce
