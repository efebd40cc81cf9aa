#include "cli/nodes_report.h"

#include <algorithm>
#include <cstdio>
#include <variant>

#include "base/error.h"
#include "cli/figures.h"

namespace fourfold::cli {
namespace {

// Rows of a step: a user, a few, many, and a piece of a prompt, of which one row wants logits.
constexpr int kRows[] = {1, 8, 64, 512};
constexpr int kPromptRows = 512;

struct StepSums {
  int sums = 0;
  double row_bytes = 0;     // of a sum
  double logits_bytes = 0;  // of a row and rank
};

StepSums sums_of(const backend::Program& program) {
  StepSums out;
  for (const backend::Op& op : program.main) {
    if (const auto* sum = std::get_if<backend::AllReduce>(&op)) {
      ++out.sums;
      out.row_bytes = static_cast<double>(program.value(sum->in).columns) * sizeof(float);
    }
    if (const auto* rows = std::get_if<backend::AllGather>(&op))
      out.logits_bytes = static_cast<double>(program.value(rows->in).columns) * sizeof(float);
  }
  return out;
}

struct NodeStep {
  int rows;
  plan::Range sums_us, logits_us, all_us;
};

NodeStep price(const StepSums& step, plan::Wire wire, int machines, int rows) {
  NodeStep out{.rows = rows, .sums_us = {}, .logits_us = {}, .all_us = {}};
  const plan::Range one = wire_sum_us(wire, machines, step.row_bytes * rows);
  out.sums_us = {step.sums * one.low, step.sums * one.high};
  out.logits_us = wire_gather_us(wire, machines, step.logits_bytes * (rows == kPromptRows ? 1 : rows));
  out.all_us = {out.sums_us.low + out.logits_us.low, out.sums_us.high + out.logits_us.high};
  return out;
}

std::string milliseconds(const plan::Range& us) {
  char text[64];
  std::snprintf(text, sizeof text, "%8.2f - %7.2f", us.low / 1e3, us.high / 1e3);
  return text;
}

}  // namespace

plan::Wire parse_wire(const std::string& link) {
  const std::optional<plan::Wire> wire = plan::find_wire(link);
  if (!wire) fail(Code::invalid_request, "--nodes with --link {}: 10gbe, 25gbe and cx7 are possible", link);
  return *wire;
}

void print_nodes(const backend::Program& program, plan::Wire wire, const library::Prediction* computed,
                 const Console& console) {
  const plan::WireFacts& facts = wire_facts(wire);
  const StepSums step = sums_of(program);
  const int machines = program.part.count;
  char text[256];
  console.out << fourfold::format(
      "\nwhat {} machines on {} say to each other in a step, in ms: computed, not measured\n", machines,
      facts.words);
  std::snprintf(text, sizeof text,
                "  %.3g GB/s by its standard; %.0f to %.0f us one way are %s (%s)\n"
                "  %d sums of %s a row, to rank 0 and back, and %s of logits a row from each\n",
                facts.gb_per_s, facts.latency_us.low, facts.latency_us.high,
                std::string(evidence_name(facts.evidence)).c_str(), std::string(facts.because).c_str(),
                step.sums, as_bytes(step.row_bytes).c_str(), as_bytes(step.logits_bytes).c_str());
  console.out << text << "  rows              sums            logits          together\n";
  for (const int rows : kRows) {
    const NodeStep priced = price(step, wire, machines, rows);
    std::snprintf(text, sizeof text, "  %4d%s %s %s %s\n", rows, rows == kPromptRows ? "*" : " ",
                  milliseconds(priced.sums_us).c_str(), milliseconds(priced.logits_us).c_str(),
                  milliseconds(priced.all_us).c_str());
    console.out << text;
  }
  console.out << "  * of a prompt: one row has logits. What the machines compute comes on top.\n";
  if (computed == nullptr) return;
  console.out << fourfold::format(
      "  predicted for one rank's GPU alone:{} ms a step of --users; GPUs of several machines are not "
      "built\n",
      milliseconds(computed->alone_us));
}

void write_nodes(const backend::Program& program, plan::Wire wire, const library::Prediction* computed,
                 JsonWriter& json) {
  const plan::WireFacts& facts = wire_facts(wire);
  const StepSums step = sums_of(program);
  const auto range = [&](const char* name, const plan::Range& value) {
    json.key(name).begin_array().value(value.low).value(value.high).end_array();
  };
  json.key("nodes")
      .begin_object()
      .member("count", program.part.count)
      .member("link", std::string(facts.name));
  json.member("evidence", "computed, not measured").member("gb_per_s", facts.gb_per_s);
  range("latency_us", facts.latency_us);
  if (computed != nullptr) range("rank_alone_us", computed->alone_us);
  json.member("sums", step.sums).member("sum_row_bytes", step.row_bytes);
  json.member("logits_row_bytes", step.logits_bytes);
  json.key("steps").begin_array();
  for (const int rows : kRows) {
    const NodeStep priced = price(step, wire, program.part.count, rows);
    json.begin_object().member("rows", rows);
    range("sums_us", priced.sums_us);
    range("logits_us", priced.logits_us);
    range("together_us", priced.all_us);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace fourfold::cli
