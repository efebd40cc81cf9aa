// What a run has measured, and the forms it is shown in: a table, JSON, CSV, one HTML page with plots.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loadgen/grid.h"
#include "loadgen/measures.h"

namespace fourfold::loadgen {

// What a million output tokens take.
struct Cost {
  double hours = 0;
  double kwh = 0;
  double energy_price = 0;
  double hardware_price = 0;
  double joules_per_token = 0;
};
struct CostInputs {
  double power_w = 0;
  double tariff_per_kwh = 0;
  double hardware_price = 0;
  double life_years = 0;  // of running day and night
};
Cost cost_of(const CostInputs& inputs, double output_per_s);

// How much the repetitions of a cell differ: standard deviation over mean.
struct Spread {
  std::optional<double> output_per_s, ttft_ms, tpot_ms;
};

struct Row {
  Cell cell;
  Measures measures;
  std::int64_t repeats = 1;
  Spread spread;
  std::optional<double> floor_per_s;  // output tokens a second the bytes of a step allow, without drafts
  std::optional<Cost> cost;
  // Of the floor. Drafts give several tokens for one reading of the weights, so it may pass 1 with them.
  std::optional<double> floor_share() const;
};

struct Report {
  std::vector<std::pair<std::string, std::string>> header;  // commit, server, model, machine ...
  std::vector<Row> rows;
  std::vector<std::string> skipped, notes;
};

std::string text_table(const Report& report);
std::string to_json(const Report& report);
std::string to_csv(const Report& report);
std::string to_html(const Report& report);

// 0.0123, 1.23, 12.3, 123, 12,345: three digits or all before the point.
std::string short_number(double value);

}  // namespace fourfold::loadgen
