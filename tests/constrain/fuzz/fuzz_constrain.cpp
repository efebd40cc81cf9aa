// Any bytes as a schema, a list of tools or a regular expression: refused with an invalid_request, or a form
// in which no reading is ever stuck.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/random.h"
#include "constrain/guide.h"
#include "constrain/matcher.h"

namespace {

using namespace fourfold;
using namespace fourfold::constrain;

const Limits kSmall{.text_bytes_max = 1 << 16, .work_max = 400'000, .bytes_max = 4 << 20};

// Random allowed bytes, from several starts: there is always a next one, or the text may end.
void wander(const Grammar& grammar) {
  Random random(1);
  Matcher matcher(grammar);
  for (const std::uint32_t start : {grammar.start(), grammar.start_after_newlines()}) {
    Matcher::SetId set = matcher.start_at(start);
    for (int step = 0; step < 60; ++step) {
      std::uint8_t ways[256];
      std::size_t count = 0;
      for (int byte = 0; byte < 256; ++byte)
        if (matcher.step(set, static_cast<std::uint8_t>(byte)) != Matcher::kDead)
          ways[count++] = static_cast<std::uint8_t>(byte);
      check(count > 0 || matcher.may_end(set), "no reading is stuck");
      if (count == 0) break;
      set = matcher.step(set, ways[random.below(count)]);
      if (step % 16 == 15) set = matcher.keep_only(set);
    }
  }
}

template <class Compile>
void compile_and_wander(const Compile& compile) {
  try {
    wander(*compile());
  } catch (const Error& error) {
    check(error.code() == Code::invalid_request, "what a request says is the request's fault");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const char first = text.empty() ? ' ' : text[0];
  if (first == '{') compile_and_wander([&] { return compile_json_schema(text, kSmall); });
  if (first == '[') compile_and_wander([&] { return compile_tool_calls(text, {}, kSmall); });
  if (first != '{') compile_and_wander([&] { return compile_regex(text, kSmall); });
  return 0;
}
