#include "cli/plan_step.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "backend/cost.h"
#include "backend/cuda/load/held_matrix.h"
#include "base/error.h"
#include "cli/bench_mtp.h"

namespace fourfold::cli {
namespace {

using backend::Pass;
using backend::StepRows;

double held_share(const StepQuestion& question, backend::MatrixId id) {
  const checkpoint::Matrix& matrix = *question.program.matrix(id).matrix;
  const auto bytes = [&](backend::DenseWeights dense) {
    return static_cast<double>(backend::cuda::record_bytes(backend::cuda::record_format(matrix, dense)));
  };
  return bytes(question.dense) / bytes(backend::DenseWeights::keep);
}

double expert_bytes(const backend::Program& program, const backend::RunExperts& op) {
  const backend::ExpertMatrices& first = program.expert_set(op.set).experts.front();
  double bytes = 0;
  for (const backend::MatrixId id : {first.gate, first.up, first.down})
    bytes += static_cast<double>(checkpoint::stored_bytes(*program.matrix(id).matrix));
  return bytes;
}

// Whole experts that one GPU reads the bytes of in a layer: parts of those that rows chose, or those of them
// that the busiest GPU has.
double experts_read(const StepQuestion& question, bool by_expert, int per_token, int rows) {
  if (by_expert) return plan::busiest_rank_experts(question.expert_count, per_token, question.ranks, rows);
  const double share = static_cast<double>(per_token) / question.expert_count;
  return question.expert_count * (1 - std::pow(1 - share, rows)) / question.ranks;
}

// Bytes that one GPU moves in a pass.
double pass_bytes(const StepQuestion& question, const StepRows& step, bool by_expert, double* routed) {
  const int rows = step.sequences * step.sequence_rows;
  const backend::StepShape shape{step.sequences, rows, rows, question.context};
  double total = 0;
  std::optional<double> read;  // the same in every layer
  for (const backend::Op& op : question.program.ops(step.pass)) {
    backend::Cost cost = cost_of(question.program, op, shape);
    if (const auto* linear = std::get_if<backend::Linear>(&op))
      cost.weight_bytes *= held_share(question, linear->weight);
    if (const auto* run = std::get_if<backend::RunExperts>(&op)) {
      if (!read)
        read = experts_read(question, by_expert,
                            static_cast<int>(question.program.value(run->experts).columns), rows);
      // Of a whole expert, however this program is cut.
      const int parts = question.by_expert ? 1 : question.ranks;
      cost.weight_bytes = *read * parts * expert_bytes(question.program, *run);
      if (routed != nullptr) *routed += cost.weight_bytes;
    }
    total += cost.weight_bytes + cost.state_bytes;
  }
  return total;
}

plan::StepWork work_of(const StepQuestion& question, const StepRows& step,
                       const backend::StepKernels& kernels, bool by_expert, double* routed = nullptr) {
  const auto& ops = question.program.ops(step.pass);
  plan::StepWork work;
  work.rows = step.sequences * step.sequence_rows;
  work.bytes = pass_bytes(question, step, by_expert, routed);
  work.kernels = static_cast<int>(kernels.size());
  work.context = question.context;
  work.apart = plan::boundaries_apart(*question.product.arch, kernels);
  work.sums = static_cast<int>(std::count_if(ops.begin(), ops.end(), [](const backend::Op& op) {
    return std::holds_alternative<backend::AllReduce>(op);
  }));
  work.sum_bytes = 4.0 * work.rows * static_cast<double>(question.program.hidden_size);
  work.gather_bytes = 4.0 * work.rows * static_cast<double>(question.program.vocab_size) / question.ranks;
  return work;
}

std::vector<backend::StepKernels> kernels_of(const StepQuestion& question,
                                             const std::vector<StepRows>& steps) {
  return step_kernels(question.program, question.capacity, question.machine, steps, question.dense);
}

plan::SumWay best_way(const StepQuestion& question, double bytes) {
  const auto middle = [&](plan::SumWay way) {
    const plan::Range us = all_reduce_us(way, question.link, question.ranks, bytes);
    return us.low + us.high;
  };
  return middle(plan::SumWay::two_shot) < middle(plan::SumWay::one_shot) ? plan::SumWay::two_shot
                                                                         : plan::SumWay::one_shot;
}

std::vector<plan::Estimate> time_of(const StepQuestion& question, const plan::StepWork& work) {
  return step_time(work, question.product, question.ranks, question.link, best_way(question, work.sum_bytes));
}

// Verification first, then every draft pass: the first goes over all rows of the verification.
std::vector<StepRows> passes_of(const StepQuestion& question) {
  std::vector<StepRows> passes{{Pass::main, question.users, question.drafts + 1}};
  for (int draft = 0; draft < question.drafts; ++draft)
    passes.push_back({Pass::draft, question.users, draft == 0 ? question.drafts + 1 : 1});
  return passes;
}

std::vector<CutLine> compare_cuts(const StepQuestion& question) {
  std::vector<CutLine> lines;
  std::vector<StepRows> steps;
  for (const int users : {1, 2, 4, 8, 16, 32, 64}) steps.push_back({Pass::main, users, 1});
  const auto kernels = kernels_of(question, steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CutLine line{steps[i].sequences, 0, 0, {}, {}};
    line.column_us =
        total_us(time_of(question, work_of(question, steps[i], kernels[i], false, &line.column_gb)));
    line.expert_us =
        total_us(time_of(question, work_of(question, steps[i], kernels[i], true, &line.expert_gb)));
    line.column_gb /= 1e9, line.expert_gb /= 1e9;
    lines.push_back(line);
  }
  return lines;
}

template <class... Args>
std::string line_of(const char* pattern, const Args&... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

void print_ways(const StepQuestion& question, const StepAnswer& answer, const Console& console) {
  console.out << "\na sum between GPUs, us               ";
  for (const int rows : {1, 8, 64}) console.out << line_of("   %9d row%s", rows, rows == 1 ? " " : "s");
  console.out << line_of("   (%.0f KB a row)\n", answer.work.sum_bytes / answer.work.rows / 1024);
  for (const plan::Link link : {plan::Link::pcie5, plan::Link::pcie4})
    for (const plan::SumWay way : {plan::SumWay::one_shot, plan::SumWay::two_shot, plan::SumWay::host}) {
      console.out << line_of("  %-8s%-13s", std::string(link_name(link)).c_str(),
                             std::string(sum_way_name(way)).c_str());
      console.out << line_of("%-14s", std::string(evidence_name(sum_evidence(way, link))).c_str());
      for (const int rows : {1, 8, 64}) {
        const plan::Range us =
            all_reduce_us(way, link, question.ranks, answer.work.sum_bytes / answer.work.rows * rows);
        console.out << line_of(" %6.1f - %6.1f", us.low, us.high);
      }
      console.out << "\n";
    }
}

void print_cuts(const StepAnswer& answer, const Console& console) {
  console.out << "\nexperts by column (tp) or by expert (ep): GB of the busiest GPU, ms of a step\n"
                 "  users     tp GB     ep GB           tp ms           ep ms\n";
  for (const CutLine& line : answer.cuts)
    console.out << line_of("  %5d %9.3f %9.3f   %5.2f - %5.2f   %5.2f - %5.2f\n", line.users, line.column_gb,
                           line.expert_gb, line.column_us.low / 1e3, line.column_us.high / 1e3,
                           line.expert_us.low / 1e3, line.expert_us.high / 1e3);
}

}  // namespace

StepAnswer predict_step(const StepQuestion& question) {
  if (question.users * (question.drafts + 1) > plan::kPredictedRowsMost)
    fail(Code::invalid_request,
         "--users {} with {} drafts are {} rows a step; steps of up to {} rows were measured and can be "
         "predicted",
         question.users, question.drafts, question.users * (question.drafts + 1), plan::kPredictedRowsMost);
  const std::vector<StepRows> passes = passes_of(question);
  const auto kernels = kernels_of(question, passes);
  StepAnswer answer;
  plan::Range drafts;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const plan::StepWork work = work_of(question, passes[i], kernels[i], question.by_expert);
    const std::vector<plan::Estimate> lines = time_of(question, work);
    if (i == 0)
      answer.work = work, answer.lines = lines;
    else
      drafts += total_us(lines);
  }
  if (question.drafts > 0) {
    answer.lines.push_back(
        {"drafts", drafts, answer.lines[1].evidence,
         fourfold::format("{} of the MTP layer: bytes, boundaries and sums as above", question.drafts)});
    answer.tokens = tokens_of_step(question.acceptance, question.drafts);
  }
  answer.us = total_us(answer.lines);
  answer.way = best_way(question, answer.work.sum_bytes);
  if (question.ranks > 1 && question.expert_count > 0 && question.expert_count % question.ranks == 0)
    answer.cuts = compare_cuts(question);
  return answer;
}

void print_step(const StepQuestion& question, const StepAnswer& answer, const Console& console) {
  console.out << fourfold::format("\na step of {} user{} with {} tokens each, PREDICTED for {} x {}\n",
                                  question.users, question.users == 1 ? "" : "s",
                                  with_commas(static_cast<long long>(question.context)), question.ranks,
                                  question.product.name);
  for (const plan::Estimate& line : answer.lines)
    console.out << line_of("  %-20s %7.2f - %5.2f ms  %-14s", line.what.c_str(), line.us.low / 1e3,
                           line.us.high / 1e3, std::string(evidence_name(line.evidence)).c_str())
                << line.because << "\n";
  const plan::Range speed = answer.tokens_per_s(question.users);
  console.out << line_of("  %-20s %7.2f - %5.2f ms  %.0f to %.0f tokens/s", "together", answer.us.low / 1e3,
                         answer.us.high / 1e3, speed.low, speed.high);
  if (question.drafts > 0)
    console.out << line_of(", %.2f tokens a step at an acceptance of %.2f", answer.tokens,
                           question.acceptance);
  console.out << line_of("\n  %.3f GB and %d kernels on each GPU\n", answer.work.bytes / 1e9,
                         answer.work.kernels);
  if (question.ranks > 1) print_ways(question, answer, console);
  if (!answer.cuts.empty()) print_cuts(answer, console);
}

void write_step(const StepQuestion& question, const StepAnswer& answer, JsonWriter& json) {
  const auto range = [&](const char* name, const plan::Range& value) {
    json.key(name).begin_array().value(value.low).value(value.high).end_array();
  };
  json.key("step").begin_object().member("users", question.users).member("context", question.context);
  json.member("drafts", question.drafts).member("tokens", answer.tokens);
  json.member("bytes", answer.work.bytes).member("kernels", answer.work.kernels);
  json.member("sums", answer.work.sums).member("sum_way", sum_way_name(answer.way));
  json.member("link", link_name(question.link)).key("parts").begin_array();
  for (const plan::Estimate& line : answer.lines) {
    json.begin_object().member("what", line.what);
    range("us", line.us);
    json.member("evidence", evidence_name(line.evidence)).member("because", line.because).end_object();
  }
  json.end_array();
  range("us", answer.us);
  range("tokens_per_s", answer.tokens_per_s(question.users));
  json.key("experts").begin_array();
  for (const CutLine& line : answer.cuts) {
    json.begin_object().member("users", line.users).member("tp_gb", line.column_gb);
    json.member("ep_gb", line.expert_gb);
    range("tp_us", line.column_us);
    range("ep_us", line.expert_us);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace fourfold::cli
