#include "backend/cuda/load/layers.h"

#include "base/error.h"

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
  bool ended() const { return at_ == ops_.size(); }

  Norm norm(ValueId in, ValueId& out) {
    const auto& op = take<RmsNorm>();
    require(op.in, in);
    out = op.out;
    return {op.weight, op.adds_one, op.epsilon};
  }
  MatrixId linear(ValueId in, ValueId& out) {
    const auto& op = take<Linear>();
    require(op.in, in);
    if (op.bias.is_there()) refuse("a bias");
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

AttentionMixer read_attention(Reader& reader, const Norm& norm, MatrixId first, ValueId first_out, ValueId in,
                              ValueId& out) {
  AttentionMixer mixer;
  mixer.norm = norm;
  mixer.query = first;
  ValueId key, value;
  mixer.key = reader.linear(in, key);
  mixer.value = reader.linear(in, value);
  const auto& query_turn = reader.take<HeadNormRope>();
  reader.require(query_turn.in, first_out);
  if (!query_turn.weight.is_there()) reader.refuse("no norm");
  const auto& key_turn = reader.take<HeadNormRope>();
  reader.require(key_turn.in, key);
  if (!key_turn.weight.is_there()) reader.refuse("no norm");
  mixer.query_norm = {query_turn.weight, query_turn.adds_one, query_turn.epsilon};
  mixer.key_norm = {key_turn.weight, key_turn.adds_one, key_turn.epsilon};
  mixer.rope = query_turn.rope;
  mixer.head_count = query_turn.head_count;
  mixer.head_dim = query_turn.head_dim;
  mixer.is_gated = query_turn.head_stride != query_turn.head_dim;
  const auto& write = reader.take<WriteKv>();
  reader.require(write.key, key_turn.out);
  reader.require(write.value, value);
  const auto& attend = reader.take<Attention>();
  reader.require(attend.query, query_turn.out);
  mixer.cache = attend.cache;
  mixer.scale = attend.scale;
  ValueId attended = attend.out;
  if (mixer.is_gated) {
    const auto& gate = reader.take<HeadGate>();
    reader.require(gate.in, attended);
    reader.require(gate.gate, first_out);
    attended = gate.out;
  }
  mixer.output = reader.linear(attended, out);
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

MoeMlp read_experts(Reader& reader, const Norm& norm, MatrixId router, ValueId logits, ValueId in,
                    ValueId& out) {
  MoeMlp mlp;
  mlp.norm = norm;
  mlp.router = router;
  const auto& choose = reader.take<TopKExperts>();
  reader.require(choose.logits, logits);
  if (choose.score != RouterScore::softmax) reader.refuse("sigmoid scores");
  if (choose.choice_bias.is_there()) reader.refuse("a bias for choosing");
  if (choose.groups_kept != choose.group_count) reader.refuse("groups of experts");
  if (choose.scale != 1) reader.refuse(fourfold::format("weights times {}", choose.scale));
  mlp.experts_per_token = choose.count;
  mlp.normalizes = choose.normalize;
  const auto& experts = reader.take<RunExperts>();
  reader.require(experts.in, in);
  reader.require(experts.experts, choose.experts);
  reader.require(experts.weights, choose.weights);
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
  const MatrixId first = reader.linear(in, first_out);
  // Attention has three projections of its input, DeltaNet four; the fourth decides.
  Reader ahead = reader;
  ValueId ignored;
  ahead.linear(in, ignored);
  ahead.linear(in, ignored);
  if (ahead.next_is<Linear>())
    layer.mixer = read_delta(reader, mixer_norm, first, first_out, in, out);
  else
    layer.mixer = read_attention(reader, mixer_norm, first, first_out, in, out);
  x = reader.residual(x, out);

  const Norm mlp_norm = reader.norm(x, in);
  const MatrixId mlp_first = reader.linear(in, first_out);
  if (reader.next_is<TopKExperts>())
    layer.mlp = read_experts(reader, mlp_norm, mlp_first, first_out, in, out);
  else
    layer.mlp = DenseMlp{mlp_norm, read_gated(reader, mlp_first, first_out, in, out)};
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

Layers read_layers(const Program& program) {
  Layers layers{read_main(program), std::nullopt};
  if (!program.draft.empty()) layers.draft = read_draft(program);
  return layers;
}

}  // namespace fourfold::backend::cuda
