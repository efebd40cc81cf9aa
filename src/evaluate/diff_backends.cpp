#include "evaluate/diff_backends.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "backend/reference/reference.h"
#include "base/bf16.h"
#include "base/check.h"
#include "base/error.h"
#include "base/token_grain.h"
#include "evaluate/compare.h"
#include "evaluate/input_noise.h"
#include "model/forward.h"

namespace fourfold::evaluate {
namespace {

using backend::Pass;
using backend::ValueId;

// The reference backend, which finds derived bounds, is made for models of test size.
constexpr std::int64_t kNoiseWeightsMax = 20'000'000;

backend::Capacity capacity_for(std::int64_t tokens) {
  return {.page_count = (tokens + kTokenGrain - 1) / kTokenGrain,
          .page_tokens = kTokenGrain,
          .state_slot_count = 1,
          .row_count = tokens};
}

// What a run left, rows of all its steps one after another; empty where the backend kept nothing.
struct Rows {
  std::vector<float> values;
  std::size_t columns = 0;
  void append(std::span<const float> more) { values.insert(values.end(), more.begin(), more.end()); }
};
struct Outputs {
  std::vector<Rows> layers;  // Program::layer_outputs
  std::vector<Rows> values;  // by ValueId, where they were wanted: all that has a row a token
  Rows final_norm, logits, router;
};

// What chooses experts; the last op of its kind, null when there is none.
const backend::TopKExperts* router_of(const backend::Program& program) {
  const backend::TopKExperts* found = nullptr;
  for (const backend::Op& op : program.main)
    if (const auto* choose = std::get_if<backend::TopKExperts>(&op)) found = choose;
  return found;
}
ValueId router_logits(const backend::Program& program) {
  const backend::TopKExperts* router = router_of(program);
  return router != nullptr ? router->logits : ValueId();
}

Outputs run(backend::Prepared& prepared, std::span<const std::int32_t> tokens, std::int64_t generated_count,
            bool wants_values = false) {
  const backend::Program& program = prepared.program();
  const auto vocab = static_cast<std::size_t>(program.vocab_size);
  std::vector<std::int32_t> pages(static_cast<std::size_t>(prepared.capacity().page_count));
  std::iota(pages.begin(), pages.end(), 0);
  Outputs out;
  out.layers.resize(program.layer_outputs.size());
  if (wants_values) out.values.resize(program.values.size());
  const auto take = [&](Rows& rows, ValueId id) {
    if (id.index < 0) return;
    rows.columns = static_cast<std::size_t>(program.value(id).columns);
    rows.append(prepared.value(id));
  };
  const auto step = [&](std::size_t first, std::size_t count, backend::Role role) {
    const backend::SequenceRows rows{.row_count = static_cast<std::int32_t>(count),
                                     .position = static_cast<std::int64_t>(first),
                                     .page_count = static_cast<std::int32_t>(pages.size()),
                                     .role = role};
    std::vector<std::int32_t> asked(count);
    std::iota(asked.begin(), asked.end(), 0);
    std::vector<float> logits(count * vocab);
    prepared.run(Pass::main, {tokens.subspan(first, count), {&rows, 1}, pages, asked, {}}, logits);
    out.logits.columns = vocab;
    out.logits.append(logits);
    for (std::size_t i = 0; i < out.layers.size(); ++i) take(out.layers[i], program.layer_outputs[i]);
    for (std::size_t i = 0; i < out.values.size(); ++i)
      if (const backend::Value& value = program.values[i];
          value.rows == backend::RowSet::tokens && value.type == backend::ValueType::f32)
        take(out.values[i], {static_cast<std::int32_t>(i)});
    take(out.final_norm, program.final_hidden);
    take(out.router, router_logits(program));
  };
  const std::size_t prompt = tokens.size() - static_cast<std::size_t>(generated_count);
  if (prompt > 0) step(0, prompt, backend::Role::prefill);
  for (std::size_t i = prompt; i < tokens.size(); ++i) step(i, 1, backend::Role::decode);
  return out;
}

// One layer of a model. The first layer has the model's own embedding and the last its own head; elsewhere
// the embedding is a table of the rows given, and the head that table again.
class LayerModel {
 public:
  LayerModel(const DiffRequest& request, std::size_t layer, std::span<const float> given)
      : config_(request.config), tokens_(request.tokens) {
    const checkpoint::ModelWeights& all = request.weights;
    const bool is_last = layer + 1 == all.layers.size();
    weights_.layers = {all.layers[layer]};
    config_.layers = {config_.layers[layer]};
    weights_.final_norm = all.final_norm;
    weights_.embedding = all.embedding;
    weights_.head = all.head;
    if (layer > 0) {
      const auto count = static_cast<std::int64_t>(tokens_.size());
      for (const float x : given) rows_.push_back(to_bf16(x));
      weights_.embedding = {"given rows", count, config_.hidden_size, checkpoint::Bf16Storage{rows_}, {}};
      std::iota(tokens_.begin(), tokens_.end(), 0);
      // The head decides how many tokens there are; rows beyond those given are the given ones again.
      if (is_last) repeat_rows(count);
      if (!is_last) {
        weights_.head = weights_.embedding;
        config_.vocab_size = count;
      }
    }
    program_ = model::build_program(config_, weights_, request.activations);
  }
  const backend::Program& program() const { return program_; }
  std::span<const std::int32_t> tokens() const { return tokens_; }

 private:
  void repeat_rows(std::int64_t count) {
    weights_.embedding.rows = config_.vocab_size;
    for (std::int64_t row = 0; row < config_.vocab_size; row += count)
      weights_.embedding.gather.push_back({0, std::min(count, config_.vocab_size - row)});
  }

  checkpoint::ModelConfig config_;
  checkpoint::ModelWeights weights_;
  std::vector<std::int32_t> tokens_;
  std::vector<Bf16> rows_;
  backend::Program program_;
};

// Between the smallest of the `count` largest keys and the largest of the rest; infinite when there is no
// rest.
double border(std::vector<float> keys, std::int64_t count) {
  if (count >= std::ssize(keys)) return std::numeric_limits<double>::infinity();
  std::ranges::nth_element(keys, keys.begin() + count, std::greater<>());
  return static_cast<double>(*std::min_element(keys.begin(), keys.begin() + count)) -
         keys[static_cast<std::size_t>(count)];
}

// Whether a row's choice would be another one if its logits were a little different. A sigmoid changes by at
// most a quarter of what its logit does, and the rank of a group by twice that.
bool is_clear(const backend::TopKExperts& op, std::vector<float> keys, std::span<const float> bias) {
  if (op.score == backend::RouterScore::softmax && bias.empty() && op.groups_kept == op.group_count)
    return border(std::move(keys), op.count) > kClearMargin;
  check(op.score == backend::RouterScore::sigmoid, "a router with a bias or groups has sigmoids");
  for (std::size_t i = 0; i < keys.size(); ++i)
    keys[i] = 1 / (1 + std::exp(-keys[i])) + (bias.empty() ? 0 : bias[i]);
  if (op.groups_kept == op.group_count) return border(std::move(keys), op.count) > kClearMargin / 4;
  const auto length = static_cast<std::ptrdiff_t>(keys.size()) / op.group_count;
  std::vector<float> ranks;
  for (auto group = keys.begin(); group != keys.end(); group += length) {
    std::ranges::partial_sort(group, group + 2, group + length, std::greater<>());
    ranks.push_back(group[0] + group[1]);
  }
  if (!(border(ranks, op.groups_kept) > kClearMargin / 2)) return false;
  std::vector<float> sorted = ranks, kept;
  std::ranges::nth_element(sorted, sorted.begin() + op.groups_kept - 1, std::greater<>());
  for (std::ptrdiff_t group = 0; group < op.group_count; ++group)
    if (ranks[static_cast<std::size_t>(group)] >= sorted[static_cast<std::size_t>(op.groups_kept - 1)])
      kept.insert(kept.end(), keys.begin() + group * length, keys.begin() + (group + 1) * length);
  return border(std::move(kept), op.count) > kClearMargin / 4;
}

// Which rows' routers were nearly undecided.
std::vector<bool> undecided_rows(const Rows& router, const backend::Program& program, std::size_t row_count) {
  std::vector<bool> undecided(row_count);
  if (router.values.empty()) return undecided;
  const backend::TopKExperts& op = *router_of(program);
  const auto bias =
      op.choice_bias.is_there() ? program.vector(op.choice_bias).values : std::span<const float>();
  for (std::size_t row = 0; row < row_count; ++row) {
    const auto begin = router.values.begin() + static_cast<std::ptrdiff_t>(row * router.columns);
    undecided[row] = !is_clear(op, {begin, begin + static_cast<std::ptrdiff_t>(router.columns)}, bias);
  }
  return undecided;
}

double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

// Of a row: the root mean square of the difference over that of the row. Rows of zeros agree when they are
// equal.
double relative_difference(const Rows& ours, const Rows& theirs, std::size_t row, double& largest) {
  double squares = 0, size = 0;
  for (std::size_t i = row * ours.columns; i < (row + 1) * ours.columns; ++i) {
    const double off = std::abs(static_cast<double>(ours.values[i]) - theirs.values[i]);
    largest = larger(largest, off);
    squares += off * off;
    size += static_cast<double>(theirs.values[i]) * theirs.values[i];
  }
  return squares == 0 ? 0 : std::sqrt(squares / size);
}

// `bounds` has one for each row.
LayerDifference difference(const Rows& ours, const Rows& theirs, const std::vector<bool>& undecided,
                           const std::vector<double>& bounds) {
  check(ours.values.size() == theirs.values.size(), "both backends gave as many numbers", ours.values.size(),
        theirs.values.size());
  LayerDifference out;
  double worst = -1;
  for (std::size_t row = 0; row * ours.columns < ours.values.size(); ++row) {
    if (undecided[row]) {
      ++out.undecided_count;
      continue;
    }
    const double relative = relative_difference(ours, theirs, row, out.largest);
    const double share = relative / bounds[row];
    if (worst < 0 || std::isnan(share) || share > worst) {
      worst = share;
      out.relative = relative;
      out.bound = bounds[row];
    }
    ++out.row_count;
  }
  if (worst < 0) out.bound = kLayerBound;
  return out;
}

// What rounding may do to each row of one layer's results, found on the reference backend.
struct NoiseBounds {
  std::vector<double> layer, final_norm, logits;
};

// Beyond this a bound would let anything pass. (A row of zeros has no relative difference at all.)
constexpr double kLargestBound = 0.5;

void raise(std::vector<double>& bounds, const Rows& noisy, const Rows& clean) {
  double ignored = 0;
  for (std::size_t row = 0; row < bounds.size() && !clean.values.empty(); ++row) {
    const double derived = kLargestFactor * relative_difference(noisy, clean, row, ignored);
    if (std::isfinite(derived)) bounds[row] = std::max(bounds[row], std::min(derived, kLargestBound));
  }
}

std::int64_t weight_count(const backend::Program& program) {
  std::int64_t count = 0;
  for (const backend::MatrixUse& use : program.matrices) count += use.matrix->rows * use.matrix->columns;
  return count;
}

class Differ {
 public:
  Differ(const DiffRequest& request, const DiffBackends& backends,
         const std::function<void(const LayerDifference&)>& show)
      : request_(request), backends_(backends), show_(show) {}

  std::vector<LayerDifference> run_all() {
    const auto count = static_cast<std::int64_t>(request_.tokens.size());
    const Outputs whole = [&] {
      const auto prepared = backends_.prepare(
          request_.backends.front(),
          model::build_program(request_.config, request_.weights, request_.activations), capacity_for(count));
      return run(*prepared, request_.tokens, request_.generated_count);
    }();
    for (std::size_t layer = 0; layer < request_.weights.layers.size(); ++layer) {
      if (whole.layers[layer].values.empty())
        fail(Code::invalid_request, "the {} backend kept no values of layer {}", request_.backends.front(),
             layer);
      diff_layer(layer, LayerModel(request_, layer, whole.layers[layer].values));
    }
    return std::move(found_);
  }

 private:
  void diff_layer(std::size_t layer, const LayerModel& model) {
    const backend::Capacity capacity = capacity_for(static_cast<std::int64_t>(request_.tokens.size()));
    std::vector<Outputs> outputs;
    for (const std::string& name : request_.backends)
      outputs.push_back(run(*backends_.prepare(name, model.program(), capacity), model.tokens(),
                            request_.generated_count, request_.by_op));
    noise_.reset();
    const std::vector<bool> decided(request_.tokens.size());
    const std::vector<bool> undecided = undecided_of(model, outputs, capacity);
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      const Outputs &base = outputs.front(), &other = outputs[i];
      const std::string& name = request_.backends[i];
      if (layer == 0) add("embedding", name, other.layers.front(), base.layers.front(), decided);
      if (request_.by_op) add_ops(layer, model.program(), name, other, base, undecided);
      const auto derived = [&](std::vector<double> NoiseBounds::*which) {
        return [this, &model, &capacity, which] { return noise_bounds(model, capacity).*which; };
      };
      add(fourfold::format("layer {}", layer), name, other.layers.back(), base.layers.back(), undecided,
          derived(&NoiseBounds::layer));
      if (layer + 1 < request_.weights.layers.size()) continue;
      add("final norm", name, other.final_norm, base.final_norm, undecided,
          derived(&NoiseBounds::final_norm));
      add("logits", name, other.logits, base.logits, undecided, derived(&NoiseBounds::logits));
    }
  }

  // Of the layer at hand; found once.
  const NoiseBounds& noise_bounds(const LayerModel& model, const backend::Capacity& capacity) {
    if (noise_) return *noise_;
    const std::vector<double> fixed(request_.tokens.size(), kLayerBound);
    noise_ = {fixed, fixed, fixed};
    if (weight_count(model.program()) > kNoiseWeightsMax) return *noise_;
    Outputs clean;
    for (int count = 0; count <= kNoiseRuns; ++count) {
      backend::Program exact = model.program();
      for (backend::MatrixUse& use : exact.matrices) use.input = backend::InputFormat::f32;
      for (backend::KvCache& cache : exact.kv_caches) cache.format = backend::KvFormat::f32;
      const NoisyProgram noisy(model.program(), static_cast<std::uint64_t>(count));
      const auto prepared =
          backend::ReferenceBackend().prepare(count == 0 ? exact : noisy.program(), capacity);
      Outputs outputs = run(*prepared, model.tokens(), request_.generated_count);
      if (count == 0) {
        clean = std::move(outputs);
        continue;
      }
      raise(noise_->layer, outputs.layers.back(), clean.layers.back());
      raise(noise_->final_norm, outputs.final_norm, clean.final_norm);
      raise(noise_->logits, outputs.logits, clean.logits);
    }
    return *noise_;
  }

  std::vector<bool> undecided_of(const LayerModel& model, const std::vector<Outputs>& outputs,
                                 const backend::Capacity& capacity) const {
    const std::size_t rows = request_.tokens.size();
    if (router_logits(model.program()).index < 0 || request_.activations == model::Activations::f32)
      return std::vector<bool>(rows);
    for (const Outputs& out : outputs)
      if (!out.router.values.empty()) return undecided_rows(out.router, model.program(), rows);
    const auto prepared = backends_.prepare_router(model.program(), capacity);
    return undecided_rows(run(*prepared, model.tokens(), request_.generated_count).router, model.program(),
                          rows);
  }

  // The layer's own values, under the names they have in the whole model.
  void add_ops(std::size_t layer, const backend::Program& program, const std::string& name,
               const Outputs& other, const Outputs& base, const std::vector<bool>& undecided) {
    constexpr std::string_view prefix = "layers.0.";
    for (std::size_t i = 0; i < program.values.size(); ++i) {
      const std::string& value = program.values[i].name;
      const bool is_output = program.layer_outputs.back().index == static_cast<std::int32_t>(i);
      if (value.starts_with(prefix) && !is_output)
        add(fourfold::format("layers.{}.{}", layer, value.substr(prefix.size())), name, other.values[i],
            base.values[i], undecided);
    }
  }

  // Values that one side did not keep are not there to be compared. `derived` gives the rows' own bounds,
  // asked for where a row is beyond the one for all.
  void add(std::string what, const std::string& backend, const Rows& ours, const Rows& theirs,
           const std::vector<bool>& undecided,
           const std::function<std::vector<double>()>& derived = nullptr) {
    if (ours.values.empty() || theirs.values.empty()) return;
    const bool exact = request_.activations == model::Activations::f32;
    const std::vector<double> fixed(undecided.size(), kLayerBound);
    LayerDifference item = difference(ours, theirs, undecided, fixed);
    if (!exact && !item.fine() && derived) item = difference(ours, theirs, undecided, derived());
    item.what = std::move(what);
    item.backend = backend;
    item.bounds_largest = exact;
    if (exact) item.bound = kExactBound;
    show_(item);
    found_.push_back(std::move(item));
  }

  const DiffRequest& request_;
  const DiffBackends& backends_;
  const std::function<void(const LayerDifference&)>& show_;
  std::vector<LayerDifference> found_;
  std::optional<NoiseBounds> noise_;
};

}  // namespace

std::vector<LayerDifference> diff_backends(const DiffRequest& request, const DiffBackends& backends,
                                           const std::function<void(const LayerDifference&)>& show) {
  check(request.backends.size() >= 2, "there are two backends to hold against each other");
  if (request.tokens.empty() || request.generated_count < 0 ||
      request.generated_count > static_cast<std::int64_t>(request.tokens.size()))
    fail(Code::invalid_request, "{} tokens, {} of them generated: at least one, and no more than there are",
         request.tokens.size(), request.generated_count);
  return Differ(request, backends, show).run_all();
}

}  // namespace fourfold::evaluate
