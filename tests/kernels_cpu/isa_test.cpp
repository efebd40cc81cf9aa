#include "kernels/cpu/isa.h"

#include <cstdlib>

#include "base/error.h"
#include "tests/kernels_cpu/support.h"

namespace fourfold::cpu {
namespace {

struct Environment {
  explicit Environment(const char* value) { ::setenv("FOURFOLD_CPU_ISA", value, 1); }
  ~Environment() { ::unsetenv("FOURFOLD_CPU_ISA"); }
};

TEST(Isa, PlainIsAlwaysThereAndNamesGoBothWays) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::plain);
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512, Isa::amx, Isa::neon})
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  for (const Isa isa : isas) {
    EXPECT_EQ(kernels_of(isa).isa, isa);
    RecordProperty(std::string(isa_name(isa)), "tested");
  }
}

TEST(Isa, ANameComesBeforeTheEnvironmentAndThatBeforeTheBest) {
  EXPECT_EQ(choose_isa(""), available_isas().back());
  const Environment environment("plain");
  EXPECT_EQ(choose_isa(""), Isa::plain);
  EXPECT_EQ(choose_isa(std::string(isa_name(available_isas().back()))), available_isas().back());
}

void expect_refused(const std::string& name, Code code, const std::string& part) {
  try {
    choose_isa(name);
    ADD_FAILURE() << name << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("plain"), std::string::npos) << error.hint();
  }
}

TEST(Isa, UnknownAndMissingSetsAreRefusedWithThoseThereAre) {
  expect_refused("sse9", Code::invalid_request, "'sse9'");
#if defined(__x86_64__)
  expect_refused("neon", Code::unsupported_device, "'neon'");
#else
  expect_refused("avx2", Code::unsupported_device, "'avx2'");
#endif
  const Environment environment("mmx");
  expect_refused("", Code::invalid_request, "FOURFOLD_CPU_ISA");
}

}  // namespace
}  // namespace fourfold::cpu
