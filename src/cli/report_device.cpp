#include "cli/report_device.h"

#include <cctype>

#include "base/json_writer.h"
#include "json/parse.h"
#include "kernels/gpu/gpu.h"

namespace fourfold::cli {

namespace json = boost::json;

std::string ReportDevice::card() const {
  std::string out;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  constexpr std::string_view maker = "nvidia-";
  return out.starts_with(maker) ? out.substr(maker.size()) : out;
}

int tell_device(int index, const Console& console) {
  if (const std::string why = kernels::why_no_gpu(); !why.empty()) {
    console.err << why << "\n";
    return kMiss;
  }
  const auto gpu = kernels::open_gpu(index);
  const kernels::GpuState state = gpu->state();
  const kernels::GpuMemory memory = kernels::gpu_memory(index);
  JsonWriter json;
  json.begin_object()
      .member("name", state.name)
      .member("chip", gpu->machine().description())
      .member("arch", gpu->machine().arch().name)
      .member("sm_count", gpu->machine().sm_count())
      .member("free_bytes", memory.free)
      .member("total_bytes", memory.total)
      .member("driver", state.driver)
      .member("sm_clock_mhz", state.sm_clock_mhz)
      .member("memory_clock_mhz", state.memory_clock_mhz)
      .end_object();
  console.out << json.finish();
  return kFine;
}

ReportDevice device_of(const std::string& text) {
  const json::value value = fourfold::json::parse(text, "the device");
  const json::object& told = value.as_object();
  const auto words = [&](const char* name) { return std::string(told.at(name).as_string()); };
  const auto number = [&](const char* name) { return told.at(name).to_number<std::int64_t>(); };
  return {.name = words("name"),
          .chip = words("chip"),
          .arch = words("arch"),
          .sm_count = static_cast<int>(number("sm_count")),
          .free_bytes = number("free_bytes"),
          .total_bytes = number("total_bytes"),
          .driver = words("driver"),
          .sm_clock_mhz = static_cast<int>(number("sm_clock_mhz")),
          .memory_clock_mhz = static_cast<int>(number("memory_clock_mhz")),
          .unusable = {}};
}

}  // namespace fourfold::cli
