#include "kernels/verify/group_case.h"

#include <bit>
#include <cstring>
#include <exception>

#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/record/pack.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/scaled.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using moe_layer::Activations;
using moe_layer::Role;

struct Setup {
  bool mxfp4, half_tokens;
  std::vector<CheckpointMatrix> matrix;
  std::vector<reference::Weights> weights;
  std::vector<float> scale, input_scale, input_inverse;
  std::vector<Bf16> tokens;           // [rows, K]
  std::vector<std::int32_t> offsets;  // [experts + 1]
  std::vector<int> expert_of_row;
  reference::Weights quantized_tokens;  // W4A4: one row a token
};

// Each row as a slot of its own: quantising is the same row by row.
Assignment rows_as_slots(const Setup& setup) {
  Assignment rows;
  for (std::size_t row = 0; row < setup.expert_of_row.size(); ++row) {
    rows.slot_token.push_back(static_cast<std::int32_t>(row));
    rows.slot_expert.push_back(setup.expert_of_row[row]);
  }
  return rows;
}

Setup make_setup(const GroupCase& test) {
  Random random(test.seed);
  const moe_group::GemmRequest& request = test.request;
  Setup setup{};
  setup.mxfp4 = request.format == WeightFormat::mxfp4;
  setup.half_tokens = request.activations == Activations::w4a16;
  setup.offsets.push_back(0);
  for (std::size_t e = 0; e < test.rows_per_expert.size(); ++e) {
    setup.matrix.push_back(random_matrix(random, request.out_columns, request.columns, setup.mxfp4));
    setup.weights.push_back(reference_of(setup.matrix.back()));
    setup.scale.push_back(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3));
    const Nvfp4InputScale input =
        nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0) * 2e-3)});
    setup.input_scale.push_back(input.scale);
    setup.input_inverse.push_back(input.inverse);
    setup.offsets.push_back(setup.offsets.back() + test.rows_per_expert[e]);
    setup.expert_of_row.insert(setup.expert_of_row.end(), static_cast<std::size_t>(test.rows_per_expert[e]),
                               static_cast<int>(e));
  }
  setup.tokens = random_tokens(random, setup.offsets.back(), request.columns);
  if (!setup.half_tokens)
    setup.quantized_tokens = reference_of(
        quantize_slots(setup.tokens, request.columns, rows_as_slots(setup), setup.input_inverse));
  return setup;
}

template <class Format>
std::vector<std::uint8_t> pack_experts(const GroupCase& test, const Setup& setup) {
  const moe_group::GemmRequest& request = test.request;
  const std::size_t each = record::packed_bytes<Format>(static_cast<std::size_t>(request.out_columns),
                                                        static_cast<std::size_t>(request.columns));
  std::vector<std::uint8_t> packed(each * setup.matrix.size());
  for (std::size_t e = 0; e < setup.matrix.size(); ++e)
    record::pack_records<Format>({{setup.matrix[e].codes.data(), setup.matrix[e].scales.data()},
                                  {},
                                  packed.data() + e * each,
                                  request.out_columns,
                                  request.columns,
                                  record::RowOrder::plain,
                                  setup.half_tokens ? record::BitOrder::half : record::BitOrder::fp4});
  return packed;
}

void check(Result& result, const GroupCase& test, const Setup& setup, const std::vector<std::uint8_t>& out) {
  const moe_group::GemmRequest& request = test.request;
  const auto order = request.role == Role::decode ? reference::Order::decode : reference::Order::prefill;
  for (std::size_t row = 0; row < setup.expert_of_row.size(); ++row) {
    const auto expert = static_cast<std::size_t>(setup.expert_of_row[row]);
    const float scale = setup.scale[expert], input = setup.input_scale[expert];
    const GlobalScale token_scale = setup.half_tokens ? GlobalScale{} : GlobalScale{input, input};
    const auto at = static_cast<std::int64_t>(row);
    for (std::int64_t column = 0; column < request.out_columns; ++column) {
      const reference::Dot dot =
          setup.half_tokens
              ? reference::dot_w4a16(setup.weights[expert], column,
                                     setup.tokens.data() + at * request.columns, order)
              : reference::dot_w4a4(setup.weights[expert], column, setup.quantized_tokens, at, order);
      const Scaled expected = scale_dot(dot, {scale, scale}, token_scale,
                                        setup.half_tokens ? half_decode_factor(setup.mxfp4) : 1.0f);
      const auto place = static_cast<std::size_t>(at * request.out_columns + column);
      if (request.f32_out) {
        float actual;
        std::memcpy(&actual, out.data() + 4 * place, 4);
        result.compare(actual, expected.value, expected.bound,
                       std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected.bits));
      } else {
        std::uint16_t actual;
        std::memcpy(&actual, out.data() + 2 * place, 2);
        compare_bf16(result, actual, expected);
      }
    }
  }
}

void run(kernels::Machine& machine, const GroupCase& test, Result& result) {
  const Setup setup = make_setup(test);
  const moe_group::PreparedGemm gemm = moe_group::prepare_gemm(machine, test.request);
  result.row = gemm.choice.gate_up_row;
  Arena arena(machine.memory());
  moe_group::GemmCall call;
  call.weights = arena.upload(
      setup.mxfp4 ? pack_experts<record::Mxfp4>(test, setup) : pack_experts<record::Nvfp4>(test, setup),
      "weights");
  call.scale = arena.upload(setup.scale, "scales");
  call.input_scale = arena.upload(setup.input_scale, "input scales");
  call.input_inverse = arena.upload(setup.input_inverse, "inverse input scales");
  call.tokens = reinterpret_cast<const std::uint16_t*>(arena.upload(setup.tokens, "tokens"));
  call.offsets = arena.upload(setup.offsets, "offsets");
  call.rows = setup.offsets.back();
  std::vector<std::uint8_t> out(static_cast<std::size_t>(call.rows) *
                                static_cast<std::size_t>(test.request.out_columns) *
                                (test.request.f32_out ? 4 : 2));
  call.out = arena.take<std::uint8_t>(out.size(), "result");
  call.workspace = arena.take<std::uint8_t>(gemm.layout.total, "workspace");
  call.workspace_bytes = gemm.layout.total;
  machine.memory().forget(call.out, out.size());
  machine.memory().forget(call.workspace, gemm.layout.total);
  moe_group::run_gemm(machine, gemm, call);
  machine.memory().read(out.data(), call.out, out.size());
  check(result, test, setup, out);
}

}  // namespace

std::string op_of(const GroupCase& test) {
  const moe_group::GemmRequest& request = test.request;
  return fourfold::format("{} {} {} {}", request.role == Role::decode ? "decode" : "prefill",
                          request.activations == Activations::w4a4 ? "w4a4" : "w4a16",
                          format_name(request.format), request.f32_out ? "f32" : "bf16");
}

Result run_group_case(kernels::Machine& machine, const GroupCase& test, bool bits_exact) {
  Result result;
  result.kernel = "moe_group";
  result.op = op_of(test);
  result.machine = machine.description();
  result.seed = test.seed;
  result.exact = bits_exact;
  std::string counts;
  for (const int count : test.rows_per_expert) counts += (counts.empty() ? "" : "+") + std::to_string(count);
  result.shape = fourfold::format("{}x{} rows {}", test.request.out_columns, test.request.columns, counts);
  try {
    run(machine, test, result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace fourfold::verify
