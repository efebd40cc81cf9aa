// The words of a program: every op a model is made of, as a small struct of ids and numbers. What an op means
// is written once, in backend/reference. All ops are batch-ready: a row is one token of one sequence, and
// where a row belongs is said by the batch (batch.h), never by the op.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

namespace fourfold::backend {

// An index into one of the program's tables; the tag keeps the tables apart.
template <class Tag>
struct Id {
  std::int32_t index = -1;
  friend bool operator==(Id, Id) = default;
};
struct ValueTag {};
using ValueId = Id<ValueTag>;  // read by the op
// Written by the op. A type of its own, so that reading and writing can be told apart by the compiler.
struct ResultId : ValueId {};
using MatrixId = Id<struct MatrixTag>;
using VectorId = Id<struct VectorTag>;
// A vector that an op may be without: index -1.
struct OptionalVectorId : VectorId {
  OptionalVectorId() = default;
  OptionalVectorId(VectorId id) : VectorId(id) {}
  bool is_there() const { return index >= 0; }
};
using ExpertSetId = Id<struct ExpertSetTag>;
using KvCacheId = Id<struct KvCacheTag>;
using DeltaStateId = Id<struct DeltaStateTag>;
using RopeId = Id<struct RopeTag>;

enum class GateKind { silu, sigmoid };
enum class RouterScore { softmax, sigmoid };
// What experts make of gate and up, both in f32, biases added:
// plain: silu(gate) * up.
// clamped: g * sigmoid(alpha * g) * (u + 1), with g = min(gate, limit) and u = up kept within +-limit.
enum class GluKind { plain, clamped };

// Each op lists its fields by name; printing and checking read the list.

struct Embed {  // out = rows of the table at the batch's tokens
  static constexpr std::string_view name = "embed";
  MatrixId table;
  ResultId out;
  void fields(auto&& visit) const { visit("table", table), visit("out", out); }
};

struct RmsNorm {  // x * rsqrt(mean(x^2) + epsilon) * (w, or 1 + w)
  static constexpr std::string_view name = "rms_norm";
  ValueId in;
  VectorId weight;
  bool adds_one = false;
  double epsilon = 0;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("weight", weight), visit("adds_one", adds_one), visit("epsilon", epsilon);
    visit("out", out);
  }
};

struct Linear {  // out = W in + bias, the input rounded as the matrix's InputFormat says, the bias added in
                 // f32
  static constexpr std::string_view name = "linear";
  ValueId in;
  MatrixId weight;
  ResultId out;
  OptionalVectorId bias = {};
  void fields(auto&& visit) const {
    visit("in", in), visit("weight", weight), visit("bias", bias), visit("out", out);
  }
};

struct Add {
  static constexpr std::string_view name = "add";
  ValueId first;
  ValueId second;
  ResultId out;
  void fields(auto&& visit) const { visit("first", first), visit("second", second), visit("out", out); }
};

// For each head: its columns of first, then its columns of second. With one head that is the whole rows.
struct Concat {
  static constexpr std::string_view name = "concat";
  ValueId first;
  ValueId second;
  ResultId out;
  std::int64_t head_count = 1;
  void fields(auto&& visit) const {
    visit("first", first), visit("second", second), visit("head_count", head_count), visit("out", out);
  }
};

struct TakeColumns {  // out's columns are those of in from `first` on
  static constexpr std::string_view name = "take_columns";
  ValueId in;
  std::int64_t first = 0;
  ResultId out;
  void fields(auto&& visit) const { visit("in", in), visit("first", first), visit("out", out); }
};

// Where tensor parallelism sums the ranks' parts: exactly two a layer, after the mixer and after the MLP
// (routed and shared experts together). With one rank it is the identity.
struct AllReduce {
  static constexpr std::string_view name = "all_reduce";
  ValueId in;
  ResultId out;
  void fields(auto&& visit) const { visit("in", in), visit("out", out); }
};

// The columns of all ranks one after another, in rank order: every rank has all of them. With one rank it is
// the identity.
struct AllGather {
  static constexpr std::string_view name = "all_gather";
  ValueId in;
  ResultId out;
  void fields(auto&& visit) const { visit("in", in), visit("out", out); }
};

struct TakeLogitsRows {  // the rows whose logits were asked
  static constexpr std::string_view name = "take_logits_rows";
  ValueId in;
  ResultId out;
  void fields(auto&& visit) const { visit("in", in), visit("out", out); }
};

// What a pass leaves for the next one: KeepHidden stores its rows, TakeHidden reads the rows that the batch's
// hidden_rows name. A draft pass continues from the main pass, or from the draft pass before it.
struct KeepHidden {
  static constexpr std::string_view name = "keep_hidden";
  ValueId in;
  void fields(auto&& visit) const { visit("in", in); }
};
struct TakeHidden {
  static constexpr std::string_view name = "take_hidden";
  ResultId out;
  void fields(auto&& visit) const { visit("out", out); }
};

// ---- gated full attention ----

// For each head: RmsNorm over its head_dim columns (without a weight no norm at all), then RoPE at the row's
// position. A head's columns start head_stride apart in `in` (twice head_dim where query and gate alternate)
// and head_dim apart in `out`. A norm over all heads together is an RmsNorm before an op without weight.
struct HeadNormRope {
  static constexpr std::string_view name = "head_norm_rope";
  ValueId in;
  OptionalVectorId weight;
  bool adds_one = false;
  double epsilon = 0;
  RopeId rope;
  std::int64_t head_count = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_stride = 0;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("weight", weight), visit("adds_one", adds_one), visit("epsilon", epsilon);
    visit("rope", rope), visit("head_count", head_count), visit("head_dim", head_dim);
    visit("head_stride", head_stride), visit("out", out);
  }
};

// The rows' keys and values go to their pages. In a latent cache a head's key is its `value` and then its
// `key`: the value is stored once, as the key's first columns.
struct WriteKv {
  static constexpr std::string_view name = "write_kv";
  ValueId key;
  ValueId value;
  KvCacheId cache;
  void fields(auto&& visit) const { visit("key", key), visit("value", value), visit("cache", cache); }
};

// softmax(q . k * scale) v over positions 0 up to the row's own, or with a window over the last `window` of
// these, the row's own among them. A sink is a logit of a query head (as it is: the scale is not for it) that
// takes part in the softmax's maximum and sum and has no value. The scale may grow with the row's position
// (Mistral-Small-4): it stays for the first growth_positions, and then rises with the logarithm of how many
// of these went by.
struct Attention {
  static constexpr std::string_view name = "attention";
  ValueId query;
  KvCacheId cache;
  std::int64_t head_count = 0;
  double scale = 0;
  ResultId out;
  OptionalVectorId sinks = {};  // [head_count]
  std::int64_t window = 0;      // 0: all positions
  double growth = 0;
  std::int64_t growth_positions = 0;  // 0: the scale does not grow
  // The first position that the row at this one sees.
  std::int64_t first_seen(std::int64_t position) const {
    return window == 0 || position < window ? 0 : position - window + 1;
  }
  // What the scale is multiplied with at this position.
  double growth_at(std::int64_t position) const {
    if (growth_positions == 0) return 1;
    return 1 + growth * std::log(1.0 + static_cast<double>(position / growth_positions));
  }
  void fields(auto&& visit) const {
    visit("query", query), visit("cache", cache), visit("head_count", head_count), visit("scale", scale);
    visit("sinks", sinks), visit("window", window), visit("growth", growth);
    visit("growth_positions", growth_positions), visit("out", out);
  }
};

// For each head: out[h] = W[h] in[h]. The matrix has the heads' W one below the other, [heads * out, in];
// with `transposed` it has them as [heads * in, out] and multiplies with the transpose of each. So both
// halves of MLA's kv_b_proj are used as they are stored: keys transposed, on queries; values on what
// attention gives. Input and weights are rounded to bf16, unless the matrix's InputFormat is f32; it is never
// another.
struct HeadLinear {
  static constexpr std::string_view name = "head_linear";
  ValueId in;
  MatrixId weight;
  std::int64_t head_count = 0;
  bool transposed = false;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("weight", weight), visit("head_count", head_count);
    visit("transposed", transposed), visit("out", out);
  }
};

struct HeadGate {  // in * sigmoid(gate); a head's gate is the second half of its 2 * head_dim columns
  static constexpr std::string_view name = "head_gate";
  ValueId in;
  ValueId gate;
  std::int64_t head_dim = 0;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("gate", gate), visit("head_dim", head_dim), visit("out", out);
  }
};

// ---- gated DeltaNet ----

struct CausalConv {  // silu of the depthwise convolution over the row and the rows before it
  static constexpr std::string_view name = "causal_conv";
  ValueId in;
  VectorId taps;
  DeltaStateId state;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("taps", taps), visit("state", state), visit("out", out);
  }
};

struct DeltaRule {  // the gated delta rule from the anchored state; see reference/delta.h
  static constexpr std::string_view name = "delta_rule";
  ValueId qkv;
  ValueId beta;
  ValueId decay;
  VectorId a_log;
  VectorId dt_bias;
  DeltaStateId state;
  ResultId out;
  void fields(auto&& visit) const {
    visit("qkv", qkv), visit("beta", beta), visit("decay", decay), visit("a_log", a_log);
    visit("dt_bias", dt_bias), visit("state", state), visit("out", out);
  }
};

struct GatedHeadNorm {  // per head: rms norm with plain w, then times silu or sigmoid of the gate
  static constexpr std::string_view name = "gated_head_norm";
  ValueId in;
  ValueId gate;
  VectorId weight;
  double epsilon = 0;
  GateKind kind = GateKind::silu;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("gate", gate), visit("weight", weight), visit("epsilon", epsilon);
    visit("kind", kind == GateKind::silu ? "silu" : "sigmoid"), visit("out", out);
  }
};

// ---- MLP and experts ----

struct SwiGlu {  // silu(gate) * up
  static constexpr std::string_view name = "swiglu";
  ValueId gate;
  ValueId up;
  ResultId out;
  void fields(auto&& visit) const { visit("gate", gate), visit("up", up), visit("out", out); }
};

// Scores are the softmax over all experts, or the sigmoid of each. The `count` experts with the largest
// score + choice_bias are chosen (ties to the lower index, NaN last); their weights are the scores alone,
// divided by their sum when they are normalised, times `scale`. A sum of sigmoids has kSumGuard added first,
// so that it is never zero.
//
// With groups (experts in order, group_count runs of equal length) only experts of groups_kept groups can be
// chosen: those whose two largest biased scores have the largest sum, ties to the lower group.
struct TopKExperts {
  static constexpr std::string_view name = "top_k_experts";
  static constexpr double kSumGuard = 1e-20;
  ValueId logits;
  std::int64_t count = 0;
  bool normalize = true;
  ResultId experts;  // i32 [rows, count], best first
  ResultId weights;  // f32 [rows, count]
  RouterScore score = RouterScore::softmax;
  OptionalVectorId choice_bias = {};
  std::int64_t group_count = 1;
  std::int64_t groups_kept = 1;
  double scale = 1;
  void fields(auto&& visit) const {
    visit("logits", logits), visit("count", count), visit("normalize", normalize);
    visit("score", score == RouterScore::softmax ? "softmax" : "sigmoid"), visit("choice_bias", choice_bias);
    visit("group_count", group_count), visit("groups_kept", groups_kept), visit("scale", scale);
    visit("experts", experts), visit("weights", weights);
  }
};

// The weighted sum, best expert first, of down(glu(gate x, up x)), each matrix with its bias where the set
// has biases. A row's weight multiplies an expert's result with the bias in it.
struct RunExperts {
  static constexpr std::string_view name = "run_experts";
  ValueId in;
  ValueId experts;
  ValueId weights;
  ExpertSetId set;
  ResultId out;
  GluKind glu = GluKind::plain;
  double glu_alpha = 0;  // clamped alone
  double glu_limit = 0;
  void fields(auto&& visit) const {
    visit("in", in), visit("experts", experts), visit("weights", weights), visit("set", set);
    visit("glu", glu == GluKind::plain ? "plain" : "clamped"), visit("glu_alpha", glu_alpha);
    visit("glu_limit", glu_limit), visit("out", out);
  }
};

struct AddGated {  // in + sigmoid(gate) * other; gate has one column
  static constexpr std::string_view name = "add_gated";
  ValueId in;
  ValueId other;
  ValueId gate;
  ResultId out;
  void fields(auto&& visit) const {
    visit("in", in), visit("other", other), visit("gate", gate), visit("out", out);
  }
};

using Op =
    std::variant<Embed, RmsNorm, Linear, Add, Concat, TakeColumns, AllReduce, AllGather, TakeLogitsRows,
                 KeepHidden, TakeHidden, HeadNormRope, WriteKv, Attention, HeadLinear, HeadGate, CausalConv,
                 DeltaRule, GatedHeadNorm, SwiGlu, TopKExperts, RunExperts, AddGated>;

}  // namespace fourfold::backend
