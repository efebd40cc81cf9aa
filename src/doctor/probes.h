// Small readers of one part of the machine each: they ask a Source and write facts. What they cannot find
// they leave out, which makes it unknown.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"
#include "doctor/source.h"

namespace fourfold::doctor {

class Probe {
 public:
  virtual ~Probe() = default;
  virtual std::string_view name() const = 0;
  virtual void gather(Source& source, Facts& facts) const = 0;
};

// In the order they run: later ones read facts of earlier ones.
std::span<const Probe* const> probes();
void gather(Source& source, Facts& facts);

// "0-3,8" -> 0 1 2 3 8, as the kernel writes lists of CPUs.
std::vector<int> parse_cpu_list(std::string_view text);
// "12.8.1" -> 1208, comparable; 0 when it is no version.
int version_code(std::string_view version);

}  // namespace fourfold::doctor
