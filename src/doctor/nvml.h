// What the driver says, through libnvidia-ml.so.1 and libcuda.so.1 opened at run time, so that one program
// runs with and without a driver. No serial number and no UUID is ever asked for.
//
//   nvml error | driver | cuda | count
//   nvml I name | cc | memory | bar1 | ecc | power | clocks | throttle | temperature | pcie | mig |
//   persistence |
//          processes | utilization | pci
//   nvml I J p2p | nvlink | topology
//   cuda I smem_optin
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fourfold::doctor {

class NvidiaLibraries {
 public:
  NvidiaLibraries();
  ~NvidiaLibraries();
  NvidiaLibraries(const NvidiaLibraries&) = delete;
  NvidiaLibraries& operator=(const NvidiaLibraries&) = delete;

  std::optional<std::string> ask_nvml(const std::vector<std::string>& words);
  std::optional<std::string> ask_cuda(const std::vector<std::string>& words);

 private:
  void* nvml_ = nullptr;
  void* cuda_ = nullptr;
  int nvml_status_ = -1;  // of nvmlInit; -1: there is no library
  bool cuda_is_open_ = false;
};

}  // namespace fourfold::doctor
