// Any bytes as text: what comes back is the repaired text, whole or streamed. FOURFOLD_FUZZ_TOKENIZER names a
// file whose tokenizer does not normalise and strips nothing (gpt2.tokenizer.json of the golden files).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/nfc.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fourfold::text;
  static const Tokenizer tokenizer = Tokenizer::load(std::getenv("FOURFOLD_FUZZ_TOKENIZER"));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string good = fourfold::repaired(text);
  const auto ids = tokenizer.encode(text);
  fourfold::check(tokenizer.decode(ids) == good, "decoding gives the repaired text back");
  Detokenizer stream(tokenizer);
  std::string streamed;
  for (const TokenId id : ids) {
    const std::string part = stream.push(id);
    fourfold::check(fourfold::is_valid_utf8(part), "a streamed part is valid UTF-8");
    streamed += part;
  }
  fourfold::check(streamed + stream.finish() == good, "streaming gives the same text");
  const std::string normal = to_nfc(good);
  fourfold::check(to_nfc(normal) == normal, "normalising twice changes nothing");
  return 0;
}
