// Measured choices among rows of equal bits: for an op, its shape and a range of tokens, the row that was
// fastest on one chip. `fourfold tune` makes them, tuning_file.h keeps them; what is not here runs by the
// tables' defaults.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fourfold::backend::cuda {

// How an op is launched, by the rows' names.
struct TunedForm {
  std::string row;
  std::string second;  // the row of the second GEMM of experts; empty: the same
  int blocks = 0;      // of the grid; 0: as many as the table takes
  bool operator==(const TunedForm&) const = default;
};
std::string to_text(const TunedForm& form);

struct TunedChoice {
  std::string op;     // "matrix", "experts", "attend", "prompt matrix", ...
  std::string shape;  // as kernel_selector.h writes it: "9216x2048 bf16 norm"
  int tokens_from = 1, tokens_to = 1;
  TunedForm form;
  double microseconds = 0;  // of the op in all layers, when it was measured at tokens_to
  TunedForm default_form;
  double default_microseconds = 0;
};

class Tuning {
 public:
  // The choice that covers so many tokens; null: the default. Of two the one added last.
  const TunedChoice* find(std::string_view op, std::string_view shape, int tokens) const;
  void add(TunedChoice choice) { choices_.push_back(std::move(choice)); }
  const std::vector<TunedChoice>& choices() const { return choices_; }
  bool empty() const { return choices_.empty(); }

 private:
  std::vector<TunedChoice> choices_;
};

}  // namespace fourfold::backend::cuda
