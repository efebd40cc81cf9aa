// What `fourfold report` knows of a device before anything runs on it.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"

namespace fourfold::cli {

struct ReportDevice {
  std::string name = {};  // "NVIDIA H200", or "simulator"
  std::string chip = {};  // as tuning files name it: "NVIDIA H200, sm90"
  std::string arch = {};  // sm90
  int sm_count = 0;
  std::int64_t free_bytes = 0, total_bytes = 0;
  std::string driver = {};
  int sm_clock_mhz = 0, memory_clock_mhz = 0;
  std::string unusable = {};  // why kernels cannot run on it; the doctor can still look at it

  bool is_gpu() const { return name != "simulator"; }
  std::string card() const;  // for names of files: h200, geforce-rtx-5090
};

// In a process of its own, since it opens CUDA. As JSON, or nothing but the reason when there is no GPU.
int tell_device(int gpu, const Console& console);
ReportDevice device_of(const std::string& json);

}  // namespace fourfold::cli
