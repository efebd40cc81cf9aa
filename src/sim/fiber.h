// Fibers: the threads of a simulated block. A switch saves the callee-saved registers and changes the stack
// pointer, nothing else: no system call, about 10 ns. Own assembly on x86-64 and aarch64 (ELF), ucontext
// elsewhere. Address and thread sanitizers are told about every switch.
//
// An exception may not leave a fiber's entry function; whoever starts a fiber catches in the entry and hands
// the exception over.
#pragma once

#include <cstddef>
#include <vector>

#if !defined(__ELF__) || !(defined(__x86_64__) || defined(__aarch64__))
#include <ucontext.h>
#endif

namespace fourfold::sim {

// Whether a sanitizer's runtime is linked in: frames are several times larger then.
bool built_with_sanitizer();

// The usable part of a stack. The 64 KiB below it are unreachable, so an overflow is a segmentation fault at
// the line that overflows, never silent damage.
struct Stack {
  std::byte* low = nullptr;
  std::size_t bytes = 0;
};

// Stacks are mapped once and reused; their number is the largest block ever run.
class StackPool {
 public:
  explicit StackPool(std::size_t stack_bytes);
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // Stack number `index` of the pool, mapped on first use.
  Stack at(std::size_t index);
  std::size_t stack_bytes() const { return stack_bytes_; }

 private:
  struct Mapping {
    void* start;
    std::size_t bytes;
  };
  std::size_t stack_bytes_;
  std::vector<Mapping> mappings_;
  std::vector<Stack> stacks_;
};

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares the fiber to run entry(argument) on this stack at the next switch to it. The entry never
  // returns: it leaves by a last switch. `colour` shifts the start of the stack, so that the fibers of a
  // warp, which all stand at the same depth, do not meet in the same cache sets.
  void prepare(Stack stack, unsigned colour, Entry entry, void* argument);

  // Suspends `from`, which is running, and resumes `to`. `last` says that `from` will not be resumed again.
  static void transfer(Fiber& from, Fiber& to, bool last = false);

 private:
  static void arrive(Fiber& self);
  static void main_of(void* self);

  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__))
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
  // Used only when a sanitizer's runtime is linked in.
  void* fake_stack_ = nullptr;
  const void* stack_low_ = nullptr;
  std::size_t stack_bytes_ = 0;
  Fiber* came_from_ = nullptr;
  void* tsan_fiber_ = nullptr;
  bool owns_tsan_fiber_ = false;
};

}  // namespace fourfold::sim
