// What benches need of a GPU besides the layer: random data made on the device, the memory ceiling, graphs
// and clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fourfold::bench {

// words[i] = (random & and_mask) | or_mask, for i < count.
void fill_random(void* words, std::size_t count, std::uint64_t seed, std::uint32_t and_mask,
                 std::uint32_t or_mask, void* stream);

// Random weight records: payload words are fully random, scale bytes random but moderate. scale_bias is added
// to every word of scales: records in half order code NVFP4's otherwise (record/bit_order.h).
void fill_records(void* records, std::size_t bytes, int record_bytes, std::uint64_t seed,
                  std::uint32_t scale_bias, void* stream);

// Best of several passes of a read-only kernel over `bytes` of device memory, GB/s.
double read_ceiling_gbps(const void* data, std::size_t bytes, void* stream);

void* make_stream();
void destroy_stream(void* stream);
void synchronize(void* stream);

// Captures what `record` launches on the stream into a graph, replays it and returns the time of one replay
// in microseconds for each of `rounds` timed replays, after a warm-up.
std::vector<double> time_graph(void* stream, int rounds, const std::function<void()>& record);

struct DeviceState {
  std::string name;
  std::string driver;
  int sm_clock_mhz = 0;  // as the driver reports the maximum; load lowers it
  int memory_clock_mhz = 0;
};
DeviceState device_state();

}  // namespace fourfold::bench
