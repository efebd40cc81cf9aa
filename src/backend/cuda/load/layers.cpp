#include "backend/cuda/load/layers.h"

#include "base/error.h"
#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/moe_route/route_rule.h"

namespace fourfold::backend::cuda {
namespace {

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& it) { return it.name; }, op);
}

// Reads ops one after the other.
class Reader {
 public:
  Reader(const Program& program, Pass pass) : program_(program), pass_(pass), ops_(program.ops(pass)) {}

  template <class Wanted>
  bool next_is() const {
    return at_ < ops_.size() && std::holds_alternative<Wanted>(ops_[at_]);
  }
  template <class Wanted>
  const Wanted& take() {
    if (!next_is<Wanted>())
      fail(Code::unsupported_op, "the GPU backend cannot run this {} program: op {} is {}, expected {}",
           pass_name(pass_), at_, at_ < ops_.size() ? name_of(ops_[at_]) : "missing", Wanted::name);
    return std::get<Wanted>(ops_[at_++]);
  }
  // An op whose input must be this value: a program may not mean another one.
  void require(ValueId got, ValueId wanted) const {
    if (got == wanted) return;
    fail(Code::unsupported_op, "the GPU backend cannot run this {} program: op {} reads {}, expected {}",
         pass_name(pass_), at_ - 1, program_.value(got).name, program_.value(wanted).name);
  }
  // What an op of this program asks of the GPU's kernels, and they do not have.
  [[noreturn]] void refuse(std::string_view what) const {
    fail_with_hint(Code::unsupported_op, "Run it with --backend cpu.",
                   "the GPU backend cannot run this {} program: op {} ({}) has {}", pass_name(pass_), at_ - 1,
                   name_of(ops_[at_ - 1]), what);
  }
  const Program& program() const { return program_; }
  bool ended() const { return at_ == ops_.size(); }

  Norm norm(ValueId in, ValueId& out) {
    const auto& op = take<RmsNorm>();
    require(op.in, in);
    out = op.out;
    return {op.weight, op.adds_one, op.epsilon};
  }
  // bias: where one may be, and is told; elsewhere the kernels have none.
  MatrixId linear(ValueId in, ValueId& out, OptionalVectorId* bias = nullptr) {
    const auto& op = take<Linear>();
    require(op.in, in);
    if (bias != nullptr)
      *bias = op.bias;
    else if (op.bias.is_there())
      refuse("a bias");
    out = op.out;
    return op.weight;
  }
  // x + all_reduce(in), the end of both halves of a layer.
  ValueId residual(ValueId x, ValueId in) {
    const auto& sum = take<AllReduce>();
    require(sum.in, in);
    const auto& add = take<Add>();
    require(add.first, x);
    require(add.second, sum.out);
    return add.out;
  }

 private:
  const Program& program_;
  Pass pass_;
  const std::vector<Op>& ops_;
  std::size_t at_ = 0;
};

// Queries or keys on their way from the projection to the rotation.
struct Heads {
  ValueId at;
  std::optional<RowNorm> row_norm;
};

// The norm over all heads of a row, which ranks gather before it and cut again behind it.
void read_row_norm(Reader& reader, Heads& heads) {
  const bool is_gathered = reader.next_is<AllGather>();
  if (is_gathered) {
    const auto& gather = reader.take<AllGather>();
    reader.require(gather.in, heads.at);
    heads.at = gather.out;
  }
  RowNorm& row = heads.row_norm.emplace();
  row.norm = reader.norm(heads.at, heads.at);
  if (is_gathered != (reader.program().part.count > 1))
    reader.refuse("a norm over the heads of one rank alone");
  if (!is_gathered) return;
  const auto& cut = reader.take<TakeColumns>();
  reader.require(cut.in, heads.at);
  row.first = cut.first;
  heads.at = cut.out;
}

const HeadNormRope& read_turn(Reader& reader, Heads& heads, std::optional<Norm>& norm) {
  if (!reader.next_is<HeadNormRope>() && !heads.row_norm) read_row_norm(reader, heads);
  const auto& turn = reader.take<HeadNormRope>();
  reader.require(turn.in, heads.at);
  if (turn.weight.is_there()) norm = {turn.weight, turn.adds_one, turn.epsilon};
  if (norm && heads.row_norm) reader.refuse("a norm behind another over all heads");
  return turn;
}

// What the kernels take to be so of queries and keys together.
void require_alike(const Reader& reader, const AttentionMixer& mixer, const HeadNormRope& query,
                   const HeadNormRope& key) {
  const auto same_norm = [](const std::optional<Norm>& a, const std::optional<Norm>& b) {
    return a.has_value() == b.has_value() && (!a || a->epsilon == b->epsilon);
  };
  const auto row_norm = [](const std::optional<RowNorm>& row) {
    return row ? std::optional(row->norm) : std::nullopt;
  };
  if (!(key.rope == query.rope) || key.head_dim != query.head_dim || key.head_stride != key.head_dim ||
      !same_norm(mixer.query_norm, mixer.key_norm) ||
      !same_norm(row_norm(mixer.query_row_norm), row_norm(mixer.key_row_norm)))
    reader.refuse("keys that are normed or turned otherwise than the queries");
  const bool is_biased =
      mixer.query_bias.is_there() || mixer.key_bias.is_there() || mixer.value_bias.is_there();
  if (is_biased && mixer.is_gated) reader.refuse("a bias on queries that have gates");
  if (!mixer.query_row_norm) return;
  if (is_biased) reader.refuse("a bias in front of a norm over all heads");
  if (mixer.is_gated) reader.refuse("a norm over all heads of queries that have gates");
  if (query.head_count * query.head_dim > attention::kSquaresColumns)
    reader.refuse(format("a norm over {} columns; {} are the most", query.head_count * query.head_dim,
                         attention::kSquaresColumns));
}

AttentionMixer read_attention(Reader& reader, const Norm& norm, MatrixId first, OptionalVectorId first_bias,
                              ValueId first_out, ValueId in, ValueId& out) {
  AttentionMixer mixer;
  mixer.norm = norm;
  mixer.query = first;
  mixer.query_bias = first_bias;
  ValueId value;
  Heads query{first_out, {}}, key;
  mixer.key = reader.linear(in, key.at, &mixer.key_bias);
  mixer.value = reader.linear(in, value, &mixer.value_bias);
  // A model may norm both before it turns either.
  if (!reader.next_is<HeadNormRope>()) read_row_norm(reader, query);
  if (!reader.next_is<HeadNormRope>()) read_row_norm(reader, key);
  const HeadNormRope& query_turn = read_turn(reader, query, mixer.query_norm);
  const HeadNormRope& key_turn = read_turn(reader, key, mixer.key_norm);
  mixer.query_row_norm = query.row_norm;
  mixer.key_row_norm = key.row_norm;
  mixer.rope = query_turn.rope;
  mixer.head_count = query_turn.head_count;
  mixer.head_dim = query_turn.head_dim;
  mixer.is_gated = query_turn.head_stride != query_turn.head_dim;
  require_alike(reader, mixer, query_turn, key_turn);
  const auto& write = reader.take<WriteKv>();
  reader.require(write.key, key_turn.out);
  reader.require(write.value, value);
  const auto& attend = reader.take<Attention>();
  reader.require(attend.query, query_turn.out);
  if (!(attend.cache == write.cache)) reader.refuse("another cache than the one that was written");
  if (reader.program().kv_cache(attend.cache).is_latent())
    reader.refuse("a latent cache, but no absorbed query");
  if (attend.growth_positions != 0) reader.refuse("a scale that grows with the position");
  mixer.sinks = attend.sinks;
  mixer.window = attend.window;
  mixer.cache = attend.cache;
  mixer.scale = attend.scale;
  ValueId attended = attend.out;
  if (mixer.is_gated) {
    const auto& gate = reader.take<HeadGate>();
    reader.require(gate.in, attended);
    reader.require(gate.gate, first_out);
    attended = gate.out;
  }
  mixer.output = reader.linear(attended, out, &mixer.output_bias);
  return mixer;
}

// The matrix of each head is held in bf16, so it reads bf16 rows.
MatrixId read_head_linear(Reader& reader, ValueId in, bool transposed, std::int64_t head_count,
                          ValueId& out) {
  const auto& op = reader.take<HeadLinear>();
  reader.require(op.in, in);
  if (op.transposed != transposed) reader.refuse("its matrices the other way round");
  if (op.head_count != head_count) reader.refuse("another number of heads than attention");
  out = op.out;
  return op.weight;
}

const HeadNormRope& read_plain_turn(Reader& reader, ValueId in) {
  const auto& turn = reader.take<HeadNormRope>();
  reader.require(turn.in, in);
  if (turn.weight.is_there() || turn.head_stride != turn.head_dim) reader.refuse("a norm or gates");
  const Rope& rope = reader.program().rope(turn.rope);
  if (2 * std::ssize(rope.inverse_frequency) != turn.head_dim) reader.refuse("columns that are not turned");
  return turn;
}

// `first` is the query's first matrix: it is followed by its norm, or it is the plain query's.
LatentMixer read_latent(Reader& reader, const Norm& norm, MatrixId first, ValueId first_out, ValueId in,
                        ValueId& out) {
  LatentMixer mixer;
  mixer.norm = norm;
  mixer.plain_query = first;
  ValueId query_in = in, plain = first_out, rope_query, latent, rope_key;
  if (reader.next_is<RmsNorm>()) {
    mixer.query_down = first;
    mixer.query_norm = reader.norm(first_out, query_in);
    mixer.plain_query = reader.linear(query_in, plain);
  }
  mixer.turned_query = reader.linear(query_in, rope_query);
  mixer.latent = reader.linear(in, latent);
  mixer.turned_key = reader.linear(in, rope_key);
  mixer.latent_norm = reader.norm(latent, latent);
  const HeadNormRope& query_turn = read_plain_turn(reader, rope_query);
  const HeadNormRope& key_turn = read_plain_turn(reader, rope_key);
  if (!(query_turn.rope == key_turn.rope) || key_turn.head_count != 1)
    reader.refuse("keys that are turned otherwise than the queries");
  mixer.rope = query_turn.rope;
  mixer.head_count = query_turn.head_count;
  const auto& write = reader.take<WriteKv>();
  reader.require(write.key, key_turn.out);
  reader.require(write.value, latent);
  mixer.cache = write.cache;
  if (const KvCache& cache = reader.program().kv_cache(write.cache);
      !cache.is_latent() || cache.kv_head_count != 1)
    reader.refuse("a cache that is no latent of one head");
  ValueId absorbed, expanded;
  mixer.key_up = read_head_linear(reader, plain, true, mixer.head_count, absorbed);
  const auto& both = reader.take<Concat>();
  reader.require(both.first, absorbed);
  reader.require(both.second, query_turn.out);
  if (both.head_count != mixer.head_count) reader.refuse("another number of heads than attention");
  mixer.attend = reader.take<Attention>();
  reader.require(mixer.attend.query, both.out);
  if (!(mixer.attend.cache == write.cache)) reader.refuse("another cache than the one that was written");
  if (mixer.attend.head_count != mixer.head_count) reader.refuse("another number of heads than its queries");
  if (mixer.attend.sinks.is_there()) reader.refuse("sinks over a latent cache");
  if (mixer.attend.window != 0) reader.refuse("a window over a latent cache");
  mixer.value_up = read_head_linear(reader, mixer.attend.out, false, mixer.head_count, expanded);
  mixer.output = reader.linear(expanded, out);
  return mixer;
}

DeltaMixer read_delta(Reader& reader, const Norm& norm, MatrixId first, ValueId first_out, ValueId in,
                      ValueId& out) {
  DeltaMixer mixer;
  mixer.norm = norm;
  mixer.qkv = first;
  ValueId gate, beta, decay;
  mixer.gate = reader.linear(in, gate);
  mixer.beta = reader.linear(in, beta);
  mixer.decay = reader.linear(in, decay);
  const auto& conv = reader.take<CausalConv>();
  reader.require(conv.in, first_out);
  const auto& rule = reader.take<DeltaRule>();
  reader.require(rule.qkv, conv.out);
  reader.require(rule.beta, beta);
  reader.require(rule.decay, decay);
  const auto& gated = reader.take<GatedHeadNorm>();
  reader.require(gated.in, rule.out);
  reader.require(gated.gate, gate);
  mixer.taps = conv.taps;
  mixer.a_log = rule.a_log;
  mixer.dt_bias = rule.dt_bias;
  mixer.state = rule.state;
  mixer.head_norm = {gated.weight, false, gated.epsilon};
  mixer.gate_kind = gated.kind;
  mixer.output = reader.linear(gated.out, out);
  return mixer;
}

// gate, up, swiglu, down; `gate` was read already.
GatedMlp read_gated(Reader& reader, MatrixId gate, ValueId gate_out, ValueId in, ValueId& out) {
  GatedMlp mlp;
  mlp.gate = gate;
  ValueId up;
  mlp.up = reader.linear(in, up);
  const auto& glu = reader.take<SwiGlu>();
  reader.require(glu.gate, gate_out);
  reader.require(glu.up, up);
  mlp.down = reader.linear(glu.out, out);
  return mlp;
}

MoeMlp read_experts(Reader& reader, const Norm& norm, MatrixId router, OptionalVectorId router_bias,
                    ValueId logits, ValueId in, ValueId& out) {
  MoeMlp mlp;
  mlp.norm = norm;
  mlp.router = router;
  mlp.router_bias = router_bias;
  const auto& choose = reader.take<TopKExperts>();
  reader.require(choose.logits, logits);
  mlp.experts_per_token = choose.count;
  mlp.normalizes = choose.normalize;
  mlp.score = choose.score;
  mlp.choice_bias = choose.choice_bias;
  if (choose.groups_kept != choose.group_count)
    mlp.group_count = choose.group_count, mlp.groups_kept = choose.groups_kept;
  mlp.scale = choose.scale;
  const std::int64_t expert_count = reader.program().value(logits).columns;
  if (const std::string refusal = moe_route::refusal_of(rule_of(mlp, nullptr), static_cast<int>(expert_count),
                                                        static_cast<int>(choose.count));
      !refusal.empty())
    reader.refuse(refusal);
  if (mlp.score == RouterScore::softmax && mlp.choice_bias.is_there())
    reader.refuse("softmax scores with a bias for choosing");
  const auto& experts = reader.take<RunExperts>();
  reader.require(experts.in, in);
  reader.require(experts.experts, choose.experts);
  reader.require(experts.weights, choose.weights);
  const ExpertSet& set = reader.program().expert_set(experts.set);
  mlp.clamped = experts.glu == GluKind::clamped;
  mlp.glu_alpha = experts.glu_alpha;
  mlp.glu_limit = experts.glu_limit;
  if (!mlp.clamped && (set.gate_bias.is_there() || set.up_bias.is_there() || set.down_bias.is_there()))
    reader.refuse("experts with biases and a plain SwiGLU");
  mlp.set = experts.set;
  out = experts.out;
  if (!reader.next_is<Linear>()) return mlp;

  ValueId gate, shared;
  const MatrixId first = reader.linear(in, gate);
  mlp.shared = read_gated(reader, first, gate, in, shared);
  if (reader.next_is<Add>()) {
    const auto& add = reader.take<Add>();
    reader.require(add.first, out);
    reader.require(add.second, shared);
    out = add.out;
    return mlp;
  }
  ValueId open;
  mlp.shared_gate = reader.linear(in, open);
  const auto& add = reader.take<AddGated>();
  reader.require(add.in, out);
  reader.require(add.other, shared);
  reader.require(add.gate, open);
  out = add.out;
  return mlp;
}

Layer read_layer(Reader& reader, ValueId& x) {
  Layer layer;
  ValueId in, first_out, out;
  const Norm mixer_norm = reader.norm(x, in);
  OptionalVectorId first_bias;
  const MatrixId first = reader.linear(in, first_out, &first_bias);
  // Attention has three projections of its input, DeltaNet four, and so has latent attention whose queries
  // have no matrix in front of theirs: what comes behind the first, the third and the fourth decides.
  Reader ahead = reader;
  ValueId ignored;
  OptionalVectorId any;
  const auto skip = [&](int count) {
    for (int i = 0; i < count && ahead.next_is<Linear>(); ++i) ahead.linear(in, ignored, &any);
  };
  const bool has_query_down = reader.next_is<RmsNorm>();
  if (!has_query_down) skip(2);
  if (!has_query_down && !ahead.next_is<Linear>()) {
    layer.mixer = read_attention(reader, mixer_norm, first, first_bias, first_out, in, out);
  } else {
    if (first_bias.is_there()) reader.refuse("a bias");
    skip(1);
    if (has_query_down || ahead.next_is<RmsNorm>())
      layer.mixer = read_latent(reader, mixer_norm, first, first_out, in, out);
    else
      layer.mixer = read_delta(reader, mixer_norm, first, first_out, in, out);
  }
  x = reader.residual(x, out);

  const Norm mlp_norm = reader.norm(x, in);
  const MatrixId mlp_first = reader.linear(in, first_out, &first_bias);
  if (reader.next_is<TopKExperts>()) {
    layer.mlp = read_experts(reader, mlp_norm, mlp_first, first_bias, first_out, in, out);
  } else {
    if (first_bias.is_there()) reader.refuse("a bias");
    layer.mlp = DenseMlp{mlp_norm, read_gated(reader, mlp_first, first_out, in, out)};
  }
  x = reader.residual(x, out);
  layer.out = x;
  return layer;
}

MatrixId read_head(Reader& reader, ValueId hidden) {
  const auto& rows = reader.take<TakeLogitsRows>();
  reader.require(rows.in, hidden);
  ValueId logits;
  const MatrixId head = reader.linear(rows.out, logits);
  if (reader.next_is<AllGather>()) reader.require(reader.take<AllGather>().in, logits);
  return head;
}

MainPass read_main(const Program& program) {
  Reader reader(program, Pass::main);
  MainPass pass;
  const auto& embed = reader.take<Embed>();
  pass.embedding = embed.table;
  pass.embedded = embed.out;
  ValueId x = embed.out;
  while (pass.layers.size() + 1 < program.layer_outputs.size()) pass.layers.push_back(read_layer(reader, x));
  ValueId hidden;
  pass.final_norm = reader.norm(x, hidden);
  pass.keeps_hidden = reader.next_is<KeepHidden>();
  if (pass.keeps_hidden) reader.require(reader.take<KeepHidden>().in, hidden);
  pass.head = read_head(reader, hidden);
  if (!reader.ended()) fail(Code::unsupported_op, "the main program goes on after its head");
  return pass;
}

DraftPass read_draft(const Program& program) {
  Reader reader(program, Pass::draft);
  DraftPass pass;
  const auto& embed = reader.take<Embed>();
  const auto& hidden = reader.take<TakeHidden>();
  pass.embedding = embed.table;
  ValueId token, before, x;
  pass.embedding_norm = reader.norm(embed.out, token);
  pass.hidden_norm = reader.norm(hidden.out, before);
  const auto& both = reader.take<Concat>();
  reader.require(both.first, token);
  reader.require(both.second, before);
  if (both.head_count != 1) reader.refuse("heads of their own");
  pass.combine = reader.linear(both.out, x);
  pass.layer = read_layer(reader, x);
  ValueId normed;
  pass.final_norm = reader.norm(x, normed);
  reader.require(reader.take<KeepHidden>().in, normed);
  pass.head = read_head(reader, normed);
  if (!reader.ended()) fail(Code::unsupported_op, "the draft program goes on after its head");
  return pass;
}

}  // namespace

moe_route::RouteRule rule_of(const MoeMlp& mlp, const float* choice_bias) {
  moe_route::RouteRule rule;
  rule.renormalise = mlp.normalizes;
  rule.sigmoid = mlp.score == RouterScore::sigmoid;
  rule.groups = static_cast<std::int32_t>(mlp.group_count);
  rule.groups_kept = static_cast<std::int32_t>(mlp.groups_kept);
  rule.choice_bias = choice_bias;
  rule.scale = static_cast<float>(mlp.scale);
  return rule;
}

Layers read_layers(const Program& program) {
  Layers layers{read_main(program), std::nullopt};
  if (!program.draft.empty()) layers.draft = read_draft(program);
  return layers;
}

}  // namespace fourfold::backend::cuda
