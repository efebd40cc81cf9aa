// GPU code inside files, read from their own headers: fat binaries in shared objects (.nv_fatbin), bare
// cubins and .fatbin files of JIT caches. No CUDA tool is needed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace fourfold::doctor {

struct KernelImage {
  int sm = 0;           // 120
  char suffix = ' ';    // 'a', 'f', ' ' for none, '?' when the file does not say
  bool is_ptx = false;  // to be compiled by the driver
  bool has_kernels = true;
  bool names_fp4 = false;  // a kernel's name speaks of FP4
};

// Images of one file; none when it holds no GPU code. Broken headers end the walk, they are no error: the
// loader would skip them as well.
std::vector<KernelImage> images_in(std::span<const std::byte> file);

// "sm_120a", "compute_90"
std::string image_name(const KernelImage& image);

}  // namespace fourfold::doctor
