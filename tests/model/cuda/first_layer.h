// What a model's first layer makes of rows on the simulated GPU, beside the reference backend: close enough
// to tell one arithmetic from another.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load/layers.h"
#include "kernels/launch/sim_machine.h"
#include "tests/model/support.h"

namespace fourfold::model {

using backend::Role;

inline constexpr backend::Capacity kOneSequence{
    .page_count = 4, .page_tokens = 64, .state_slot_count = 1, .row_count = 128};

// A program with some matrices zero, some taking 16 bits.
class Changed {
 public:
  using Which = std::function<bool(std::string_view name)>;
  Changed(const Loaded& model, Activations activations, const Which& is_zero, const Which& takes_bf16 = {})
      : Changed(model.program(activations), is_zero, takes_bf16) {}
  Changed(backend::Program program, const Which& is_zero, const Which& takes_bf16)
      : program_(std::move(program)) {
    for (backend::MatrixUse& use : program_.matrices) {
      const checkpoint::Matrix& stored = *use.matrix;
      if (takes_bf16 && takes_bf16(stored.name)) use.input = backend::InputFormat::bf16;
      if (!is_zero(stored.name)) continue;
      use.input = backend::InputFormat::bf16;
      put(use, {});
    }
  }
  // Row i of these is what token i's embedding is; other tokens' are zero.
  void begin_with(std::span<const float> rows) {
    const backend::MatrixId table = std::get<backend::Embed>(program_.main.front()).table;
    put(program_.matrices[static_cast<std::size_t>(table.index)], rows);
  }
  const backend::Program& program() const { return program_; }

 private:
  // These numbers in a matrix's place, and zeros behind them.
  void put(backend::MatrixUse& use, std::span<const float> numbers) {
    const checkpoint::Matrix& stored = *use.matrix;
    auto& values = values_.emplace_back(static_cast<std::size_t>(stored.rows * stored.columns));
    std::ranges::copy(numbers, values.begin());
    use.matrix = &matrices_.emplace_back(
        checkpoint::Matrix{stored.name, stored.rows, stored.columns, checkpoint::F32Storage{values}, {}});
  }

  backend::Program program_;
  std::deque<std::vector<float>> values_;
  std::deque<checkpoint::Matrix> matrices_;
};
inline Changed::Which named(std::vector<std::string_view> parts) {
  return [parts = std::move(parts)](std::string_view name) {
    return std::ranges::any_of(parts, [&](auto part) { return name.find(part) != std::string_view::npos; });
  };
}

// What the first layer makes of these tokens, a row each: of one sequence, or each of its own.
inline std::vector<float> first_layer(backend::Prepared& prepared, const std::vector<std::int32_t>& tokens,
                                      Role role, bool is_one_sequence = true) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  std::vector<std::int32_t> pages(static_cast<std::size_t>(prepared.capacity().page_count)), asked{count - 1};
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<backend::SequenceRows> rows{{.row_count = count, .page_count = 4, .role = role}};
  if (!is_one_sequence) {
    rows.clear();
    for (std::int32_t i = 0; i < count; ++i)
      rows.push_back({.row_count = 1, .state_slot = i, .page_begin = i, .page_count = 1, .role = role});
  }
  std::vector<float> logits(static_cast<std::size_t>(prepared.program().vocab_size));
  prepared.run(backend::Pass::main, {tokens, rows, pages, asked, {}}, logits);
  const backend::ValueId out = backend::cuda::read_layers(prepared.program()).main.layers.front().out;
  const auto values = prepared.value(out);
  return {values.begin(), values.end()};
}

// The share of rows that differ by more than rounding to bf16 does. A slot's result and the shared expert's
// are stored in bf16, each number off by at most 2^-9 of itself: so is a row, unless they cancel.
inline constexpr double kRowBound = 0x1p-9;
inline double share_beyond(const std::vector<float>& found, const std::vector<float>& wanted,
                           std::size_t rows, double bound = kRowBound) {
  EXPECT_EQ(found.size(), wanted.size());
  const std::size_t columns = wanted.size() / rows;
  double beyond = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double off = 0, all = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      off += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
      all += std::pow(static_cast<double>(wanted[i]), 2);
    }
    if (!(std::sqrt(off) <= bound * std::sqrt(all))) ++beyond;
  }
  return beyond / static_cast<double>(rows);
}

struct Rows {
  Role role;
  std::vector<std::int32_t> tokens;
  bool is_one_sequence = true;
  backend::Capacity capacity = kOneSequence;
};
inline double share_beyond(const Changed& ours, const Changed& theirs, const Rows& rows) {
  sim::Device device;
  const auto machine = kernels::make_sim_machine(device);
  const auto gpu =
      backend::make_gpu_backend(*machine, {.keep_values = true})->prepare(ours.program(), rows.capacity);
  const auto reference = backend::ReferenceBackend().prepare(theirs.program(), rows.capacity);
  const auto layer = [&](backend::Prepared& prepared) {
    return first_layer(prepared, rows.tokens, rows.role, rows.is_one_sequence);
  };
  return share_beyond(layer(*gpu), layer(*reference), rows.tokens.size());
}

// Mixers add nothing: the rows that the MLP of the first layer reads are those of the embedding, normed, the
// same numbers on every backend.
inline const Changed::Which kMixers = named({"o_proj", "out_proj"});

}  // namespace fourfold::model
