#include "loadgen/diff.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "base/error.h"
#include "json/parse.h"
#include "loadgen/grid.h"
#include "loadgen/report.h"

namespace fourfold::loadgen {
namespace {

constexpr double kLeastBand = 0.02;
constexpr double kAssumedBand = 0.10;  // of runs that were not repeated

using Object = boost::json::object;

[[noreturn]] void refuse(const std::string& what) {
  fail_with_hint(Code::invalid_request, "bench diff reads what bench serve --json FILE wrote.", "{}", what);
}

const Object& object_of(const boost::json::value& value, const char* what) {
  if (!value.is_object()) refuse(fourfold::format("{} is no object", what));
  return value.as_object();
}

const boost::json::value& required(const Object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  if (value == nullptr) refuse(fourfold::format("a row has no {}", name));
  return *value;
}

double number_of(const boost::json::value& value, std::string_view name) {
  if (value.is_double()) return value.as_double();
  if (value.is_int64()) return static_cast<double>(value.as_int64());
  if (value.is_uint64()) return static_cast<double>(value.as_uint64());
  refuse(fourfold::format("{} is no number", name));
}

double number_of(const Object& object, std::string_view name) {
  return number_of(required(object, name), name);
}

std::int64_t whole(const Object& object, std::string_view name) {
  return static_cast<std::int64_t>(number_of(object, name));
}

std::string text_of(const Object& object, std::string_view name) {
  const auto& value = required(object, name);
  if (!value.is_string()) refuse(fourfold::format("{} is no text", name));
  return std::string(value.as_string());
}

struct Measured {
  double value = 0;
  std::optional<double> variation;
};

struct ReadRow {
  std::string name;
  std::int64_t failed = 0, requests = 0;
  Measured rate, ttft, tpot;
};

struct ReadReport {
  std::map<std::string, std::string> header;
  std::vector<ReadRow> rows;
};

Measured measured(const Object& row, double value, std::string_view name) {
  Measured out{value, std::nullopt};
  const auto* variations = row.if_contains("variation");
  if (variations == nullptr || !variations->is_object()) return out;
  if (const auto* found = variations->as_object().if_contains(name)) out.variation = number_of(*found, name);
  return out;
}

ReadRow read_row(const Object& row) {
  Cell cell;
  cell.table = text_of(row, "table");
  cell.users = whole(row, "users");
  cell.context = whole(row, "context");
  cell.output = whole(row, "output");
  if (const auto* thinking = row.if_contains("thinking"); thinking != nullptr && thinking->is_bool())
    cell.thinking = thinking->as_bool();
  cell.prompts = parse_prompt_kind(text_of(row, "prompts"));
  if (const auto* rate = row.if_contains("request_rate")) cell.rate = number_of(*rate, "request_rate");
  const auto middle = [&](const char* name) {
    return number_of(object_of(required(row, name), name), "p50");
  };
  ReadRow out;
  out.name = cell.table + ": " + cell_name(cell);
  out.failed = whole(row, "failed");
  out.requests = whole(row, "requests");
  out.rate = measured(row, number_of(row, "output_per_s"), "output_per_s");
  out.ttft = measured(row, middle("ttft_ms"), "ttft_ms");
  out.tpot = measured(row, middle("tpot_ms"), "tpot_ms");
  return out;
}

ReadReport read(std::string_view text, const char* what) {
  ReadReport report;
  boost::json::value value;
  try {
    value = json::parse(text, what);
  } catch (const Error& error) {
    refuse(error.what());
  }
  const Object& object = object_of(value, what);
  const auto* format = object.if_contains("format");
  if (format == nullptr || !format->is_string() || format->as_string() != "fourfold-bench-serve-1")
    refuse(fourfold::format("{} is no result of bench serve", what));
  for (const auto& [name, fact] : object_of(required(object, "header"), "header"))
    if (fact.is_string()) report.header[std::string(name)] = std::string(fact.as_string());
  const auto& rows = required(object, "rows");
  if (!rows.is_array()) refuse("rows is no array");
  for (const auto& row : rows.as_array()) report.rows.push_back(read_row(object_of(row, "a row")));
  return report;
}

void add(const std::string& row, const char* name, const Measured& a, const Measured& b, bool more_is_better,
         Comparison& out) {
  if (a.value <= 0 || b.value <= 0) return;
  Difference difference{
      row, name, a.value, b.value, b.value / a.value - 1, kAssumedBand, false, Verdict::within_noise};
  if (a.variation && b.variation) {
    difference.band = std::max(kLeastBand, 2 * std::hypot(*a.variation, *b.variation));
    difference.band_is_measured = true;
  }
  // The larger over the smaller, so that B against A says of B what A against B says of A.
  if (std::max(a.value, b.value) / std::min(a.value, b.value) - 1 > difference.band)
    difference.verdict = (difference.change > 0) == more_is_better ? Verdict::faster : Verdict::slower;
  out.differences.push_back(std::move(difference));
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster: return "faster";
    case Verdict::slower: return "slower";
    case Verdict::within_noise: return "within noise";
  }
  return "unknown";
}

bool Comparison::any_slower() const {
  return std::any_of(differences.begin(), differences.end(),
                     [](const Difference& one) { return one.verdict == Verdict::slower; });
}

Comparison compare(std::string_view json_a, std::string_view json_b) {
  const ReadReport a = read(json_a, "A"), b = read(json_b, "B");
  Comparison out;
  for (const auto& [name, value] : a.header)
    if (const auto other = b.header.find(name);
        name != "date" && name != "command" && other != b.header.end() && other->second != value)
      out.header.push_back(fourfold::format("{}: {} -> {}", name, value, other->second));
  const auto find = [](const ReadReport& report, const std::string& name) {
    return std::find_if(report.rows.begin(), report.rows.end(),
                        [&](const ReadRow& row) { return row.name == name; });
  };
  for (const ReadRow& row : b.rows)
    if (find(a, row.name) == a.rows.end()) out.only_b.push_back(row.name);
  for (const ReadRow& row : a.rows) {
    const auto other = find(b, row.name);
    if (other == b.rows.end()) {
      out.only_a.push_back(row.name);
      continue;
    }
    if (row.failed > 0 || other->failed > 0) {
      out.failed.push_back(fourfold::format("{}: {} of {} failed in A, {} of {} in B", row.name, row.failed,
                                            row.requests, other->failed, other->requests));
      continue;
    }
    add(row.name, "tok/s", row.rate, other->rate, true, out);
    add(row.name, "TTFT p50", row.ttft, other->ttft, false, out);
    add(row.name, "TPOT p50", row.tpot, other->tpot, false, out);
  }
  return out;
}

std::string to_text(const Comparison& comparison) {
  std::string out;
  for (const std::string& fact : comparison.header) out += fact + "\n";
  std::string row;
  bool assumed = false;
  for (const Difference& one : comparison.differences) {
    if (one.row != row) out += "\n" + one.row + "\n";
    row = one.row;
    char line[160];
    std::snprintf(line, sizeof line, "  %-9s %10s -> %10s   %+7.1f %%   noise %4.1f %%%s  ",
                  one.measure.c_str(), short_number(one.a).c_str(), short_number(one.b).c_str(),
                  100 * one.change, 100 * one.band, one.band_is_measured ? " " : "*");
    out += line + std::string(verdict_name(one.verdict)) + "\n";
    assumed |= !one.band_is_measured;
  }
  if (assumed) out += "\n* assumed: measure with --repeat 3 or more for a band of its own\n";
  for (const auto& [title, lines] : {std::pair{"only in A", &comparison.only_a},
                                     {"only in B", &comparison.only_b},
                                     {"not compared", &comparison.failed}})
    for (const std::string& line : *lines) out += fourfold::format("{}: {}\n", title, line);
  int counts[3] = {};
  for (const Difference& one : comparison.differences) ++counts[static_cast<int>(one.verdict)];
  return out + fourfold::format("\nB against A: {} faster, {} slower, {} within noise\n", counts[0],
                                counts[1], counts[2]);
}

}  // namespace fourfold::loadgen
