// A small MoE layer with random experts, for the tests that run the whole layer: weights packed and uploaded
// once, a pool of tokens to make batches of.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bf16.h"
#include "base/nvfp4.h"
#include "base/random.h"
#include "kernels/launch/arena.h"
#include "kernels/launch/machine.h"
#include "kernels/moe_layer/moe_layer.h"
#include "kernels/record/pack.h"
#include "kernels/verify/inputs.h"

namespace fourfold::test {

struct SmallLayerOptions {
  moe_layer::Shape shape{256, 128, 4, 2};
  moe_layer::Activations activations = moe_layer::Activations::w4a16;
  WeightFormat format = WeightFormat::nvfp4;
  int pool = 8;  // tokens to choose batches from
  std::uint64_t seed = 1;
  bool packed_for_w4a4 = false;
  bool clamped = false;          // with biases, and a limit that some gates and ups are beyond
  bool one_input_scale = false;  // of gate and up, for all experts
};

class SmallLayer {
 public:
  SmallLayer(kernels::Machine& machine, const SmallLayerOptions& options)
      : machine_(machine), options_(options), arena_(machine.memory()) {
    Random random(options.seed);
    if (options.format == WeightFormat::mxfp4)
      upload_experts<record::Mxfp4>(random);
    else
      upload_experts<record::Nvfp4>(random);
    const auto count =
        static_cast<std::size_t>(options.pool) * static_cast<std::size_t>(options.shape.experts);
    for (std::size_t i = 0; i < count; ++i) logits_.push_back(static_cast<float>(random.normal() * 2.0));
    tokens_ = verify::random_tokens(random, options.pool, options.shape.hidden);
  }

  kernels::Machine& machine() { return machine_; }
  const moe_layer::LayerWeights& weights() const { return weights_; }
  const SmallLayerOptions& options() const { return options_; }

  moe_layer::Request request(moe_layer::Role role, int tokens) const {
    moe_layer::Request request{options_.shape, options_.activations,    options_.format, role,
                               tokens,         options_.packed_for_w4a4};
    request.clamped = options_.clamped;
    return request;
  }
  // Rows of the pool, in the order given.
  std::vector<float> logits(const std::vector<int>& rows) const {
    return gather(logits_, static_cast<std::size_t>(options_.shape.experts), rows);
  }
  std::vector<Bf16> tokens(const std::vector<int>& rows) const {
    return gather(tokens_, static_cast<std::size_t>(options_.shape.hidden), rows);
  }

 private:
  template <class T>
  static std::vector<T> gather(const std::vector<T>& from, std::size_t columns,
                               const std::vector<int>& rows) {
    std::vector<T> out;
    for (const int row : rows) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * columns);
      out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(columns));
    }
    return out;
  }

  template <class Format>
  void upload_experts(Random& random) {
    const std::int64_t hidden = options_.shape.hidden, inner = options_.shape.intermediate;
    const bool mxfp4 = options_.format == WeightFormat::mxfp4;
    const record::BitOrder order = request(moe_layer::Role::decode, 1).order();
    const auto experts = static_cast<std::size_t>(options_.shape.experts);
    const std::size_t first =
        record::packed_bytes<Format>(static_cast<std::size_t>(2 * inner), static_cast<std::size_t>(hidden));
    const std::size_t second =
        record::packed_bytes<Format>(static_cast<std::size_t>(hidden), static_cast<std::size_t>(inner));
    std::vector<std::uint8_t> gate_up(first * experts), down(second * experts);
    std::vector<float> scales[3], input[4];
    for (std::size_t e = 0; e < experts; ++e) {
      const auto gate = verify::random_matrix(random, inner, hidden, mxfp4);
      const auto up = verify::random_matrix(random, inner, hidden, mxfp4);
      const auto back = verify::random_matrix(random, hidden, inner, mxfp4);
      record::pack_records<Format>({{gate.codes.data(), gate.scales.data()},
                                    {up.codes.data(), up.scales.data()},
                                    gate_up.data() + e * first,
                                    2 * inner,
                                    hidden,
                                    record::RowOrder::gate_up,
                                    order});
      record::pack_records<Format>({{back.codes.data(), back.scales.data()},
                                    {},
                                    down.data() + e * second,
                                    hidden,
                                    inner,
                                    record::RowOrder::plain,
                                    order});
      for (auto& scale : scales) scale.push_back(static_cast<float>(random.uniform(0.5, 2.0) * 1e-3));
      const auto one =
          nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0) * 2e-3)});
      const auto two = nvfp4_input_scale(ModelOptInputScale{static_cast<float>(random.uniform(0.5, 2.0))});
      const float both[4] = {one.scale, one.inverse, two.scale, two.inverse};
      for (std::size_t i = 0; i < 4; ++i)
        input[i].push_back(options_.one_input_scale && i < 2 && e > 0 ? input[i].front() : both[i]);
    }
    weights_ = {arena_.upload(gate_up, "gate/up records"),     arena_.upload(down, "down records"),
                arena_.upload(scales[0], "gate scales"),       arena_.upload(scales[1], "up scales"),
                arena_.upload(scales[2], "down scales"),       arena_.upload(input[0], "input scales"),
                arena_.upload(input[1], "input inverses"),     arena_.upload(input[2], "down input scales"),
                arena_.upload(input[3], "down input inverses")};
    if (!options_.clamped) return;
    const auto biases = [&](std::int64_t rows) {
      std::vector<float> values(experts * static_cast<std::size_t>(rows));
      for (float& value : values) value = static_cast<float>(5.0 * random.normal());
      return arena_.upload(values, "biases");
    };
    weights_.gate_up_bias = biases(2 * inner);
    weights_.down_bias = biases(hidden);
    weights_.glu_alpha = 1.702f;
    weights_.glu_limit = 7.0f;
  }

  kernels::Machine& machine_;
  SmallLayerOptions options_;
  kernels::Arena arena_;
  moe_layer::LayerWeights weights_;
  std::vector<float> logits_;
  std::vector<Bf16> tokens_;
};

// One batch, uploaded; run() may be called again and again.
class Batch {
 public:
  Batch(SmallLayer& layer, const moe_layer::Prepared& prepared, const std::vector<int>& rows)
      : layer_(layer), prepared_(prepared), arena_(layer.machine().memory()) {
    values_ = rows.size() * static_cast<std::size_t>(layer.options().shape.hidden);
    call_.logits = arena_.upload(layer.logits(rows), "logits");
    call_.tokens = reinterpret_cast<const std::uint16_t*>(arena_.upload(layer.tokens(rows), "tokens"));
    call_.out = arena_.take<std::uint16_t>(values_, "result");
    call_.workspace = arena_.take<unsigned char>(prepared.layout.total, "workspace");
    call_.workspace_bytes = prepared.layout.total;
  }

  moe_layer::LayerCall& call() { return call_; }
  std::size_t values() const { return values_; }
  std::vector<std::uint16_t> run() {
    kernels::Memory& memory = layer_.machine().memory();
    memory.forget(call_.out, values_ * 2);
    if (call_.workspace_bytes) memory.forget(call_.workspace, call_.workspace_bytes);
    moe_layer::run(layer_.machine(), prepared_, layer_.weights(), call_);
    std::vector<std::uint16_t> out(values_);
    memory.read(out.data(), call_.out, values_ * 2);
    return out;
  }

 private:
  SmallLayer& layer_;
  moe_layer::Prepared prepared_;
  kernels::Arena arena_;
  moe_layer::LayerCall call_;
  std::size_t values_ = 0;
};

}  // namespace fourfold::test
