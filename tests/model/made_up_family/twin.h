// A pebble's twin is the GLM of the same weights.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {

// What a tensor of a GLM is called in a pebble.
inline std::string pebble_name(std::string_view glm) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"model.embed_tokens.", "tokens."},
      {"model.norm.", "after."},
      {"model.layers.", "pebbles."},
      {"input_layernorm.", "before."},
      {"post_attention_layernorm.", "between."},
      {"self_attn.", "look."},
      {"q_proj.", "north."},
      {"k_proj.", "east."},
      {"v_proj.", "south."},
      {"o_proj.", "west."},
      {"mlp.gate.weight", "choose.weight"},
      {"mlp.gate.e_score_correction_bias", "choose.lean"},
      {"mlp.experts.", "stones."},
      {"mlp.shared_experts.", "river."},
      {"mlp.", "flat."},
      {"gate_proj.", "open."},
      {"up_proj.", "widen."},
      {"down_proj.", "narrow."}};
  std::string name(glm);
  for (const auto& [from, to] : names)
    if (const std::size_t place = name.find(from); place != std::string::npos)
      name.replace(place, from.size(), to);
  return name;
}

}  // namespace fourfold::checkpoint
