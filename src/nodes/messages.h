// What leader and ranks say to each other, as values: to bytes and back. Reading throws Error (io) for bytes
// that do not add up.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "nodes/bytes.h"

namespace fourfold::nodes {

// Which model, at a glance: checksums of its tensors' names, shapes and places, of samples of its bytes, and
// of its config. Another model is refused in a moment; whether it is the same one its tensors tell.
struct ModelSums {
  std::uint64_t headers = 0, samples = 0, config = 0;

  friend bool operator==(const ModelSums&, const ModelSums&) = default;
  Bytes bytes() const;
  static ModelSums read(std::span<const std::byte> bytes);
};
// "its weights differ": what does first; empty for equals.
std::string_view difference(const ModelSums& a, const ModelSums& b);

// A checksum of each tensor's bytes, in the order of the checkpoint.
struct TensorSums {
  std::vector<std::uint64_t> tensors;

  friend bool operator==(const TensorSums&, const TensorSums&) = default;
  Bytes bytes() const;
  static TensorSums read(std::span<const std::byte> bytes);
};
// "lm_head.weight in model.safetensors differs, and 2 more of 90 tensors"; empty for equals.
std::string difference(const TensorSums& a, const TensorSums& b,
                       const std::function<std::string(std::size_t tensor)>& name);

// What a rank is to be: the leader's own choices, so that all compute the same.
struct Settings {
  std::int32_t rank = 0, rank_count = 1;
  std::string model = {};  // as the leader was given it
  std::string backend = {}, activations = {}, kv = {}, experts = {};
  std::string dense = {}, tuned = {};
  std::string collective = {};  // how GPUs meet: tcp, or nccl and its version
  double memory_fraction = 0;   // 0: nobody has said
  std::string isa = {};         // the leader's CPU kernels
  std::string machine = {};     // or its GPU
  backend::Capacity capacity = {};

  Bytes bytes() const;
  static Settings read(std::span<const std::byte> bytes);
};

// What a rank says of itself when it has loaded its part.
struct Loaded {
  std::int64_t anchor_bytes = 0;
  std::vector<backend::MemoryUse> memory = {};
  std::vector<std::string> notices = {};

  Bytes bytes() const;
  static Loaded read(std::span<const std::byte> bytes);
};

// Of Prepared's functions, the ones every rank does.
enum class Task : std::uint32_t { run, run_sampled, run_drafts, set_history, save_anchor, restore_anchor };

// A call of one of them, with its arguments; those it does not have are empty.
struct Call {
  Task task = Task::run;
  backend::Pass pass = backend::Pass::main;
  std::vector<std::int32_t> tokens = {}, pages = {}, logits_rows = {}, hidden_rows = {};
  std::vector<backend::SequenceRows> sequences = {};
  std::vector<backend::Choice> choices = {};
  std::vector<std::int32_t> counts = {};
  std::vector<backend::SeenToken> history = {};
  std::int64_t token_limit = 0;
  std::int32_t slot = 0, anchor = 0;
  std::int64_t position = 0;
  std::uint64_t token_count = 0, logit_count = 0;  // that come out

  void take(const backend::Batch& batch);
  backend::Batch batch() const { return {tokens, sequences, pages, logits_rows, hidden_rows}; }
  Bytes bytes() const;
  static Call read(std::span<const std::byte> bytes);
};

// How it ended. Logits stay where they are: all ranks have the same.
struct Answer {
  bool done = true;
  std::vector<std::int32_t> tokens = {};
  bool is_error = false;
  bool is_of_no_rank = false;  // what the ranks meet in has failed, and this one is there
  Code code = Code::internal;
  std::string message = {}, hint = {};

  Bytes bytes() const;
  static Answer read(std::span<const std::byte> bytes);
};

// In front of the values of a part.
struct PartHead {
  bool gathers = false;  // else they are summed
  bool is_last = false;  // the rank needs no result: the leader alone reads what is gathered
  std::int64_t row_count = 0;
  std::string where;

  Bytes bytes() const;
};
struct Part {
  PartHead head;
  std::vector<float> values;
  static Part read(std::span<const std::byte> bytes);
};

}  // namespace fourfold::nodes
