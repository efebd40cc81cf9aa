// How a token's logits become a choice of experts and their weights: what models differ in. As it is by
// default, the k largest and the softmax over them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/format.h"

namespace fourfold::moe_route {

inline constexpr int kMaxGroups = 32;  // a lane each

struct RouteRule {
  bool renormalise = true;  // the k weights sum to 1
  bool sigmoid = false;     // a score is the sigmoid of its logit; else it is the softmax over all experts
  // The next three are of sigmoid scores alone.
  std::int32_t groups = 1;       // as many equal runs of experts; a group counts what its two best sum to
  std::int32_t groups_kept = 1;  // of the best groups; experts of others are not chosen
  const float* choice_bias = nullptr;  // [experts], added to the scores for choosing; not in weights; or null
  float scale = 1.0f;                  // of every weight
};

// Whether it takes a row with the code for every rule (AnyRule in top_k.h; named as below). The others have
// the softmax alone: rules they do not need were half of their machine code.
inline bool needs_any_rule(const RouteRule& rule) { return rule.sigmoid || rule.scale != 1.0f; }
inline std::string any_rule_name(std::string_view row) { return format("{} sigmoid", row); }
inline bool is_any_rule_row(std::string_view row) { return row.ends_with(" sigmoid"); }

// Why the kernels cannot choose so; empty: they can.
inline std::string refusal_of(const RouteRule& rule, int experts, int top_k) {
  if (!rule.sigmoid && (rule.groups != 1 || rule.choice_bias != nullptr))
    return format(
        "softmax scores with {}; the router's kernels have a bias for choosing and groups with sigmoid "
        "scores alone",
        rule.groups != 1 ? format("{} groups", rule.groups) : std::string("a bias for choosing"));
  if (rule.groups == 1) return {};
  if (rule.groups < 1 || rule.groups > kMaxGroups || experts % rule.groups != 0 || experts / rule.groups < 2)
    return format("{} experts in {} groups; the router's kernels take 1 to {} equal groups of two or more",
                  experts, rule.groups, kMaxGroups);
  if (rule.groups_kept < 1 || rule.groups_kept > rule.groups ||
      rule.groups_kept * (experts / rule.groups) < top_k)
    return format("{} of {} groups with {} experts each are kept, and {} experts chosen of them",
                  rule.groups_kept, rule.groups, experts / rule.groups, top_k);
  return {};
}

}  // namespace fourfold::moe_route
