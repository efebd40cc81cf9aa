// Any bytes as a template: refused with an Error or rendered within small limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/json_value.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace jinja = fourfold::text::jinja;
  static const jinja::Value variables = jinja::parse_json(
      R"({"messages": [{"role": "user", "content": "a\n b"},
          {"role": "assistant", "content": null, "n": [1, 2.5, {"k": "v"}]}],
          "s": "Hello World", "l": [3, 1, 2], "d": {"a": 1, "b": null}, "f": 2.5, "t": true})",
      "variables");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const jinja::Body body = jinja::parse_template(text, "fuzz");
    const jinja::Limits limits{.steps_max = 20'000, .bytes_max = 16 << 20, .output_bytes_max = 1 << 20};
    jinja::Evaluator("fuzz", limits, {}).render(body, *variables.dict());
  } catch (const fourfold::Error&) {
  }
  return 0;
}
