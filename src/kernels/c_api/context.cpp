// The context: opening a device, its stream, its memory.
#include <charconv>
#include <optional>
#include <string_view>

#include "base/format.h"
#include "kernels/c_api/door.h"
#include "kernels/launch/sim_machine.h"

namespace fourfold::c_api {
namespace {

constexpr std::uint64_t kSimulatorBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kSimulatorBytesMax = std::uint64_t{1} << 36;

long long as_number(std::uint64_t bytes) { return static_cast<long long>(bytes); }

std::optional<int> gpu_index(std::string_view text) {
  if (text == "cuda") return 0;
  if (text.substr(0, 5) != "cuda:") return std::nullopt;
  text.remove_prefix(5);
  int index = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return index;
}

void open_simulator(fourfold_context& context, std::string_view arch,
                    const fourfold_context_options& options) {
  const plan::ArchFacts* const facts = plan::find_arch(arch);
  if (facts == nullptr || !(facts->has_wgmma || facts->has_fp4_mma) || facts->has_tcgen05)
    fail(Code::unsupported_device,
         "the simulator has no architecture '{}' to run; it has sm90, sm120 and sm121", arch);
  if (options.stream != nullptr)
    fail(Code::invalid_request, "the simulator has no streams; stream must be null");
  context.memory_bytes = options.simulator_memory_bytes ? options.simulator_memory_bytes : kSimulatorBytes;
  if (context.memory_bytes > kSimulatorBytesMax)
    fail(Code::invalid_request, "simulator_memory_bytes is {}; at most {}",
         with_commas(as_number(context.memory_bytes)), with_commas(as_number(kSimulatorBytesMax)));
  context.simulator = std::make_unique<sim::Device>(sim::DeviceOptions{.memory_bytes = context.memory_bytes});
  kernels::SimMachineOptions machine;
  machine.arch = facts;
  context.machine = kernels::make_sim_machine(*context.simulator, machine);
}

std::unique_ptr<fourfold_context> open_context(const fourfold_context_options& options) {
  const std::string_view device = &required(options.device, "the device's name");
  auto context = std::make_unique<fourfold_context>();
  if (device.substr(0, 4) == "sim:") {
    open_simulator(*context, device.substr(4), options);
  } else if (const auto index = gpu_index(device)) {
    if (options.simulator_memory_bytes != 0)
      fail(Code::invalid_request, "simulator_memory_bytes is {}; a GPU has its own memory",
           options.simulator_memory_bytes);
    context->machine = open_gpu(*index, options.stream);
    context->gpu = *index;
    context->stream = options.stream;
  } else {
    fail(Code::unsupported_device, "unknown device '{}': use cuda, cuda:N, sim:sm90, sim:sm120 or sim:sm121",
         device);
  }
  return context;
}

void allocate(fourfold_context& context, std::size_t bytes, void*& memory) {
  if (bytes == 0) fail(Code::invalid_request, "an allocation of 0 bytes");
  if (context.simulator && bytes > context.memory_bytes)
    fail(Code::out_of_memory, "the simulated device has {} bytes; {} were asked for",
         with_commas(as_number(context.memory_bytes)), with_commas(static_cast<long long>(bytes)));
  const OnDevice scope(context);
  void* const pointer = context.machine->memory().allocate(bytes, "caller's memory");
  context.allocations[reinterpret_cast<std::uintptr_t>(pointer)] = bytes;
  memory = pointer;
}

void release(fourfold_context& context, void* memory) {
  if (memory == nullptr) return;
  const auto found = context.allocations.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == context.allocations.end())
    fail(Code::invalid_request, "this address was not given out by fourfold_allocate, or was freed before");
  const OnDevice scope(context);
  context.machine->memory().release(memory);
  context.allocations.erase(found);
}

// What we gave out has known bounds. On a GPU other memory is the caller's to know; the simulator has no
// other.
void require_room(const fourfold_context& context, const void* start, std::size_t bytes, const char* what) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  auto after = context.allocations.upper_bound(address);
  if (after != context.allocations.begin()) {
    const auto& [first, size] = *--after;
    const std::size_t offset = address - first;
    if (offset < size) {
      if (bytes > size - offset)
        fail(Code::invalid_request, "{} has {} bytes from this address on; {} were asked for", what,
             with_commas(static_cast<long long>(size - offset)), with_commas(static_cast<long long>(bytes)));
      return;
    }
  }
  if (context.simulator) fail(Code::invalid_request, "{} is not memory of this simulated device", what);
}

// Both directions; host tells which side is ours to touch.
void copy(fourfold_context* context, void* to, const void* from, std::size_t bytes, bool to_device) {
  fourfold_context& own = required(context, "the context");
  if (bytes == 0) return;
  required(static_cast<const unsigned char*>(to), "the target of the copy");
  required(static_cast<const unsigned char*>(from), "the source of the copy");
  require_room(own, to_device ? to : from, bytes,
               to_device ? "the target of the copy" : "the source of the copy");
  const OnDevice scope(own);
  if (to_device)
    own.machine->memory().write(to, from, bytes);
  else
    own.machine->memory().read(to, from, bytes);
}

}  // namespace
}  // namespace fourfold::c_api

using namespace fourfold;

extern "C" {

fourfold_status fourfold_context_open(const fourfold_context_options* options, fourfold_context** context) {
  return c_api::enter([&] {
    fourfold_context*& out = c_api::required(context, "the place for the context");
    out = c_api::open_context(c_api::read_options(options, "fourfold_context_options")).release();
  });
}

void fourfold_context_close(fourfold_context* context) {
  if (context == nullptr) return;
  c_api::enter([&] {
    const c_api::OnDevice scope(*context);
    for (const auto& [start, bytes] : context->allocations)
      context->machine->memory().release(reinterpret_cast<void*>(start));
    context->machine.reset();
  });
  delete context;
}

fourfold_status fourfold_context_set_stream(fourfold_context* context, void* stream) {
  return c_api::enter([&] {
    fourfold_context& own = c_api::required(context, "the context");
    if (own.simulator) {
      if (stream != nullptr) fail(Code::invalid_request, "the simulator has no streams; stream must be null");
      return;
    }
    c_api::set_gpu_stream(*own.machine, stream);
    own.stream = stream;
  });
}

fourfold_status fourfold_context_synchronize(fourfold_context* context) {
  return c_api::enter([&] {
    fourfold_context& own = c_api::required(context, "the context");
    if (own.simulator) return own.simulator->synchronize();
    const c_api::OnDevice scope(own);
    c_api::synchronize_gpu(own.stream);
  });
}

fourfold_status fourfold_context_describe(const fourfold_context* context, fourfold_context_info* info) {
  return c_api::enter([&] {
    const fourfold_context& own = c_api::required(context, "the context");
    fourfold_context_info answer{};
    answer.simulated = own.simulator != nullptr;
    answer.sm_count = static_cast<std::uint32_t>(own.machine->sm_count());
    answer.smem_bytes_per_block = static_cast<std::uint32_t>(own.machine->arch().smem_bytes_per_block);
    c_api::write_text(answer.arch, own.machine->arch().name);
    c_api::write_text(answer.description, own.machine->description());
    c_api::write_answer(info, answer, "fourfold_context_info");
  });
}

fourfold_status fourfold_allocate(fourfold_context* context, size_t bytes, void** memory) {
  return c_api::enter([&] {
    c_api::allocate(c_api::required(context, "the context"), bytes,
                    c_api::required(memory, "the place for the memory"));
  });
}

fourfold_status fourfold_free(fourfold_context* context, void* memory) {
  return c_api::enter([&] { c_api::release(c_api::required(context, "the context"), memory); });
}

fourfold_status fourfold_copy_to_device(fourfold_context* context, void* to, const void* from, size_t bytes) {
  return c_api::enter([&] { c_api::copy(context, to, from, bytes, true); });
}

fourfold_status fourfold_copy_from_device(fourfold_context* context, void* to, const void* from,
                                          size_t bytes) {
  return c_api::enter([&] { c_api::copy(context, to, from, bytes, false); });
}

}  // extern "C"
