#include "kernels/verify/gemm_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>

#include "base/error.h"
#include "base/format.h"
#include "base/fp8_rows.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/epilogue.h"
#include "kernels/moe/launch_gemm.h"
#include "kernels/moe/paths.h"
#include "kernels/record/pack.h"
#include "kernels/verify/gemm_setup.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/large_shape.h"
#include "kernels/verify/scaled.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using Expert = GemmExpert;
using Setup = GemmSetup;

// A scale as a checkpoint of this convention stores it, read back by the library.
GlobalScale weight_scale(float scale, Convention convention) {
  if (convention == Convention::model_opt) return {global_scale(ModelOptScale{scale}), scale};
  return {global_scale(CompressedTensorsScale{Host::reciprocal(scale)}), scale};
}
Nvfp4InputScale input_scale(float scale, Convention convention) {
  if (convention == Convention::model_opt) return nvfp4_input_scale(ModelOptInputScale{scale});
  return nvfp4_input_scale(CompressedTensorsInputScale{Host::reciprocal(scale)});
}

std::vector<float> given(const std::vector<GlobalScale>& scales) {
  std::vector<float> values;
  for (const GlobalScale& scale : scales) values.push_back(scale.given);
  return values;
}

Expert random_expert(Random& random, const GemmCase& test, const Setup& setup) {
  Expert expert;
  const std::int64_t rows = setup.gate_up ? test.rows / 2 : test.rows;
  expert.matrix = random_matrix(random, rows, test.columns, setup.mxfp4);
  expert.weights = reference_of(expert.matrix);
  if (setup.gate_up) {
    expert.up = random_matrix(random, rows, test.columns, setup.mxfp4);
    expert.up_weights = reference_of(expert.up);
  }
  return expert;
}

Expert random_dense_expert(Random& random, const GemmCase& test, Setup& setup) {
  Expert expert;
  const auto source = test.row.format == "fp8" ? record::DenseSource::e4m3 : record::DenseSource::bf16;
  const std::int64_t rows = setup.gate_up ? test.rows / 2 : test.rows;
  expert.dense = random_dense(random, rows, test.columns, source);
  expert.weights = reference_of(expert.dense);
  if (setup.gate_up) {
    expert.dense_up = random_dense(random, rows, test.columns, source);
    expert.up_weights = reference_of(expert.dense_up);
  }
  if (source == record::DenseSource::e4m3)
    for (std::int64_t row = 0; row < test.rows; ++row)
      setup.row_scale.push_back(static_cast<float>(random.uniform(0.5, 2.0)));
  return expert;
}

void quantize_to_fp8(const GemmCase& test, Setup& setup) {
  const auto columns = static_cast<std::size_t>(test.columns);
  const bool has_scale = test.seed % 2 == 1;
  constexpr float scale = 0.75f, inverse = 1.0f / 0.75f;
  if (has_scale) setup.token_scale.assign(setup.experts.size(), {scale, double{scale}});
  for (std::size_t first = 0; first < setup.tokens.size(); first += columns) {
    float largest = 0.0f;
    for (std::size_t i = first; i < first + columns; ++i)
      largest = Host::max(largest, Host::abs(to_float(setup.tokens[i])));
    const Fp8RowFactor factor = fp8_row_factor(largest);
    if (!has_scale) setup.token_factor.push_back(factor.factor);
    for (std::size_t i = first; i < first + columns; ++i)
      setup.codes.push_back(to_e4m3(to_float(setup.tokens[i]) * (has_scale ? inverse : factor.inverse)));
  }
}

Setup make_setup(const GemmCase& test) {
  Random random(test.seed);
  Setup setup{};
  setup.mxfp4 = test.row.format == "mxfp4";
  setup.half_tokens = test.row.path != moe::W4a4::name;
  setup.fp8_tokens = moe::takes_fp8(test.row.path);
  if (test.row.path == moe::W8a8Mma::name) setup.fp8_bits = tensor_core::kMmaFp8Bits;
  setup.gate_up = test.op == moe::Op::gate_up;
  setup.decode = test.row.role == "decode";
  setup.dense = test.row.format == "bf16" || test.row.format == "fp8";
  for (std::size_t e = 0; e < test.tokens_per_expert.size(); ++e) {
    setup.experts.push_back(setup.dense ? random_dense_expert(random, test, setup)
                                        : random_expert(random, test, setup));
    setup.scale.push_back(weight_scale(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3), test.convention));
    setup.scale_up.push_back(
        weight_scale(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3), test.convention));
    const auto token_scale = static_cast<float>(random.uniform(0.5, 2.0) * 2e-3);
    const Nvfp4InputScale input = input_scale(token_scale, test.convention);
    setup.token_scale.push_back(setup.half_tokens || setup.mxfp4 ? GlobalScale{}
                                                                 : GlobalScale{input.scale, token_scale});
    setup.token_inverse.push_back(input.inverse);
    const auto next = nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0))});
    setup.next_scale.push_back(next.scale);
    setup.next_inverse.push_back(next.inverse);
  }
  const int token_count = 24;
  setup.tokens = random_tokens(random, token_count, test.columns);
  setup.assignment = random_assignment(random, test.tokens_per_expert, token_count, test.row.n);
  if (setup.fp8_tokens) quantize_to_fp8(test, setup);
  if (test.by_row) {
    std::ranges::fill(setup.token_scale, setup.token_scale.front());
    std::ranges::fill(setup.token_inverse, setup.token_inverse.front());
    Assignment each;
    for (int token = 0; token < token_count; ++token) {
      each.slot_token.push_back(token);
      each.slot_expert.push_back(0);
    }
    setup.rows = setup.mxfp4 ? quantize_slots_mxfp4(setup.tokens, test.columns, each)
                             : quantize_slots(setup.tokens, test.columns, each, setup.token_inverse);
  }
  if (!setup.half_tokens) {
    setup.slots = setup.mxfp4
                      ? quantize_slots_mxfp4(setup.tokens, test.columns, setup.assignment)
                      : quantize_slots(setup.tokens, test.columns, setup.assignment, setup.token_inverse);
    setup.slot_weights = reference_of(setup.slots);
  }
  if (test.row.clamps)
    for (std::size_t i = 0; i < setup.experts.size() * static_cast<std::size_t>(test.rows); ++i)
      setup.bias.push_back(static_cast<float>(5.0 * random.normal()));
  if (test.op == moe::Op::add_f32)
    for (std::int64_t i = 0; i < setup.assignment.slots() * test.rows; ++i)
      setup.before.push_back(static_cast<float>(random.normal()));
  return setup;
}

std::vector<std::uint8_t> pack_experts(const GemmCase& test, const Setup& setup) {
  if (setup.dense) {
    std::vector<std::uint8_t> all;
    for (const Expert& expert : setup.experts) {
      const std::vector<std::uint8_t> records =
          setup.gate_up ? pack_dense(expert.dense, expert.dense_up) : pack_dense(expert.dense);
      all.insert(all.end(), records.begin(), records.end());
    }
    return all;
  }
  const std::size_t each = setup.mxfp4 ? record::packed_bytes<record::Mxfp4>(test.rows, test.columns)
                                       : record::packed_bytes<record::Nvfp4>(test.rows, test.columns);
  std::vector<std::uint8_t> packed(each * setup.experts.size());
  for (std::size_t e = 0; e < setup.experts.size(); ++e) {
    const Expert& expert = setup.experts[e];
    record::PackJob job{};
    job.matrix = {expert.matrix.codes.data(), expert.matrix.scales.data()};
    job.up = {expert.up.codes.data(), expert.up.scales.data()};
    job.records = packed.data() + e * each;
    job.rows = test.rows;
    job.columns = test.columns;
    job.row_order = setup.gate_up ? record::RowOrder::gate_up : record::RowOrder::plain;
    job.bit_order = moe::order_of_path(test.row.path);
    if (setup.mxfp4)
      record::pack_records<record::Mxfp4>(job);
    else
      record::pack_records<record::Nvfp4>(job);
  }
  return packed;
}

// Tokens in the column order the row reads: plain for the streaming kernel, staged for the tiled one.
std::vector<Bf16> rows_for(const GemmCase& test, const Setup& setup) {
  if (setup.decode) return setup.tokens;
  std::vector<Bf16> staged(setup.tokens.size());
  for (std::size_t i = 0; i < setup.tokens.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(test.columns),
                      column = i % static_cast<std::size_t>(test.columns);
    const std::size_t pair = static_cast<std::size_t>(moe::staged_pair(static_cast<int>(column / 2)));
    staged[row * static_cast<std::size_t>(test.columns) + 2 * pair + column % 2] = setup.tokens[i];
  }
  return staged;
}

// The same of tokens in E4M3.
std::vector<std::uint8_t> fp8_rows_for(const GemmCase& test, const Setup& setup) {
  const auto columns = static_cast<std::size_t>(test.columns);
  std::vector<std::uint8_t> bytes(setup.codes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i / columns * columns +
          static_cast<std::size_t>(record::fp8_token_byte(static_cast<int>(i % columns)))] =
        setup.codes[i].bits;
  return bytes;
}

// scale_row: the row's place among the row scales, which `weighted` multiplies in.
Scaled scaled_dot(const Setup& setup, const reference::Weights& weights, std::int64_t row, std::int64_t slot,
                  std::int64_t columns, int expert, const GlobalScale& scale, std::int64_t scale_row) {
  const auto order = setup.decode ? reference::Order::decode : reference::Order::prefill;
  const std::int64_t token = setup.assignment.slot_token[static_cast<std::size_t>(slot)];
  const reference::Dot dot =
      setup.fp8_tokens
          ? reference::dot_w8a8(weights, row, setup.codes.data() + token * columns, setup.fp8_bits)
      : setup.half_tokens ? reference::dot_w4a16(weights, row, setup.tokens.data() + token * columns, order)
                          : reference::dot_w4a4(weights, row, setup.slot_weights, slot, order);
  const float decode_factor = setup.half_tokens && !setup.dense ? half_decode_factor(setup.mxfp4) : 1.0f;
  Scaled sum = scale_dot(dot, scale, setup.token_scale[static_cast<std::size_t>(expert)], decode_factor);
  if (!setup.bias.empty()) {
    const std::size_t rows = setup.bias.size() / setup.experts.size();
    return biased(sum,
                  setup.bias[static_cast<std::size_t>(expert) * rows + static_cast<std::size_t>(scale_row)]);
  }
  if (setup.row_scale.empty()) return sum;
  const std::size_t rows = setup.row_scale.size() / setup.experts.size();
  sum = weighted(
      sum, setup.row_scale[static_cast<std::size_t>(expert) * rows + static_cast<std::size_t>(scale_row)]);
  return setup.token_factor.empty() ? sum
                                    : weighted(sum, setup.token_factor[static_cast<std::size_t>(token)]);
}

void real_slots(const Setup& setup, const std::function<void(std::int64_t slot, int expert)>& visit) {
  for (std::int64_t slot = 0; slot < setup.assignment.slots(); ++slot)
    if (const int expert = setup.assignment.slot_expert[static_cast<std::size_t>(slot)]; expert >= 0)
      visit(slot, expert);
}

// All places, or some of a large case: others for every `draw`, so that the slots of a matrix see other rows.
template <class Visit>
void sampled(const GemmCase& test, std::int64_t draw, std::int64_t count, int most, const Visit& visit) {
  Random random(mix_bits(test.seed + mix_bits(static_cast<std::uint64_t>(draw))));
  for (const int place : sample_places(random, count, test.large ? most : static_cast<int>(count)))
    visit(std::int64_t{place});
}
void checked_slots(const GemmCase& test, const Setup& setup,
                   const std::function<void(std::int64_t slot, int expert)>& visit) {
  std::vector<std::int64_t> slots;
  real_slots(setup, [&](std::int64_t slot, int) { slots.push_back(slot); });
  sampled(test, -1, static_cast<std::int64_t>(slots.size()), 16, [&](std::int64_t i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    visit(slot, setup.assignment.slot_expert[static_cast<std::size_t>(slot)]);
  });
}

Scaled neuron_of(const GemmCase& test, const Setup& setup, std::int64_t slot, int expert,
                 std::int64_t neuron) {
  const Expert& weights = setup.experts[static_cast<std::size_t>(expert)];
  const Scaled gate = scaled_dot(setup, weights.weights, neuron, slot, test.columns, expert,
                                 setup.scale[static_cast<std::size_t>(expert)], neuron);
  const Scaled up = scaled_dot(setup, weights.up_weights, neuron, slot, test.columns, expert,
                               setup.scale_up[static_cast<std::size_t>(expert)], test.rows / 2 + neuron);
  return test.row.clamps ? clamped_swiglu_of(gate, up) : swiglu_of(gate, up);
}

void check_gate_up_bf16(Result& result, const GemmCase& test, const Setup& setup,
                        const std::vector<std::uint16_t>& out) {
  const std::int64_t neurons = test.rows / 2;
  checked_slots(test, setup, [&](std::int64_t slot, int expert) {
    sampled(test, slot, neurons, 128, [&](std::int64_t neuron) {
      const int pair = static_cast<int>(neuron / 2);
      const std::int64_t place = setup.decode ? neuron : 2 * moe::staged_pair(pair) + neuron % 2;
      compare_bf16(result, out[static_cast<std::size_t>(slot * neurons + place)],
                   neuron_of(test, setup, slot, expert, neuron));
    });
  });
}

// How far the nearest E2M1 value may lie from a magnitude: half the local distance, or what exceeds 6.
double quantisation_error(double magnitude) {
  return magnitude <= 2.0 ? 0.25 : magnitude <= 4.0 ? 0.5 : std::max(1.0, magnitude - 6.0);
}

void check_gate_up_nvfp4(Result& result, const GemmCase& test, const Setup& setup,
                         const std::vector<std::uint8_t>& out) {
  const std::int64_t neurons = test.rows / 2;
  const CheckpointMatrix actual = from_token_records(out.data(), setup.assignment.slots(), neurons);
  const reference::Weights values = reference_of(actual);
  checked_slots(test, setup, [&](std::int64_t slot, int expert) {
    const float inverse = setup.next_inverse[static_cast<std::size_t>(expert)];
    const double input_scale = setup.next_scale[static_cast<std::size_t>(expert)];
    sampled(test, slot, neurons / 16, 8, [&](std::int64_t block) {
      Scaled neuron[16];
      float amax = 0.0f;
      for (int i = 0; i < 16; ++i) {
        neuron[i] = neuron_of(test, setup, slot, expert, 16 * block + i);
        amax = Host::max(amax, Host::abs(neuron[i].bits));
      }
      const E4m3 scale = nvfp4_activation_scale(amax, inverse);
      const float multiplier = nvfp4_activation_multiplier(scale, inverse);
      const std::uint8_t scale_bits = actual.scales[static_cast<std::size_t>(slot * (neurons / 16) + block)];
      const double unit = to_float(E4m3{scale_bits}) * input_scale;
      for (int i = 0; i < 16; ++i) {
        const E2m1 code = values.codes[static_cast<std::size_t>(slot * neurons + 16 * block + i)];
        const bool same =
            scale_bits == scale.bits && code.bits == nvfp4_activation_code(neuron[i].bits, multiplier).bits;
        const double step = unit == 0.0 ? std::abs(neuron[i].value)
                                        : unit * quantisation_error(std::abs(neuron[i].value) / unit);
        result.compare(to_float(code) * unit, neuron[i].value, step * (1.0 + 0x1p-20) + neuron[i].bound,
                       same);
      }
    });
  });
}

// What add_f32 leaves: one more rounding, of the sum.
Scaled added(const Scaled& sum, float before) {
  const double value = sum.value + before;
  return {Host::add(before, sum.bits), value, sum.bound + (std::abs(value) + sum.bound) * 0x1p-24 + 0x1p-149};
}

void check_rows(Result& result, const GemmCase& test, const Setup& setup,
                const std::vector<std::uint8_t>& out, bool f32) {
  checked_slots(test, setup, [&](std::int64_t slot, int expert) {
    const float weight =
        test.op == moe::Op::down ? setup.assignment.slot_weight[static_cast<std::size_t>(slot)] : 1.0f;
    sampled(test, slot, test.rows, 256, [&](std::int64_t row) {
      Scaled expected =
          weighted(scaled_dot(setup, setup.experts[static_cast<std::size_t>(expert)].weights, row, slot,
                              test.columns, expert, setup.scale[static_cast<std::size_t>(expert)], row),
                   weight);
      const std::size_t at = static_cast<std::size_t>(slot * test.rows + row);
      if (test.op == moe::Op::add_f32) expected = added(expected, setup.before[at]);
      if (f32) {
        float actual;
        std::memcpy(&actual, out.data() + 4 * at, 4);
        result.compare(actual, expected.value, expected.bound,
                       std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected.bits));
      } else {
        std::uint16_t actual;
        std::memcpy(&actual, out.data() + 2 * at, 2);
        compare_bf16(result, actual, expected);
      }
    });
  });
}

void check_output(Result& result, const GemmCase& test, const Setup& setup,
                  const std::vector<std::uint8_t>& out) {
  if (setup.gate_up && !setup.half_tokens) return check_gate_up_nvfp4(result, test, setup, out);
  if (!setup.gate_up) return check_rows(result, test, setup, out, moe::stores_f32(test.op, setup.decode));
  std::vector<std::uint16_t> halves(out.size() / 2);
  std::memcpy(halves.data(), out.data(), out.size());
  check_gate_up_bf16(result, test, setup, halves);
}

// A dense matrix's rows may be some of the columns of a wider output: 64 others before them and 96 after must
// stay as they are. Returns its columns alone.
std::vector<std::uint8_t> launch_among_others(kernels::Machine& machine, Arena& arena,
                                              kernels::RowHandle handle, moe::GemmParams params,
                                              const Setup& setup, std::size_t bytes) {
  constexpr std::uint8_t untouched = 0xA5;
  const std::size_t row_bytes = bytes / static_cast<std::size_t>(setup.assignment.slots());
  const std::size_t element = row_bytes / static_cast<std::size_t>(params.out_columns);
  const std::size_t pitch = row_bytes + 160 * element, first = 64 * element;
  std::vector<std::uint8_t> wide(static_cast<std::size_t>(setup.assignment.slots()) * pitch, untouched);
  if (!setup.before.empty())
    for (std::size_t slot = 0; slot * pitch < wide.size(); ++slot)
      std::memcpy(wide.data() + slot * pitch + first,
                  setup.before.data() + slot * static_cast<std::size_t>(params.out_columns), row_bytes);
  std::uint8_t* device = arena.upload(wide, "wide result");
  params.out = device + first;
  params.out_columns += 160;
  moe::launch_gemm(machine, handle, params);
  machine.memory().read(wide.data(), device, wide.size());
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t slot = 0; slot * pitch < wide.size(); ++slot) {
    const std::uint8_t* row = wide.data() + slot * pitch;
    if (std::any_of(row, row + first, [](std::uint8_t byte) { return byte != untouched; }) ||
        std::any_of(row + first + row_bytes, row + pitch,
                    [](std::uint8_t byte) { return byte != untouched; }))
      fail(Code::internal, "slot {}: columns beside the matrix's own were written", slot);
    std::memcpy(out.data() + slot * row_bytes, row + first, row_bytes);
  }
  return out;
}

// Launches the row on the case's inputs; what it wrote, with zeros where a slot has no token.
std::vector<std::uint8_t> launch(kernels::Machine& machine, const GemmCase& test, const Setup& setup) {
  const kernels::RowHandle handle = machine.required(kernels::RowKind::gemm, test.row.row);
  Arena arena(machine.memory());
  moe::GemmParams params{};
  params.weights = arena.upload(pack_experts(test, setup), "weights");
  if (setup.fp8_tokens)
    params.tokens = arena.upload(fp8_rows_for(test, setup), "tokens");
  else if (setup.half_tokens)
    params.tokens = reinterpret_cast<const unsigned char*>(arena.upload(rows_for(test, setup), "tokens"));
  else
    params.tokens = arena.upload(token_records(test.by_row ? setup.rows : setup.slots), "token records");
  params.tiles = arena.upload(setup.assignment.tiles, "tiles");
  params.tile_count = arena.upload(
      std::vector<std::int32_t>{static_cast<std::int32_t>(setup.assignment.tiles.size())}, "tile count");
  params.slot_token =
      setup.half_tokens || test.by_row ? arena.upload(setup.assignment.slot_token, "slot tokens") : nullptr;
  params.slot_weight =
      test.op == moe::Op::down ? arena.upload(setup.assignment.slot_weight, "slot weights") : nullptr;
  params.scale = arena.upload(given(setup.scale), "scales");
  params.scale_up = arena.upload(given(setup.scale_up), "up scales");
  const bool has_token_scale = setup.fp8_tokens ? setup.token_factor.empty() : !setup.half_tokens;
  params.token_scale = has_token_scale ? arena.upload(given(setup.token_scale), "token scales") : nullptr;
  if (!setup.token_factor.empty()) {
    std::vector<float> of_slots;
    for (const std::int32_t token : setup.assignment.slot_token)
      of_slots.push_back(setup.token_factor[static_cast<std::size_t>(token)]);
    params.token_factor = arena.upload(of_slots, "token factors");
  }
  params.next_inverse_scale = arena.upload(setup.next_inverse, "next scales");
  params.row_scale = setup.row_scale.empty() ? nullptr : arena.upload(setup.row_scale, "row scales");
  params.bias = setup.bias.empty() ? nullptr : arena.upload(setup.bias, "biases");
  params.glu_alpha = kGluAlpha;
  params.glu_limit = kGluLimit;
  params.op = test.op;
  params.strips = static_cast<std::int32_t>(test.rows / record::kRows);
  params.records = static_cast<std::int32_t>(test.columns / record::kColumns);
  params.out_columns = static_cast<std::int32_t>(setup.gate_up ? test.rows / 2 : test.rows);

  const bool fp4_result = setup.gate_up && !setup.half_tokens;
  const bool f32_result = moe::stores_f32(test.op, setup.decode);
  const std::int64_t values = setup.assignment.slots() * params.out_columns;
  const std::size_t bytes = static_cast<std::size_t>(fp4_result ? values / 512 * record::kTokenRecordBytes
                                                                : values * (f32_result ? 4 : 2));
  if (setup.dense && !setup.gate_up) return launch_among_others(machine, arena, handle, params, setup, bytes);
  params.out = arena.take<std::uint8_t>(bytes, "result");
  machine.memory().forget(params.out, bytes);
  if (!setup.before.empty()) machine.memory().write(params.out, setup.before.data(), bytes);

  moe::launch_gemm(machine, handle, params);

  std::vector<std::uint8_t> out(bytes);
  // Places without a token are not written (except in token records): read what must be there, slot by slot.
  if (fp4_result) {
    machine.memory().read(out.data(), params.out, bytes);
    return out;
  }
  const std::size_t row_bytes = static_cast<std::size_t>(params.out_columns) * (f32_result ? 4 : 2);
  real_slots(setup, [&](std::int64_t slot, int) {
    machine.memory().read(out.data() + static_cast<std::size_t>(slot) * row_bytes,
                          static_cast<std::uint8_t*>(params.out) + static_cast<std::size_t>(slot) * row_bytes,
                          row_bytes);
  });
  return out;
}

}  // namespace

std::string_view op_name(moe::Op op) {
  switch (op) {
    case moe::Op::gate_up: return "gate_up";
    case moe::Op::down: return "down";
    case moe::Op::plain: return "plain";
    case moe::Op::plain_f32: return "plain_f32";
    case moe::Op::add_f32: break;
  }
  return "add_f32";
}

std::string op_of(const GemmCase& test) {
  return fourfold::format("{}{}{}", op_name(test.op),
                          test.convention == Convention::model_opt ? "" : " compressed-tensors",
                          test.by_row ? " by row" : "");
}

Result run_gemm_case(kernels::Machine& machine, const GemmCase& test, bool bits_exact) {
  Result result;
  result.kernel = test.row.kernel;
  result.row = test.row.row;
  result.op = op_of(test);
  result.machine = machine.description();
  result.seed = test.seed;
  result.exact = bits_exact;
  std::string counts;
  for (const int count : test.tokens_per_expert)
    counts += (counts.empty() ? "" : "+") + std::to_string(count);
  result.shape = fourfold::format("{} {}x{} tokens {}", op_name(test.op), test.rows, test.columns, counts);
  try {
    const Setup setup = make_setup(test);
    check_output(result, test, setup, launch(machine, test, setup));
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

std::vector<std::uint8_t> gemm_output(kernels::Machine& machine, const GemmCase& test) {
  return launch(machine, test, make_setup(test));
}

}  // namespace fourfold::verify
