// What makes a program sound: ids in range, values written once and before they are read, sizes that agree.
#include <set>

#include "backend/program.h"
#include "base/format.h"

namespace fourfold::backend {
namespace {

class Checker {
 public:
  Checker(const Program& program, Pass pass) : program_(program), pass_(pass) {}

  void run() {
    std::size_t index = 0;
    for (const Op& op : program_.ops(pass_)) {
      std::visit(
          [&](const auto& known) { place_ = format("{} op {} {}", pass_name(pass_), index, known.name); },
          op);
      const std::size_t before = problems.size();
      std::visit([&](const auto& known) { known.fields(*this); }, op);
      if (problems.size() == before) std::visit([&](const auto& known) { sizes(known); }, op);
      ++index;
    }
    if (index == 0) return;
    place_ = format("{} logits", pass_name(pass_));
    (*this)("value", program_.logits(pass_));
    if (problems.empty()) want("columns", columns(program_.logits(pass_)), program_.vocab_size);
  }

  void operator()(std::string_view field, ResultId id) {
    if (!in_table(field, id.index, program_.values.size())) return;
    if (!written_.insert(id.index).second) problem(format("{} is written twice", program_.value(id).name));
  }
  void operator()(std::string_view field, ValueId id) {
    if (!in_table(field, id.index, program_.values.size())) return;
    if (!written_.contains(id.index))
      problem(format("{} is read before it is written", program_.value(id).name));
  }
  void operator()(std::string_view field, MatrixId id) {
    in_table(field, id.index, program_.matrices.size());
  }
  void operator()(std::string_view field, VectorId id) { in_table(field, id.index, program_.vectors.size()); }
  void operator()(std::string_view field, OptionalVectorId id) {
    if (id.is_there()) in_table(field, id.index, program_.vectors.size());
  }
  void operator()(std::string_view field, ExpertSetId id) {
    if (!in_table(field, id.index, program_.expert_sets.size())) return;
    const ExpertSet& set = program_.expert_set(id);
    for (const OptionalVectorId bias : {set.gate_bias, set.up_bias, set.down_bias})
      if (bias.is_there() && !in_table(field, bias.index, program_.vectors.size())) return;
    for (const ExpertMatrices& expert : set.experts)
      for (const MatrixId matrix : {expert.gate, expert.up, expert.down})
        if (!in_table(field, matrix.index, program_.matrices.size())) return;
  }
  void operator()(std::string_view field, KvCacheId id) {
    in_table(field, id.index, program_.kv_caches.size());
  }
  void operator()(std::string_view field, DeltaStateId id) {
    in_table(field, id.index, program_.delta_states.size());
  }
  void operator()(std::string_view field, RopeId id) { in_table(field, id.index, program_.ropes.size()); }
  void operator()(std::string_view, auto) {}

  std::vector<std::string> problems;

 private:
  void problem(std::string text) { problems.push_back(place_ + ": " + std::move(text)); }
  bool in_table(std::string_view field, std::int32_t index, std::size_t count) {
    const bool inside = index >= 0 && static_cast<std::size_t>(index) < count;
    if (!inside) problem(format("{} is number {} of {}", field, index, count));
    return inside;
  }
  void want(std::string_view what, std::int64_t is, std::int64_t wanted) {
    if (is != wanted) problem(format("{} is {}, not {}", what, is, wanted));
  }
  std::int64_t columns(ValueId id) const { return program_.value(id).columns; }
  std::int64_t size(VectorId id) const {
    return static_cast<std::int64_t>(program_.vector(id).values.size());
  }
  const checkpoint::Matrix& matrix(MatrixId id) const { return *program_.matrix(id).matrix; }

  void matrix_sizes(std::string_view what, MatrixId id, std::int64_t in, std::int64_t out) {
    want(format("{} columns", what), matrix(id).columns, in);
    want(format("{} rows", what), matrix(id).rows, out);
  }

  void sizes(const Embed& op) { matrix_sizes("table", op.table, columns(op.out), program_.vocab_size); }
  void sizes(const RmsNorm& op) {
    want("weight", size(op.weight), columns(op.in)), want("out", columns(op.out), columns(op.in));
  }
  void sizes(const Linear& op) {
    matrix_sizes("weight", op.weight, columns(op.in), columns(op.out));
    if (op.bias.is_there()) want("bias", size(op.bias), columns(op.out));
  }
  void sizes(const Add& op) {
    want("second", columns(op.second), columns(op.first)), want("out", columns(op.out), columns(op.first));
  }
  void sizes(const Concat& op) {
    want("out", columns(op.out), columns(op.first) + columns(op.second));
    if (op.head_count < 1) return problem(format("{} heads", op.head_count));
    want("first over heads", columns(op.first) % op.head_count, 0);
    want("second over heads", columns(op.second) % op.head_count, 0);
  }
  void sizes(const TakeColumns& op) {
    if (op.first < 0 || op.first + columns(op.out) > columns(op.in))
      problem(format("columns {} to {} of {}", op.first, op.first + columns(op.out), columns(op.in)));
  }
  void sizes(const AllReduce& op) { want("out", columns(op.out), columns(op.in)); }
  void sizes(const AllGather& op) { want("out", columns(op.out), program_.part.count * columns(op.in)); }
  void sizes(const TakeLogitsRows& op) { want("out", columns(op.out), columns(op.in)); }
  void sizes(const KeepHidden& op) { want("in", columns(op.in), program_.hidden_size); }
  void sizes(const TakeHidden& op) { want("out", columns(op.out), program_.hidden_size); }
  void sizes(const HeadNormRope& op) {
    want("in", columns(op.in), op.head_count * op.head_stride);
    want("out", columns(op.out), op.head_count * op.head_dim);
    if (op.weight.is_there()) want("weight", size(op.weight), op.head_dim);
    if (2 * static_cast<std::int64_t>(program_.rope(op.rope).inverse_frequency.size()) > op.head_dim)
      problem("the rope turns more columns than a head has");
  }
  void sizes(const WriteKv& op) {
    const KvCache& cache = program_.kv_cache(op.cache);
    const std::int64_t latent = cache.kv_head_count * cache.latent_dim;
    want("key", columns(op.key), cache.columns() - latent);
    if (cache.window != 0 && pass_ == Pass::draft) problem("a cache with a window in the draft pass");
    want("value", columns(op.value), cache.kv_head_count * cache.value_dim());
  }
  void sizes(const Attention& op) {
    const KvCache& cache = program_.kv_cache(op.cache);
    want("query", columns(op.query), op.head_count * cache.head_dim);
    want("out", columns(op.out), op.head_count * cache.value_dim());
    want("heads over kv heads", op.head_count % cache.kv_head_count, 0);
    if (op.sinks.is_there()) want("sinks", size(op.sinks), op.head_count);
    if (op.window < 0) problem(format("a window of {} positions", op.window));
    if (cache.window != 0 && (op.window == 0 || op.window > cache.window))
      problem(format("a window of {} positions over a cache that keeps {}", op.window, cache.window));
    if (op.growth_positions < 0 || op.growth < 0)
      problem(format("a scale that grows by {} every {} positions", op.growth, op.growth_positions));
  }
  void sizes(const HeadLinear& op) {
    if (op.head_count < 1) return problem(format("{} heads", op.head_count));
    want("in over heads", columns(op.in) % op.head_count, 0);
    want("out over heads", columns(op.out) % op.head_count, 0);
    const std::int64_t in = columns(op.in) / op.head_count, out = columns(op.out) / op.head_count;
    matrix_sizes("weight", op.weight, op.transposed ? out : in, op.head_count * (op.transposed ? in : out));
    const InputFormat input = program_.matrix(op.weight).input;
    if (input != InputFormat::bf16 && input != InputFormat::f32)
      problem("the input of a matrix for each head is bf16 or f32");
  }
  void sizes(const HeadGate& op) {
    want("gate", columns(op.gate), 2 * columns(op.in)), want("out", columns(op.out), columns(op.in));
  }
  void sizes(const CausalConv& op) {
    const DeltaState& state = program_.delta_state(op.state);
    want("in", columns(op.in), state.conv_dim()), want("out", columns(op.out), state.conv_dim());
    want("taps", size(op.taps), state.conv_dim() * state.conv_taps);
  }
  void sizes(const DeltaRule& op) {
    const DeltaState& state = program_.delta_state(op.state);
    want("qkv", columns(op.qkv), state.conv_dim()), want("out", columns(op.out), state.value_dim());
    want("beta", columns(op.beta), state.value_head_count);
    want("decay", columns(op.decay), state.value_head_count);
    want("a_log", size(op.a_log), state.value_head_count);
    want("dt_bias", size(op.dt_bias), state.value_head_count);
  }
  void sizes(const GatedHeadNorm& op) {
    want("gate", columns(op.gate), columns(op.in)), want("out", columns(op.out), columns(op.in));
    want("columns over weight", columns(op.in) % size(op.weight), 0);
  }
  void sizes(const SwiGlu& op) {
    want("up", columns(op.up), columns(op.gate)), want("out", columns(op.out), columns(op.gate));
  }
  void sizes(const TopKExperts& op) {
    want("experts", columns(op.experts), op.count), want("weights", columns(op.weights), op.count);
    if (op.choice_bias.is_there()) want("choice_bias", size(op.choice_bias), columns(op.logits));
    if (op.group_count < 1 || columns(op.logits) % op.group_count != 0)
      return problem(
          format("{} experts are not {} groups of equal length", columns(op.logits), op.group_count));
    if (op.groups_kept < 1 || op.groups_kept > op.group_count)
      return problem(format("{} groups are kept of {}", op.groups_kept, op.group_count));
    const std::int64_t in_group = columns(op.logits) / op.group_count;
    if (op.group_count > 1 && in_group < 2) problem("a group has one expert, and its rank needs two");
    if (op.count > op.groups_kept * in_group) problem("more experts are chosen than there are");
  }
  void sizes(const RunExperts& op) {
    const ExpertSet& set = program_.expert_set(op.set);
    std::int64_t bias_rows = 0, down_bias_rows = 0;
    for (const ExpertMatrices& expert : set.experts) {
      const std::int64_t inner = matrix(expert.gate).rows;
      matrix_sizes("gate", expert.gate, columns(op.in), inner);
      matrix_sizes("up", expert.up, columns(op.in), inner);
      matrix_sizes("down", expert.down, inner, columns(op.out));
      bias_rows += inner;
      down_bias_rows += columns(op.out);
    }
    const auto bias_size = [&](std::string_view what, OptionalVectorId bias, std::int64_t wanted) {
      if (bias.is_there()) want(what, size(bias), wanted);
    };
    bias_size("gate_bias", set.gate_bias, bias_rows);
    bias_size("up_bias", set.up_bias, bias_rows);
    bias_size("down_bias", set.down_bias, down_bias_rows);
    if (op.glu == GluKind::clamped && !(op.glu_limit > 0))
      problem(format("gate and up are clamped at {}", op.glu_limit));
  }
  void sizes(const AddGated& op) {
    want("gate", columns(op.gate), 1), want("other", columns(op.other), columns(op.in));
    want("out", columns(op.out), columns(op.in));
  }

  const Program& program_;
  Pass pass_;
  std::string place_;
  std::set<std::int32_t> written_;
};

}  // namespace

std::vector<std::string> problems_of(const Program& program) {
  std::vector<std::string> problems;
  for (const Pass pass : {Pass::main, Pass::draft}) {
    Checker checker(program, pass);
    checker.run();
    problems.insert(problems.end(), checker.problems.begin(), checker.problems.end());
  }
  if (program.part.count < 1 || program.part.rank < 0 || program.part.rank >= program.part.count)
    problems.push_back(format("rank {} of {}", program.part.rank, program.part.count));
  for (const KvCache& cache : program.kv_caches)
    if (cache.latent_dim < 0 || (cache.is_latent() && cache.latent_dim >= cache.head_dim))
      problems.push_back(
          format("{}: values of {} columns in keys of {}", cache.name, cache.latent_dim, cache.head_dim));
  for (const KvCache& cache : program.kv_caches)
    if (cache.window < 0)
      problems.push_back(format("{}: a window of {} positions", cache.name, cache.window));
  if (program.main.empty()) problems.push_back("main has no ops");
  return problems;
}

}  // namespace fourfold::backend
