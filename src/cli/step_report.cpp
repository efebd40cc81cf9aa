#include "cli/step_report.h"

#include <cstdio>
#include <string>

namespace fourfold::cli {
namespace {

using library::ShardingLine;
using library::StepAnswer;
using library::StepQuestion;

template <class... Args>
std::string line_of(const char* pattern, const Args&... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

void print_ways(const StepQuestion& question, const StepAnswer& answer, const Console& console) {
  console.out << "\na sum between GPUs, us               ";
  for (const int rows : {1, 8, 64}) console.out << line_of("   %9d row%s", rows, rows == 1 ? " " : "s");
  console.out << line_of("   (%.0f KB a row)\n", answer.step.sum_row_bytes / 1024);
  for (const plan::Link link : {plan::Link::pcie5, plan::Link::pcie4})
    for (const plan::SumWay way : {plan::SumWay::one_shot, plan::SumWay::two_shot, plan::SumWay::host}) {
      console.out << line_of("  %-8s%-13s", std::string(link_name(link)).c_str(),
                             std::string(sum_way_name(way)).c_str());
      console.out << line_of("%-14s", std::string(evidence_name(sum_evidence(way, link))).c_str());
      for (const int rows : {1, 8, 64}) {
        const plan::Range us = all_reduce_us(way, link, question.ranks, answer.step.sum_row_bytes * rows);
        console.out << line_of(" %6.1f - %6.1f", us.low, us.high);
      }
      console.out << "\n";
    }
}

void print_shardings(const StepAnswer& answer, const Console& console) {
  console.out << "\nexperts by column (tp) or by expert (ep): GB of the busiest GPU, ms of a step\n"
                 "  users     tp GB     ep GB           tp ms           ep ms\n";
  for (const ShardingLine& line : answer.shardings)
    console.out << line_of("  %5d %9.3f %9.3f   %5.2f - %5.2f   %5.2f - %5.2f\n", line.users, line.column_gb,
                           line.expert_gb, line.column_us.low / 1e3, line.column_us.high / 1e3,
                           line.expert_us.low / 1e3, line.expert_us.high / 1e3);
}

}  // namespace

void print_step(const StepQuestion& question, const StepAnswer& answer, const Console& console) {
  console.out << fourfold::format("\na step of {} user{} with {} tokens each, PREDICTED for {} x {}\n",
                                  question.users, question.users == 1 ? "" : "s",
                                  with_commas(static_cast<long long>(question.context)), question.ranks,
                                  question.product.name);
  for (const plan::Estimate& line : answer.step.lines)
    console.out << line_of("  %-20s %7.2f - %5.2f ms  %-14s", line.what.c_str(), line.us.low / 1e3,
                           line.us.high / 1e3, std::string(evidence_name(line.evidence)).c_str())
                << line.because << "\n";
  const plan::Range speed = answer.step.tokens_per_s(question.users);
  console.out << line_of("  %-20s %7.2f - %5.2f ms  %.0f to %.0f tokens/s", "together",
                         answer.step.step_us.low / 1e3, answer.step.step_us.high / 1e3, speed.low,
                         speed.high);
  if (question.drafts > 0)
    console.out << line_of(", %.2f tokens a step at an acceptance of %.2f", answer.step.tokens,
                           question.acceptance);
  console.out << line_of("\n  %.3f GB and %d kernels on each GPU\n", answer.bytes / 1e9, answer.step.kernels);
  if (question.ranks > 1) print_ways(question, answer, console);
  if (!answer.shardings.empty()) print_shardings(answer, console);
}

void write_step(const StepQuestion& question, const StepAnswer& answer, JsonWriter& json) {
  const auto range = [&](const char* name, const plan::Range& value) {
    json.key(name).begin_array().value(value.low).value(value.high).end_array();
  };
  json.key("step").begin_object().member("users", question.users).member("context", question.context);
  json.member("drafts", question.drafts).member("tokens", answer.step.tokens);
  json.member("bytes", answer.bytes).member("kernels", answer.step.kernels);
  json.member("sums", answer.step.sums).member("sum_way", sum_way_name(answer.step.way));
  json.member("link", link_name(question.link)).key("parts").begin_array();
  for (const plan::Estimate& line : answer.step.lines) {
    json.begin_object().member("what", line.what);
    range("us", line.us);
    json.member("evidence", evidence_name(line.evidence)).member("because", line.because).end_object();
  }
  json.end_array();
  range("us", answer.step.step_us);
  range("tokens_per_s", answer.step.tokens_per_s(question.users));
  json.key("experts").begin_array();
  for (const ShardingLine& line : answer.shardings) {
    json.begin_object().member("users", line.users).member("tp_gb", line.column_gb);
    json.member("ep_gb", line.expert_gb);
    range("tp_us", line.column_us);
    range("ep_us", line.expert_us);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace fourfold::cli
