// Config and weights -> the program, for every family: the config says what differs.
#pragma once

#include <functional>

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

// w8a8: dense matrices of which `is_fp8` says so take FP8 prefill rows from now on. Dense is what a layer
// multiplies its rows with: neither experts nor the head nor what joins the inputs of an MTP layer. A program
// made for w8a8 has it for the matrices stored in FP8.
void take_fp8_rows(backend::Program& program, const std::function<bool(const checkpoint::Matrix&)>& is_fp8);

}  // namespace fourfold::model
