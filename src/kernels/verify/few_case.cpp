#include "kernels/verify/few_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_few/launch_few.h"
#include "kernels/record/pack.h"
#include "kernels/reference/layer.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/scaled.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using kernels::RowKind;

// One chosen (token, rank) and the slot the kernels give it: tiles are numbered by the first pair that chose
// the expert, tokens of a tile by their index.
struct Pair {
  int token;
  int expert;
  float weight;
  std::int64_t slot;
};

struct Setup {
  bool mxfp4, gate_up;
  std::vector<CheckpointMatrix> matrix, up;
  std::vector<reference::Weights> weights, up_weights;
  std::vector<float> scale, scale_up;
  std::vector<float> bias;  // clamped rows: [experts][packed rows], gate's before up's
  std::vector<float> logits;
  std::vector<Pair> pairs;  // [tokens * top_k], by token, then rank
  std::int64_t slots = 0;
  std::vector<Bf16> inputs;  // GEMM1: tokens; GEMM2: slots
  // GEMM2 with a shared expert, into the residual stream: every second seed, a format after the other.
  bool adds = false;
  WeightFormat shared_format = WeightFormat::bf16;
  reference::Weights shared;
  std::vector<std::uint8_t> shared_records;
  std::vector<Bf16> shared_tokens;
  std::vector<float> shared_scale, shared_gate, before;
};

constexpr int kSharedColumns = 576;  // a segment of K and a ragged one
constexpr int kGateStride = 3;

void make_shared(Random& random, const FewCase& test, Setup& setup) {
  setup.adds = true;
  constexpr WeightFormat formats[] = {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4};
  setup.shared_format = formats[test.seed / 2 % 3];
  if (setup.shared_format == WeightFormat::nvfp4) {
    const CheckpointMatrix matrix = random_matrix(random, test.rows, kSharedColumns, false);
    setup.shared = reference_of(matrix);
    setup.shared_records.resize(record::packed_bytes<record::Nvfp4>(test.rows, kSharedColumns));
    record::pack_records<record::Nvfp4>({{matrix.codes.data(), matrix.scales.data()},
                                         {},
                                         setup.shared_records.data(),
                                         test.rows,
                                         kSharedColumns,
                                         record::RowOrder::plain,
                                         record::BitOrder::half});
  } else {
    const bool is_fp8 = setup.shared_format == WeightFormat::fp8;
    const DenseMatrix matrix = random_dense(random, test.rows, kSharedColumns,
                                            is_fp8 ? record::DenseSource::e4m3 : record::DenseSource::bf16);
    setup.shared = reference_of(matrix);
    setup.shared_records = pack_dense(matrix);
  }
  setup.shared_tokens = random_tokens(random, test.tokens, kSharedColumns);
  for (std::int64_t row = 0; row < test.rows; ++row)
    setup.shared_scale.push_back(static_cast<float>(random.uniform(0.5, 2.0)));
  for (int i = 0; i < test.tokens * kGateStride; ++i)
    setup.shared_gate.push_back(static_cast<float>(random.uniform(-6.0, 6.0)));
  for (std::int64_t i = 0; i < test.tokens * test.rows; ++i)
    setup.before.push_back(static_cast<float>(100.0 * random.normal()));
}

void place_pairs(const FewCase& test, Setup& setup) {
  std::vector<int> tile_of_expert(static_cast<std::size_t>(test.experts), -1);
  std::vector<int> taken(static_cast<std::size_t>(test.experts), 0);
  int tiles = 0;
  for (int token = 0; token < test.tokens; ++token) {
    const reference::Route route =
        reference::route(setup.logits.data() + token * test.experts, test.experts, test.top_k, {});
    for (int rank = 0; rank < test.top_k; ++rank) {
      const int expert = route.experts[static_cast<std::size_t>(rank)];
      int& tile = tile_of_expert[static_cast<std::size_t>(expert)];
      if (tile < 0) tile = tiles++;
      setup.pairs.push_back(
          {token, expert, route.weights[static_cast<std::size_t>(rank)],
           std::int64_t{moe::kSlotGroup} * tile + taken[static_cast<std::size_t>(expert)]++});
    }
  }
  setup.slots = std::int64_t{moe::kSlotGroup} * test.tokens * test.top_k;
}

// Rows of an expert's packed matrix.
std::int64_t packed_rows(const FewCase& test) {
  return test.kind == RowKind::few_gate_up ? 2 * test.rows : test.rows;
}

Setup make_setup(const FewCase& test) {
  Random random(test.seed);
  Setup setup{};
  setup.mxfp4 = test.row.format == "mxfp4";
  setup.gate_up = test.kind == RowKind::few_gate_up;
  for (int expert = 0; expert < test.experts; ++expert) {
    setup.matrix.push_back(random_matrix(random, test.rows, test.columns, setup.mxfp4));
    setup.up.push_back(random_matrix(random, test.rows, test.columns, setup.mxfp4));
    setup.weights.push_back(reference_of(setup.matrix.back()));
    setup.up_weights.push_back(reference_of(setup.up.back()));
    setup.scale.push_back(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3));
    setup.scale_up.push_back(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3));
  }
  if (test.row.clamps)
    for (std::int64_t i = 0; i < test.experts * packed_rows(test); ++i)
      setup.bias.push_back(static_cast<float>(random.normal()));
  for (int i = 0; i < test.tokens * test.experts; ++i)
    setup.logits.push_back(static_cast<float>(random.normal() * 3.0));
  place_pairs(test, setup);
  setup.inputs = random_tokens(random, setup.gate_up ? test.tokens : setup.slots, test.columns);
  if (!setup.gate_up && test.seed % 2 == 0) make_shared(random, test, setup);
  return setup;
}

template <class Format>
std::vector<std::uint8_t> pack_experts(const FewCase& test, const Setup& setup) {
  const std::int64_t rows = packed_rows(test);
  const std::size_t each =
      record::packed_bytes<Format>(static_cast<std::size_t>(rows), static_cast<std::size_t>(test.columns));
  std::vector<std::uint8_t> packed(each * setup.matrix.size());
  for (std::size_t e = 0; e < setup.matrix.size(); ++e)
    record::pack_records<Format>({{setup.matrix[e].codes.data(), setup.matrix[e].scales.data()},
                                  {setup.up[e].codes.data(), setup.up[e].scales.data()},
                                  packed.data() + e * each,
                                  rows,
                                  test.columns,
                                  setup.gate_up ? record::RowOrder::gate_up : record::RowOrder::plain,
                                  moe::order_of_path(test.row.path)});
  return packed;
}

Scaled dot_of(const Setup& setup, const reference::Weights& weights, float scale, std::int64_t row,
              const Bf16* input) {
  return scale_dot(reference::dot_w4a16(weights, row, input, reference::Order::decode), {scale, scale}, {},
                   half_decode_factor(setup.mxfp4));
}

Scaled plus(const Scaled& a, const Scaled& b) {
  const double value = a.value + b.value, bound = a.bound + b.bound;
  return {Host::add(a.bits, b.bits), value, bound + (std::abs(value) + bound) * 0x1p-24 + 0x1p-149};
}

// With the bias of its row in the packed matrix, where the row of kernels adds one.
Scaled biased(const FewCase& test, const Setup& setup, const Scaled& dot, std::size_t expert,
              std::int64_t row) {
  if (setup.bias.empty()) return dot;
  const float bias =
      setup.bias[expert * static_cast<std::size_t>(packed_rows(test)) + static_cast<std::size_t>(row)];
  return plus(dot, {bias, bias, 0.0});
}

void check_gate_up(Result& result, const FewCase& test, const Setup& setup,
                   const std::vector<std::uint16_t>& out) {
  for (const Pair& pair : setup.pairs) {
    const auto expert = static_cast<std::size_t>(pair.expert);
    const Bf16* token = setup.inputs.data() + pair.token * test.columns;
    for (std::int64_t neuron = 0; neuron < test.rows; ++neuron) {
      const Scaled gate =
          biased(test, setup, dot_of(setup, setup.weights[expert], setup.scale[expert], neuron, token),
                 expert, neuron);
      const Scaled up =
          biased(test, setup, dot_of(setup, setup.up_weights[expert], setup.scale_up[expert], neuron, token),
                 expert, test.rows + neuron);
      compare_bf16(result, out[static_cast<std::size_t>(pair.slot * test.rows + neuron)],
                   test.row.clamps ? clamped_swiglu_of(gate, up) : swiglu_of(gate, up));
    }
  }
}

// The experts of a token in rank order; each addition rounds once.
Scaled experts_of(const FewCase& test, const Setup& setup, int token, std::int64_t row) {
  Scaled sum{};
  for (int rank = 0; rank < test.top_k; ++rank) {
    const Pair& pair = setup.pairs[static_cast<std::size_t>(token * test.top_k + rank)];
    const auto expert = static_cast<std::size_t>(pair.expert);
    const Scaled dot = dot_of(setup, setup.weights[expert], setup.scale[expert], row,
                              setup.inputs.data() + pair.slot * test.columns);
    const Scaled part = weighted(biased(test, setup, dot, expert, row), pair.weight);
    sum.bits = rank == 0 ? part.bits : Host::add(sum.bits, part.bits);
    sum.value += part.value;
    sum.bound += part.bound + std::abs(sum.value) * 0x1p-23;
  }
  return sum;
}

// The shared expert's row: scales, then the gate's sigmoid (|gate| <= 6: 2^-21 + 6 * 2^-23), as dense_few has
// them.
Scaled shared_of(const Setup& setup, int token, std::int64_t row) {
  const bool is_fp4 = setup.shared_format == WeightFormat::nvfp4;
  const Scaled dot = weighted(
      scale_dot(reference::dot_w4a16(setup.shared, row, setup.shared_tokens.data() + token * kSharedColumns,
                                     reference::Order::decode),
                {}, {}, is_fp4 ? half_decode_factor(false) : 1.0f),
      setup.shared_scale[static_cast<std::size_t>(row)]);
  const float gate = setup.shared_gate[static_cast<std::size_t>(token * kGateStride)];
  const double open = 1.0 / (1.0 + std::exp(-double{gate})), value = dot.value * open;
  return {Host::mul(device::sigmoid<Host>(gate), dot.bits), value,
          dot.bound * open + std::abs(value) * (0x1p-20 + 0x1p-22)};
}

void check_down(Result& result, const FewCase& test, const Setup& setup,
                const std::vector<std::uint16_t>& out) {
  for (int token = 0; token < test.tokens; ++token)
    for (std::int64_t row = 0; row < test.rows; ++row)
      compare_bf16(result, out[static_cast<std::size_t>(token * test.rows + row)],
                   experts_of(test, setup, token, row));
}

// The residual stream: what it held, the shared expert, the routed ones, in this order.
void check_residual(Result& result, const FewCase& test, const Setup& setup, const std::vector<float>& out) {
  for (int token = 0; token < test.tokens; ++token)
    for (std::int64_t row = 0; row < test.rows; ++row) {
      const auto at = static_cast<std::size_t>(token * test.rows + row);
      const Scaled want = plus(plus({setup.before[at], setup.before[at], 0.0}, shared_of(setup, token, row)),
                               experts_of(test, setup, token, row));
      result.compare(out[at], want.value, want.bound,
                     std::bit_cast<std::uint32_t>(out[at]) == std::bit_cast<std::uint32_t>(want.bits));
    }
}

void run_residual(kernels::Machine& machine, const FewCase& test, const Setup& setup, Arena& arena,
                  kernels::RowHandle handle, moe_few::FewParams few, const moe::GemmParams& params,
                  Result& result) {
  few.residual = arena.upload(setup.before, "residual");
  few.shared = {arena.upload(setup.shared_records, "shared weights"),
                reinterpret_cast<const std::uint16_t*>(arena.upload(setup.shared_tokens, "shared tokens")),
                arena.upload(setup.shared_gate, "shared gates"),
                kSharedColumns / record::kColumns,
                kGateStride,
                arena.upload(setup.shared_scale, "shared scales"),
                setup.shared_format};
  moe_few::launch_down(machine, handle, {few, params});
  std::vector<float> out(setup.before.size());
  machine.memory().read(out.data(), few.residual, out.size() * 4);
  check_residual(result, test, setup, out);
}

void run(kernels::Machine& machine, const FewCase& test, Result& result) {
  const kernels::RowHandle handle = machine.required(test.kind, test.row.row);
  const Setup setup = make_setup(test);
  Arena arena(machine.memory());
  const moe_few::FewParams few{
      arena.upload(setup.logits, "logits"), test.tokens, test.experts, test.top_k, {}};
  moe::GemmParams params{};
  params.weights = arena.upload(
      setup.mxfp4 ? pack_experts<record::Mxfp4>(test, setup) : pack_experts<record::Nvfp4>(test, setup),
      "weights");
  params.tokens = reinterpret_cast<const unsigned char*>(arena.upload(setup.inputs, "tokens"));
  params.scale = arena.upload(setup.scale, "scales");
  params.scale_up = setup.gate_up ? arena.upload(setup.scale_up, "up scales") : nullptr;
  if (test.row.clamps) {
    params.bias = arena.upload(setup.bias, "biases");
    params.glu_alpha = kGluAlpha;
    params.glu_limit = kGluLimit;
  }
  params.op = setup.gate_up ? moe::Op::gate_up : moe::Op::down;
  params.strips = static_cast<std::int32_t>((setup.gate_up ? 2 : 1) * test.rows / record::kRows);
  params.records = static_cast<std::int32_t>(test.columns / record::kColumns);
  params.out_columns = static_cast<std::int32_t>(test.rows);
  const auto values = static_cast<std::size_t>((setup.gate_up ? setup.slots : test.tokens) * test.rows);
  if (setup.adds) return run_residual(machine, test, setup, arena, handle, few, params, result);
  auto* out = arena.take<std::uint16_t>(values, "result");
  params.out = out;
  machine.memory().forget(out, values * 2);
  std::vector<std::uint16_t> host(values);
  if (!setup.gate_up) {
    moe_few::launch_down(machine, handle, {few, params});
    machine.memory().read(host.data(), out, values * 2);
    return check_down(result, test, setup, host);
  }
  moe_few::launch_gate_up(machine, handle, {few, params});
  for (const Pair& pair : setup.pairs)
    machine.memory().read(host.data() + pair.slot * test.rows, out + pair.slot * test.rows,
                          static_cast<std::size_t>(test.rows) * 2);
  check_gate_up(result, test, setup, host);
}

}  // namespace

Result run_few_case(kernels::Machine& machine, const FewCase& test, bool bits_exact) {
  Result result;
  result.kernel = test.row.kernel;
  result.row = test.row.row;
  result.op = test.kind == RowKind::few_gate_up ? "gate_up" : "down";
  result.machine = machine.description();
  result.seed = test.seed;
  result.exact = bits_exact;
  result.shape = fourfold::format("{} {}x{} E {} k {} tokens {}", result.op, test.rows, test.columns,
                                  test.experts, test.top_k, test.tokens);
  try {
    run(machine, test, result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace fourfold::verify
