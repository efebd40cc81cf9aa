// What the functions of fourfold_kernels.h share: where exceptions become status codes, how option structs of
// other versions are read, and the context itself. Only this folder knows the C types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fourfold/fourfold_kernels.h"
#include "kernels/c_api/gpu.h"
#include "kernels/launch/machine.h"
#include "kernels/moe_layer/choose.h"
#include "kernels/verify/probes.h"
#include "sim/device.h"

struct fourfold_context {
  std::unique_ptr<fourfold::sim::Device> simulator;  // null on a GPU
  std::unique_ptr<fourfold::kernels::Machine> machine;
  int gpu = -1;
  void* stream = nullptr;
  std::uint64_t memory_bytes = 0;  // of the simulator
  // What this GPU's own FP4 instruction is good for; asked once, by the probes, when W4A4 is first wanted.
  std::optional<fourfold::verify::Arithmetic> native;
  std::map<std::uintptr_t, std::size_t> allocations;  // by start: what fourfold_allocate gave out
};

namespace fourfold::c_api {

// Turns the exception in flight into a status and keeps its sentence for this thread.
fourfold_status status_of_exception() noexcept;

// The only way in: no exception leaves.
template <class Body>
fourfold_status enter(const Body& body) noexcept {
  try {
    body();
    return FOURFOLD_OK;
  } catch (...) {
    return status_of_exception();
  }
}

// On a GPU its device is current while this lives, and the caller's own again afterwards.
class OnDevice {
 public:
  explicit OnDevice(const fourfold_context& context)
      : previous_(context.gpu < 0 ? -1 : make_gpu_current(context.gpu)) {}
  ~OnDevice() {
    if (previous_ >= 0) restore_gpu(previous_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int previous_;
};

template <class T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) fail(Code::invalid_request, "{} is a null pointer", what);
  return *pointer;
}

void require_aligned(const void* pointer, std::size_t alignment, const char* what);
// Clears `to`, then copies what the caller's header has of the struct; newer members must be zero.
void read_sized(void* to, std::size_t own_bytes, std::size_t first_version_bytes, const void* from,
                const char* what);
// Writes as much as the caller's header has room for; struct_size stays the caller's.
void write_sized(void* to, const void* from, std::size_t own_bytes, std::size_t first_version_bytes,
                 const char* what);

// first_version_bytes: what the struct had in version 0.1; members added later leave it alone.
template <class Options>
Options read_options(const Options* from, const char* what,
                     std::size_t first_version_bytes = sizeof(Options)) {
  Options options;
  read_sized(&options, sizeof options, first_version_bytes, from, what);
  return options;
}
template <class Answer>
void write_answer(Answer* to, const Answer& from, const char* what,
                  std::size_t first_version_bytes = sizeof(Answer)) {
  write_sized(to, &from, sizeof from, first_version_bytes, what);
}

inline constexpr std::size_t kFirstChoiceBytes = offsetof(fourfold_choice, notice);
inline constexpr std::size_t kFirstCallBytes = offsetof(fourfold_layer_call, score);

// Cuts what does not fit; always ends with a zero.
template <std::size_t Size>
void write_text(char (&to)[Size], std::string_view text) {
  const std::size_t length = text.size() < Size ? text.size() : Size - 1;
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// The enums of the header, refused by number.
WeightFormat format_of(std::int32_t value);
moe_layer::Activations activations_of(std::int32_t value);
moe_layer::Role role_of(std::int32_t value);

moe_layer::Request request_of(const fourfold_layer_options& options);
fourfold_choice answer_of(const moe_layer::Choice& choice, std::string_view notice = {});
// W4A4 on a chip without the instruction runs only for those who said so, and on one that has it only when
// the chip has shown that it computes within the bound of the model. Returns what to tell of its bits.
std::string require_native(fourfold_context& context, const moe_layer::Choice& choice,
                           std::int32_t activations, std::uint32_t allow_emulated);

}  // namespace fourfold::c_api
