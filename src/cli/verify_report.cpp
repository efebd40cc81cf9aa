#include "cli/verify_report.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/format.h"
#include "base/json_writer.h"
#include "cli/build_info.h"
#include "plan/text.h"

namespace fourfold::cli {
namespace {

using verify::Result;

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return text;
}

// All proofs of one row and operation on one machine.
struct Line {
  Result worst;
  int proofs = 0;
};

// Refused before missed before the largest share of its bound.
bool worse(const Result& a, const Result& b) {
  if (a.passed() != b.passed()) return !a.passed();
  return a.worst_ratio > b.worst_ratio;
}

std::vector<Line> lines_of(const std::vector<Result>& results) {
  std::vector<Line> lines;
  std::map<std::string, std::size_t> at;
  for (const Result& result : results) {
    const std::string key = result.machine + "|" + result.row + "|" + result.op;
    const auto [place, fresh] = at.try_emplace(key, lines.size());
    if (fresh) lines.push_back({result, 0});
    Line& line = lines[place->second];
    ++line.proofs;
    if (worse(result, line.worst)) line.worst = result;
  }
  return lines;
}

int widest(const std::vector<Line>& lines, std::string Result::*member, const char* heading) {
  int columns = plan::columns_of(heading);
  for (const Line& line : lines) columns = std::max(columns, plan::columns_of(line.worst.*member));
  return columns;
}

std::string table(const std::vector<Line>& lines) {
  const int row = widest(lines, &Result::row, "row"), op = widest(lines, &Result::op, "op"),
            machine = widest(lines, &Result::machine, "machine"),
            shape = widest(lines, &Result::shape, "shape");
  const auto line_of = [&](std::string_view a, std::string_view b, std::string_view c, std::string_view d,
                           std::string_view error, std::string_view bound, std::string_view verdict) {
    return fourfold::format("{}  {}  {}  {}  {}  {}  {}\n", plan::pad_right(a, row), plan::pad_right(b, op),
                            plan::pad_right(c, machine), plan::pad_right(d, shape), plan::pad_left(error, 9),
                            plan::pad_left(bound, 9), verdict);
  };
  std::string out = line_of("row", "op", "machine", "shape", "max error", "bound", "verdict");
  for (const Line& line : lines) {
    const Result& worst = line.worst;
    out += line_of(
        worst.row, worst.op, worst.machine, worst.shape, scientific(worst.max_error), scientific(worst.bound),
        worst.passed() ? (worst.exact ? "pass, bits equal" : "pass, by its bound") : worst.verdict());
  }
  return out;
}

std::string miss_text(const Result& result) {
  std::string why;
  if (!result.refused.empty())
    why = result.refused;
  else if (!result.failure.empty())
    why = result.failure;
  else if (result.compared == 0)
    why = "nothing was compared";
  else
    why = fourfold::format("error {} of {} allowed; {} of {} values differ in their bits",
                           scientific(result.max_error), scientific(result.bound), result.bit_mismatches,
                           result.compared);
  return plan::paragraph(fourfold::format("{} {}, {}, {}, seed {}: {}", result.row, result.op, result.machine,
                                          result.shape, result.seed, why),
                         4, fourfold::format("  {}", result.verdict() == "refused" ? "-" : "!"));
}

std::string probes_text(const VerifyReport& report) {
  std::string out;
  for (const ProbedDevice& device : report.probed) {
    out += fourfold::format("silicon probes on {}:\n", device.machine);
    for (const verify::Probe& probe : device.probes)
      out += plan::paragraph(fourfold::format("{}: {} {}: {}", probe.name, probe.asks,
                                              verify::outcome_name(probe.outcome), probe.detail),
                             4, probe.outcome == verify::Outcome::same_bits ? "  -" : "  !");
    out += "\n";
  }
  return out;
}

std::string comparisons_text(const VerifyReport& report) {
  if (report.comparisons.empty()) return {};
  std::int64_t bytes = 0;
  std::string wrong;
  for (const auto& comparison : report.comparisons) {
    bytes += comparison.bytes;
    if (!comparison.passed())
      wrong += plan::paragraph(
          fourfold::format(
              "{} {}, seed {}: {}", comparison.row, comparison.op, comparison.seed,
              comparison.failure.empty()
                  ? fourfold::format("{} of {} bytes differ", comparison.different, comparison.bytes)
                  : comparison.failure),
          4, "  !");
  }
  return plan::paragraph(fourfold::format(
             "{} against {}: {} cases run on both, {} bytes compared{}. Every other case whose bits are "
             "promised "
             "is compared through the scalar reference, whose bits both must give.",
             report.comparisons.front().first, report.comparisons.front().second, report.comparisons.size(),
             with_commas(bytes), wrong.empty() ? ", all equal" : "; they differ:")) +
         wrong + "\n";
}

void write_result(JsonWriter& json, const Result& result) {
  json.begin_object()
      .member("kernel", result.kernel)
      .member("row", result.row)
      .member("op", result.op)
      .member("machine", result.machine)
      .member("shape", result.shape)
      .member("seed", result.seed)
      .member("max_error", result.max_error)
      .member("bound", result.bound)
      .member("bits_exact", result.exact)
      .member("bit_mismatches", result.bit_mismatches)
      .member("compared", result.compared)
      .member("verdict", result.verdict());
  if (!result.failure.empty()) json.member("failure", result.failure);
  if (!result.refused.empty()) json.member("refused", result.refused);
  json.end_object();
}

void write_probes(JsonWriter& json, const VerifyReport& report) {
  json.key("probes").begin_array();
  for (const ProbedDevice& device : report.probed)
    for (const verify::Probe& probe : device.probes)
      json.begin_object()
          .member("machine", device.machine)
          .member("name", probe.name)
          .member("asks", probe.asks)
          .member("form", probe.form)
          .member("outcome", verify::outcome_name(probe.outcome))
          .member("detail", probe.detail)
          .end_object();
  json.end_array();
}

void write_comparisons(JsonWriter& json, const VerifyReport& report) {
  json.key("comparisons").begin_array();
  for (const auto& comparison : report.comparisons) {
    json.begin_object()
        .member("row", comparison.row)
        .member("op", comparison.op)
        .member("first", comparison.first)
        .member("second", comparison.second)
        .member("seed", comparison.seed)
        .member("bytes", comparison.bytes)
        .member("different", comparison.different)
        .member("verdict", comparison.passed() ? "pass" : "miss");
    if (!comparison.failure.empty()) json.member("failure", comparison.failure);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

bool VerifyReport::passed() const {
  return !results.empty() &&
         std::all_of(results.begin(), results.end(), [](const Result& r) { return r.passed(); }) &&
         std::all_of(comparisons.begin(), comparisons.end(), [](const auto& c) { return c.passed(); });
}

std::string report_text(const VerifyReport& report) {
  const std::vector<Line> lines = lines_of(report.results);
  std::string out = probes_text(report) + table(lines) + "\n" + comparisons_text(report);
  int missed = 0, refused = 0;
  std::string misses;
  for (const Result& result : report.results) {
    if (result.passed()) continue;
    ++(result.verdict() == "refused" ? refused : missed);
    misses += miss_text(result);
  }
  if (!misses.empty()) out += "what did not pass:\n" + misses + "\n";
  return out + fourfold::format(
                   "{} proofs of {} rows and operations on {} machine{}: {} passed, {} missed, {} refused; "
                   "{} s, seed {}\n",
                   report.results.size(), lines.size(), report.machines.size(),
                   report.machines.size() == 1 ? "" : "s",
                   static_cast<int>(report.results.size()) - missed - refused, missed, refused,
                   seconds_text(report.seconds), report.seed);
}

std::string report_json(const VerifyReport& report) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object()
      .member("version", version())
      .member("device", report.device)
      .key("machine")
      .begin_array();
  for (const std::string& machine : report.machines) json.value(machine);
  json.end_array();
  if (const std::string id = commit(); !id.empty()) json.member("commit", id);
  if (const std::string bytes = emulated_sm_bytes(); !bytes.empty()) json.member("emulated_sm_bytes", bytes);
  json.member("date", utc_date()).member("seconds", report.seconds).member("seed", report.seed);
  json.member("passed", report.passed()).key("rows").begin_array();
  for (const Result& result : report.results) write_result(json, result);
  json.end_array();
  write_probes(json, report);
  write_comparisons(json, report);
  json.key("notices").begin_array();
  for (const std::string& notice : report.notices) json.value(notice);
  json.end_array().end_object();
  return json.finish() + "\n";
}

}  // namespace fourfold::cli
