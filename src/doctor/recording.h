// Machines as text: what a Source was asked and what it answered, so that a verdict can be repeated anywhere.
//
//   # a comment
//   nvml 0 name = NVIDIA GeForce RTX 5090
//   file /proc/cmdline
//   | BOOT_IMAGE=/vmlinuz iommu=pt
//   fact log.given = true
//
// A question without an answer is not listed. `fact` lines are what was measured or read beside the machine
// (logs, models, servers), which a recording cannot ask for again.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "doctor/facts.h"
#include "doctor/names.h"
#include "doctor/source.h"

namespace fourfold::doctor {

struct Recording {
  std::map<std::string, std::string> answers;
  Facts facts;
};

inline constexpr const char* kRecordingFile = "machine.txt";

// Throws io when DIR has no machine.txt, invalid_request with the line when it is not understood.
Recording read_recording(const std::filesystem::path& folder);
Recording parse_recording(std::string_view text, std::string_view what);
std::string recording_text(const Recording& recording);

std::unique_ptr<Source> recorded_source(const Recording& recording);

// Answers as `inner` does and keeps every answer, with names taken out, in `recording`. Both must outlive it.
std::unique_ptr<Source> recorder(Source& inner, Recording& recording);

}  // namespace fourfold::doctor
