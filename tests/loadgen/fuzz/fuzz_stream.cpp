// Any bytes as a server's streamed answer: a timeline, or an Error; and the same whatever way they are cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "loadgen/stream_reader.h"

namespace {

using fourfold::loadgen::StreamReader;

std::string outcome(std::string_view bytes, std::size_t step) {
  StreamReader reader(0);
  try {
    while (!bytes.empty() && !reader.done()) {
      reader.take(bytes.substr(0, step), 1);
      bytes.remove_prefix(std::min(step, bytes.size()));
    }
    if (!reader.done()) reader.close(1);
  } catch (const fourfold::Error&) {
    return "Error";  // its words may depend on how much had come: a line too long, or wrong at its end
  }
  const auto line = reader.finish(2);
  return line.failure + "|" + std::to_string(line.chunks.size()) + "|" + line.finish_reason + "|" +
         std::to_string(line.output_tokens.value_or(-1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = outcome(bytes, bytes.size() + 1);
  fourfold::check(whole == outcome(bytes, 7), "pieces give what the whole gives");
  fourfold::check(whole == outcome(bytes, 1), "bytes give what the whole gives");
  return 0;
}
