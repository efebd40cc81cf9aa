// Removes every synchronisation of the kernels without rows in turn (mutations.h): packing, token forms, the
// tables of the grouped GEMM. Routing is in mutation_test.cpp.
#include "kernels/launch/sim_machine.h"
#include "kernels/verify/basic_case.h"
#include "kernels/verify/group_case.h"
#include "tests/kernels/mutations.h"

namespace fourfold::test {
namespace {

const Survivor kSurvivors[] = {kReleasesSurvive};

// A proof as what is run: 1, or what went wrong.
void mutate_proof(const std::string& name, const std::set<std::string>& files,
                  const std::function<verify::Result(kernels::Machine&)>& prove) {
  SCOPED_TRACE(name);
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device, {.persistent_blocks = 2});
  const Run<std::uint8_t> run = [&]() -> std::vector<std::uint8_t> {
    const verify::Result result = prove(*machine);
    if (!result.failure.empty()) throw std::runtime_error(result.failure);
    return {static_cast<std::uint8_t>(result.passed())};
  };
  EXPECT_EQ(run(), std::vector<std::uint8_t>{1});
  mutate_all<std::uint8_t>(device, name, {}, kSurvivors, run, files);
}

TEST(BasicMutation, Pack) {
  for (const bool mxfp4 : {false, true})
    mutate_proof(mxfp4 ? "pack mxfp4" : "pack nvfp4", {"pack_kernel.h"}, [mxfp4](kernels::Machine& machine) {
      return verify::run_pack_case(machine, {.mxfp4 = mxfp4});
    });
  mutate_proof("pack_dense", {"pack_dense_kernel.h"},
               [](kernels::Machine& machine) { return verify::run_dense_pack_case(machine, {}); });
}

TEST(BasicMutation, Tokens) {
  for (const bool staged : {false, true})
    mutate_proof(
        staged ? "stage_tokens" : "quantize_tokens", {"moe_tokens.h"},
        [staged](kernels::Machine& machine) { return verify::run_token_case(machine, {.staged = staged}); });
}

// Rows of a batch to slots and back: the path without slots has no tables of its own.
TEST(BasicMutation, GroupedGemm) {
  using moe_layer::Activations;
  using moe_layer::Role;
  for (const Role role : {Role::decode, Role::prefill})
    mutate_proof(role == Role::decode ? "group, decode" : "group, prefill", {"moe_group.h"},
                 [role](kernels::Machine& machine) {
                   verify::GroupCase test;
                   test.request = {128, 64, 4, Activations::w4a4, WeightFormat::nvfp4, role, 18, false};
                   test.rows_per_expert = {5, 0, 11, 2};
                   return verify::run_group_case(machine, test, true);
                 });
}

}  // namespace
}  // namespace fourfold::test
