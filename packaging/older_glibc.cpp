// Functions of newer C libraries that we or the static parts of g++ 12 call, so that a program built on Debian 12 starts where
// glibc is 2.34 (RHEL 9, Amazon Linux 2023, Ubuntu 22.04). Linked into what FOURFOLD_PORTABLE builds, and seen by nobody else.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

#ifdef DLFO_STRUCT_HAS_EH_DBASE
struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

int look(dl_phdr_info* object, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool holds = false;
  void* frames = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const std::uintptr_t start = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(start);
    if (part.p_type != PT_LOAD || search.address < start || search.address - start >= part.p_memsz) continue;
    holds = true;
    search.result->dlfo_map_start = reinterpret_cast<void*>(start);
    search.result->dlfo_map_end = reinterpret_cast<void*>(start + part.p_memsz);
  }
  if (!holds || frames == nullptr) return 0;
  search.result->dlfo_eh_frame = frames;
  return 1;
}
#endif

}  // namespace

extern "C" {

#ifdef DLFO_STRUCT_HAS_EH_DBASE
// glibc 2.35: whose frames an exception passes through. Before it, every unwinder searched like this.
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  *result = {};
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif

// glibc 2.35 has a new one that leaves errno alone; the first is everywhere.
#if defined(__x86_64__)
__asm__(".symver first_hypot, hypot@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver first_hypot, hypot@GLIBC_2.17");
#endif
double first_hypot(double x, double y);
double hypot(double x, double y) noexcept { return first_hypot(x, y); }

// glibc 2.36: what std::random_device reads.
std::uint32_t arc4random(void) noexcept {
  std::uint32_t value;
  if (getentropy(&value, sizeof value) != 0) std::abort();
  return value;
}

}  // extern "C"
