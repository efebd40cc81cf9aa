// Any bytes as tokenizer.json: refused with an Error or a tokenizer that works.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = fourfold::text::Tokenizer::parse(text, "fuzz");
    tokenizer.decode(tokenizer.encode(text.substr(0, 4096)));
  } catch (const fourfold::Error&) {
  }
  return 0;
}
