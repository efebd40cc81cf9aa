#include "library/predict.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "plan/draft_tokens.h"
#include "plan/small_sm.h"

namespace fourfold::library {
namespace {

using backend::Pass;
using backend::Role;
using backend::StepRows;

struct PassQuestion {
  std::string what;
  StepRows rows;
};

// Verification first, then every draft pass: the first goes over all rows of the verification. A prompt in
// pieces.
std::vector<PassQuestion> passes_of(const StepQuestion& question) {
  std::vector<PassQuestion> passes;
  const int rows = question.drafts + 1;
  passes.push_back({question.drafts > 0 ? "verification" : "step",
                    {Pass::main, question.users, rows, Role::decode, question.context}});
  for (int draft = 0; draft < question.drafts; ++draft)
    passes.push_back(
        {"drafts", {Pass::draft, question.users, draft == 0 ? rows : 1, Role::decode, question.context}});
  for (int at = 0; at < question.prompt; at += kPromptRows)
    passes.push_back({"prompt",
                      {Pass::main, 1, std::min(kPromptRows, question.prompt - at), Role::prefill,
                       static_cast<double>(at)}});
  return passes;
}

// The model's own error makes nothing faster than the tensor cores were sold as, either.
plan::Range range_of(const plan::KernelWork& work, const plan::ChipRange& chip) {
  plan::Range us =
      chip.widened(plan::kernel_us(work, chip.fast), plan::kernel_us(work, chip.slow), work.weight_bytes);
  us.low = std::max(us.low, kernel_floor(work, chip).tensor_us);
  return us;
}

void add_row(const std::string& what, const plan::KernelWork& work, const plan::Range& us,
             const plan::KernelFloor& floor, std::vector<PredictedRow>& rows) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const PredictedRow& row) {
    return row.what == what && row.kernel == work.row && row.part == work.part;
  });
  PredictedRow& row =
      same != rows.end()
          ? *same
          : rows.emplace_back(PredictedRow{.what = what, .kernel = work.row, .part = work.part, .us = {}});
  ++row.count;
  row.floor_us += floor.us(), row.memory_us += floor.memory_us, row.tensor_us += floor.tensor_us;
  row.weight_bytes += work.weight_bytes;
  row.us += us;
}

int sum_count(const StepQuestion& question, Pass pass) {
  const auto& ops = question.program.ops(pass);
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [](const backend::Op& op) {
    return std::holds_alternative<backend::AllReduce>(op);
  }));
}

plan::SumWay best_way(const StepQuestion& question, double bytes) {
  const auto middle = [&](plan::SumWay way) {
    const plan::Range us = all_reduce_us(way, question.link, question.ranks, bytes);
    return us.low + us.high;
  };
  return middle(plan::SumWay::two_shot) < middle(plan::SumWay::one_shot) ? plan::SumWay::two_shot
                                                                         : plan::SumWay::one_shot;
}

double sum_row_bytes(const StepQuestion& question) {
  return 4.0 * static_cast<double>(question.program.hidden_size);
}

int apart_of(const std::vector<plan::KernelWork>& work, const StepQuestion& question) {
  std::vector<int> bytes;
  for (const plan::KernelWork& kernel : work) bytes.push_back(kernel.shared_bytes);
  return plan::boundaries_apart(*question.product.arch, bytes);
}

// From nothing to all that was lost there: an SM of the H200 has to keep four times the bytes in flight that
// one of a workstation card has to (36 GB/s of memory an SM against 10), so one block may be enough here.
plan::Estimate small_sm_line(const StepRows& pass, int apart, int kernels, double step_us) {
  const double share = plan::small_sm_share(pass.sequences * pass.sequence_rows, pass.context);
  const std::string beyond =
      pass.context > plan::kSmallSmContextMost
          ? format(" at {} tokens of context, more was not", with_commas(plan::kSmallSmContextMost))
          : "";
  return {
      "SMs of one block",
      {0, share * step_us},
      plan::Evidence::emulated,
      format("{} of {} boundaries without overlap; measured on an H200 with SMs made small: up to {} % of a "
             "step{}",
             apart, kernels, static_cast<int>(1000 * share + 0.5) / 10.0, beyond)};
}

void add_sums(const StepQuestion& question, const StepRows& pass, std::vector<plan::Estimate>& lines) {
  if (question.ranks == 1) return;
  const double rows = pass.sequences * pass.sequence_rows;
  const double bytes = rows * sum_row_bytes(question);
  const plan::SumWay way = best_way(question, bytes);
  const int sums = sum_count(question, pass.pass);
  lines.push_back({"sums between GPUs", sums * all_reduce_us(way, question.link, question.ranks, bytes),
                   sum_evidence(way, question.link),
                   format("{} of {} KB, {}, {}: {}", sums, bytes / 1024, sum_way_name(way),
                          link_name(question.link), link_facts(question.link).because)});
  const double logits = 4.0 * rows * static_cast<double>(question.program.vocab_size) / question.ranks;
  lines.push_back({"logits of all GPUs", all_gather_us(question.link, question.ranks, logits),
                   link_facts(question.link).evidence, format("{} KB of each", logits / 1024)});
}

std::vector<plan::Estimate> prompt_sums(const StepQuestion& question) {
  if (question.ranks == 1 || question.prompt == 0) return {};
  const int sums = sum_count(question, Pass::main);
  const int most_rows = std::min(kPromptRows, question.prompt);
  const double most_bytes = most_rows * sum_row_bytes(question);
  plan::Range us;
  for (int at = 0; at < question.prompt; at += kPromptRows) {
    const double bytes = std::min(kPromptRows, question.prompt - at) * sum_row_bytes(question);
    us += sums * prompt_sum_us(best_way(question, bytes), question.link, question.ranks, bytes);
  }
  const double logits = 4.0 * static_cast<double>(question.program.vocab_size) / question.ranks;
  return {{"sums between GPUs", us, plan::Evidence::assumed,
           format("{} of up to {} MB, {}, {}, of which none was measured: its published rate, and up to what "
                  "the kernel took on an H200 without a bus",
                  sums * ((question.prompt + kPromptRows - 1) / kPromptRows),
                  static_cast<long long>(most_bytes / 1e6 + 0.5),
                  sum_way_name(best_way(question, most_bytes)), link_name(question.link))},
          {"logits of all GPUs", all_gather_us(question.link, question.ranks, logits),
           link_facts(question.link).evidence, format("{} KB of each", logits / 1024)}};
}

// Of one rank without the others.
std::vector<plan::Estimate> own_lines(const StepQuestion& question, const plan::ChipRange& chip,
                                      const StepRows& pass, const std::vector<plan::KernelWork>& work) {
  plan::Range kernels;
  double bytes = 0;
  for (const plan::KernelWork& kernel : work) {
    kernels += range_of(kernel, chip);
    bytes += kernel.weight_bytes;
  }
  const int count = static_cast<int>(work.size());
  std::vector<plan::Estimate> lines;
  lines.push_back({"kernels", kernels, chip.evidence,
                   format("{} of them, {} MB of weights; {}", count,
                          static_cast<long long>(bytes / 1e6 + 0.5), chip.because)});
  if (const int apart = apart_of(work, question); apart > 0)
    lines.push_back(small_sm_line(pass, apart, count, kernels.high));
  return lines;
}

std::vector<plan::Estimate> lines_of(const StepQuestion& question, const plan::ChipRange& chip,
                                     const StepRows& pass, const std::vector<plan::KernelWork>& work) {
  std::vector<plan::Estimate> lines = own_lines(question, chip, pass, work);
  add_sums(question, pass, lines);
  return lines;
}

plan::ChipRange require(const StepQuestion& question) {
  const std::optional<plan::ChipRange> chip = plan::chip_range(question.product);
  if (!chip)
    fail(Code::invalid_request,
         "a step on {} cannot be predicted: no clock is known for it, and nothing of it was measured",
         question.product.name);
  const int rows = question.users * (question.drafts + 1);
  if (rows > kPredictRowsMost)
    fail(Code::invalid_request,
         "--users {} with {} drafts are {} rows a step; predictions were compared with up to {}",
         question.users, question.drafts, rows, kPredictRowsMost);
  if (question.prompt < 0 || question.prompt > question.program.position_limit)
    fail(Code::invalid_request, "--prompt {}: 0 to the model's {} positions", question.prompt,
         question.program.position_limit);
  return *chip;
}

auto work_of(const StepQuestion& question, const std::vector<StepRows>& rows) {
  return step_work(question.program, question.capacity, question.machine, rows, question.dense);
}

}  // namespace

double work_us(const std::vector<plan::KernelWork>& work, const plan::ChipRates& chip) {
  double us = 0;
  for (const plan::KernelWork& kernel : work) us += plan::kernel_us(kernel, chip);
  return us;
}

std::vector<plan::Range> predict_users(const StepQuestion& question, const std::vector<int>& users) {
  const plan::ChipRange chip = require(question);
  std::vector<StepRows> steps;
  for (const int count : users) steps.push_back({Pass::main, count, 1, Role::decode, question.context});
  const auto work = work_of(question, steps);
  std::vector<plan::Range> all;
  for (std::size_t i = 0; i < steps.size(); ++i)
    all.push_back(total_us(lines_of(question, chip, steps[i], work[i])));
  return all;
}

Prediction predict(const StepQuestion& question) {
  const plan::ChipRange chip = require(question);
  const std::vector<PassQuestion> passes = passes_of(question);
  std::vector<StepRows> rows;
  for (const PassQuestion& pass : passes) rows.push_back(pass.rows);
  const auto work = work_of(question, rows);
  Prediction out;
  plan::Range drafts;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    for (const plan::KernelWork& kernel : work[i]) {
      const plan::Range us = range_of(kernel, chip);
      add_row(passes[i].what, kernel, us, kernel_floor(kernel, chip), out.rows);
      if (rows[i].role == Role::prefill) out.prompt_alone_us += us;
    }
    if (rows[i].role == Role::prefill) continue;
    std::vector<plan::Estimate> lines = lines_of(question, chip, rows[i], work[i]);
    if (i > 0)
      drafts += total_us(lines);
    else
      out.lines = std::move(lines);
  }
  if (question.drafts > 0)
    out.lines.push_back(
        {"drafts", drafts, chip.evidence, format("{} of the MTP layer, each as above", question.drafts)});
  out.step_us = total_us(out.lines);
  out.prompt_sums = prompt_sums(question);
  out.prompt_us = out.prompt_alone_us;
  out.prompt_us += total_us(out.prompt_sums);
  out.alone_us = total_us(own_lines(question, chip, rows.front(), work.front()));
  out.tokens = plan::tokens_of_step(question.acceptance, question.drafts);
  out.kernels = static_cast<int>(work.front().size());
  out.apart = apart_of(work.front(), question);
  out.sums = sum_count(question, Pass::main);
  out.sum_row_bytes = sum_row_bytes(question);
  out.way = best_way(question, question.users * (question.drafts + 1) * out.sum_row_bytes);
  return out;
}

}  // namespace fourfold::library
