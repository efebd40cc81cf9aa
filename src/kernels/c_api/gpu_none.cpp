#include "base/error.h"
#include "kernels/c_api/gpu.h"

namespace fourfold::c_api {
namespace {

[[noreturn]] void refuse() {
  fail_with_hint(Code::unsupported_device, "build it with nvcc 12.9 or newer, or open sim:sm120 or sim:sm90",
                 "this library was built without CUDA kernels");
}

}  // namespace

std::unique_ptr<kernels::Machine> open_gpu(int, void*) { refuse(); }
void set_gpu_stream(kernels::Machine&, void*) { refuse(); }
void synchronize_gpu(void*) { refuse(); }
int make_gpu_current(int) { return -1; }
void restore_gpu(int) noexcept {}

}  // namespace fourfold::c_api
