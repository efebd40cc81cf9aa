#include "backend/cuda/tune/kernel_selector.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/moe_layer/options.h"

namespace fourfold::backend::cuda {
namespace {

Question question_of(const dense::DenseCall& call) {
  return {"matrix",
          fourfold::format("{}x{} {} {}", call.rows, call.columns, format_name(call.format),
                           call.source == dense::TokenSource::norm ? "norm" : "rows"),
          call.tokens,
          call,
          0,
          {}};
}
Question question_of(const moe_layer::Request& request) {
  const moe_layer::Shape& shape = request.shape;
  return {request.role == moe_layer::Role::prefill ? "prompt experts" : "experts",
          fourfold::format("{},{},{},{} {}{}", shape.hidden, shape.intermediate, shape.experts, shape.top_k,
                           format_name(request.format),
                           request.activations == moe_layer::Activations::w4a4 ? " w4a4"
                           : request.packed_for_w4a4                           ? " packed for w4a4"
                           : request.clamped                                   ? " clamped"
                                                                               : ""),
          request.tokens,
          request,
          0,
          {}};
}
Question question_of(const PromptMatrixCall& call, WeightFormat weights) {
  return {"prompt matrix",
          fourfold::format("{}x{} {}{}", call.matrix_rows, call.request.shape.hidden, format_name(weights),
                           call.request.activations == moe_layer::Activations::w4a4   ? " w4a4"
                           : call.request.activations == moe_layer::Activations::w8a8 ? " w8a8"
                                                                                      : ""),
          call.request.tokens,
          call,
          0,
          {}};
}
Question question_of(const AttendCall& call) {
  return {"attend",
          fourfold::format("{}/{} heads of {} {}{}, {} a sequence", call.heads, call.kv_heads, call.head_dim,
                           call.kv, call.is_windowed ? " window" : "", call.sequence_rows),
          call.rows,
          call,
          0,
          {}};
}
Question question_of(const PromptAttendCall& call) {
  return {"attend prompt",
          fourfold::format("heads of {} {}{}", call.head_dim, call.kv, call.is_windowed ? " window" : ""),
          call.rows,
          call,
          0,
          {}};
}

[[noreturn]] void refuse(const TunedChoice& choice, const std::string& why) {
  fail_with_hint(Code::invalid_request, "Run fourfold tune again, or leave the tuning file out.",
                 "tuning: {} {} of {} to {} tokens cannot run as {}: {}", choice.op, choice.shape,
                 choice.tokens_from, choice.tokens_to, to_text(choice.form), why);
}

// A row of this kernel for these heads and pages.
std::string refusal_of_step(const kernels::Machine& machine, const TunedForm& form, std::string_view kernel,
                            int head_dim, std::string_view kv, bool is_windowed) {
  const kernels::RowHandle handle = machine.find(kernels::RowKind::step, form.row);
  if (!handle.found()) return machine.no_row(form.row);
  const plan::RowFacts& row = machine.facts(handle);
  if (row.kernel == kernel && row.k == head_dim && row.format == kv && row.is_windowed == is_windowed)
    return {};
  return fourfold::format("it is no row of {} for heads of {} and {} pages {} a window", kernel, head_dim, kv,
                          is_windowed ? "with" : "without");
}

}  // namespace

dense::DenseCall dense_call(const DenseMatrix& matrix, dense::TokenSource source, int tokens, int sm_count) {
  return {matrix.rows(), matrix.columns(), matrix.format, source, tokens, sm_count};
}

// Any width gives the same bits; one that holds all vectors of a sequence reads its pages once.
AttendForm default_attend(const AttendCall& call, int sm_count) {
  const int vectors = call.sequence_rows * (call.heads / call.kv_heads);
  const int tile = vectors <= 16 ? 16 : vectors <= 32 ? 32 : 64;
  return {attention::attend_row(call.head_dim, call.kv, tile, call.is_windowed), 2 * sm_count};
}

// wgmma reads bf16 pages as they lie; other numbers have mma alone.
std::string default_prompt_row(const PromptAttendCall& call, const plan::ArchFacts& arch) {
  return attention::prompt_row(call.head_dim, call.kv, arch.has_wgmma && call.kv == "bf16", call.is_windowed);
}

const TunedChoice* KernelSelector::ask(Question question) {
  question.stages = 1u << stage_;
  if (journal_ != nullptr) {
    const auto same = [&](const Question& other) {
      return other.op == question.op && other.shape == question.shape && other.tokens == question.tokens;
    };
    const auto asked = std::find_if(journal_->begin(), journal_->end(), same);
    if (asked != journal_->end())
      asked->stages |= question.stages;
    else
      journal_->push_back(question);
  }
  return tuning_ == nullptr ? nullptr : tuning_->find(question.op, question.shape, question.tokens);
}

dense::DenseForm KernelSelector::matrix(const DenseMatrix& matrix, dense::TokenSource source, int tokens) {
  const dense::DenseCall call = dense_call(matrix, source, tokens, machine_.sm_count());
  const TunedChoice* tuned = is_quiet() ? nullptr : ask(question_of(call));
  if (tuned == nullptr) return dense::default_form(call);
  dense::DenseForm form = dense::form_of(call, tuned->form.row, tuned->form.blocks);
  if (!form.ok()) refuse(*tuned, form.refusal);
  return form;
}

bool KernelSelector::is_tuned(const DenseMatrix& matrix, dense::TokenSource source, int tokens) {
  return !is_quiet() && ask(question_of(dense_call(matrix, source, tokens, machine_.sm_count()))) != nullptr;
}

void KernelSelector::together(const DenseMatrix& matrix, dense::TokenSource source, int tokens,
                              const std::string& row) {
  if (journal_ == nullptr) return;
  const Question question = question_of(dense_call(matrix, source, tokens, machine_.sm_count()));
  for (Question& asked : *journal_)
    if (asked.op == question.op && asked.shape == question.shape && asked.tokens == question.tokens)
      asked.together = row;
}

moe_layer::Choice KernelSelector::experts(const moe_layer::Request& request) {
  const TunedChoice* tuned = is_quiet() ? nullptr : ask(question_of(request));
  moe_layer::Choice choice =
      tuned == nullptr ? moe_layer::choose(machine_.arch(), request)
                       : moe_layer::choice_of(machine_, request, tuned->form.row, tuned->form.second);
  if (!choice.ok() && tuned != nullptr) refuse(*tuned, choice.refusal);
  if (!choice.ok()) throw Error(Code::unsupported_op, choice.refusal);
  return choice;
}

moe_layer::Choice KernelSelector::prompt_matrix(const DenseMatrix& matrix, int rows) {
  PromptMatrixCall call;
  call.request.shape = {matrix.columns(), 64, 1, 1};
  call.request.format = matrix.format;
  call.request.role = moe_layer::Role::prefill;
  if (matrix.takes_fp8()) call.request.activations = moe_layer::Activations::w8a8;
  call.request.tokens = rows;
  if (quantises(matrix.input)) call.request.activations = moe_layer::Activations::w4a4;
  call.matrix_rows = call.request.rows = matrix.rows();
  const TunedChoice* tuned = is_quiet() ? nullptr : ask(question_of(call, matrix.format));
  moe_layer::Choice choice = tuned == nullptr
                                 ? moe_layer::choose_gemm(machine_.arch(), call.request)
                                 : moe_layer::gemm_choice_of(machine_, call.request, tuned->form.row);
  if (!choice.ok() && tuned != nullptr) refuse(*tuned, choice.refusal);
  if (!choice.ok()) throw Error(Code::unsupported_op, choice.refusal);
  return choice;
}

moe_layer::Choice KernelSelector::one_expert(const DenseMatrix& matrix, int rows,
                                             moe_layer::Activations activations) const {
  moe_layer::Request request;
  request.shape = {matrix.columns(), 64, 1, 1};
  request.format = matrix.format;
  request.tokens = rows;
  request.activations = activations;
  request.packed_for_w4a4 = true;
  moe_layer::Choice choice = moe_layer::choose_gemm(machine_.arch(), request);
  if (!choice.ok()) throw Error(Code::unsupported_op, choice.refusal);
  return choice;
}

AttendForm KernelSelector::attend(const AttendCall& call) {
  AttendForm form = default_attend(call, machine_.sm_count());
  const TunedChoice* tuned = is_quiet() ? nullptr : ask(question_of(call));
  if (tuned == nullptr) return form;
  const std::string why =
      refusal_of_step(machine_, tuned->form, "attend", call.head_dim, call.kv, call.is_windowed);
  if (!why.empty()) refuse(*tuned, why);
  return {tuned->form.row, tuned->form.blocks > 0 ? tuned->form.blocks : form.blocks};
}

std::string KernelSelector::attend_prompt(const PromptAttendCall& call) {
  const TunedChoice* tuned = is_quiet() ? nullptr : ask(question_of(call));
  if (tuned == nullptr) return default_prompt_row(call, machine_.arch());
  const std::string why =
      refusal_of_step(machine_, tuned->form, "attend_prompt", call.head_dim, call.kv, call.is_windowed);
  if (!why.empty()) refuse(*tuned, why);
  return tuned->form.row;
}

void KernelSelector::only(const std::string& row) {
  if (journal_ != nullptr) ask({"only", row, 1, OnlyCall{row}, 0, {}});
}

}  // namespace fourfold::backend::cuda
