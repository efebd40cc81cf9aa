// The proof of combine_norm: what combine and norm_rows give one after the other, bit for bit.
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/format.h"
#include "kernels/dense/reference.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/step_run.h"

namespace fourfold::verify {
namespace {

constexpr float kEpsilon = 1e-6f;

// Each pair's slot, in no order, with slots between them that nobody asks for.
std::vector<std::int32_t> some_slots(StepRun& run, int pairs) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(pairs + 5));
  std::iota(slots.begin(), slots.end(), 0);
  for (int i = pairs + 4; i > 0; --i)
    std::swap(slots[static_cast<std::size_t>(i)], slots[static_cast<std::size_t>(run.below(i + 1))]);
  slots.resize(static_cast<std::size_t>(pairs));
  return slots;
}

}  // namespace

// Columns below, at and beyond a piece, and the most a block has; ranks that are no multiple of four.
void prove_combine_norm(StepRun& run) {
  constexpr int columns_of[] = {320, 2'048, 64, 8'192};
  int tokens = 2 + run.below(3), top_k = 1 + run.below(10);
  int columns = run.test().variant < 4 ? columns_of[run.test().variant] : 64 * (1 + run.below(64));
  if (run.test().large) tokens = 100, top_k = 10, columns = run.large_shape().hidden;
  const auto width = static_cast<std::size_t>(columns), count = static_cast<std::size_t>(tokens) * width;
  run.result().shape = fourfold::format("{} rows of {}, {} experts each", tokens, columns, top_k);
  const std::vector<std::int32_t> slots = some_slots(run, tokens * top_k);
  const std::vector<float> rows = run.normals((slots.size() + 5) * width);
  const std::vector<float> before = run.normals(count, 30.0), weight = run.normals(width);

  moe_combine::CombineNormParams params{};
  params.combine.rows = run.upload(rows, "experts' rows");
  params.combine.pair_slot = run.upload(slots, "slots");
  params.combine.tokens = tokens;
  params.combine.top_k = top_k;
  params.combine.columns = columns;
  params.combine.residual = run.upload(before, "residual");
  params.norm = {run.upload(weight, "weight"), kEpsilon, run.take<std::uint16_t>(count, "normed")};
  run.launch(run.test().row.row, tokens, params);

  const auto x = run.written(params.combine.residual, count);
  const auto normed = run.written(params.norm.out, count);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    std::vector<float> want(width);
    for (std::size_t c = 0; c < width; ++c) {
      float sum = 0.0f;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(top_k); ++rank) {
        const auto slot = static_cast<std::size_t>(slots[token * static_cast<std::size_t>(top_k) + rank]);
        const float part = rows[slot * width + c];
        sum = rank == 0 ? part : Host::add(sum, part);
      }
      want[c] = Host::add(before[token * width + c], sum);
      run.compare_bits(x[token * width + c], want[c]);
    }
    const auto norm = dense::normed_row<Host>(want.data(), weight.data(), columns, kEpsilon);
    for (std::size_t c = 0; c < width; ++c)
      compare_bf16(run.result(), normed[token * width + c],
                   {norm[c].bits, norm[c].value, norm[c].error + 0x1p-149});
  }
}

}  // namespace fourfold::verify
