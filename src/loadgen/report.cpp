#include "loadgen/report.h"

#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "base/json_writer.h"

namespace fourfold::loadgen {
namespace {

constexpr double kMillion = 1e6;
constexpr double kHoursPerYear = 8760;

void write_summary(JsonWriter& json, const char* name, const Summary& summary) {
  json.key(name).begin_object().member("count", summary.count).member("mean", summary.mean);
  json.member("p50", summary.p50).member("p90", summary.p90).member("p99", summary.p99);
  json.member("max", summary.max).end_object();
}

template <class T>
void write_optional(JsonWriter& json, const char* name, const std::optional<T>& value) {
  if (value) json.member(name, *value);
}

void write_cell(JsonWriter& json, const Cell& cell) {
  json.member("table", cell.table).member("users", cell.users).member("context", cell.context);
  json.member("output", cell.output);
  write_optional(json, "thinking", cell.thinking);
  json.member("prompts", prompt_kind_name(cell.prompts));
  write_optional(json, "request_rate", cell.rate);
}

void write_measures(JsonWriter& json, const Measures& m) {
  json.member("requests", m.requests).member("failed", m.failed);
  json.key("failures").begin_object();
  for (const auto& [name, count] : m.failures) json.member(name, count);
  json.end_object();
  json.member("seconds", m.seconds).member("prompt_tokens", m.prompt_tokens);
  json.member("prompt_tokens_least", m.prompt_least).member("prompt_tokens_most", m.prompt_most);
  json.member("cached_tokens", m.cached_tokens).member("output_tokens", m.output_tokens);
  json.member("reasoning_tokens", m.reasoning_tokens).member("counted_by_chunks", m.counted_by_chunks);
  write_summary(json, "ttft_ms", m.ttft_ms);
  write_summary(json, "tpot_ms", m.tpot_ms);
  write_summary(json, "itl_ms", m.itl_ms);
  write_summary(json, "e2el_ms", m.e2el_ms);
  write_summary(json, "first_answer_ms", m.answer_ms);
  json.member("output_per_s", m.output_per_s).member("user_per_s", m.user_per_s);
  json.member("requests_per_s", m.requests_per_s).member("tokens_per_chunk", m.tokens_per_chunk);
  write_optional(json, "goodput_per_s", m.goodput_per_s);
  write_optional(json, "acceptance_length", m.acceptance_length);
}

void write_row(JsonWriter& json, const Row& row) {
  json.begin_object();
  write_cell(json, row.cell);
  write_measures(json, row.measures);
  json.member("repeats", row.repeats);
  json.key("variation").begin_object();
  write_optional(json, "output_per_s", row.spread.output_per_s);
  write_optional(json, "ttft_ms", row.spread.ttft_ms);
  write_optional(json, "tpot_ms", row.spread.tpot_ms);
  json.end_object();
  write_optional(json, "floor_per_s", row.floor_per_s);
  write_optional(json, "floor_share", row.floor_share());
  if (row.cost) {
    json.key("per_million_output_tokens").begin_object().member("hours", row.cost->hours);
    json.member("kwh", row.cost->kwh).member("energy_price", row.cost->energy_price);
    json.member("hardware_price", row.cost->hardware_price).end_object();
    json.member("joules_per_token", row.cost->joules_per_token);
  }
  json.end_object();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) out += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return out + "\"";
}

// Numbers as JSON has them: the shortest digits that read back the same.
std::string digits(double value) { return JsonWriter().value(value).finish(); }

std::string optional_digits(const std::optional<double>& value) { return value ? digits(*value) : ""; }

}  // namespace

Cost cost_of(const CostInputs& inputs, double output_per_s) {
  Cost cost;
  if (output_per_s <= 0) return cost;
  cost.hours = kMillion / output_per_s / 3600;
  cost.kwh = inputs.power_w * cost.hours / 1000;
  cost.energy_price = cost.kwh * inputs.tariff_per_kwh;
  if (inputs.life_years > 0)
    cost.hardware_price = inputs.hardware_price * cost.hours / (inputs.life_years * kHoursPerYear);
  cost.joules_per_token = inputs.power_w / output_per_s;
  return cost;
}

std::optional<double> Row::floor_share() const {
  if (!floor_per_s || *floor_per_s <= 0) return std::nullopt;
  return measures.output_per_s / *floor_per_s;
}

std::string short_number(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 999.5) return with_commas(std::llround(value));
  char text[32];
  const double size = std::abs(value);
  std::snprintf(text, sizeof text, "%.*f",
                size >= 99.95    ? 0
                : size >= 9.995  ? 1
                : size >= 0.9995 ? 2
                                 : 4,
                value);
  return text;
}

std::string to_json(const Report& report) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("format", "fourfold-bench-serve-1");
  json.key("header").begin_object();
  for (const auto& [name, value] : report.header) json.member(name, value);
  json.end_object();
  json.key("rows").begin_array();
  for (const Row& row : report.rows) write_row(json, row);
  json.end_array();
  for (const auto& [name, lines] : {std::pair{"skipped", &report.skipped}, {"notes", &report.notes}}) {
    json.key(name).begin_array();
    for (const std::string& line : *lines) json.value(line);
    json.end_array();
  }
  return json.end_object().finish() + "\n";
}

std::string to_csv(const Report& report) {
  std::string out;
  for (const auto& [name, value] : report.header) {
    out += "# " + name + ": ";
    for (const char letter : value) out += letter == '\n' ? ' ' : letter;
    out += "\n";
  }
  out +=
      "table,users,request_rate,context,output,thinking,prompts,requests,failed,seconds,prompt_tokens,output_"
      "tokens,"
      "output_per_s,user_per_s,requests_per_s,goodput_per_s,ttft_ms_mean,ttft_ms_p50,ttft_ms_p90,ttft_ms_p99,"
      "tpot_ms_mean,tpot_ms_p50,tpot_ms_p90,tpot_ms_p99,itl_ms_mean,itl_ms_p50,itl_ms_p90,itl_ms_p99,"
      "e2el_ms_mean,e2el_ms_p50,e2el_ms_p90,e2el_ms_p99,first_answer_ms_p50,acceptance_length,"
      "tokens_per_chunk,floor_share,variation\n";
  for (const Row& row : report.rows) {
    const Cell& cell = row.cell;
    const Measures& m = row.measures;
    out += fourfold::format("{},{},{},{},{},{},{},{},{},{},{},{}", quoted(cell.table), cell.users,
                            optional_digits(cell.rate), cell.context, cell.output,
                            !cell.thinking   ? ""
                            : *cell.thinking ? "on"
                                             : "off",
                            prompt_kind_name(cell.prompts), m.requests, m.failed, digits(m.seconds),
                            m.prompt_tokens, m.output_tokens);
    for (const double value : {m.output_per_s, m.user_per_s, m.requests_per_s}) out += "," + digits(value);
    out += "," + optional_digits(m.goodput_per_s);
    for (const Summary& s : {m.ttft_ms, m.tpot_ms, m.itl_ms, m.e2el_ms})
      for (const double value : {s.mean, s.p50, s.p90, s.p99}) out += "," + digits(value);
    out += "," + digits(m.answer_ms.p50) + "," + optional_digits(m.acceptance_length);
    out += "," + digits(m.tokens_per_chunk) + "," + optional_digits(row.floor_share());
    out += "," + optional_digits(row.spread.output_per_s) + "\n";
  }
  return out;
}

}  // namespace fourfold::loadgen
