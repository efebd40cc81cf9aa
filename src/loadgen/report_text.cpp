// The report on a screen: one block a table, one line a cell, and under it what a reader must know.
#include <algorithm>
#include <cstdio>

#include "base/format.h"
#include "loadgen/report.h"

namespace fourfold::loadgen {
namespace {

struct Column {
  const char* head;
  std::string (*text)(const Row& row);
  bool (*is_used)(const Row& row) = [](const Row&) { return true; };
};

std::string percent(const std::optional<double>& share) {
  if (!share) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * *share);
  return text;
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all{
      {"users", [](const Row& r) { return std::to_string(r.cell.users); }},
      {"req/s", [](const Row& r) { return short_number(*r.cell.rate); },
       [](const Row& r) { return r.cell.rate.has_value(); }},
      {"prompt",
       [](const Row& r) {
         const Measures& m = r.measures;
         if (m.prompt_most == 0)
           return r.cell.context > 0 ? "~" + with_commas(r.cell.context) : std::string("?");
         return m.prompt_least == m.prompt_most
                    ? with_commas(m.prompt_most)
                    : fourfold::format("{}-{}", with_commas(m.prompt_least), with_commas(m.prompt_most));
       }},
      {"output", [](const Row& r) { return with_commas(r.cell.output); }},
      {"prompts", [](const Row& r) { return std::string(prompt_kind_name(r.cell.prompts)); }},
      {"think", [](const Row& r) { return std::string(*r.cell.thinking ? "on" : "off"); },
       [](const Row& r) { return r.cell.thinking.has_value(); }},
      {"tok/s", [](const Row& r) { return short_number(r.measures.output_per_s); }},
      {"CV", [](const Row& r) { return percent(r.spread.output_per_s); },
       [](const Row& r) { return r.spread.output_per_s.has_value(); }},
      {"/user", [](const Row& r) { return short_number(r.measures.user_per_s); }},
      {"TTFT p50", [](const Row& r) { return short_number(r.measures.ttft_ms.p50); }},
      {"p90", [](const Row& r) { return short_number(r.measures.ttft_ms.p90); }},
      {"p99", [](const Row& r) { return short_number(r.measures.ttft_ms.p99); }},
      {"TPOT p50", [](const Row& r) { return short_number(r.measures.tpot_ms.p50); }},
      {"p99", [](const Row& r) { return short_number(r.measures.tpot_ms.p99); }},
      {"ITL p50", [](const Row& r) { return short_number(r.measures.itl_ms.p50); }},
      {"p99", [](const Row& r) { return short_number(r.measures.itl_ms.p99); }},
      {"E2EL p50", [](const Row& r) { return short_number(r.measures.e2el_ms.p50); }},
      {"p99", [](const Row& r) { return short_number(r.measures.e2el_ms.p99); }},
      {"answer", [](const Row& r) { return short_number(r.measures.answer_ms.p50); },
       [](const Row& r) { return r.cell.thinking.value_or(false) && r.measures.answer_ms.count > 0; }},
      {"accept", [](const Row& r) { return short_number(*r.measures.acceptance_length); },
       [](const Row& r) { return r.measures.acceptance_length.has_value(); }},
      {"good/s", [](const Row& r) { return short_number(*r.measures.goodput_per_s); },
       [](const Row& r) { return r.measures.goodput_per_s.has_value(); }},
      {"floor", [](const Row& r) { return percent(r.floor_share()); },
       [](const Row& r) { return r.floor_share().has_value(); }},
      {"J/token", [](const Row& r) { return short_number(r.cost->joules_per_token); },
       [](const Row& r) { return r.cost.has_value(); }},
      {"h/M", [](const Row& r) { return short_number(r.cost->hours); },
       [](const Row& r) { return r.cost.has_value(); }},
      {"price/M", [](const Row& r) { return short_number(r.cost->energy_price + r.cost->hardware_price); },
       [](const Row& r) { return r.cost.has_value(); }},
      {"failed",
       [](const Row& r) { return fourfold::format("{}/{}", r.measures.failed, r.measures.requests); },
       [](const Row& r) { return r.measures.failed > 0; }},
  };
  return all;
}

std::string table_of(const std::vector<const Row*>& rows) {
  std::vector<std::string> lines(rows.size() + 1, " ");
  for (const Column& column : columns()) {
    if (std::none_of(rows.begin(), rows.end(), [&](const Row* row) { return column.is_used(*row); }))
      continue;
    std::vector<std::string> cells{column.head};
    for (const Row* row : rows) cells.push_back(column.is_used(*row) ? column.text(*row) : "-");
    std::size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    for (std::size_t i = 0; i < cells.size(); ++i)
      lines[i] += " " + std::string(width - cells[i].size(), ' ') + cells[i];
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace

std::string text_table(const Report& report) {
  std::string out;
  for (const auto& [name, value] : report.header) out += fourfold::format("{}: {}\n", name, value);
  std::vector<std::string> tables;
  for (const Row& row : report.rows)
    if (std::find(tables.begin(), tables.end(), row.cell.table) == tables.end())
      tables.push_back(row.cell.table);
  for (const std::string& table : tables) {
    std::vector<const Row*> rows;
    for (const Row& row : report.rows)
      if (row.cell.table == table) rows.push_back(&row);
    out += fourfold::format("\n{} (milliseconds; tok/s: all users, output only)\n{}", table, table_of(rows));
  }
  for (const Row& row : report.rows)
    for (const auto& [name, count] : row.measures.failures)
      out += fourfold::format("failed: {} x {} ({})\n", count, name, cell_name(row.cell));
  for (const std::string& line : report.skipped) out += "skipped: " + line + "\n";
  for (const std::string& line : report.notes) out += "note: " + line + "\n";
  return out;
}

}  // namespace fourfold::loadgen
