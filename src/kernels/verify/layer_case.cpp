#include "kernels/verify/layer_case.h"

#include <cmath>
#include <exception>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/format.h"
#include "kernels/launch/arena.h"
#include "kernels/record/pack.h"
#include "kernels/reference/layer.h"
#include "kernels/verify/inputs.h"
#include "kernels/verify/large_shape.h"
#include "kernels/verify/scaled.h"

namespace fourfold::verify {
namespace {

using kernels::Arena;
using moe_layer::Activations;
using moe_layer::Role;

// As a checkpoint stores them.
struct Matrices {
  std::vector<CheckpointMatrix> gate, up, down;
  std::vector<DenseMatrix> dense_gate, dense_up, dense_down;  // bf16 and fp8
};

// What a layer is made of: for the scalar reference, and as records.
struct HostLayer {
  reference::LayerModel model;
  std::vector<std::uint8_t> gate_up, down;
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

bool is_dense(WeightFormat format) { return format == WeightFormat::bf16 || format == WeightFormat::fp8; }

// The three matrices of an expert.
reference::Expert random_expert(Random& random, const moe_layer::Request& request, Matrices& matrices) {
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
    add_all(matrices.dense_gate, matrices.dense_up, matrices.dense_down,
            [&](std::int64_t rows, std::int64_t columns) {
              return random_dense(random, rows, columns,
                                  request.format == WeightFormat::fp8 ? record::DenseSource::e4m3
                                                                      : record::DenseSource::bf16);
            });
  else
    add_all(matrices.gate, matrices.up, matrices.down, [&](std::int64_t rows, std::int64_t columns) {
      return random_matrix(random, rows, columns, request.format == WeightFormat::mxfp4);
    });
  return expert;
}

reference::LayerModel make_model(const LayerCase& test, Matrices& matrices) {
  Random random(test.seed);
  const auto& request = test.request;
  reference::LayerModel model;
  model.hidden = request.shape.hidden;
  model.intermediate = request.shape.intermediate;
  model.top_k = request.shape.top_k;
  model.w4a4 = request.activations == Activations::w4a4;
  model.order = request.role == Role::decode ? reference::Order::decode : reference::Order::prefill;
  model.clamped = request.clamped;
  model.glu_alpha = kGluAlpha;
  model.glu_limit = kGluLimit;
  for (int e = 0; e < request.shape.experts; ++e) {
    reference::Expert expert = random_expert(random, request, matrices);
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
    if (request.clamped) {
      const auto biases = [&](int rows, double size) {
        std::vector<float> values(static_cast<std::size_t>(rows));
        for (float& value : values) value = static_cast<float>(size * random.normal());
        return values;
      };
      expert.gate_bias = biases(request.shape.intermediate, 5.0);  // some beyond the limit
      expert.up_bias = biases(request.shape.intermediate, 5.0);
      expert.down_bias = biases(request.shape.hidden, 0.5);
    }
    model.experts.push_back(std::move(expert));
  }
  return model;
}

template <class Format>
void pack_all(const Matrices& from, record::BitOrder order, HostLayer& to) {
  const std::int64_t hidden = to.model.hidden, inner = to.model.intermediate;
  const std::size_t first =
      record::packed_bytes<Format>(static_cast<std::size_t>(2 * inner), static_cast<std::size_t>(hidden));
  const std::size_t second =
      record::packed_bytes<Format>(static_cast<std::size_t>(hidden), static_cast<std::size_t>(inner));
  to.gate_up.resize(first * from.gate.size());
  to.down.resize(second * from.gate.size());
  for (std::size_t e = 0; e < from.gate.size(); ++e) {
    record::pack_records<Format>({{from.gate[e].codes.data(), from.gate[e].scales.data()},
                                  {from.up[e].codes.data(), from.up[e].scales.data()},
                                  to.gate_up.data() + e * first,
                                  2 * inner,
                                  hidden,
                                  record::RowOrder::gate_up,
                                  order});
    record::pack_records<Format>({{from.down[e].codes.data(), from.down[e].scales.data()},
                                  {},
                                  to.down.data() + e * second,
                                  hidden,
                                  inner,
                                  record::RowOrder::plain,
                                  order});
  }
}

void pack_all_dense(const Matrices& from, HostLayer& to) {
  for (std::size_t e = 0; e < from.dense_gate.size(); ++e) {
    const std::vector<std::uint8_t> first = pack_dense(from.dense_gate[e], from.dense_up[e]),
                                    second = pack_dense(from.dense_down[e]);
    to.gate_up.insert(to.gate_up.end(), first.begin(), first.end());
    to.down.insert(to.down.end(), second.begin(), second.end());
  }
}

HostLayer make_layer(const LayerCase& test) {
  HostLayer layer;
  Matrices matrices;
  layer.model = make_model(test, matrices);
  const record::BitOrder order = test.request.order();
  if (is_dense(test.request.format))
    pack_all_dense(matrices, layer);
  else if (test.request.format == WeightFormat::mxfp4)
    pack_all<record::Mxfp4>(matrices, order, layer);
  else
    pack_all<record::Nvfp4>(matrices, order, layer);
  return layer;
}

moe_layer::LayerWeights upload_weights(Arena& arena, const HostLayer& layer) {
  const auto column = [&](float reference::Expert::*member, const char* name) {
    std::vector<float> values;
    for (const auto& expert : layer.model.experts) values.push_back(expert.*member);
    return arena.upload(values, name);
  };
  moe_layer::LayerWeights weights;
  weights.gate_up = arena.upload(layer.gate_up, "gate/up records");
  weights.down = arena.upload(layer.down, "down records");
  weights.gate_scale = column(&reference::Expert::gate_scale, "gate scales");
  weights.up_scale = column(&reference::Expert::up_scale, "up scales");
  weights.down_scale = column(&reference::Expert::down_scale, "down scales");
  weights.gate_up_input_scale = column(&reference::Expert::gate_up_input_scale, "input scales");
  weights.gate_up_input_inverse = column(&reference::Expert::gate_up_input_inverse, "inverse input scales");
  weights.down_input_scale = column(&reference::Expert::down_input_scale, "down input scales");
  weights.down_input_inverse = column(&reference::Expert::down_input_inverse, "inverse down input scales");
  if (layer.model.clamped) {
    std::vector<float> gate_up, down;
    for (const auto& expert : layer.model.experts)
      for (const auto& [bias, to] :
           {std::pair{&expert.gate_bias, &gate_up}, {&expert.up_bias, &gate_up}, {&expert.down_bias, &down}})
        to->insert(to->end(), bias->begin(), bias->end());
    weights.gate_up_bias = arena.upload(gate_up, "gate/up biases");
    weights.down_bias = arena.upload(down, "down biases");
    weights.glu_alpha = layer.model.glu_alpha;
    weights.glu_limit = layer.model.glu_limit;
  }
  return weights;
}

}  // namespace

class LayerWeightsOnce {
 public:
  explicit LayerWeightsOnce(std::uint64_t seed) : seed_(seed) {}
  const HostLayer& get(LayerCase test) {
    test.seed = seed_;
    std::call_once(made_, [&] { layer_ = make_layer(test); });
    return layer_;
  }

 private:
  std::uint64_t seed_;
  std::once_flag made_;
  HostLayer layer_;
};
std::shared_ptr<LayerWeightsOnce> share_weights(std::uint64_t seed) {
  return std::make_shared<LayerWeightsOnce>(seed);
}

namespace {

void run(kernels::Machine& machine, const LayerCase& test, const moe_layer::Prepared& layer, Result& result) {
  const auto source = test.weights ? test.weights : share_weights(test.seed);
  const HostLayer& host = source->get(test);
  Random random(mix_bits(test.seed));
  const std::vector<float> logits = make_logits(test, random);
  const std::vector<Bf16> tokens = random_tokens(random, test.request.tokens, test.request.shape.hidden);
  Arena arena(machine.memory());
  const moe_layer::LayerWeights weights = upload_weights(arena, host);
  const std::size_t values = tokens.size();
  moe_layer::LayerCall call;
  call.logits = arena.upload(logits, "logits");
  call.tokens = reinterpret_cast<const std::uint16_t*>(arena.upload(tokens, "tokens"));
  call.out = arena.take<std::uint16_t>(values, "result");
  call.workspace = arena.take<unsigned char>(layer.layout.total, "workspace");
  call.workspace_bytes = layer.layout.total;
  const std::vector<float> bias = random_choice_bias(random, test.routing, test.request.shape.experts);
  call.rule = rule_of(test.routing, test.renormalise,
                      bias.empty() ? nullptr : arena.upload(bias, "bias for choosing"));
  machine.memory().forget(call.out, values * 2);
  machine.memory().forget(call.workspace, layer.layout.total);
  moe_layer::run(machine, layer, weights, call);
  std::vector<Bf16> out(values);
  if (values) machine.memory().read(out.data(), call.out, values * 2);
  const moe_route::RouteRule rule = rule_of(test.routing, test.renormalise, bias.data());
  const int checked = test.checked_tokens > 0 ? test.checked_tokens : test.request.tokens;
  for (const int token : sample_places(random, test.request.tokens, checked)) {
    const auto first = static_cast<std::size_t>(token) * static_cast<std::size_t>(host.model.hidden);
    const reference::OutputRow row = reference::layer_row(
        host.model, rule, logits.data() + token * test.request.shape.experts, tokens.data() + first);
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
  constexpr const char* logits[] = {"", " ties", " one expert set", " with NaN"};
  return fourfold::format("{} {}{} {}{}{}{}{}",
                          request.role == Role::prefill ? "prefill"
                          : choice.few                  ? "few"
                                                        : "decode",
                          request.activations == Activations::w4a4 ? "w4a4" : "w4a16",
                          request.packed_for_w4a4 ? " packed for w4a4" : "", format_name(request.format),
                          logits[static_cast<int>(test.logits)], test.renormalise ? "" : " not renormalised",
                          name_of(test.routing), request.tokens == 0 ? " no tokens" : "");
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
