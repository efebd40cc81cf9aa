// A checkpoint that says what it was told: a Qwen3.5 of three small layers whose weights are written down
// instead of learned, so that agents, routers and clients can be tested against a model that calls a tool and
// then speaks, through the real tokenizer, template, parser, scheduler and cache. docs/models.md has the
// construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "checkpoint/write/model_shape.h"
#include "checkpoint/write/output_folder.h"
#include "checkpoint/write/random_model.h"

namespace fourfold::checkpoint {

struct ScriptedModel {
  using Window = std::array<std::int64_t, 4>;  // token ids, the newest last
  struct Step {                                // behind these four, in this phase, comes `next`
    Window seen;
    std::int64_t phase;
    std::int64_t next;
  };
  struct Turn {  // behind these four the phase is this one, until another turn; it begins as 0
    Window seen;
    std::int64_t phase;
  };
  std::int64_t vocab = 0;
  std::int64_t positions = 0;  // the longest context
  std::vector<Step> steps;
  std::vector<Turn> turns;
};

// What the construction has room for.
inline constexpr std::int64_t kScriptPhasesMax = 32;
inline constexpr std::int64_t kScriptTokensMax = 624;

// Tensors and config.json. Where no step applies the model ends its turn. Throws invalid_request for more
// tokens or phases than there is room for, io.
RandomModelSummary write_scripted_model(const OutputFolder& folder, const ScriptedModel& script,
                                        const TokenIds& ids);

}  // namespace fourfold::checkpoint
