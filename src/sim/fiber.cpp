#include "sim/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

// Present when the program is built with a sanitizer, null otherwise: no choice at compile time is needed.
extern "C" {
[[gnu::weak, gnu::visibility("default")]] void __sanitizer_start_switch_fiber(void** fake_stack,
                                                                              const void* low,
                                                                              std::size_t bytes);
[[gnu::weak, gnu::visibility("default")]] void __sanitizer_finish_switch_fiber(void* fake_stack,
                                                                               const void** low,
                                                                               std::size_t* bytes);
[[gnu::weak, gnu::visibility("default")]] void __asan_unpoison_memory_region(const volatile void* start,
                                                                             std::size_t bytes);
[[gnu::weak, gnu::visibility("default")]] void* __tsan_get_current_fiber();
[[gnu::weak, gnu::visibility("default")]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak, gnu::visibility("default")]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak, gnu::visibility("default")]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

// fourfold_sim_switch_stacks(void** save, void* load): pushes the callee-saved registers, stores the stack
// pointer to *save, takes `load` as the stack pointer, pops and returns there. It returns with `ret`: every
// fiber suspends from the same few call sites, so the return predictor is usually right even across stacks.
// fourfold_sim_first_entry: where a new fiber starts; calls the function kept in a callee-saved register.
#if defined(__ELF__) && defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl fourfold_sim_switch_stacks
.hidden fourfold_sim_switch_stacks
.type fourfold_sim_switch_stacks, @function
fourfold_sim_switch_stacks:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size fourfold_sim_switch_stacks, .-fourfold_sim_switch_stacks

.p2align 4
.globl fourfold_sim_first_entry
.hidden fourfold_sim_first_entry
.type fourfold_sim_first_entry, @function
fourfold_sim_first_entry:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size fourfold_sim_first_entry, .-fourfold_sim_first_entry
)");
#elif defined(__ELF__) && defined(__aarch64__)
asm(R"(
.text
.p2align 4
.globl fourfold_sim_switch_stacks
.hidden fourfold_sim_switch_stacks
.type fourfold_sim_switch_stacks, %function
fourfold_sim_switch_stacks:
  .cfi_startproc
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .cfi_endproc
.size fourfold_sim_switch_stacks, .-fourfold_sim_switch_stacks

.p2align 4
.globl fourfold_sim_first_entry
.hidden fourfold_sim_first_entry
.type fourfold_sim_first_entry, %function
fourfold_sim_first_entry:
  .cfi_startproc
  .cfi_undefined x30
  mov x0, x19
  blr x20
  brk #1
  .cfi_endproc
.size fourfold_sim_first_entry, .-fourfold_sim_first_entry
)");
#endif

#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
extern "C" {
__attribute__((visibility("hidden"))) void fourfold_sim_switch_stacks(void** save, void* load);
__attribute__((visibility("hidden"))) void fourfold_sim_first_entry();
}
#endif

namespace fourfold::sim {

bool built_with_sanitizer() {
  return __sanitizer_start_switch_fiber != nullptr || __tsan_switch_to_fiber != nullptr;
}

namespace {

// Addresses cost nothing: a guard this wide also stops frames that would step over a single page, and it is a
// multiple of every page size in use.
constexpr std::size_t kGuardBytes = 64 * 1024;

}  // namespace

StackPool::StackPool(std::size_t stack_bytes)
    : stack_bytes_((stack_bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes) {}

StackPool::~StackPool() {
  for (const Mapping& mapping : mappings_) munmap(mapping.start, mapping.bytes);
}

Stack StackPool::at(std::size_t index) {
  constexpr std::size_t kStacksPerMapping = 32;  // a warp
  while (index >= stacks_.size()) {
    const std::size_t pitch = stack_bytes_ + kGuardBytes;
    const std::size_t bytes = pitch * kStacksPerMapping;
    void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
      fail(Code::out_of_memory, "no {} bytes for the stacks of {} simulated threads", bytes,
           kStacksPerMapping);
    mappings_.push_back({start, bytes});
    for (std::size_t i = 0; i < kStacksPerMapping; ++i) {
      std::byte* const guard = static_cast<std::byte*>(start) + i * pitch;
      if (mprotect(guard, kGuardBytes, PROT_NONE) != 0)
        fail(Code::out_of_memory, "cannot protect the addresses below a simulated thread's stack");
      stacks_.push_back({guard + kGuardBytes, stack_bytes_});
    }
  }
  return stacks_[index];
}

Fiber::~Fiber() {
  if (owns_tsan_fiber_) __tsan_destroy_fiber(tsan_fiber_);
}

void Fiber::prepare(Stack stack, unsigned colour, Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
  stack_low_ = stack.low;
  stack_bytes_ = stack.bytes;
  // A previous life of this stack may have left poisoned frames behind.
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(stack.low, stack.bytes);
  if (__tsan_create_fiber) {
    if (owns_tsan_fiber_) __tsan_destroy_fiber(tsan_fiber_);
    tsan_fiber_ = __tsan_create_fiber(0);
    owns_tsan_fiber_ = true;
  }
  // Odd multiples of a cache line spread 32 equally deep stacks over the sets of a first-level cache.
  const std::size_t shift = static_cast<std::size_t>(colour % 32) * 192;
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
  std::byte* const top = stack.low + stack.bytes - shift;  // 16-byte aligned: pages and shift are
  void* registers[20] = {};
#if defined(__x86_64__)
  // Popped in this order: r15 r14 r13 r12 rbx rbp, then the return address. At the first instruction of
  // first_entry the stack pointer is then a multiple of 16, as a call needs it.
  constexpr std::size_t kFrameBytes = 7 * 8;
  std::byte* const frame = top - 16 - kFrameBytes;
  registers[2] = reinterpret_cast<void*>(&Fiber::main_of);
  registers[3] = this;
  registers[6] = reinterpret_cast<void*>(&fourfold_sim_first_entry);
#else
  constexpr std::size_t kFrameBytes = 160;  // x19..x28, x29, x30, d8..d15
  std::byte* const frame = top - kFrameBytes;
  registers[0] = this;
  registers[1] = reinterpret_cast<void*>(&Fiber::main_of);
  registers[11] = reinterpret_cast<void*>(&fourfold_sim_first_entry);
#endif
  std::memcpy(frame, registers, kFrameBytes);
  stack_pointer_ = frame;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.low;
  context_.uc_stack.ss_size = stack.bytes - shift;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  void (*const entry_from_halves)(unsigned, unsigned) = [](unsigned high, unsigned low) {
    main_of(reinterpret_cast<void*>((static_cast<std::uintptr_t>(high) << 16 << 16) | low));
  };
  makecontext(&context_, reinterpret_cast<void (*)()>(entry_from_halves), 2,
              static_cast<unsigned>(self >> 16 >> 16), static_cast<unsigned>(self));
#endif
}

// Runs on the resumed fiber, right after a switch to it.
void Fiber::arrive(Fiber& self) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* low = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(self.fake_stack_, &low, &bytes);
  // Only the program's own stack is unknown to us beforehand; this is how its bounds are learnt.
  self.came_from_->stack_low_ = low;
  self.came_from_->stack_bytes_ = bytes;
}

void Fiber::main_of(void* self_address) {
  Fiber& self = *static_cast<Fiber*>(self_address);
  arrive(self);
  self.entry_(self.argument_);
  std::abort();  // the entry leaves by its last transfer
}

void Fiber::transfer(Fiber& from, Fiber& to, bool last) {
  if (__sanitizer_start_switch_fiber) {
    to.came_from_ = &from;
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack_, to.stack_low_, to.stack_bytes_);
  }
  if (__tsan_switch_to_fiber) {
    if (!from.tsan_fiber_) from.tsan_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.tsan_fiber_, 0);
  }
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
  fourfold_sim_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  arrive(from);
}

}  // namespace fourfold::sim
