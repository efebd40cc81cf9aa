// A program of one or a few ops, run on the reference and on the CPU backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "kernels/cpu/isa.h"
#include "tests/backend/support.h"
#include "tests/support/steps.h"

namespace fourfold::backend {

// A program of embeddings (token t brings row t of random tables), ops over them, and logits that nobody
// reads.
class OpCase {
 public:
  explicit OpCase(std::int64_t token_count) : token_count_(token_count) {
    program.vocab_size = token_count;
    program.position_limit = 1 << 20;
  }
  OpCase(const OpCase&) = delete;

  ValueId input(std::int64_t columns, double size = 1) {
    const auto floats = keep(random_floats(static_cast<std::size_t>(token_count_ * columns), ++seed_, size));
    const ResultId out = value(columns);
    program.main.push_back(
        Embed{matrix({"table", token_count_, columns, checkpoint::F32Storage{floats}, {}}), out});
    return out;
  }
  ResultId value(std::int64_t columns, ValueType type = ValueType::f32) {
    program.values.push_back({"value", columns, RowSet::tokens, type});
    return {{static_cast<std::int32_t>(program.values.size()) - 1}};
  }
  MatrixId matrix(checkpoint::Matrix made, InputFormat input = InputFormat::f32) {
    matrices_.push_back(std::make_unique<checkpoint::Matrix>(std::move(made)));
    program.matrices.push_back({matrices_.back().get(), input});
    return {static_cast<std::int32_t>(program.matrices.size()) - 1};
  }
  MatrixId nvfp4(std::int64_t rows, std::int64_t columns, InputFormat input, float input_scale = 0x1p-8f) {
    nvfp4_.push_back(std::make_unique<Nvfp4Matrix>(quantize_nvfp4_weights(
        random_floats(static_cast<std::size_t>(rows * columns), ++seed_), rows, columns)));
    return matrix(
        {"nvfp4",
         rows,
         columns,
         checkpoint::Nvfp4Storage{nvfp4_.back()->view(), Nvfp4InputScale{input_scale, 1 / input_scale}},
         {}},
        input);
  }
  VectorId vector(std::int64_t count, double size = 1) {
    program.vectors.push_back(
        {"vector", keep(random_floats(static_cast<std::size_t>(count), ++seed_, size))});
    return {static_cast<std::int32_t>(program.vectors.size()) - 1};
  }
  std::span<const float> keep(std::vector<float> values) {
    floats_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    return *floats_.back();
  }
  std::uint64_t next_seed() { return ++seed_; }

  // Runs the rows in pieces of `piece` on both backends and gives the values of every piece together.
  struct Both {
    std::vector<float> reference, cpu;
    double largest() const {
      double most = 0;
      for (const float x : reference) most = std::max(most, std::abs(static_cast<double>(x)));
      return most;
    }
    void expect_near(double bound) const {
      ASSERT_EQ(reference.size(), cpu.size());
      ASSERT_FALSE(reference.empty());
      for (std::size_t i = 0; i < reference.size(); ++i)
        ASSERT_LE(std::abs(static_cast<double>(reference[i]) - static_cast<double>(cpu[i])), bound) << i;
    }
  };
  Both run(ValueId watched, std::int64_t piece, int threads = 3) {
    const ValueId first = {0};
    const std::int64_t columns = program.value(first).columns;
    const auto head = keep(std::vector<float>(static_cast<std::size_t>(token_count_ * columns)));
    program.values.push_back({"asked", columns, RowSet::logits, ValueType::f32});
    program.values.push_back({"logits", token_count_, RowSet::logits, ValueType::f32});
    const auto asked = static_cast<std::int32_t>(program.values.size()) - 2;
    program.main.push_back(TakeLogitsRows{first, {{asked}}});
    program.main.push_back(Linear{
        {asked}, matrix({"head", token_count_, columns, checkpoint::F32Storage{head}, {}}), {{asked + 1}}});
    program.main_logits = {asked + 1};
    const Capacity capacity{.page_count = (token_count_ + 15) / 16,
                            .page_tokens = 16,
                            .state_slot_count = 1,
                            .row_count = token_count_};
    const auto reference = ReferenceBackend().prepare(program, capacity);
    // The two best instruction sets: the best may have tiles, the other has not.
    Both both;
    const auto isas = fourfold::cpu::available_isas();
    for (std::size_t i = 0; i < std::min<std::size_t>(2, isas.size()); ++i) {
      const std::string isa(fourfold::cpu::isa_name(isas[isas.size() - 1 - i]));
      const auto cpu =
          make_cpu_backend({.threads = threads, .isa = isa, .tile_codes = i == 0, .keep_values = true})
              ->prepare(program, capacity);
      run_pieces(*reference, *cpu, watched, piece, both);
    }
    return both;
  }

  Program program;

 private:
  void run_pieces(Prepared& reference, Prepared& cpu, ValueId watched, std::int64_t piece, Both& both) const {
    const auto page_count = static_cast<std::int32_t>(reference.capacity().page_count);
    for (std::int64_t at = 0; at < token_count_; at += piece) {
      Part rows{.slot = 0, .pages = own_pages(0, page_count), .position = at, .tokens = {}};
      rows.tokens.resize(static_cast<std::size_t>(std::min(piece, token_count_ - at)));
      std::iota(rows.tokens.begin(), rows.tokens.end(), static_cast<std::int32_t>(at));
      rows.all_logits = false;
      for (const auto& [prepared, to] : {std::pair(&reference, &both.reference), {&cpu, &both.cpu}}) {
        step(*prepared, Pass::main, {rows});
        const auto values = prepared->value(watched);
        to->insert(to->end(), values.begin(), values.end());
      }
    }
  }

  std::int64_t token_count_;
  std::uint64_t seed_ = 0;
  std::vector<std::unique_ptr<std::vector<float>>> floats_;
  std::vector<std::unique_ptr<checkpoint::Matrix>> matrices_;
  std::vector<std::unique_ptr<Nvfp4Matrix>> nvfp4_;
};

}  // namespace fourfold::backend
