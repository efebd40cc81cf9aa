// The rules are data: what to look at, when it is a fault, what it costs, what to do, and how that is known.
// Conditions are expressions over facts (expression.h), texts have {expression} holes. docs/doctor.md is
// written from this table, and every rule is the reason of a verdict in tests/doctor/machines.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::doctor {

enum class Level { note, slow, broken };
// certain: measured by us, or the vendor's own documentation. likely: follows from documented behaviour.
// reported: owners say so; we could not repeat it.
enum class Sure { certain, likely, reported };
enum class Area { gpu, driver, kernels, platform, several, environment, log, model, live, ours };

struct Rule {
  std::string_view id;
  Area area;
  std::string_view each = {};     // "gpu" or "url": judged once for each
  std::string_view applies = {};  // when the question makes sense; empty: always
  std::string_view fault;         // when it is one
  Level level;
  Sure sure;
  std::string_view found;
  std::string_view expected;
  std::string_view cost;
  std::string_view advice;
  std::string_view evidence;
  std::string_view link = {};  // the page that says so; empty: it is on none
};

std::string_view level_name(Level level);
std::string markdown_link(const Rule& rule);  // " ([link](...))", or nothing
std::string_view sure_name(Sure sure);
std::string_view area_name(Area area);

std::span<const Rule> gpu_rules();
std::span<const Rule> driver_rules();  // and of installed kernels
std::span<const Rule> platform_rules();
std::span<const Rule> several_rules();
std::span<const Rule> environment_rules();
std::span<const Rule> log_rules();
std::span<const Rule> model_rules();  // of models, live servers and Fourfold itself

// All of them, area by area.
const std::vector<Rule>& rules();

// Every fact a probe, a reader of logs, kernels, models or servers may set. "gpu.pcie_lanes" stands for each
// GPU's. A rule that names another is misspelt, and a test says so.
std::span<const std::string_view> known_facts();

}  // namespace fourfold::doctor
