// The choice of tokens on the machine: what every asked row wants, histories that stay there from step to
// step, and the launches behind the head (kernels/sampling).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/choice.h"
#include "backend/cuda/step/multiply.h"
#include "backend/cuda/step/row_group.h"
#include "kernels/launch/arena.h"
#include "kernels/sampling/sampling_params.h"

namespace fourfold::backend::cuda {

// Which kernels the choices of a pass need; part of a graph's key.
struct ChoiceKind {
  int token_limit = 0;  // 0: no token is chosen
  bool tables = false;  // rows differ: by the sampler's tables. Otherwise all are greedy
  bool scores = false;  // a row has a history
  bool draws = false;   // a row has a temperature
  bool weighs = false;  // and no top-k
  int noted = 0;        // sequences whose tokens are noted in their histories
  auto operator<=>(const ChoiceKind&) const = default;
};

// Where choices are read and left: places of the sampler, or of a draft chain.
struct ChoicePlaces {
  const std::int32_t* choice_rows = nullptr;
  const sampling::SampleRow* sampling = nullptr;
  std::int32_t* chosen = nullptr;
  std::uint32_t* faults = nullptr;
  std::int32_t* draft_tokens = nullptr;  // see sampling::ChoiceParams
  const std::int32_t* draft_places = nullptr;
};

// The rows a launch chooses for.
struct ChoiceRows {
  float* logits = nullptr;
  int stride = 0;
  int begin = 0;  // the first of them among all of the places
  int count = 0;
  bool last = true;  // no more of these places come behind
  const step::RowPlace* rows = nullptr;
  const std::int32_t* step_tokens = nullptr;
};

// What a request asks as the kernels read it.
sampling::SampleRow sample_row(const Choice& choice, std::int64_t token_limit, std::int32_t state_slot,
                               std::int32_t draft_count);
// Adds what a row needs.
void need(ChoiceKind& kind, const Choice& choice, std::int64_t token_limit);

class DeviceSampler {
 public:
  DeviceSampler(kernels::Machine& machine, kernels::Arena& arena, const Capacity& capacity, int vocab,
                int logits_rows);
  ~DeviceSampler();
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  std::int64_t history_limit() const { return histories_.limit; }
  void set_history(std::int32_t state_slot, std::span<const SeenToken> entries);

  // The choices of the rows asked among rows [begin, begin + count) of the group; sent when the kernels need
  // tables. chain_rows: where in a draft chain each row asked goes on, by its place; empty: there is none.
  ChoiceKind send(const RowGroup& group, int begin, int count, const Choices& choices, bool notes,
                  std::span<const std::int32_t> chain_rows);
  // Those that were sent. rows: of the batch, for choices without tables.
  ChoicePlaces places(const ChoiceKind& kind, const std::int32_t* rows) const;

  void launch(const ChoiceKind& kind, const ChoicePlaces& places, const ChoiceRows& rows,
              Multiplier& multiplier);

  // Tokens of the `asked` rows that were sent last; throws internal when one is not finite.
  void read(std::span<const std::int32_t> places, const Choices& choices, std::span<std::int32_t> tokens);

 private:
  void add_place(const RowGroup& group, std::int32_t row, std::int32_t first_row, int choice,
                 bool has_history);
  // The tables for as many rows as were asked: few of them, and little is sent.
  struct Layout {
    std::size_t sampling, rows, draft_places, bytes;
  };
  Layout layout_of(std::size_t rows) const;
  template <class T>
  T* host(std::size_t at) const {
    return reinterpret_cast<T*>(host_ + at);
  }

  kernels::Machine& machine_;
  std::size_t few_rows_, row_limit_, slots_;
  std::size_t room_ = 0;  // rows the tables sent last have room for; tokens and faults as well
  unsigned char* host_ = nullptr;
  unsigned char* device_ = nullptr;
  int sequence_count_ = 0;
  sampling::Histories histories_{};
  unsigned char* staged_history_ = nullptr;  // on the host
  std::uint32_t* group_keys_ = nullptr;
  std::uint64_t* group_weights_ = nullptr;
  sampling::PartBest* parts_ = nullptr;
  std::int32_t* chosen_ = nullptr;
  sampling::AcceptParams accept_{};
  std::vector<std::int32_t> read_;
};

}  // namespace fourfold::backend::cuda
