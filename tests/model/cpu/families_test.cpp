// Every instruction set, any number of threads, whole prompts and single tokens: the same bits, for the ops
// that Qwen's models do not have. (AMX has bits of its own for whole prompts.)
#include "backend/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "tests/model/made_models.h"

namespace fourfold::model {
namespace {

using backend::LogitsRow;
using backend::Pass;

struct CpuFamily {
  const char* shape;
  const char* format = "nvfp4";
};
void PrintTo(const CpuFamily& family, std::ostream* out) { *out << family.shape << " " << family.format; }

class CpuFamilies : public testing::TestWithParam<CpuFamily> {};

TEST_P(CpuFamilies, HaveTheSameBitsOnEveryInstructionSet) {
  checkpoint::TempFolder temp;
  make_model(temp.path() / "model", GetParam().shape, GetParam().format);
  const Loaded model(temp.path() / "model");
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 70; ++i) tokens.push_back((i * 131 + 7) % 500);
  std::vector<LogitsRow> wanted;
  for (const cpu::Isa isa : cpu::available_isas()) {
    if (isa == cpu::Isa::amx) continue;
    for (const int threads : {1, 3}) {
      const auto prepared =
          backend::make_cpu_backend({.threads = threads, .isa = std::string(cpu::isa_name(isa))})
              ->prepare(model.program(Activations::w4a16), kFourSequences);
      const auto whole = step(*prepared, Pass::main, {part(0, 0, tokens)});
      if (wanted.empty()) wanted = whole;
      EXPECT_EQ(whole, wanted) << cpu::isa_name(isa) << ", " << threads << " threads";
      for (std::int64_t at = 0; at < std::ssize(tokens); ++at)
        ASSERT_EQ(step(*prepared, Pass::main, {part(1, at, {tokens[static_cast<std::size_t>(at)]})})[0],
                  wanted[static_cast<std::size_t>(at)])
            << cpu::isa_name(isa) << ", token " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Odd, CpuFamilies,
                         testing::Values(CpuFamily{"tiny-glm-odd"}, CpuFamily{"tiny-minimax-odd"},
                                         CpuFamily{"tiny-gpt-oss-odd"},
                                         CpuFamily{"tiny-gpt-oss-odd", "mxfp4"}));

}  // namespace
}  // namespace fourfold::model
