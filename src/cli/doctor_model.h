// What doctor needs of rooms it may not see: a checkpoint's bytes, our kernels' rows, measurements on a GPU.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "doctor/facts.h"
#include "doctor/model_facts.h"

namespace fourfold::cli {

// Bytes of MODEL from its headers. Also sets the facts about the disk it lies on, when asked to measure it.
doctor::ModelBytes model_bytes(const std::string& model, bool measure_disk, doctor::Facts& facts,
                               const Console& console);

// Which rows this machine's first GPU would use; sets the ours.* facts. Lines for the report.
std::vector<std::string> our_rows(doctor::Facts& facts);

// Memory bandwidth, the speed of our largest GEMM, and values copied between GPUs. Nothing without CUDA.
// Lines for the report.
std::vector<std::string> measure_gpus(doctor::Facts& facts);

}  // namespace fourfold::cli
