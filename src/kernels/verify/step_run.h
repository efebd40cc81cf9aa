// One proof of a step kernel while it runs: memory of the machine, launches by row name, and what was
// written.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/verify/large_shape.h"
#include "kernels/verify/scaled.h"
#include "kernels/verify/step_case.h"

namespace fourfold::verify {

class StepRun {
 public:
  StepRun(kernels::Machine& machine, const StepCase& test, Result& result)
      : random(test.seed), test_(test), machine_(machine), result_(result), arena_(machine.memory()) {}

  ~StepRun() {
    for (const auto& [pointer, place] : shared_) machine_.memory().release_shared(pointer, place);
  }
  StepRun(const StepRun&) = delete;
  StepRun& operator=(const StepRun&) = delete;

  Random random;
  const StepCase& test() const { return test_; }
  kernels::Machine& machine() { return machine_; }
  Result& result() { return result_; }

  template <class T>
  T* upload(const std::vector<T>& values, const char* name) {
    return arena_.upload(values, name);
  }
  // Memory that a kernel must write before it is read.
  template <class T>
  T* take(std::size_t count, const char* name) {
    T* memory = arena_.take<T>(count, name);
    machine_.memory().forget(memory, std::max<std::size_t>(count * sizeof(T), 1));
    return memory;
  }
  template <class T>
  void write(T* to, const std::vector<T>& values) {
    if (!values.empty()) machine_.memory().write(to, values.data(), values.size() * sizeof(T));
  }
  // Memory that ranks share.
  template <class T>
  T* take_shared(std::size_t count, kernels::Memory::Place place, const char* name) {
    kernels::Memory& memory = machine_.memory();
    shared_.push_back({memory.allocate_shared(count * sizeof(T), place, name), place});
    return static_cast<T*>(shared_.back().first);
  }
  // The row under proof, or one of the kernels it works with.
  template <class Params>
  void launch(std::string_view row, std::int64_t blocks, const Params& params) {
    const kernels::RowHandle handle = machine_.find(kernels::RowKind::step, row);
    if (!handle.found()) fail(Code::unsupported_op, "{}", machine_.no_row(row));
    machine_.launch(handle, static_cast<int>(blocks), params);
  }
  template <class T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> values(count);
    if (count > 0) machine_.memory().read(values.data(), from, count * sizeof(T));
    return values;
  }
  // The same, and part of what two machines must agree in.
  template <class T>
  std::vector<T> written(const T* from, std::size_t count) {
    std::vector<T> values = read(from, count);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    output_.insert(output_.end(), bytes, bytes + count * sizeof(T));
    return values;
  }

  // Equal or wrong.
  void compare_exact(double actual, double expected) {
    result_.compare(actual, expected, 0.0, actual == expected);
  }
  void compare_bits(float actual, float expected) {
    const bool same = std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected);
    result_.compare(same ? 0.0 : double{actual}, same ? 0.0 : double{expected}, 0.0, same);
  }
  void compare_f32(float actual, const Scaled& expected) {
    result_.compare(actual, expected.value, expected.bound,
                    std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected.bits));
  }
  // No scalar model has these bits: the bound decides.
  void compare_bound(double actual, double expected, double bound) {
    result_.exact = false;
    result_.compare(actual, expected, bound, true);
  }

  std::vector<float> normals(std::size_t count, double size = 1.0) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(size * random.normal());
    return values;
  }
  // Which of `count` outputs to compare: all of them, or of a large case the first, the last and some
  // between.
  std::vector<int> sample(int count, int most) {
    return sample_places(random, count, test_.large ? most : count);
  }
  // Of a large case.
  const LargeShape& large_shape() const { return kLargeShapes[test_.variant]; }
  int below(int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); }

  std::vector<std::uint8_t> take_output() { return std::move(output_); }

 private:
  const StepCase& test_;
  kernels::Machine& machine_;
  Result& result_;
  kernels::Arena arena_;
  std::vector<std::uint8_t> output_;
  std::vector<std::pair<void*, kernels::Memory::Place>> shared_;
};

// One variant of the narrowest decode row goes to the longest context there is; of the wider ones, whose
// tables and splits are the same, to one with splits of several pages.
inline bool is_long_context(const StepCase& test) { return test.variant == 3; }
inline bool is_longest_context(const StepCase& test) { return is_long_context(test) && test.row.m == 16; }

// The proofs, a function a kernel.
void prove_dense_few(StepRun& run);
void prove_dense_pair(StepRun& run);
void prove_dense_table(StepRun& run);
void prove_many_table(StepRun& run);
void prove_dense_many(StepRun& run);
void prove_dense_many_pair(StepRun& run);
void prove_dense_sum_pair(StepRun& run);
void prove_dense_tall(StepRun& run);
void prove_dense_sum(StepRun& run);
void prove_dense_sum_norm(StepRun& run);
void prove_all_gather(StepRun& run);
void prove_all_reduce(StepRun& run);
void prove_combine_norm(StepRun& run);
void prove_norm_rows(StepRun& run);
void prove_norm_prompt(StepRun& run);
void prove_norm_fp4(StepRun& run);
void prove_quantize_rows(StepRun& run);
void prove_select_norm(StepRun& run);
void prove_add_gated(StepRun& run);
void prove_add_bias(StepRun& run);
void prove_delta_decode(StepRun& run);
void prove_delta_prompt(StepRun& run);
void prove_prepare(StepRun& run);
void prove_row_squares(StepRun& run);
void prove_attend(StepRun& run);
void prove_combine(StepRun& run);
void prove_attend_prompt(StepRun& run);
void prove_attend_latent(StepRun& run);
void prove_attend_latent_prompt(StepRun& run);
void prove_latent_rows(StepRun& run);
void prove_turn_queries(StepRun& run);
void prove_head_linear(StepRun& run);
void prove_absorb_queries(StepRun& run);
void prove_combine_expand(StepRun& run);
void prove_scores(StepRun& run);
void prove_peaks(StepRun& run);
void prove_argmax(StepRun& run);
void prove_weigh(StepRun& run);
void prove_choose(StepRun& run);
void prove_accept(StepRun& run);
void prove_embed(StepRun& run);
void prove_take_rows(StepRun& run);

}  // namespace fourfold::verify
