// Matrices times rows: several matrices of one input, or the experts that rows were sent to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/machine.h"
#include "backend/cpu/weights.h"

namespace fourfold::backend::cpu {

// Rows as matrices read them. Each need is made once a call.
class InputRows {
 public:
  // Makes the rows of `in`, [row_count, columns], for one need; the answer is the row pointers. At most
  // kNeeds different ones between two calls of clear().
  const std::uint8_t* const* make(Machine& machine, const InputNeed& need, const float* in,
                                  std::int64_t row_count, std::int64_t columns);
  void clear() { used_ = 0; }

 private:
  static constexpr int kNeeds = 16;  // as many as matrices are multiplied at a time
  struct Made {
    InputNeed need;
    Scratch<std::uint8_t> bytes;
    Scratch<const std::uint8_t*> rows;
  };
  Made made_[kNeeds];
  int used_ = 0;
};

struct Product {
  const Weight* weight = nullptr;
  float* out = nullptr;         // [rows, weight rows]
  const float* bias = nullptr;  // [weight rows], or none
};

// out = W in + bias for each product; in: [row_count, columns].
void multiply(Machine& machine, InputRows& inputs, std::span<const Product> products, const float* in,
              std::int64_t row_count, std::int64_t columns);

// HeadLinear: `in` is [row_count, heads, columns], `out` [row_count, heads, rows of a head's matrix].
void multiply_heads(Machine& machine, InputRows& inputs, std::span<const Weight> heads, const float* in,
                    std::int64_t row_count, float* out);

struct ExpertWeights {
  const Weight* gate;
  const Weight* up;
  const Weight* down;
  const float* gate_bias = nullptr;  // null: none
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

std::vector<ExpertWeights> expert_weights(const Program& program, const ExpertSet& set,
                                          std::span<const Weight> weights);

// The routed experts. Rows are grouped by expert, so that an expert's weights are read once a batch.
class ExpertRunner {
 public:
  // experts, shares: [row_count, choices]; out: [row_count, hidden]. The op says the activation. The set's
  // experts are number first_expert and those behind it; choices of others add nothing.
  void run(Machine& machine, const RunExperts& op, std::span<const ExpertWeights> set,
           std::int64_t first_expert, const float* in, const std::int32_t* experts, const float* shares,
           std::int64_t row_count, std::int64_t choices, float* out);

 private:
  struct Group {  // of the slots that chose one expert
    std::int32_t expert;
    std::int64_t begin, end;
  };
  void group_slots(const std::int32_t* experts, std::int64_t slot_count, std::int64_t first_expert,
                   std::size_t expert_count);
  void gate_and_up(Machine& machine, const RunExperts& op, std::span<const ExpertWeights> set,
                   const float* in, std::int64_t row_count, std::int64_t choices);
  void down(Machine& machine, std::span<const ExpertWeights> set, std::int64_t slot_count);

  std::vector<Group> groups_;
  std::vector<std::int32_t> slots_;     // by group: row * choices + rank
  std::vector<std::int64_t> place_of_;  // of a slot: where it stands in slots_; -1: its expert is elsewhere
  std::vector<std::int64_t> counts_;
  InputRows shared_inputs_;
  Scratch<std::uint8_t> own_inputs_;
  Scratch<const std::uint8_t*> token_pointers_;
  Scratch<float> gate_, up_, result_;
};

}  // namespace fourfold::backend::cpu
