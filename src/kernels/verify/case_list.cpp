#include "kernels/verify/case_list.h"

#include "base/glob.h"
#include "base/random.h"
#include "kernels/moe/paths.h"

namespace fourfold::verify {

using kernels::Machine;

std::uint64_t CaseList::next_seed() { return mix_bits(options_.seed * 1'000'003 + ++count_) >> 24; }

void CaseList::add(Case item) {
  if (!options_.rows.empty() && !glob_match(options_.rows, item.row) &&
      !glob_match(options_.rows, item.kernel))
    return;
  item.arch = machine_.arch().name;
  cases_.push_back(std::move(item));
}

void CaseList::add_gemm(const GemmCase& test) {
  double tokens = 0.0;
  for (const int count : test.tokens_per_expert) tokens += count;
  Case item;
  item.kernel = test.row.kernel;
  item.row = test.row.row;
  item.op = op_of(test);
  item.seed = test.seed;
  item.cost = work(static_cast<double>(test.rows), static_cast<double>(test.columns), tokens);
  if (test.row.path == moe::W4a4::name || test.row.path == moe::W8a8Mma::name)
    item.native_form = test.row.format;
  item.run = [test](Machine& machine, bool exact) { return run_gemm_case(machine, test, exact); };
  item.output = [test](Machine& machine) { return gemm_output(machine, test); };
  add(std::move(item));
}

void CaseList::add_step(const StepCase& test) {
  Case item;
  item.kernel = test.row.kernel;
  item.row = test.row.row;
  item.op = test.op;
  item.seed = test.seed;
  item.cost = step_cost(test);
  item.is_step = true;
  item.run = [test](Machine& machine, bool exact) { return run_step_case(machine, test, exact); };
  item.output = [test](Machine& machine) { return step_output(machine, test); };
  add(std::move(item));
}

void CaseList::add_layer(const LayerCase& test) {
  const moe_layer::Choice choice = choice_of(machine_.arch(), test);
  const moe_layer::Shape& shape = test.request.shape;
  Case item;
  item.kernel = "moe_layer";
  item.row = rows_of(choice);
  item.op = op_of(test, choice);
  item.seed = test.seed;
  item.cost = work(3.0 * shape.hidden, shape.intermediate, 2.0 * test.request.tokens * shape.top_k);
  if (test.request.activations == moe_layer::Activations::w4a4) item.native_form = "nvfp4";
  item.run = [test](Machine& machine, bool exact) { return run_layer_case(machine, test, exact); };
  add(std::move(item));
}

}  // namespace fourfold::verify
