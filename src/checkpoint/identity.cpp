#include "checkpoint/identity.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel.h"

namespace fourfold::checkpoint {
namespace {

constexpr std::uint64_t kSamples = 64;
constexpr std::uint64_t kSampleBytes = 4096;

template <class T>
std::uint64_t add(std::uint64_t sum, const T& value) {
  return checksum(std::as_bytes(std::span(&value, 1)), sum);
}

std::uint64_t headers_of(const SafetensorsFile& shard, std::uint64_t sum) {
  sum = add(sum, shard.file().size());
  for (const TensorEntry& entry : shard.entries()) {
    sum = checksum(std::as_bytes(std::span(entry.name)), sum);
    const std::array<std::uint64_t, 3> place{static_cast<std::uint64_t>(entry.dtype), entry.begin, entry.end};
    sum = add(sum, place);
    sum = checksum(std::as_bytes(entry.shape.sizes()), sum);
  }
  return sum;
}

std::uint64_t samples_of(const SafetensorsFile& shard) {
  const std::uint64_t size = shard.file().size();
  std::array<std::uint64_t, kSamples> sums{};
  parallel_for(kSamples, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::byte> page(std::min(kSampleBytes, size));
    for (std::int64_t i = begin; i < end; ++i) {
      // The last sample ends with the file.
      const std::uint64_t offset = (size - page.size()) / (kSamples - 1) * static_cast<std::uint64_t>(i);
      shard.file().read(i + 1 == static_cast<std::int64_t>(kSamples) ? size - page.size() : offset, page);
      sums[static_cast<std::size_t>(i)] = checksum(page);
    }
  });
  return add(0, sums);
}

std::int64_t time_of(const SafetensorsFile& shard) {
  std::error_code problem;
  const auto time = std::filesystem::last_write_time(shard.file().path(), problem);
  if (problem) fail(Code::io, "{}: cannot be examined: {}", shard.file().path().string(), problem.message());
  return static_cast<std::int64_t>(time.time_since_epoch().count());
}

}  // namespace

Identity identity_of(const Checkpoint& checkpoint) {
  Identity identity;
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    identity.headers = headers_of(shard, identity.headers);
    identity.samples = add(identity.samples, samples_of(shard));
    identity.times = add(identity.times, time_of(shard));
  }
  return identity;
}

std::string_view difference(const Identity& a, const Identity& b) {
  if (a.headers != b.headers) return "its tensors differ";
  if (a.samples != b.samples) return "its weights differ";
  if (a.times != b.times) return "its files have been changed since";
  return "";
}

}  // namespace fourfold::checkpoint
