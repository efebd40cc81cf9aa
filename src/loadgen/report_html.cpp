// The report as one page: no script, nothing fetched, light and dark.
#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "loadgen/report.h"
#include "loadgen/svg_plot.h"

namespace fourfold::loadgen {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>fourfold bench serve</title>
<style>
:root { color-scheme: light dark; --ground: #fff; --text: #1c2126; --weak: #5b6570; --line: #d5dbe1; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181c; --text: #e4e8ec; --weak: #9aa5b0; --line: #333b43; } }
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: right; white-space: nowrap; }
th { color: var(--weak); font-weight: 600; } th[scope=row] { text-align: left; }
.facts th, .facts td { text-align: left; white-space: normal; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
svg { flex: 1 1 26rem; max-width: 36rem; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .title { font-weight: 600; font-size: 14px; } svg .grid { stroke: var(--line); }
</style></head><body>
<h1>fourfold bench serve</h1>
)";

constexpr std::string_view kDefinitions = R"(<h2>What the words mean</h2>
<ul>
<li><b>TTFT</b>: request sent to the first chunk with text. <b>E2EL</b>: request sent to the chunk of the last token.</li>
<li><b>TPOT</b>: (E2EL &minus; TTFT) / (output tokens &minus; 1). <b>ITL</b>: gap between two chunks with text; with drafts a
chunk holds several tokens, so ITL is not TPOT.</li>
<li><b>tok/s</b>: output tokens of all users over the time from the first request to the last token; the prompt does not
count, thinking does. <b>per user</b>: 1 / TPOT, the median request.</li>
<li><b>accept</b>: tokens a step of the model, 1 without drafts. <b>floor</b>: share of what the memory's speed allows
for the bytes of a step without drafts.</li>
</ul>
)";

std::string cell(std::string_view text) { return fourfold::format("<td>{}</td>", escaped(text)); }

std::string three(const Summary& s) {
  return cell(short_number(s.p50)) + cell(short_number(s.p90)) + cell(short_number(s.p99));
}

std::string optional_cell(const std::optional<double>& value, double factor, std::string_view unit) {
  return cell(value ? short_number(factor * *value) + std::string(unit) : "");
}

std::string html_row(const Row& row) {
  const Measures& m = row.measures;
  std::string out = fourfold::format("<tr><th scope=\"row\">{}</th>", escaped(cell_name(row.cell)));
  out += cell(short_number(m.output_per_s)) + optional_cell(row.spread.output_per_s, 100, " %");
  out += cell(short_number(m.user_per_s)) + three(m.ttft_ms) + three(m.tpot_ms) + three(m.itl_ms) +
         three(m.e2el_ms);
  out +=
      cell(row.cell.thinking.value_or(false) && m.answer_ms.count > 0 ? short_number(m.answer_ms.p50) : "");
  out += optional_cell(m.acceptance_length, 1, "") + optional_cell(m.goodput_per_s, 1, "");
  out += optional_cell(row.floor_share(), 100, " %");
  if (row.cost)
    out += cell(short_number(row.cost->hours)) + cell(short_number(row.cost->kwh)) +
           cell(short_number(row.cost->energy_price)) + cell(short_number(row.cost->hardware_price));
  out += cell(m.failed == 0 ? "" : fourfold::format("{} of {}", m.failed, m.requests));
  return out + "</tr>\n";
}

std::string html_table(const std::vector<const Row*>& rows) {
  std::string out = "<div class=\"wide\"><table><thead><tr><th></th><th colspan=\"3\">tok/s</th>";
  for (const char* name : {"TTFT, ms", "TPOT, ms", "ITL, ms", "E2EL, ms"})
    out += fourfold::format("<th colspan=\"3\">{}</th>", name);
  const bool has_cost = rows.front()->cost.has_value();
  out += "<th>first answer, ms</th><th>accept</th><th>goodput/s</th><th>floor</th>";
  if (has_cost) out += "<th colspan=\"4\">a million output tokens</th>";
  out += "<th>failed</th></tr>\n<tr><th></th><th>all</th><th>CV</th><th>per user</th>";
  for (int i = 0; i < 4; ++i) out += "<th>p50</th><th>p90</th><th>p99</th>";
  out += "<th>p50</th><th></th><th></th><th></th>";
  if (has_cost) out += "<th>hours</th><th>kWh</th><th>energy</th><th>hardware</th>";
  out += "<th></th></tr></thead><tbody>\n";
  for (const Row* row : rows) out += html_row(*row);
  return out + "</tbody></table></div>\n";
}

using Number = double (*)(const Row& row);

// One line for each value of `group` along `axis`, as far as there are two points and more.
Plot plot_of(const std::vector<const Row*>& rows, std::string title, std::string x_name, Number axis,
             Number group, std::string_view group_name,
             const std::vector<std::pair<std::string, Number>>& values, std::string y_name) {
  Plot plot{std::move(title), std::move(x_name), std::move(y_name), true, {}};
  std::vector<double> groups;
  for (const Row* row : rows)
    if (std::find(groups.begin(), groups.end(), group(*row)) == groups.end()) groups.push_back(group(*row));
  for (const double of : groups)
    for (const auto& [name, value] : values) {
      Line line{groups.size() > 1 ? fourfold::format("{} {}", of, group_name) : name, {}};
      for (const Row* row : rows)
        if (group(*row) == of && axis(*row) > 0 && row->measures.failed < row->measures.requests)
          line.points.emplace_back(axis(*row), value(*row));
      std::sort(line.points.begin(), line.points.end());
      if (line.points.size() > 1) plot.lines.push_back(std::move(line));
    }
  return plot;
}

std::string plots_of(const std::vector<const Row*>& rows) {
  const Number users = [](const Row& r) { return r.cell.rate ? 0 : static_cast<double>(r.cell.users); };
  const Number by_rate = [](const Row& r) { return r.cell.rate.value_or(0); };
  const Number good = [](const Row& r) {
    return r.measures.goodput_per_s.value_or(r.measures.requests_per_s);
  };
  const Number context = [](const Row& r) { return static_cast<double>(r.cell.context); };
  const Number output = [](const Row& r) { return static_cast<double>(r.cell.output); };
  const Number rate = [](const Row& r) { return r.measures.output_per_s; };
  const Number user_rate = [](const Row& r) { return r.measures.user_per_s; };
  const Number ttft = [](const Row& r) { return r.measures.ttft_ms.p50; };
  std::vector<Plot> plots;
  plots.push_back(plot_of(rows, "All users together", "users at once", users, output, "output",
                          {{"tok/s", rate}}, "tok/s"));
  plots.push_back(plot_of(rows, "One user of them", "users at once", users, output, "output",
                          {{"tok/s", user_rate}}, "tok/s"));
  plots.push_back(plot_of(rows, "By output length, all users", "output tokens", output, users, "users",
                          {{"tok/s", rate}}, "tok/s"));
  plots.push_back(plot_of(rows, "By output length, one user", "output tokens", output, users, "users",
                          {{"tok/s", user_rate}}, "tok/s"));
  plots.push_back(plot_of(rows, "Decoding by context", "prompt tokens", context, users, "users",
                          {{"tok/s", user_rate}}, "tok/s a user"));
  plots.push_back(plot_of(rows, "First token by context", "prompt tokens", context, users, "users",
                          {{"TTFT p50", ttft}}, "ms"));
  plots.push_back(plot_of(rows, "Answered in time by rate", "requests a second", by_rate, output, "output",
                          {{"requests/s", good}}, "requests/s"));
  plots.push_back(plot_of(rows, "First token by rate", "requests a second", by_rate, output, "output",
                          {{"TTFT p50", ttft}}, "ms"));
  std::string out = "<div class=\"plots\">\n";
  for (const Plot& plot : plots) out += svg(plot);
  return out + "</div>\n";
}

std::string html_list(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = fourfold::format("<h2>{}</h2><ul>\n", title);
  for (const std::string& line : lines) out += fourfold::format("<li>{}</li>\n", escaped(line));
  return out + "</ul>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  std::string out(kHead);
  out += "<table class=\"facts\">\n";
  for (const auto& [name, value] : report.header)
    out += fourfold::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  out += "</table>\n";
  std::vector<std::string> tables, failures;
  for (const Row& row : report.rows) {
    if (std::find(tables.begin(), tables.end(), row.cell.table) == tables.end())
      tables.push_back(row.cell.table);
    for (const auto& [name, count] : row.measures.failures)
      failures.push_back(fourfold::format("{} x {} ({})", count, name, cell_name(row.cell)));
  }
  for (const std::string& table : tables) {
    std::vector<const Row*> rows;
    for (const Row& row : report.rows)
      if (row.cell.table == table) rows.push_back(&row);
    out += fourfold::format("<h2>{}</h2>\n", escaped(table)) + html_table(rows) + plots_of(rows);
  }
  out +=
      html_list("Notes", report.notes) + html_list("Failed", failures) + html_list("Skipped", report.skipped);
  return out + std::string(kDefinitions) + "</body></html>\n";
}

}  // namespace fourfold::loadgen
