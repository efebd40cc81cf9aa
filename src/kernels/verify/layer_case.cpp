#include "kernels/verify/layer_case.h"

#include <cmath>
#include <exception>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/record/pack.h"
#include "kernels/reference/layer.h"
#include "kernels/verify/inputs.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using moe_layer::Activations;
using moe_layer::Format;
using moe_layer::Role;

struct Setup {
  reference::LayerModel model;
  std::vector<CheckpointMatrix> gate, up, down;
  std::vector<DenseMatrix> dense_gate, dense_up, dense_down;  // bf16 and fp8
  std::vector<float> logits;
  std::vector<Bf16> tokens;
};

std::vector<float> make_logits(const LayerCase& test, Random& random) {
  const auto experts = static_cast<std::size_t>(test.request.shape.experts);
  const auto tokens = static_cast<std::size_t>(test.request.tokens);
  std::vector<float> logits(experts * tokens);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    float value = static_cast<float>(random.normal() * 3.0);
    if (test.logits == LogitKind::ties) value = static_cast<float>(random.below(3));
    if (test.logits == LogitKind::one_expert_set)
      value = i % experts < static_cast<std::size_t>(test.request.shape.top_k) ? 9.0f + value : value - 9.0f;
    if (test.logits == LogitKind::with_nan && random.below(4) == 0)
      value =
          random.below(2) ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    logits[i] = value;
  }
  // A row of NaN alone has no meaning: keep one number in each.
  if (test.logits == LogitKind::with_nan)
    for (std::size_t t = 0; t < tokens; ++t) logits[t * experts + t % experts] = 1.0f;
  return logits;
}

bool is_dense(Format format) { return format == Format::bf16 || format == Format::fp8; }

// The three matrices of an expert; the setup keeps them as a checkpoint would.
reference::Expert random_expert(Random& random, const moe_layer::Request& request, Setup& setup) {
  const auto& shape = request.shape;
  const auto add = [&](auto& to, const auto& make, std::int64_t rows, std::int64_t columns) {
    to.push_back(make(rows, columns));
    return reference_of(to.back());
  };
  reference::Expert expert;
  const auto add_all = [&](auto& gate, auto& up, auto& down, const auto& make) {
    expert.gate = add(gate, make, shape.intermediate, shape.hidden);
    expert.up = add(up, make, shape.intermediate, shape.hidden);
    expert.down = add(down, make, shape.hidden, shape.intermediate);
  };
  if (is_dense(request.format))
    add_all(setup.dense_gate, setup.dense_up, setup.dense_down, [&](std::int64_t rows, std::int64_t columns) {
      return random_dense(
          random, rows, columns,
          request.format == Format::fp8 ? record::DenseSource::e4m3 : record::DenseSource::bf16);
    });
  else
    add_all(setup.gate, setup.up, setup.down, [&](std::int64_t rows, std::int64_t columns) {
      return random_matrix(random, rows, columns, request.format == Format::mxfp4);
    });
  return expert;
}

Setup make_setup(const LayerCase& test) {
  Random random(test.seed);
  const auto& request = test.request;
  const auto& shape = request.shape;
  Setup setup;
  setup.model.hidden = shape.hidden;
  setup.model.intermediate = shape.intermediate;
  setup.model.top_k = shape.top_k;
  setup.model.renormalise = test.renormalise;
  setup.model.w4a4 = request.activations == Activations::w4a4;
  setup.model.order = request.role == Role::decode ? reference::Order::decode : reference::Order::prefill;
  for (int e = 0; e < shape.experts; ++e) {
    reference::Expert expert = random_expert(random, request, setup);
    expert.gate_scale = static_cast<float>(random.uniform(0.5, 2.0) * 1e-3);
    expert.up_scale = static_cast<float>(random.uniform(0.5, 2.0) * 1e-3);
    expert.down_scale = static_cast<float>(random.uniform(0.5, 2.0) * 1e-3);
    const auto first =
        nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0) * 2e-3)});
    const auto second = nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0))});
    expert.gate_up_input_scale = first.scale;
    expert.gate_up_input_inverse = first.inverse;
    expert.down_input_scale = second.scale;
    expert.down_input_inverse = second.inverse;
    setup.model.experts.push_back(std::move(expert));
  }
  setup.logits = make_logits(test, random);
  setup.tokens = random_tokens(random, request.tokens, shape.hidden);
  return setup;
}

template <class Format>
void pack_all(const Setup& setup, record::BitOrder order, std::vector<std::uint8_t>& gate_up,
              std::vector<std::uint8_t>& down) {
  for (std::size_t e = 0; e < setup.gate.size(); ++e) {
    const std::int64_t hidden = setup.model.hidden, inner = setup.model.intermediate;
    const std::size_t first =
        record::packed_bytes<Format>(static_cast<std::size_t>(2 * inner), static_cast<std::size_t>(hidden));
    const std::size_t second =
        record::packed_bytes<Format>(static_cast<std::size_t>(hidden), static_cast<std::size_t>(inner));
    gate_up.resize(first * setup.gate.size());
    down.resize(second * setup.gate.size());
    record::pack_records<Format>({{setup.gate[e].codes.data(), setup.gate[e].scales.data()},
                                  {setup.up[e].codes.data(), setup.up[e].scales.data()},
                                  gate_up.data() + e * first,
                                  2 * inner,
                                  hidden,
                                  record::RowOrder::gate_up,
                                  order});
    record::pack_records<Format>({{setup.down[e].codes.data(), setup.down[e].scales.data()},
                                  {},
                                  down.data() + e * second,
                                  hidden,
                                  inner,
                                  record::RowOrder::plain,
                                  order});
  }
}

void pack_all_dense(const Setup& setup, std::vector<std::uint8_t>& gate_up, std::vector<std::uint8_t>& down) {
  for (std::size_t e = 0; e < setup.dense_gate.size(); ++e) {
    const std::vector<std::uint8_t> first = pack_dense(setup.dense_gate[e], setup.dense_up[e]),
                                    second = pack_dense(setup.dense_down[e]);
    gate_up.insert(gate_up.end(), first.begin(), first.end());
    down.insert(down.end(), second.begin(), second.end());
  }
}

moe_layer::LayerWeights upload_weights(Arena& arena, const LayerCase& test, const Setup& setup) {
  std::vector<std::uint8_t> gate_up, down;
  const auto order = setup.model.w4a4 ? record::BitOrder::fp4 : record::BitOrder::half;
  if (is_dense(test.request.format))
    pack_all_dense(setup, gate_up, down);
  else if (test.request.format == Format::mxfp4)
    pack_all<record::Mxfp4>(setup, order, gate_up, down);
  else
    pack_all<record::Nvfp4>(setup, order, gate_up, down);
  const auto column = [&](float reference::Expert::*member, const char* name) {
    std::vector<float> values;
    for (const auto& expert : setup.model.experts) values.push_back(expert.*member);
    return arena.upload(values, name);
  };
  moe_layer::LayerWeights weights;
  weights.gate_up = arena.upload(gate_up, "gate/up records");
  weights.down = arena.upload(down, "down records");
  weights.gate_scale = column(&reference::Expert::gate_scale, "gate scales");
  weights.up_scale = column(&reference::Expert::up_scale, "up scales");
  weights.down_scale = column(&reference::Expert::down_scale, "down scales");
  weights.gate_up_input_scale = column(&reference::Expert::gate_up_input_scale, "input scales");
  weights.gate_up_input_inverse = column(&reference::Expert::gate_up_input_inverse, "inverse input scales");
  weights.down_input_scale = column(&reference::Expert::down_input_scale, "down input scales");
  weights.down_input_inverse = column(&reference::Expert::down_input_inverse, "inverse down input scales");
  return weights;
}

void run(kernels::Machine& machine, const LayerCase& test, const moe_layer::Prepared& layer, Result& result) {
  const Setup setup = make_setup(test);
  Arena arena(machine.memory());
  const moe_layer::LayerWeights weights = upload_weights(arena, test, setup);
  const std::size_t values = setup.tokens.size();
  moe_layer::LayerCall call;
  call.logits = arena.upload(setup.logits, "logits");
  call.tokens = reinterpret_cast<const std::uint16_t*>(arena.upload(setup.tokens, "tokens"));
  call.out = arena.take<std::uint16_t>(values, "result");
  call.workspace = arena.take<unsigned char>(layer.layout.total, "workspace");
  call.workspace_bytes = layer.layout.total;
  call.renormalise = test.renormalise;
  machine.memory().forget(call.out, values * 2);
  machine.memory().forget(call.workspace, layer.layout.total);
  moe_layer::run(machine, layer, weights, call);
  std::vector<Bf16> out(values);
  if (values) machine.memory().read(out.data(), call.out, values * 2);
  for (int token = 0; token < test.request.tokens; ++token) {
    const auto first = static_cast<std::size_t>(token) * static_cast<std::size_t>(setup.model.hidden);
    const reference::OutputRow row = reference::layer_row(
        setup.model, setup.logits.data() + token * test.request.shape.experts, setup.tokens.data() + first);
    for (std::size_t i = 0; i < row.bits.size(); ++i)
      result.compare(to_float(out[first + i]), row.value[i], row.bound[i],
                     out[first + i].bits == row.bits[i].bits);
  }
  if (test.request.tokens == 0) result.compare(0.0, 0.0, 1.0, true);  // nothing to do, and nothing went wrong
}

}  // namespace

moe_layer::Choice choice_of(const plan::ArchFacts& arch, const LayerCase& test) {
  return test.few ? moe_layer::few_choice(test.request) : moe_layer::choose(arch, test.request);
}

std::string rows_of(const moe_layer::Choice& choice) {
  return choice.gate_up_row == choice.down_row ? choice.gate_up_row
                                               : choice.gate_up_row + " + " + choice.down_row;
}

std::string op_of(const LayerCase& test, const moe_layer::Choice& choice) {
  const auto& request = test.request;
  constexpr const char* format_names[] = {"nvfp4", "mxfp4", "bf16", "fp8"};
  constexpr const char* logits[] = {"", " ties", " one expert set", " with NaN"};
  return fourfold::format("{} {} {}{}{}{}",
                          request.role == Role::prefill ? "prefill"
                          : choice.few                  ? "few"
                                                        : "decode",
                          request.activations == Activations::w4a4 ? "w4a4" : "w4a16",
                          format_names[static_cast<int>(request.format)],
                          logits[static_cast<int>(test.logits)], test.renormalise ? "" : " not renormalised",
                          request.tokens == 0 ? " no tokens" : "");
}

Result run_layer_case(kernels::Machine& machine, const LayerCase& test, bool bits_exact) {
  Result result;
  const auto& request = test.request;
  result.kernel = "moe_layer";
  result.machine = machine.description();
  result.seed = test.seed;
  result.exact = bits_exact;
  result.shape =
      fourfold::format("H {} I {} E {} k {} tokens {}", request.shape.hidden, request.shape.intermediate,
                       request.shape.experts, request.shape.top_k, request.tokens);
  try {
    const moe_layer::Choice choice = choice_of(machine.arch(), test);
    if (!choice.ok()) throw Error(Code::unsupported_op, choice.refusal);
    const moe_layer::Prepared layer = moe_layer::prepare_with(machine, request, choice);
    result.row = rows_of(layer.choice);
    result.op = op_of(test, layer.choice);
    run(machine, test, layer, result);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace fourfold::verify
