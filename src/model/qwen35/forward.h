// Config and weights -> the program of a Qwen3.5 (and Qwen3-Next, Qwen3-MoE: the config says what differs).
#pragma once

#include "backend/program.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"
#include "model/builder.h"
#include "model/shard.h"

namespace fourfold::model {

// The program points into `weights` (and the checkpoint below them): they must outlive it. The draft pass is
// there when the weights have an MTP layer. Throws unsupported_model.
backend::Program build_program(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                               Activations activations);

// The program of one rank of several.
backend::Program build_program(const ModelShard& part, Activations activations);

}  // namespace fourfold::model
