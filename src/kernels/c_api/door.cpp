#include "kernels/c_api/door.h"

#include <algorithm>
#include <new>

#include "base/format.h"
#include "sim/fault.h"

namespace fourfold::c_api {
namespace {

// Fixed, so that reporting "out of memory" needs none.
thread_local char last_error[1024];

fourfold_status keep(fourfold_status status, std::string_view text) noexcept {
  write_text(last_error, text);
  return status;
}

// The codes are numbered in the order of the enum, after FOURFOLD_OK.
constexpr fourfold_status status_of(Code code) {
  return static_cast<fourfold_status>(static_cast<int>(code) + 1);
}
static_assert(status_of(Code::invalid_request) == FOURFOLD_INVALID_REQUEST);
static_assert(status_of(Code::bad_checkpoint) == FOURFOLD_BAD_CHECKPOINT);
static_assert(status_of(Code::unsupported_model) == FOURFOLD_UNSUPPORTED_MODEL);
static_assert(status_of(Code::unsupported_device) == FOURFOLD_UNSUPPORTED_DEVICE);
static_assert(status_of(Code::unsupported_op) == FOURFOLD_UNSUPPORTED_OP);
static_assert(status_of(Code::out_of_memory) == FOURFOLD_OUT_OF_MEMORY);
static_assert(status_of(Code::over_capacity) == FOURFOLD_OVER_CAPACITY);
static_assert(status_of(Code::cancelled) == FOURFOLD_CANCELLED);
static_assert(status_of(Code::device_lost) == FOURFOLD_DEVICE_LOST);
static_assert(status_of(Code::io) == FOURFOLD_IO);
static_assert(status_of(Code::internal) == FOURFOLD_INTERNAL);

// A kernel that leaves a buffer or reads what was never written was given the wrong memory; every other fault
// is ours.
bool caller_memory(sim::FaultKind kind) {
  return kind == sim::FaultKind::out_of_bounds || kind == sim::FaultKind::unwritten_read ||
         kind == sim::FaultKind::misaligned;
}

fourfold_status keep_error(const Error& error) {
  const std::string text =
      error.hint().empty() ? error.what() : fourfold::format("{}; {}", error.what(), error.hint());
  return keep(status_of(error.code()), text);
}

}  // namespace

fourfold_status status_of_exception() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return keep_error(error);
    } catch (const sim::Fault& fault) {
      return keep(caller_memory(fault.kind()) ? FOURFOLD_INVALID_REQUEST : FOURFOLD_INTERNAL, fault.what());
    } catch (const std::bad_alloc&) {
      return keep(FOURFOLD_OUT_OF_MEMORY, "the host is out of memory");
    } catch (const std::exception& error) {
      return keep(FOURFOLD_INTERNAL, error.what());
    } catch (...) {
      return keep(FOURFOLD_INTERNAL, "an exception without a name");
    }
  } catch (...) {
    return keep(FOURFOLD_OUT_OF_MEMORY, "the host is out of memory while reporting an error");
  }
}

void require_aligned(const void* pointer, std::size_t alignment, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0)
    fail(Code::invalid_request, "{} must be aligned to {} bytes; its address ends in {}", what, alignment,
         reinterpret_cast<std::uintptr_t>(pointer) % alignment);
}

namespace {

std::uint32_t size_of_caller(const void* at, std::size_t own_bytes, std::size_t first_version_bytes,
                             const char* what) {
  if (at == nullptr) fail(Code::invalid_request, "{} is a null pointer", what);
  std::uint32_t bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  if (bytes < first_version_bytes)
    fail(Code::invalid_request, "{}: struct_size is {}; set it to sizeof the struct, {} bytes here", what,
         bytes, own_bytes);
  return bytes;
}

}  // namespace

void read_sized(void* to, std::size_t own_bytes, std::size_t first_version_bytes, const void* from,
                const char* what) {
  const std::uint32_t bytes = size_of_caller(from, own_bytes, first_version_bytes, what);
  const auto* const source = static_cast<const unsigned char*>(from);
  for (std::size_t at = own_bytes; at < bytes; ++at)
    if (source[at] != 0)
      fail(Code::invalid_request,
           "{}: byte {} of {} is set, but this library knows {} bytes; it is older than the header", what, at,
           bytes, own_bytes);
  std::memset(to, 0, own_bytes);
  std::memcpy(to, from, std::min<std::size_t>(bytes, own_bytes));
}

void write_sized(void* to, const void* from, std::size_t own_bytes, std::size_t first_version_bytes,
                 const char* what) {
  const std::uint32_t bytes = size_of_caller(to, own_bytes, first_version_bytes, what);
  std::memcpy(static_cast<unsigned char*>(to) + sizeof bytes,
              static_cast<const unsigned char*>(from) + sizeof bytes,
              std::min<std::size_t>(bytes, own_bytes) - sizeof bytes);
}

WeightFormat format_of(std::int32_t value) {
  if (value == FOURFOLD_NVFP4) return WeightFormat::nvfp4;
  if (value == FOURFOLD_MXFP4) return WeightFormat::mxfp4;
  fail(Code::invalid_request, "format is {}; FOURFOLD_NVFP4 is {}, FOURFOLD_MXFP4 is {}", value,
       int{FOURFOLD_NVFP4}, int{FOURFOLD_MXFP4});
}
moe_layer::Activations activations_of(std::int32_t value) {
  if (value == FOURFOLD_W4A16) return moe_layer::Activations::w4a16;
  if (value == FOURFOLD_W4A4) return moe_layer::Activations::w4a4;
  fail(Code::invalid_request, "activations is {}; FOURFOLD_W4A16 is {}, FOURFOLD_W4A4 is {}", value,
       int{FOURFOLD_W4A16}, int{FOURFOLD_W4A4});
}
moe_layer::Role role_of(std::int32_t value) {
  if (value == FOURFOLD_DECODE) return moe_layer::Role::decode;
  if (value == FOURFOLD_PREFILL) return moe_layer::Role::prefill;
  fail(Code::invalid_request, "role is {}; FOURFOLD_DECODE is {}, FOURFOLD_PREFILL is {}", value,
       int{FOURFOLD_DECODE}, int{FOURFOLD_PREFILL});
}

moe_layer::Request request_of(const fourfold_layer_options& options) {
  return {{options.hidden, options.intermediate, options.experts, options.top_k},
          activations_of(options.activations),
          format_of(options.format),
          role_of(options.role),
          options.tokens};
}

fourfold_choice answer_of(const moe_layer::Choice& choice, std::string_view notice) {
  fourfold_choice answer{};
  answer.struct_size = sizeof answer;
  answer.accepted = choice.ok();
  answer.emulated = choice.emulated;
  answer.tile_tokens = choice.tile_tokens;
  write_text(answer.gate_up_row, choice.gate_up_row);
  write_text(answer.down_row, choice.down_row);
  write_text(answer.refusal, choice.refusal);
  write_text(answer.notice, notice);
  return answer;
}

std::string require_native(fourfold_context& context, const moe_layer::Choice& choice,
                           std::int32_t activations, std::uint32_t allow_emulated) {
  if (!choice.ok() || activations_of(activations) != moe_layer::Activations::w4a4) return {};
  const std::string_view arch = context.machine->arch().name;
  if (choice.emulated) {
    if (allow_emulated == 0)
      fail_with_hint(Code::unsupported_op, "use FOURFOLD_W4A16, or set allow_emulated for a proof",
                     "{} has no FP4 instruction: W4A4 would be emulated there", arch);
    return {};
  }
  if (context.simulator) return {};  // it is the model
  if (!context.native) {
    const OnDevice scope(context);
    // MXFP4 has no W4A4 rows to serve with (choose.cpp refuses them).
    context.native = verify::arithmetic_of(verify::run_probes(*context.machine, 1), "nvfp4");
  }
  if (!context.native->refusal.empty())
    fail_with_hint(Code::unsupported_op, "use FOURFOLD_W4A16", "W4A4 is refused on this {}: {}", arch,
                   context.native->refusal);
  return context.native->notice;
}

}  // namespace fourfold::c_api

extern "C" {

uint32_t fourfold_kernels_version(void) { return FOURFOLD_KERNELS_VERSION; }

const char* fourfold_kernels_last_error(void) { return fourfold::c_api::last_error; }

const char* fourfold_status_name(fourfold_status status) {
  const int value = static_cast<int>(status);
  if (value == FOURFOLD_OK) return "ok";
  if (value < 0 || value > FOURFOLD_INTERNAL) return "unknown";
  return fourfold::code_name(static_cast<fourfold::Code>(value - 1))
      .data();  // literals, so they end with a zero
}

}  // extern "C"
