// Bounds that requests and model folders share: what sampling refuses from the one it refuses from the other.
#pragma once

namespace fourfold {

// Outside of these, logits that are divided and multiplied by the penalty overflow and lose their order.
inline constexpr double kRepetitionPenaltyLeast = 0.01;
inline constexpr double kRepetitionPenaltyMost = 100;
inline constexpr double kTemperatureMost = 100;

}  // namespace fourfold
