#include "checkpoint/tensor_role.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

namespace fourfold::checkpoint {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

}  // namespace

std::string_view role_name(TensorRole role) {
  switch (role) {
    case TensorRole::routed_expert: return "routed experts";
    case TensorRole::shared_expert: return "shared experts";
    case TensorRole::dense_mlp: return "dense MLPs";
    case TensorRole::attention: return "attention";
    case TensorRole::delta: return "DeltaNet";
    case TensorRole::head: return "head";
    case TensorRole::router: return "routers";
    case TensorRole::other: return "other";
  }
  return "unknown";
}

TensorRole role_of(std::string_view name) {
  // Mistral's models that see have the text model under this.
  constexpr std::string_view wrapper = "language_model.";
  if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  if (name == "lm_head.weight") return TensorRole::head;
  if (!name.starts_with("model.") || name.starts_with("model.mtp.") || !has(name, "layers.") ||
      has(name, "visual"))
    return TensorRole::other;
  const bool projection = ends_with_any(name, {"gate_proj.weight", "up_proj.weight", "down_proj.weight"});
  // MiniMax-M2 calls gate, up and down w1, w3 and w2.
  if (has(name, ".block_sparse_moe.experts."))
    return ends_with_any(name, {".w1.weight", ".w2.weight", ".w3.weight"}) ? TensorRole::routed_expert
                                                                           : TensorRole::other;
  if (has(name, ".mlp.experts."))
    return projection || ends_with_any(name, {".gate_up_proj", ".down_proj", ".gate_up_proj_blocks",
                                              ".down_proj_blocks"})
               ? TensorRole::routed_expert
               : TensorRole::other;
  if (has(name, ".mlp.shared_expert.") || has(name, ".mlp.shared_experts."))
    return projection ? TensorRole::shared_expert : TensorRole::other;
  if (has(name, ".mlp.")) return projection ? TensorRole::dense_mlp : TensorRole::other;
  // Backends hold it in bf16 (backend::HeadLinear): fewer bits would be lost for nothing.
  if (name.ends_with(".self_attn.kv_b_proj.weight")) return TensorRole::other;
  if (has(name, ".self_attn.") && ends_with_any(name, {"_proj.weight", "_proj_with_mqa.weight"}))
    return TensorRole::attention;
  if (has(name, ".linear_attn.") && ends_with_any(name, {".in_proj_qkv.weight", ".in_proj_z.weight",
                                                         ".in_proj_qkvz.weight", ".out_proj.weight"}))
    return TensorRole::delta;
  return TensorRole::other;
}

TensorRole role_of(std::string_view name, std::int64_t layer_count) {
  constexpr std::string_view layers = "layers.";
  if (const std::size_t place = name.find(layers); place != std::string_view::npos) {
    const std::string_view rest = name.substr(place + layers.size());
    std::int64_t number = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (read.ec == std::errc() && number >= layer_count) return TensorRole::other;
  }
  return role_of(name);
}

}  // namespace fourfold::checkpoint
