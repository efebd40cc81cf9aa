#include "doctor/probes.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "doctor/probe_list.h"

namespace fourfold::doctor {
namespace {

class EnvironmentProbe final : public Probe {
 public:
  std::string_view name() const override { return "environment"; }
  void gather(Source& source, Facts& facts) const override {
    for (const std::string& line : source.lines("environment")) {
      const auto equals = line.find('=');
      if (equals != std::string::npos && equals + 1 < line.size())
        facts.set_value("env." + line.substr(0, equals), parse_value(line.substr(equals + 1)));
    }
    const auto running = source.lines("servers");
    std::string all;
    bool marlin = false;
    for (const std::string& server : running) {
      all += (all.empty() ? "" : "; ") + server;
      marlin |= server.find("backend marlin") != std::string::npos;
    }
    facts.set("servers", all.empty() ? "none" : all);
    facts.set("servers.marlin", marlin);
  }
};

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string& part : split(trimmed(text), ',')) {
    const auto ends = split(part, '-');
    const auto first = parse_number(ends.front()), last = parse_number(ends.back());
    if (!first || !last || *last - *first > 65'536) return {};
    for (int cpu = static_cast<int>(*first); cpu <= static_cast<int>(*last); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int version_code(std::string_view version) {
  const auto parts = split(trimmed(version), '.');
  if (parts.empty()) return 0;
  const auto major = parse_number(parts[0]);
  const auto minor = parts.size() > 1 ? parse_number(parts[1]) : std::optional(0.0);
  return major && minor ? static_cast<int>(*major) * 100 + static_cast<int>(*minor) : 0;
}

std::span<const Probe* const> probes() {
  static const EnvironmentProbe environment;
  static const std::array<const Probe*, 5> all{&driver_probe(), &gpu_probe(), &platform_probe(),
                                               &peers_probe(), &environment};
  return all;
}

void gather(Source& source, Facts& facts) {
  for (const Probe* probe : probes()) probe->gather(source, facts);
  // What only some runs have; they say so themselves.
  for (const char* part : {"log", "scan", "model"}) facts.set(std::string(part) + ".given", false);
  facts.set("urls", 0);
}

}  // namespace fourfold::doctor
