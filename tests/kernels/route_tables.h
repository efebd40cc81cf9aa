// The router's kernels run alone: uploads logits, launches what the layer would, brings every table back.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/launch/arena.h"
#include "kernels/launch/machine.h"
#include "kernels/moe_route/launch_route.h"
#include "kernels/moe_route/route_params.h"

namespace fourfold::test {

struct RouteShape {
  int tokens = 1;
  int experts = 1;
  int top_k = 1;
  int tile_tokens = 8;
  bool renormalise = true;
  moe_route::RouteRule rule = {};  // its bias is given apart; renormalise is the shape's
};

struct Tables {
  std::vector<std::int32_t> pair_expert, pair_slot;
  std::vector<float> pair_weight;
  std::vector<moe::TokenTile> tiles;     // as many as tile_count says
  std::vector<std::int32_t> slot_token;  // by pair: what its slot holds
  std::vector<float> slot_weight;
};

class RouteRun {
 public:
  RouteRun(kernels::Machine& machine, const RouteShape& shape, const std::vector<float>& logits,
           const std::vector<float>& choice_bias = {})
      : machine_(machine), shape_(shape), arena_(machine.memory()) {
    pairs_ = static_cast<std::size_t>(shape.tokens) * static_cast<std::size_t>(shape.top_k);
    slots_ = static_cast<std::size_t>(moe::slot_limit(shape.tokens, shape.top_k, shape.experts));
    limit_ = static_cast<std::size_t>(
        moe::tile_limit(shape.tokens, shape.top_k, shape.experts, shape.tile_tokens));
    const bool small = shape.tokens <= moe_route::kSmallTokens;
    const auto chunks = static_cast<std::size_t>(moe_route::chunk_count(shape.tokens));
    const auto experts = static_cast<std::size_t>(shape.experts);
    params_.logits = arena_.upload(logits, "logits");
    params_.tables = {take<std::int32_t>(pairs_, "pair experts"), take<float>(pairs_, "pair weights"),
                      take<std::int32_t>(pairs_, "pair slots"),   take<std::int32_t>(slots_, "slot tokens"),
                      take<float>(slots_, "slot weights"),        take<moe::TokenTile>(limit_, "tiles"),
                      take<std::int32_t>(1, "tile count")};
    params_.chunk_counts = small ? nullptr : take<std::int32_t>(chunks * experts, "chunk counts");
    params_.expert_counts = small ? nullptr : take<std::int32_t>(experts, "expert counts");
    params_.tokens = shape.tokens;
    params_.experts = shape.experts;
    params_.top_k = shape.top_k;
    params_.tile_tokens = shape.tile_tokens;
    params_.rule = shape.rule;
    params_.rule.renormalise = shape.renormalise;
    if (!choice_bias.empty()) params_.rule.choice_bias = arena_.upload(choice_bias, "bias for choosing");
  }

  Tables run() {
    for (const auto& [start, bytes] : taken_) machine_.memory().forget(start, bytes);
    moe_route::launch_route(machine_, moe_route::find_route_rows(machine_), params_);
    Tables tables;
    read(tables.pair_expert, params_.tables.pair_expert, pairs_);
    read(tables.pair_weight, params_.tables.pair_weight, pairs_);
    read(tables.pair_slot, params_.tables.pair_slot, pairs_);
    std::vector<std::int32_t> count;
    read(count, params_.tables.tile_count, 1);
    read(tables.tiles, params_.tables.tiles, static_cast<std::size_t>(count[0]));
    // Slots beyond an expert's tokens are nobody's; those of a pair must have been written.
    for (const std::int32_t slot : tables.pair_slot) {
      std::int32_t token = 0;
      float weight = 0.0f;
      machine_.memory().read(&token, params_.tables.slot_token + slot, sizeof token);
      machine_.memory().read(&weight, params_.tables.slot_weight + slot, sizeof weight);
      tables.slot_token.push_back(token);
      tables.slot_weight.push_back(weight);
    }
    return tables;
  }

 private:
  template <class T>
  T* take(std::size_t count, const char* name) {
    T* const start = arena_.take<T>(count, name);
    taken_.push_back({start, count * sizeof(T)});
    return start;
  }
  template <class T>
  void read(std::vector<T>& to, const T* from, std::size_t count) {
    to.resize(count);
    if (count) machine_.memory().read(to.data(), from, count * sizeof(T));
  }

  kernels::Machine& machine_;
  RouteShape shape_;
  kernels::Arena arena_;
  moe_route::RouteParams params_{};
  std::vector<std::pair<void*, std::size_t>> taken_;
  std::size_t pairs_ = 0, slots_ = 0, limit_ = 0;
};

}  // namespace fourfold::test
