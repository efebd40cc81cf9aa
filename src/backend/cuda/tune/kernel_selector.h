// Which row runs what: the tables' default, or what was measured to be faster with the same bits. Everything
// of the backend that has a choice asks here; who wants to know what is asked listens.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cuda/load/weights.h"
#include "backend/cuda/tune/tuning.h"
#include "kernels/dense/forms.h"
#include "kernels/launch/machine.h"
#include "kernels/moe_layer/choose.h"

namespace fourfold::backend::cuda {

// Attention over pages: generated rows, and prompts.
struct AttendCall {
  int head_dim = 0;
  int heads = 0;
  int kv_heads = 0;
  std::string kv;         // name of the cached numbers
  int sequence_rows = 1;  // of the sequence that has most
  int rows = 1;
  bool is_windowed = false;  // has a window, or sinks
};
struct PromptAttendCall {
  int head_dim = 0;
  std::string kv;
  int rows = 1;
  bool is_windowed = false;
};
// A matrix of prompt rows: the request of its one expert, and its rows.
struct PromptMatrixCall {
  moe_layer::Request request;
  int matrix_rows = 0;
};
// A kernel that has one row for the model.
struct OnlyCall {
  std::string row;
};

struct Question {
  std::string op;
  std::string shape;
  int tokens = 1;
  std::variant<dense::DenseCall, moe_layer::Request, PromptMatrixCall, AttendCall, PromptAttendCall, OnlyCall>
      call;
  unsigned stages = 0;   // of the pass that asked (bit i: Stage i)
  std::string together;  // by default it runs together with another matrix, by this row
};

struct AttendForm {
  std::string row;
  int blocks = 0;
};

class KernelSelector {
 public:
  KernelSelector(kernels::Machine& machine, std::shared_ptr<const Tuning> tuning)
      : machine_(machine), tuning_(std::move(tuning)) {}

  int sm_count() const { return machine_.sm_count(); }
  dense::DenseForm matrix(const DenseMatrix& matrix, dense::TokenSource source, int tokens);
  moe_layer::Choice experts(const moe_layer::Request& request);
  moe_layer::Choice prompt_matrix(const DenseMatrix& matrix, int rows);
  // Rows of a matrix whose inputs may be FP4, by the streaming kernel: generated ones, and those that are
  // wanted in f32. Its one expert's width follows from their number, so there is nothing to measure.
  moe_layer::Choice one_expert(const DenseMatrix& matrix, int rows, moe_layer::Activations activations) const;
  AttendForm attend(const AttendCall& call);
  std::string attend_prompt(const PromptAttendCall& call);
  void only(const std::string& row);
  // Whether a choice for this matrix was measured.
  bool is_tuned(const DenseMatrix& matrix, dense::TokenSource source, int tokens);
  // Says that the matrix ran with another one, by this row.
  void together(const DenseMatrix& matrix, dense::TokenSource source, int tokens, const std::string& row);

  void set(std::shared_ptr<const Tuning> tuning) { tuning_ = std::move(tuning); }
  // Questions from now on, each once; null: nobody listens.
  void listen(std::vector<Question>* journal) { journal_ = journal; }
  void enter(unsigned stage) { stage_ = stage; }

 private:
  // The measured choice for a question; null: the default.
  const TunedChoice* ask(Question question);
  bool is_quiet() const { return journal_ == nullptr && (tuning_ == nullptr || tuning_->empty()); }

  kernels::Machine& machine_;
  std::shared_ptr<const Tuning> tuning_;
  std::vector<Question>* journal_ = nullptr;
  unsigned stage_ = 0;
};

// ---- what each answer is made from; pure ----
dense::DenseCall dense_call(const DenseMatrix& matrix, dense::TokenSource source, int tokens, int sm_count);
AttendForm default_attend(const AttendCall& call, int sm_count);
std::string default_prompt_row(const PromptAttendCall& call, const plan::ArchFacts& arch);

}  // namespace fourfold::backend::cuda
