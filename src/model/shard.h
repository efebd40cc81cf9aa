// One rank's part of a model (tensor parallelism): the same structs as the whole model, with views into the
// same checkpoint, so that build_program makes the rank's program from them. Nothing is copied but vectors.
//
//   by head      query (with its gate), key, value and their biases; DeltaNet qkv (inside each of q, k and
//   v), gate, beta,
//                decay, taps, a_log, dt_bias. With more ranks than KV or key heads, ranks share a head.
//   by column    attention and DeltaNet output; down of MLPs, experts and the shared expert, whose gate and
//                up are sharded by row (share_of_width). The shared expert is never whole: it would be added
//                once a rank.
//   by expert    instead of the experts' columns, when asked
//   by row       the head; its logits are put together again by AllGather
//   whole        embedding, norms, router and its bias, the shared expert's gate, MTP's combining matrix
#pragma once

#include <string>

#include "backend/program.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/weights.h"

namespace fourfold::model {

enum class ExpertSharding {
  automatic,  // by column where the experts' width allows it, else by expert
  columns,    // every rank has a part of every expert
  experts     // every rank has some of the experts, whole
};

struct ModelShard {
  backend::PartOf part;
  checkpoint::ModelConfig config;    // head counts and widths are the part's own; vocab_size is the whole's
  checkpoint::ModelWeights weights;  // views into the checkpoint of the whole
  std::int64_t first_expert = 0;     // of the experts this part has; 0 when it has a part of each
  std::int64_t expert_count = 0;     // of the whole model
};

// A rank's part of an MLP's width: whole records (plan/record_size.h), of which the first ranks have one more
// where they do not divide; where there is no record for each rank, the same width for all. What a rank has
// not of a record, the GPU backend fills with zeros, holds and reads.
checkpoint::RowRange share_of_width(std::int64_t width, backend::PartOf part);

// Why the routed experts cannot be sharded by column into so many parts; empty: they can.
std::string column_problem(const checkpoint::ModelWeights& weights, int parts);

// Throws unsupported_model with every size that cannot be sharded into so many parts.
ModelShard shard_model(const checkpoint::ModelConfig& config, const checkpoint::ModelWeights& weights,
                       backend::PartOf part, ExpertSharding experts);

}  // namespace fourfold::model
