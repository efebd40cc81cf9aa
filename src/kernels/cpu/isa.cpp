#include "kernels/cpu/isa.h"

#include <cstdlib>

#include "base/error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fourfold::cpu {
namespace {

constexpr std::string_view kNames[] = {"plain", "avx2", "avx512", "amx", "neon"};

std::string names_of(const std::vector<Isa>& isas) {
  std::string text;
  for (const Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
  return text;
}

// AMX registers are large, so Linux hands them out on request only: whether this CPU has AMX-BF16 and the
// kernel lets this process use it.
[[maybe_unused]] bool ask_for_amx() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24;
  if ((edx & tile) == 0 || (edx & bf16) == 0) return false;
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

[[maybe_unused]] bool amx_is_permitted() {
  static const bool permitted = ask_for_amx();
  return permitted;
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

std::optional<Isa> isa_from_name(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i)
    if (kNames[i] == name) return static_cast<Isa>(i);
  return std::nullopt;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas{Isa::plain};
#if defined(__x86_64__)
  // These ask the operating system as well: registers it does not save count as missing.
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2) isas.push_back(Isa::avx2);
  if (avx512) isas.push_back(Isa::avx512);
  if (avx512 && amx_is_permitted()) isas.push_back(Isa::amx);
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long dot_product = 1ul << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & dot_product) != 0) isas.push_back(Isa::neon);
#endif
  return isas;
}

Isa choose_isa(const std::string& name) {
  const std::vector<Isa> isas = available_isas();
  std::string wanted = name;
  std::string_view said_by = "the option";
  if (wanted.empty()) {
    const char* from_environment = std::getenv("FOURFOLD_CPU_ISA");
    if (from_environment == nullptr || *from_environment == '\0') return isas.back();
    wanted = from_environment;
    said_by = "FOURFOLD_CPU_ISA";
  }
  const std::optional<Isa> isa = isa_from_name(wanted);
  if (!isa)
    fail_with_hint(Code::invalid_request, "this CPU has: " + names_of(isas),
                   "{} asks for the instruction set '{}', which does not exist", said_by, wanted);
  for (const Isa one : isas)
    if (one == *isa) return one;
  fail_with_hint(Code::unsupported_device, "this CPU has: " + names_of(isas),
                 "{} asks for the instruction set '{}', which this CPU does not have", said_by, wanted);
}

}  // namespace fourfold::cpu
