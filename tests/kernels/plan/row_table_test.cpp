#include "kernels/plan/row_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/format.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::kernels {
namespace {

// The tiles the field knows by name: each exists on SM120 for both formats' 16-bit path and for NVFP4 tokens.
TEST(RowTable, TheNamedTilesExist) {
  std::set<std::string> have;
  for (const plan::RowFacts& row : rows_of(plan::kSm120))
    have.insert(fourfold::format("{} {} {}", plan::tile_name(plan::tile_of(row)), row.path, row.format));
  for (const char* tile :
       {"128x128x64", "128x256x64", "256x128x64", "128x64x128", "128x128x128", "256x128x128", "128x128x256"})
    for (const char* path : {"w4a4 nvfp4", "w4a16-mma nvfp4", "w4a16-mma mxfp4"})
      EXPECT_TRUE(have.count(std::string(tile) + " " + path)) << tile << " " << path;
  for (const int tokens : {8, 16, 32, 64}) {
    bool decode = false;
    for (const plan::RowFacts& row : rows_of(plan::kSm120))
      decode = decode || (row.role == "decode" && row.n == tokens);
    EXPECT_TRUE(decode) << tokens;
  }
}

// The table and the machines list the same rows: one fact in two lists, compared.
TEST(RowTable, TheTableIsWhatTheSimulatorRuns) {
  for (const plan::ArchFacts* arch : {&plan::kSm120, &plan::kSm90}) {
    sim::Device device;
    SimMachineOptions options;
    options.arch = arch;
    const auto machine = make_sim_machine(device, options);
    std::multiset<std::string> run, planned;
    for (const RowKind kind : kChosenKinds)
      for (const plan::RowFacts& row : machine->rows(kind)) run.insert(row.row);
    for (const plan::RowFacts& row : rows_of(*arch)) planned.insert(row.row);
    EXPECT_EQ(run, planned) << arch->name;
    EXPECT_EQ(std::set<std::string>(planned.begin(), planned.end()).size(), planned.size())
        << "row names are unique";
  }
}

}  // namespace
}  // namespace fourfold::kernels
