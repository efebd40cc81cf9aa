// Tuning as a file: JSON with a version, the chip it was measured on, and every choice with both times. A
// file is used whole or refused with the reason; nothing in it is passed over.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "backend/cuda/tune/tuning.h"
#include "kernels/launch/machine.h"

namespace fourfold::backend::cuda {

inline constexpr int kTuningVersion = 1;

struct TuningFile {
  std::string chip;  // Machine::description()
  int sm_count = 0;
  std::string driver;
  std::string commit;
  std::string date;
  Tuning tuning;
};

std::string to_json(const TuningFile& file);

// `what` names the text in messages. Throws bad_checkpoint with everything that is wrong.
TuningFile parse_tuning(std::string_view text, std::string_view what);
TuningFile read_tuning(const std::filesystem::path& path);

// Whether it was measured on such a chip.
bool is_for(const TuningFile& file, const kernels::Machine& machine);
// Throws invalid_request when it is for another chip, or names a row that the machine does not have.
void require_for(const TuningFile& file, const kernels::Machine& machine, std::string_view what);

}  // namespace fourfold::backend::cuda
