// Prints how often every reader of the kernels' lists has a row, a line each; of proofs, those that pass.
// tests/kernels/one_line_row.py adds a row to a list and looks for it here.
//
//   row_readers "moe_stream 32x24x256 w16a16-mma bf16"
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/launch/sim_machine.h"
#include "kernels/moe_layer/options.h"
#include "kernels/plan/row_table.h"
#include "kernels/verify/cases.h"
#include "sim/device.h"

namespace {

using namespace fourfold;

void say(const std::string& reader, std::size_t count) { std::printf("%s: %zu\n", reader.c_str(), count); }

std::size_t count_named(const std::vector<plan::RowFacts>& rows, const std::string& name) {
  std::size_t count = 0;
  for (const plan::RowFacts& row : rows) count += row.row == name;
  return count;
}

// Of a layer of the row's weights and role, the choices `fourfold tune` measures.
std::size_t count_choices(const kernels::Machine& machine, const std::string& name) {
  std::size_t count = 0;
  for (const auto format : {WeightFormat::nvfp4, WeightFormat::mxfp4, WeightFormat::bf16, WeightFormat::fp8})
    for (const auto role : {moe_layer::Role::decode, moe_layer::Role::prefill})
      for (const moe_layer::Choice& choice : moe_layer::all_choices(
               machine,
               {moe_layer::parse_shape("35b"), moe_layer::Activations::w4a16, format, role, /*tokens=*/64}))
        count += choice.gate_up_row == name;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("row_readers ROW\n", stderr);
    return 64;
  }
  const std::string name = argv[1];
  for (const plan::ArchFacts* arch : {&plan::kSm90, &plan::kSm120, &plan::kSm121})
    say("plan " + std::string(arch->name), count_named(kernels::rows_of(*arch), name));
  for (const plan::ArchFacts* arch : {&plan::kSm90, &plan::kSm120}) {
    sim::Device device;
    const auto machine = kernels::make_sim_machine(device, {.arch = arch});
    const std::string on(arch->name);
    std::size_t rows = 0;
    for (const kernels::RowKind kind : kernels::kChosenKinds) rows += count_named(machine->rows(kind), name);
    say("simulator " + on, rows);
    std::size_t proved = 0;
    for (const verify::Case& test :
         verify::make_cases(*machine, verify::RowSet::all, {.quick = true, .rows = name}))
      proved += test.row == name && test.run(*machine, /*bits_exact=*/true).passed();
    say("verify " + on, proved);
    say("tune " + on, count_choices(*machine, name));
  }
  return 0;
}
