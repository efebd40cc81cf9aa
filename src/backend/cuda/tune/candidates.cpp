#include "backend/cuda/tune/candidates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "kernels/moe_layer/moe_layer.h"
#include "kernels/moe_layer/options.h"

namespace fourfold::backend::cuda {
namespace {

using kernels::RowKind;

TunedForm form_of(const moe_layer::Choice& choice) {
  return {choice.gate_up_row, choice.down_row == choice.gate_up_row ? "" : choice.down_row, 0};
}

struct DefaultOf {
  const kernels::Machine& machine;
  TunedForm operator()(const dense::DenseCall& call) const { return {dense::default_form(call).row, {}, 0}; }
  TunedForm operator()(const moe_layer::Request& request) const {
    return form_of(moe_layer::choose(machine.arch(), request));
  }
  TunedForm operator()(const PromptMatrixCall& call) const {
    return form_of(moe_layer::choose_gemm(machine.arch(), call.request));
  }
  TunedForm operator()(const AttendCall& call) const {
    return {default_attend(call, machine.sm_count()).row, {}, 0};
  }
  TunedForm operator()(const PromptAttendCall& call) const {
    return {default_prompt_row(call, machine.arch()), {}, 0};
  }
  TunedForm operator()(const OnlyCall& call) const { return {call.row, {}, 0}; }
};

struct AllOf {
  const kernels::Machine& machine;
  std::size_t workspace_bytes;

  std::string too_large(std::size_t bytes) const {
    if (bytes <= workspace_bytes) return {};
    return fourfold::format("needs {} bytes of workspace; the default's plan has {}",
                            with_commas(static_cast<long long>(bytes)),
                            with_commas(static_cast<long long>(workspace_bytes)));
  }

  std::vector<Candidate> operator()(const dense::DenseCall& call) const {
    std::vector<Candidate> all;
    for (const dense::DenseForm& form : dense::dense_forms(call)) {
      const bool is_first = std::none_of(
          all.begin(), all.end(), [&](const Candidate& before) { return before.form.row == form.row; });
      all.push_back({{form.row, {}, is_first ? 0 : form.blocks},
                     form.ok() ? too_large(form.workspace_bytes) : form.refusal});
    }
    return all;
  }

  std::vector<Candidate> operator()(const moe_layer::Request& request) const {
    std::vector<Candidate> all;
    for (const moe_layer::Choice& choice : moe_layer::all_choices(machine, request))
      all.push_back({form_of(choice), choice.ok()
                                          ? too_large(moe_layer::workspace_layout(request, choice).total)
                                          : choice.refusal});
    return all;
  }

  std::vector<Candidate> operator()(const PromptMatrixCall& call) const {
    std::vector<Candidate> all;
    for (const moe_layer::Choice& choice : moe_layer::all_gemm_choices(machine, call.request))
      all.push_back({form_of(choice), choice.refusal});
    return all;
  }

  // Blocks share an SM on chips with room for several; one block a unit is the other end.
  std::vector<Candidate> operator()(const AttendCall& call) const {
    std::vector<Candidate> all;
    for (const plan::RowFacts& row : machine.rows(RowKind::step)) {
      if (row.kernel != "attend") continue;
      const std::string refusal = refusal_of(row, call.head_dim, call.kv, call.is_windowed);
      all.push_back({{row.row, {}, 0}, refusal});
      if (refusal.empty())
        for (const int each : {1, 4}) all.push_back({{row.row, {}, each * machine.sm_count()}, {}});
    }
    return all;
  }

  std::vector<Candidate> operator()(const PromptAttendCall& call) const {
    std::vector<Candidate> all;
    for (const plan::RowFacts& row : machine.rows(RowKind::step))
      if (row.kernel == "attend_prompt")
        all.push_back({{row.row, {}, 0}, refusal_of(row, call.head_dim, call.kv, call.is_windowed)});
    return all;
  }

  std::vector<Candidate> operator()(const OnlyCall& call) const {
    const kernels::RowHandle handle = machine.find(RowKind::step, call.row);
    check(handle.found(), "a row that was launched is in the table", call.row);
    const plan::RowFacts& used = machine.rows(RowKind::step)[static_cast<std::size_t>(handle.index)];
    std::vector<Candidate> all;
    for (const plan::RowFacts& row : machine.rows(RowKind::step)) {
      if (row.kernel != used.kernel) continue;
      all.push_back(
          {{row.row, {}, 0}, row.row == used.row ? "" : "for other heads, rows or parts of the work"});
    }
    return all;
  }

  static std::string refusal_of(const plan::RowFacts& row, int head_dim, const std::string& kv,
                                bool is_windowed) {
    if (row.k != head_dim) return fourfold::format("for heads of {}; these have {}", row.k, head_dim);
    if (row.format != kv) return fourfold::format("for {} pages; these are {}", row.format, kv);
    if (row.is_windowed != is_windowed)
      return is_windowed ? "knows no window and no sinks" : "for a window or sinks; here are none";
    return {};
  }
};

}  // namespace

std::vector<Candidate> candidates_of(const kernels::Machine& machine, const Question& question,
                                     std::size_t workspace_bytes) {
  std::vector<Candidate> all, refused;
  for (Candidate& candidate : std::visit(AllOf{machine, workspace_bytes}, question.call))
    (candidate.refusal.empty() ? all : refused).push_back(std::move(candidate));
  all.insert(all.end(), refused.begin(), refused.end());
  const TunedForm first = question.together.empty() ? std::visit(DefaultOf{machine}, question.call)
                                                    : TunedForm{question.together, {}, 0};
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Candidate& candidate) { return candidate.form == first; });
  if (found == all.end())
    all.insert(all.begin(), {first, {}});
  else
    std::rotate(all.begin(), found, found + 1);
  return all;
}

}  // namespace fourfold::backend::cuda
