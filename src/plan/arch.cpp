#include "plan/arch.h"

#include <cctype>

#include "base/error.h"
#include "base/format.h"

namespace fourfold::plan {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  for (std::size_t index = 0; index < prefix.size(); ++index) {
    if (std::tolower(static_cast<unsigned char>(text[index])) != prefix[index]) return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

// "12.0" and "120" both name major 12, minor 0: without a dot the last digit is the minor.
std::string spelled(const ArchFacts& facts, bool dotted) {
  return format(dotted ? "{}.{}" : "{}{}", facts.cc_major, facts.cc_minor);
}

// Targets with a suffix: "a" since Hopper, "f" since Blackwell. "sm_80a" is a mistake, not another name of
// sm80.
bool suffix_exists(const ArchFacts& facts, std::string_view suffix) {
  if (suffix.empty()) return true;
  if (suffix == "a") return facts.cc_major >= 9;
  return suffix == "f" && facts.cc_major >= 10;
}

}  // namespace

const ArchFacts* find_arch(std::string_view text) {
  if (!take_prefix(text, "sm_")) take_prefix(text, "sm");
  std::size_t length = 0;
  while (length < text.size() && (is_digit(text[length]) || text[length] == '.')) ++length;
  const std::string_view number = text.substr(0, length);
  const bool dotted = number.find('.') != std::string_view::npos;
  for (const ArchFacts* facts : kArchs) {
    if (number == spelled(*facts, dotted))
      return suffix_exists(*facts, text.substr(length)) ? facts : nullptr;
  }
  return nullptr;
}

std::string arch_names() {
  std::string names;
  for (const ArchFacts* facts : kArchs) {
    if (!names.empty()) names += ", ";
    names += facts->name;
  }
  return names;
}

std::vector<std::string> compare_with_device(const ArchFacts& facts, const DeviceReport& device) {
  std::vector<std::string> mismatches;
  if (facts.cc_major != device.cc_major || facts.cc_minor != device.cc_minor) {
    mismatches.push_back(format("compute capability: the table of {} says {}.{}, the device says {}.{}",
                                facts.name, facts.cc_major, facts.cc_minor, device.cc_major,
                                device.cc_minor));
  }
  const auto compare = [&](std::string_view what, int planned, int reported) {
    if (planned == reported) return;
    mismatches.push_back(format("{}: the table of {} says {}, the device says {}", what, facts.name,
                                with_commas(planned), with_commas(reported)));
  };
  compare("shared memory bytes per block", facts.smem_bytes_per_block, device.smem_bytes_per_block);
  compare("shared memory bytes per SM", facts.smem_bytes_per_sm, device.smem_bytes_per_sm);
  compare("shared memory bytes reserved per block", facts.smem_reserved_bytes_per_block,
          device.smem_reserved_bytes_per_block);
  compare("registers per SM", facts.registers_per_sm, device.registers_per_sm);
  compare("threads per SM", facts.threads_per_sm, device.threads_per_sm);
  compare("blocks per SM", facts.blocks_per_sm_max, device.blocks_per_sm_max);
  return mismatches;
}

void require_device(const ArchFacts& facts, const DeviceReport& device) {
  const std::vector<std::string> mismatches = compare_with_device(facts, device);
  if (mismatches.empty()) return;
  std::string list;
  for (const std::string& mismatch : mismatches) list += "\n  " + mismatch;
  fail_with_hint(Code::unsupported_device,
                 "Kernels were planned for other numbers; report this device, with its driver version.",
                 "{} is not the {} this build was planned for:{}", device.name, facts.name, list);
}

}  // namespace fourfold::plan
