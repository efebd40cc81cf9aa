// What an independent implementation computed from a checkpoint, read from one safetensors file: for each
// prompt p its p.input_ids, p.logits_f32, p.hidden_f32 (the embedding, then each layer's output),
// p.final_norm_f32, p.greedy_ids and p.greedy_gap, and where there is MTP p.mtp_logits_f32, p.mtp_draft_ids
// and p.mtp_draft_logits_f32. A file may keep the numbers of some rows only: p.rows says which, the last one
// among them. It may have p.greedy_logits_f32, what the continuation was chosen from.
// tests/golden/qwen35-micro/make_tiny_qwen35.py writes such files.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "backend/program.h"
#include "checkpoint/safetensors.h"

namespace fourfold::evaluate {

// Views of the file's numbers, in memory. Sizes agree with the program and with each other. T tokens, R rows
// kept, V vocabulary, H hidden.
struct PromptReference {
  std::string name;
  std::vector<std::int32_t> ids;         // [T]
  std::vector<std::int32_t> rows;        // [R], ascending; the last is T - 1
  std::span<const float> logits;         // [R, V]
  std::span<const float> hidden;         // [layers + 1, R, H]
  std::span<const float> final_norm;     // [R, H]
  std::vector<std::int32_t> greedy_ids;  // the continuation
  std::span<const float> greedy_gap;     // best minus second logit, at each of them
  std::span<const float> greedy_logits;  // [continuation, V], or empty
  std::span<const float> mtp_logits;     // [R - 1, V]; empty when the file has no MTP outputs
  std::vector<std::int32_t> draft_ids;   // recursive drafts after the prompt and its first greedy token
  std::span<const float> draft_logits;   // [drafts, V]
};

class ReferenceFile {
 public:
  // Throws io or bad_checkpoint: what is missing, misshapen, not finite or out of range for this program is
  // named.
  ReferenceFile(const std::filesystem::path& path, const backend::Program& program);

  std::span<const PromptReference> prompts() const { return prompts_; }

 private:
  PromptReference read(const std::string& name, const backend::Program& program);
  std::vector<std::int32_t> rows(const std::string& name, std::int64_t tokens) const;
  // Integers from 0 to limit - 1; `what` they are, for messages.
  std::vector<std::int32_t> integers(const std::string& name, std::string_view what,
                                     std::int64_t limit) const;
  std::span<const float> floats(const std::string& name, const checkpoint::Shape& shape);
  bool has(const std::string& name) const;

  checkpoint::SafetensorsFile file_;
  std::deque<std::vector<float>> kept_;
  std::vector<PromptReference> prompts_;
};

}  // namespace fourfold::evaluate
