#include "kernels/all_reduce/nccl.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::all_reduce {

Nccl::Nccl(const std::string& file) : library_(file, "Install NCCL, or give the path of its libnccl.so.2.") {}

Nccl::~Nccl() {
  for (void* rank : ranks_) (void)library_.comm_destroy(rank);
}

void Nccl::connect(const std::vector<int>& devices) {
  check(ranks_.empty(), "ranks are connected once", ranks_.size());
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1)
      fail_with_hint(Code::unsupported_op, "Give every rank a GPU of its own (--each-gpu).",
                     "NCCL wants a GPU for each rank; {} of {} ranks are on GPU {}",
                     std::count(devices.begin(), devices.end(), devices[i]), devices.size(), devices[i]);
  std::vector<void*> made(devices.size());
  library_.require(library_.comm_init_all(made.data(), static_cast<int>(devices.size()), devices.data()),
                   "connecting the GPUs");
  ranks_ = std::move(made);
}

void Nccl::all_reduce(const std::vector<Member>& members, std::size_t count) {
  check(members.size() == ranks_.size(), "every rank adds its part", members.size(), ranks_.size());
  library_.require(library_.group_start(), "beginning a sum");
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    library_.require(library_.all_reduce(members[rank].in, members[rank].out, count, kNcclFloat32, kNcclSum,
                                         ranks_[rank], members[rank].stream),
                     "adding a part");
  library_.require(library_.group_end(), "a sum");
}

}  // namespace fourfold::all_reduce
