// A model's folder, read: its config, its tensors by role, and what it says about requests. What the program
// and the library both do first.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/bind.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/shard_index.h"
#include "engine/sequence.h"
#include "library/listener.h"
#include "sample/params.h"
#include "text/tokenizer.h"

namespace fourfold::library {

// A checkpoint with its headers, config and vectors read; no matrix has been touched. Programs point into it,
// so it stays where it is.
struct OpenModel {
  explicit OpenModel(std::filesystem::path model_folder);
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;

  std::filesystem::path folder;
  checkpoint::ModelConfig config;
  std::optional<checkpoint::GenerationDefaults> defaults;
  checkpoint::Checkpoint checkpoint;
  checkpoint::BoundModel bound;

  bool has_mtp() const { return bound.weights.mtp.has_value(); }
};

// Config fields that are neither used nor known, and matrices that are not held as they are stored, are
// noticed.
void mention_contents(const OpenModel& model, const Listener& listener);

engine::ModelLimits limits_of(const OpenModel& model);

// What a request of this model has before anybody says otherwise: its own sampling parameters, where it
// stops, and which ids have text (all of the vocabulary without a tokenizer).
struct RequestDefaults {
  sample::Params params;
  std::vector<engine::TokenId> stop_ids;
  std::int64_t token_limit = 0;
};
RequestDefaults request_defaults(const OpenModel& model, const text::Tokenizer* tokenizer);

// A number people can type.
std::uint64_t draw_seed();

// Throws invalid_request naming the first byte that is not UTF-8.
void require_utf8(std::string_view text, std::string_view what);

}  // namespace fourfold::library
