// Bounds that requests and model folders share: what sampling refuses from the one it refuses from the other.
#pragma once

#include <cstddef>

namespace fourfold {

// Outside of these, logits that are divided and multiplied by the penalty overflow and lose their order.
inline constexpr double kRepetitionPenaltyLeast = 0.01;
inline constexpr double kRepetitionPenaltyMost = 100;
inline constexpr double kTemperatureMost = 100;
inline constexpr int kLogprobsMax = 20;  // alternatives reported with a token
// Of stop strings: text is held back while it may become one.
inline constexpr std::size_t kStopCountMax = 64, kStopBytesMax = 1024;

}  // namespace fourfold
