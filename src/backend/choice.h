// How the token behind a row is chosen where the row's logits are, so that only its id leaves the device. The
// numbers mean what sample/params.h says, and the token is the one that sample/ chooses from the same logits.
#pragma once

#include <cstdint>
#include <span>

namespace fourfold::backend {

// As it comes: the most probable token, of equals the lowest id.
struct Choice {
  bool wants_logits = false;  // the host chooses this row's token: its logits leave the device
  bool has_history = false;   // penalties and biases: those of the history in the row's state slot
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
  double temperature = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
};

// A token that choices of one sequence treat in its own way. It stands in a history once.
struct SeenToken {
  std::int32_t token = 0;
  std::int32_t count = 0;  // in the answer; 0: in the prompt only; -1: neither, it has a bias only
  double bias = 0;
};

// The choices of one pass.
struct Choices {
  std::int64_t token_limit = 0;  // only ids below it are chosen
  std::span<const Choice> rows;  // one for each row of Batch::logits_rows
};

// Instead of a token where none can be chosen: the row's logits are not finite.
inline constexpr std::int32_t kNoToken = -1;

// What comes back for the rows asked.
struct Chosen {
  std::span<std::int32_t> tokens;  // one for each row asked; those that want logits are left alone
  std::span<float> logits;         // [rows that want them, vocabulary], in their order
};

}  // namespace fourfold::backend
