// An engine for many requests, from a model and what is asked of it: `fourfold serve` and libfourfold_engine
// both open theirs here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "library/prepare_model.h"

namespace fourfold::library {

// What is 0 or absent is chosen by the backend and its memory.
struct EngineSettings {
  BackendOptions backend;
  std::optional<std::int64_t> max_context;  // tokens of prompt and answer of one request
  std::optional<std::int64_t> kv_tokens;    // that all requests have room for, together
  std::int64_t max_sequences = 0;           // at once
  std::int64_t max_queue = 1024;            // waiting; one more is refused
  std::int64_t step_rows = 0;
  int mtp = engine::EngineOptions::kMtpAuto;  // drafts a step
  std::int64_t prefix_cache_bytes = -1;       // of recurrent states; 0: no prefix cache; -1: chosen
  schedule::BlockSink on_blocks = {};         // what becomes of cached blocks
};

// Tokens of one request. Throws invalid_request for more than the model has positions.
std::int64_t context_of(const OpenModel& model, const EngineSettings& settings);

struct EngineRoom {
  backend::Capacity capacity;
  std::int64_t context = 0;    // tokens of one request
  std::int64_t sequences = 0;  // at once
};

// In the order it must be torn down.
struct OpenEngine {
  EngineRoom room;
  PreparedModel prepared;
  std::unique_ptr<engine::Engine> engine;
};

// Finds room for the requests, loads the weights and starts the engine's thread. The model must outlive what
// comes back. Throws invalid_request for settings the model cannot have, out_of_memory when not even one
// request fits.
using Deliver = std::function<void(std::vector<engine::Delivery>&&)>;
OpenEngine open_engine(const OpenModel& model, const EngineSettings& settings, const Listener& listener,
                       Deliver deliver);

}  // namespace fourfold::library
