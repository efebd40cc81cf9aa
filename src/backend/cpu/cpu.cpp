#include "backend/cpu/cpu.h"

#include "backend/cpu/pool.h"
#include "backend/cpu/prepared.h"
#include "base/error.h"

namespace fourfold::backend {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuOptions options)
      : options_(std::move(options)),
        thread_count_(options_.threads > 0 ? options_.threads : static_cast<int>(cpu::allowed_cpus().size())),
        kernels_(fourfold::cpu::kernels_of(fourfold::cpu::choose_isa(options_.isa))) {}

  std::string_view name() const override { return "cpu"; }
  std::unique_ptr<Prepared> prepare(Program program, const Capacity& capacity) override {
    return cpu::prepare(std::move(program), capacity, options_, thread_count_, kernels_);
  }

 private:
  CpuOptions options_;
  int thread_count_;
  const fourfold::cpu::Kernels& kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CpuOptions options) {
  if (options.threads < 0 || options.threads > kCpuThreadsMax)
    fail(Code::invalid_request, "{} threads; 1 to {} are possible, 0 means one for each core",
         options.threads, kCpuThreadsMax);
  return std::make_unique<CpuBackend>(std::move(options));
}

}  // namespace fourfold::backend
