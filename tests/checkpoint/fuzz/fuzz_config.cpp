// Any text as config.json, generation_config.json and hf_quant_config.json: a value or an Error, nothing
// else.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/quantization.h"

namespace {

template <class Parse>
void value_or_error(const Parse& parse) {
  try {
    parse();
  } catch (const fourfold::Error& error) {
    if (error.code() != fourfold::Code::bad_checkpoint && error.code() != fourfold::Code::unsupported_model)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fourfold::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  value_or_error([&] {
    const ModelConfig config = parse_model_config(text, "fuzz");
    // What later code divides by and indexes with.
    const bool sound = config.layer_count() > 0 &&
                       config.attention.head_count % config.attention.kv_head_count == 0 &&
                       config.rope.rotary_dims > 0 && config.rope.rotary_dims <= config.attention.head_dim &&
                       (!config.delta || config.delta->values_per_key() > 0) &&
                       (!config.moe || config.moe->experts_per_token <= config.moe->expert_count);
    if (!sound) std::abort();
  });
  value_or_error([&] { parse_generation_defaults(text, "fuzz"); });
  value_or_error([&] { parse_quantization(text, "", "fuzz"); });
  if (!text.empty()) value_or_error([&] { parse_quantization("{}", text, "fuzz"); });
  return 0;
}
