// --scan DIR: which GPU code the shared objects and JIT caches below a folder hold.
#pragma once

#include <filesystem>
#include <vector>

#include "doctor/facts.h"

namespace fourfold::doctor {

// Sets the scan.* facts for all folders together. Throws io when one does not exist; files that cannot be
// read are counted.
void scan_kernels(const std::vector<std::filesystem::path>& folders, Facts& facts);

}  // namespace fourfold::doctor
