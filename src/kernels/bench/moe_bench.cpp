#include "kernels/bench/moe_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/glob.h"
#include "base/random.h"
#include "kernels/bench/device_tools.h"
#include "kernels/launch/arena.h"
#include "kernels/moe/gemm_params.h"
#include "kernels/moe/loop_columns.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/moe_route/top_k.h"
#include "kernels/moe_tokens/token_params.h"
#include "kernels/record/bit_order.h"
#include "kernels/record/record.h"

namespace fourfold::bench {
namespace {

using kernels::Arena;
using kernels::Machine;
using moe_layer::Activations;
using moe_layer::Role;

// The bench fills FP4 records; matrices in other formats are `bench model`'s.
int record_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::nvfp4: return record::kRecordBytes<record::Nvfp4>;
    case WeightFormat::mxfp4: return record::kRecordBytes<record::Mxfp4>;
    case WeightFormat::bf16:
    case WeightFormat::fp8:
    case WeightFormat::f32: break;
  }
  fail(Code::invalid_request, "experts in {}; the bench makes nvfp4 and mxfp4", format_name(format));
}

std::size_t matrix_bytes(WeightFormat format, std::size_t rows, std::size_t columns) {
  return rows * columns / (record::kRows * record::kColumns) * static_cast<std::size_t>(record_bytes(format));
}

// As a model is served: where the chip runs prompts in W4A4, generated tokens read weights packed for it.
moe_layer::Request request_of(const Machine& machine, const MoeBenchOptions& options, int tokens) {
  moe_layer::Request request{options.shape, options.activations, options.format,
                             tokens >= options.prefill_from ? Role::prefill : Role::decode, tokens};
  request.packed_for_w4a4 = request.role == Role::decode && options.format == WeightFormat::nvfp4 &&
                            moe_layer::serves_fp4_prompts(machine.arch());
  return request;
}

moe_layer::LayerWeights make_weights(Arena& arena, const MoeBenchOptions& options, record::BitOrder order,
                                     void* stream) {
  const auto& s = options.shape;
  const auto experts = static_cast<std::size_t>(s.experts);
  const std::size_t gate_up =
      experts * matrix_bytes(options.format, static_cast<std::size_t>(2 * s.intermediate),
                             static_cast<std::size_t>(s.hidden));
  const std::size_t down = experts * matrix_bytes(options.format, static_cast<std::size_t>(s.hidden),
                                                  static_cast<std::size_t>(s.intermediate));
  auto* first = arena.take<unsigned char>(gate_up, "gate/up records");
  auto* second = arena.take<unsigned char>(down, "down records");
  const bool half_scales = options.format == WeightFormat::nvfp4 && order == record::BitOrder::half;
  const std::uint32_t bias = half_scales ? record::kScaleBias * 0x01010101u : 0u;
  fill_records(first, gate_up, record_bytes(options.format), options.seed, bias, stream);
  fill_records(second, down, record_bytes(options.format), options.seed + 1, bias, stream);
  moe_layer::LayerWeights weights;
  weights.gate_up = first;
  weights.down = second;
  const std::vector<float> small(experts, 1e-4f), one(experts, 1.0f);
  weights.gate_scale = arena.upload(small, "gate scales");
  weights.up_scale = arena.upload(small, "up scales");
  weights.down_scale = arena.upload(small, "down scales");
  weights.gate_up_input_scale = weights.gate_up_input_inverse = arena.upload(one, "input scales");
  weights.down_input_scale = weights.down_input_inverse = weights.gate_up_input_scale;
  return weights;
}

// Router logits: uniform random, Zipf-skewed (exponent 1 over a random order of the experts), or the same for
// all.
std::vector<float> make_logits(const MoeBenchOptions& options, int tokens, Random& random) {
  const auto experts = static_cast<std::size_t>(options.shape.experts);
  std::vector<float> preference(experts, 0.0f);
  if (options.routing == Routing::zipf) {
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = experts - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    for (std::size_t rank = 0; rank < experts; ++rank)
      preference[order[rank]] = static_cast<float>(-std::log(static_cast<double>(rank + 1)));
  }
  std::vector<float> shared(experts);
  for (auto& value : shared) value = static_cast<float>(random.normal());
  std::vector<float> logits;
  logits.reserve(static_cast<std::size_t>(tokens) * experts);
  for (int token = 0; token < tokens; ++token)
    for (std::size_t e = 0; e < experts; ++e) {
      // Gumbel noise on log-preferences draws experts without replacement in proportion to the preferences.
      const double gumbel = -std::log(-std::log(1.0 - random.uniform() * (1.0 - 1e-12)));
      logits.push_back(options.routing == Routing::same ? shared[e]
                                                        : preference[e] + static_cast<float>(gumbel));
    }
  return logits;
}

double distinct_experts(const std::vector<float>& logits, int tokens, int experts, int top_k) {
  std::set<int> chosen;
  std::vector<int> order(static_cast<std::size_t>(experts));
  for (int token = 0; token < tokens; ++token) {
    const float* row = logits.data() + static_cast<std::size_t>(token) * static_cast<std::size_t>(experts);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [&](int a, int b) { return row[a] > row[b]; });
    chosen.insert(order.begin(), order.begin() + top_k);
    if (static_cast<int>(chosen.size()) == experts) break;
  }
  return static_cast<double>(chosen.size());
}

struct Sample {
  double median;
  double spread;
};
Sample summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  return {median, (values[values.size() * 3 / 4] - values[values.size() / 4]) / median};
}

std::string role_name(Role role) { return role == Role::decode ? "decode" : "prefill"; }
std::string routing_name(Routing routing) {
  return routing == Routing::uniform ? "uniform" : routing == Routing::zipf ? "zipf" : "same";
}

// A machine that forwards only the launches of one kind: times the parts of a layer with the layer's own
// code.
class OnePart final : public Machine {
 public:
  // Beyond 16 tokens 16-bit tokens are staged by a routing kernel, and counted there.
  enum Part { route, tokens, gate_up, down, combining, count };
  static const char* name(int part) {
    constexpr const char* names[] = {"route", "tokens", "gate_up", "down", "combine"};
    return names[part];
  }
  OnePart(Machine& machine, int part) : machine_(machine), part_(part) {}
  kernels::Memory& memory() override { return machine_.memory(); }
  std::string description() const override { return machine_.description(); }
  const plan::ArchFacts& arch() const override { return machine_.arch(); }
  int sm_count() const override { return machine_.sm_count(); }
  const std::vector<plan::RowFacts>& rows(kernels::RowKind kind) const override {
    return machine_.rows(kind);
  }
  int walkers(kernels::RowHandle row, int blocks_per_sm) const override {
    return machine_.walkers(row, blocks_per_sm);
  }
  void launch(kernels::RowHandle row, int blocks, const void* params, std::size_t bytes) override {
    if (take(part_of(row, params))) machine_.launch(row, blocks, params, bytes);
  }
  std::unique_ptr<kernels::Recording> record(const std::function<void()>& launches) override {
    return machine_.record(launches);
  }
  void replay(kernels::Recording& recording) override { machine_.replay(recording); }
  int launches() const { return launches_; }

 private:
  int part_of(kernels::RowHandle row, const void* params) const {
    using kernels::RowKind;
    if (row.kind == RowKind::gemm)
      return static_cast<const moe::GemmParams*>(params)->op == moe::Op::gate_up ? gate_up : down;
    if (row.kind != RowKind::basic) return row.kind == RowKind::few_gate_up ? gate_up : down;
    const std::string_view name = facts(row).row;
    if (name == moe_tokens::kStageRow || name == moe_tokens::kQuantizeRow) return tokens;
    return name == moe_combine::kF32Row || name == moe_combine::kBf16Row ? combining : route;
  }
  bool take(int part) {
    launches_ += part == part_;
    return part == part_;
  }
  Machine& machine_;
  int part_;
  int launches_ = 0;
};

class MoeBench {
 public:
  MoeBench(Machine& machine, void* stream, const MoeBenchOptions& options)
      : machine_(machine), stream_(stream), options_(options), arena_(machine.memory()) {
    // All rows of one call read one order, or the decode rows of a W4A16 bench another than its prompts.
    for (const int tokens : options.tokens) {
      const record::BitOrder order = request_of(machine, options, tokens).order();
      auto& weights = order == record::BitOrder::fp4 ? fp4_weights_ : half_weights_;
      if (weights.gate_up == nullptr) weights = make_weights(arena_, options, order, stream);
    }
    // Far larger than any cache, and once per run: what the weights could at best be read with.
    constexpr std::size_t bytes = std::size_t{4} << 30;
    Arena big(machine.memory());
    auto* data = big.take<unsigned char>(bytes, "data for the memory ceiling");
    fill_random(data, bytes / 4, options.seed, ~0u, 0u, stream);
    report_.ceiling_gbps = read_ceiling_gbps(data, bytes, stream);
  }

  MoeBenchReport run() {
    for (const int tokens : options_.tokens) run_tokens(tokens);
    return report_;
  }

 private:
  void run_tokens(int tokens) {
    const moe_layer::Request request = request_of(machine_, options_, tokens);
    const moe_layer::LayerWeights& weights =
        request.order() == record::BitOrder::fp4 ? fp4_weights_ : half_weights_;
    std::vector<moe_layer::Choice> choices;
    if (options_.rows.empty()) {
      choices.push_back(moe_layer::choose(machine_.arch(), request));
      if (!choices.back().ok()) throw Error(Code::unsupported_op, choices.back().refusal);
    } else {
      choices = row_choices(request);
    }
    Arena scratch(machine_.memory());
    Random random(options_.seed + static_cast<std::uint64_t>(tokens));
    std::vector<const float*> logits;
    double experts = 0.0;
    for (int r = 0; r < options_.routings; ++r) {
      const std::vector<float> host = make_logits(options_, tokens, random);
      experts +=
          distinct_experts(host, tokens, options_.shape.experts, options_.shape.top_k) / options_.routings;
      logits.push_back(scratch.upload(host, "logits"));
    }
    const auto values = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(options_.shape.hidden);
    auto* inputs = scratch.take<std::uint16_t>(values, "tokens");
    fill_random(inputs, values / 2, options_.seed + 2, 0x807F807Fu, 0x3F003F00u, stream_);  // +-0.5 .. 1
    auto* out = scratch.take<std::uint16_t>(values, "result");
    for (const auto& choice : choices) {
      const auto layer = moe_layer::prepare_with(machine_, request, choice);
      Arena space(machine_.memory());
      auto* workspace = space.take<unsigned char>(layer.layout.total, "workspace");
      const auto record = [&](Machine& machine) {
        for (const float* rows : logits)
          moe_layer::run(machine, layer, weights, {rows, inputs, out, workspace, layer.layout.total, {true}});
      };
      add_line(request, choice, "layer", experts, [&] { record(machine_); });
      if (options_.parts) {
        for (int part = 0; part < OnePart::count; ++part) {
          OnePart probe(machine_, part);
          bool any = false;
          add_line(request, choice, OnePart::name(part), experts, [&] {
            OnePart only(machine_, part);
            record(only);
            any = only.launches() > 0;
          });
          if (!any) report_.lines.pop_back();
        }
      }
    }
  }

  // Every pair of equal rows of this role that the machine has and whose name matches one of the patterns.
  std::vector<moe_layer::Choice> row_choices(const moe_layer::Request& request) const {
    std::vector<moe_layer::Choice> choices;
    const std::string_view format = format_name(options_.format);
    for (const auto& row : machine_.rows(kernels::RowKind::gemm)) {
      if (row.format != format ||
          (row.path == moe::W4a4::name) != (options_.activations == Activations::w4a4) ||
          moe::order_of_path(row.path) != request.order())
        continue;
      if (row.role != role_name(request.role)) continue;
      const bool wanted =
          std::any_of(options_.rows.begin(), options_.rows.end(),
                      [&](const std::string& pattern) { return glob_match(pattern, row.row); });
      const bool fits = row.kernel != "moe_stream" || (moe::loop_takes(request.shape.hidden, row) &&
                                                       moe::loop_takes(request.shape.intermediate, row));
      if (!wanted || !fits) continue;
      moe_layer::Choice choice;
      choice.gate_up_row = choice.down_row = row.row;
      choice.tile_tokens = row.n;
      choices.push_back(choice);
    }
    return choices;
  }

  void add_line(const moe_layer::Request& request, const moe_layer::Choice& choice, const std::string& part,
                double experts, const std::function<void()>& record) {
    const Sample sample = summarize(time_graph(stream_, options_.rounds, record));
    MoeBenchLine line;
    line.shape = options_.shape_name;
    line.routing = routing_name(options_.routing);
    line.role = role_name(request.role);
    line.rows = choice.gate_up_row == choice.down_row ? choice.gate_up_row
                                                      : choice.gate_up_row + " + " + choice.down_row;
    line.part = part;
    line.tokens = request.tokens;
    line.microseconds = sample.median / options_.routings;
    line.spread = sample.spread;
    line.experts = experts;
    const auto& s = options_.shape;
    const double weights = 3.0 * s.hidden * s.intermediate;
    const double bytes_per_weight =
        static_cast<double>(record_bytes(options_.format)) / (record::kRows * record::kColumns);
    const double share = part == "gate_up" ? 2.0 / 3 : part == "down" ? 1.0 / 3 : part == "layer" ? 1.0 : 0.0;
    line.gbps = share * experts * weights * bytes_per_weight / line.microseconds / 1e3;
    line.share = line.gbps / report_.ceiling_gbps;
    line.tflops = share * 2.0 * weights * request.tokens * s.top_k / line.microseconds / 1e6;
    report_.lines.push_back(line);
  }

  Machine& machine_;
  void* stream_;
  const MoeBenchOptions& options_;
  Arena arena_;
  moe_layer::LayerWeights half_weights_, fp4_weights_;  // by the order of their records; unused: null
  MoeBenchReport report_;
};

}  // namespace

MoeBenchReport bench_moe(Machine& machine, void* stream, const MoeBenchOptions& options) {
  return MoeBench(machine, stream, options).run();
}

}  // namespace fourfold::bench
