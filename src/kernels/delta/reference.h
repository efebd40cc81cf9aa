// The gated delta rule one token at a time in double precision, with a bound on what f32 arithmetic may
// differ from it: an implementation independent of blocks, anchors and chunks.
//
// The bound. A row's update S -> e^g (I - beta k k^T) S + k (beta v)^T shrinks what it is given (|k| = 1,
// beta < 1, g <= 0), so an error made in row j reaches row i no larger than e^{G_i - G_j} times what it was.
// In 2-norms the state's error is
//
//   E_i = e^g E_{i-1} + made_i,   made_i = dv_i + (ek_i + n u) A_i + B_i + (ek_i + es) |d_i|
//
// and another n u A + B where the anchor moves. dv: error of the value; ek, eq: of key and query; es: of
// sigmoid(beta) and two roundings, 2^-20 (beyond logits of 3 sigmoid is as good, or beta so small that
// leaving it out of dv and A is more), all but dv relative. A_i = e^{G_i} |S0| + sum of e^{G_i - G_j} |d_j|
// over the block's rows bounds every sum of absolute values the anchored form adds (its coefficients are at
// most that), n its number of roundings. B_i is the same sum with each term times the error of its G_i - G_j:
// that of the steps between the two rows, for the steps before both cancel. An answer errs by eq A_i + (|q| +
// eq) (E_i + n u A_i + B_i).
//
// No product of errors is left out: the kernels round their own numbers, so A, B and made_i take |S0| and
// |d_j| with their errors, e^g with that of g, and ek with that of what it is multiplied by; n has roundings
// to spare for (1 + u)^n.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/delta/bounded_matrix.h"
#include "kernels/delta/delta_state.h"

namespace fourfold::delta {

struct HostWeights {
  std::vector<float> taps, a_log, dt_bias, norm_weight;
  double epsilon = 1e-6;
  bool gate_is_sigmoid = false;
};

// One row as the projections give it.
struct HostRow {
  std::vector<float> qkv, z, beta, decay;
};

// A head's state as a device keeps it: the block's anchor [key][value] and the block's rows so far.
struct Anchored {
  std::vector<double> anchor;
  std::vector<std::vector<double>> keys, deltas;
  std::vector<double> totals;  // G
};

struct Precision {
  double sums = 64 * kU;  // n u: 16 + 7 + 7 + 7 additions, the products' 9, and some to spare
  double silu = 0x1p-20;  // relative: sigmoid 2^-21 + |x| 2^-23 for |x| < 4, and the product
};

class Recurrence {
 public:
  Recurrence(const Layout& layout, const HostWeights& weights, const Precision& precision)
      : layout_(layout),
        weights_(weights),
        precision_(precision),
        heads_(layout.value_heads),
        inputs_(kTaps) {
    for (Head& head : heads_) head.state.assign(layout.head_dim * layout.head_dim, 0.0);
  }

  // The next row: out [value_dim], the gated norm's result.
  std::vector<Bounded> step(const HostRow& row) {
    inputs_[position_ % kTaps] = row.qkv;
    std::vector<Bounded> out;
    for (int h = 0; h < layout_.value_heads; ++h) step_head(row, h, out);
    ++position_;
    return out;
  }
  int position() const { return position_; }
  // Goes on from a device's own state, so with no error yet. inputs: of position p in place p % kTaps.
  void resume(int position, const std::vector<std::vector<float>>& inputs,
              const std::vector<Anchored>& heads) {
    position_ = position;
    inputs_ = inputs;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      Head& head = heads_[h];
      head = {};
      head.state = heads[h].anchor;
      if (position % kBlockRows > 0) resume_block(heads[h], head);
    }
  }
  // Of the last row.
  const std::vector<Bounded>& delta(int head) const { return heads_[head].delta; }
  const std::vector<Bounded>& key(int head) const { return heads_[head].key; }
  Bounded decay(int head) const { return {heads_[head].total, heads_[head].total_error}; }
  double state(int head, int key, int value) const {
    return heads_[head].state[key * layout_.head_dim + value];
  }
  double state_error(int head) const { return heads_[head].error; }

 private:
  struct Head {
    std::vector<double> state;
    double total = 0, total_error = 0;  // G since the block's start
    double absolute = 0;                // A
    double by_decay = 0;                // B
    double error = 0;                   // E
    std::vector<Bounded> delta, key;
  };
  struct Vector {
    std::vector<double> v;
    double error = 0;  // 2-norm
  };

  static double norm(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  void resume_block(const Anchored& from, Head& head) const {
    const int dim = layout_.head_dim;
    head.total = from.totals.back();
    head.absolute = std::exp(head.total) * norm(head.state);
    for (double& s : head.state) s *= std::exp(head.total);
    for (std::size_t j = 0; j < from.totals.size(); ++j) {
      const double keep = std::exp(head.total - from.totals[j]);
      head.absolute += keep * norm(from.deltas[j]);
      for (int k = 0; k < dim; ++k)
        for (int v = 0; v < dim; ++v) head.state[k * dim + v] += keep * from.keys[j][k] * from.deltas[j][v];
    }
  }

  // silu of the convolution; its slope is at most 1.1.
  Vector convolved(int channel) const {
    Vector out;
    double square = 0;
    for (int i = 0; i < layout_.head_dim; ++i) {
      double sum = 0, absolute = 0;
      for (int tap = 0; tap < kTaps; ++tap) {
        const int at = position_ - (kTaps - 1) + tap;
        if (at < 0) continue;
        const double term = static_cast<double>(weights_.taps[(channel + i) * kTaps + tap]) *
                            static_cast<double>(inputs_[at % kTaps][channel + i]);
        sum += term;
        absolute += std::abs(term);
      }
      const double value = sum * sigmoid(sum);
      const double error = 1.1 * 4 * kU * absolute + precision_.silu * std::abs(value);
      out.v.push_back(value);
      square += error * error;
    }
    out.error = std::sqrt(square);
    return out;
  }
  // in / |in| * scale; errs by the input's error beside it, and six roundings.
  static Vector normalized(Vector in, double scale) {
    const double length = std::sqrt(norm(in.v) * norm(in.v) + 1e-6);
    for (double& x : in.v) x *= scale / length;
    in.error = scale * (2 * in.error / length + 20 * kU);
    return in;
  }

  void step_decay(const HostRow& row, int h) {
    Head& head = heads_[h];
    const double logit = static_cast<double>(row.decay[h]) + weights_.dt_bias[h];
    const double factor = std::exp(static_cast<double>(weights_.a_log[h]));
    const double step = -factor * std::log1p(std::exp(logit));
    if (position_ % kBlockRows == 0) {
      // The anchor moved: a sum over the block like any other.
      head.error += per_sum() * head.absolute + head.by_decay;
      head.total = head.total_error = head.by_decay = 0;
      head.absolute = norm(head.state) + head.error;
    }
    head.total += step;
    const double error =
        std::abs(step) * (0x1p-21 + 5 * kU) + factor * kU * std::abs(logit) + kU * std::abs(head.total);
    head.total_error += error;
    const double keep = std::exp(step), most = std::exp(step + error);
    head.by_decay = most * (head.by_decay + error * head.absolute);
    head.absolute *= most;
    head.error *= most;
    for (double& s : head.state) s *= keep;
  }
  // Of a product, from those of its factors.
  static double both(double a, double b) { return a + b + a * b; }
  // Relative error of a sum: its additions, and exp's own 2^-22.
  double per_sum() const { return precision_.sums + 0x1p-22; }

  void step_head(const HostRow& row, int h, std::vector<Bounded>& out) {
    const int dim = layout_.head_dim, key_head = h / layout_.values_per_key;
    const Vector query = normalized(convolved(key_head * dim), 1 / std::sqrt(static_cast<double>(dim)));
    const Vector key = normalized(convolved(layout_.key_dim + key_head * dim), 1);
    const Vector value = convolved(2 * layout_.key_dim + h * dim);
    Head& head = heads_[h];
    step_decay(row, h);
    const double beta = sigmoid(row.beta[h]);
    std::vector<double> delta(dim);
    for (int v = 0; v < dim; ++v) {
      double known = 0;
      for (int k = 0; k < dim; ++k) known += head.state[k * dim + v] * key.v[k];
      delta[v] = beta * (value.v[v] - known);
    }
    // What is made is part of the delta that errs by it: solved for it.
    const double own = both(key.error, 0x1p-20);
    const double made = value.error + both(key.error, per_sum()) * head.absolute + head.by_decay +
                        own * (norm(delta) + head.error);
    head.error += made / (1 - own);
    head.absolute += norm(delta) + head.error;
    for (int k = 0; k < dim; ++k)
      for (int v = 0; v < dim; ++v) head.state[k * dim + v] += key.v[k] * delta[v];
    head.delta.clear();
    head.key.clear();
    for (int v = 0; v < dim; ++v) {
      head.delta.push_back({delta[v], head.error});
      head.key.push_back({key.v[v], key.error});
    }
    finish(row, h, query, out);
  }

  void finish(const HostRow& row, int h, const Vector& query, std::vector<Bounded>& out) {
    const int dim = layout_.head_dim;
    const Head& head = heads_[h];
    std::vector<double> answer(dim);
    for (int v = 0; v < dim; ++v)
      for (int k = 0; k < dim; ++k) answer[v] += head.state[k * dim + v] * query.v[k];
    const double length = norm(query.v);
    const double error = query.error * head.absolute +
                         (length + query.error) * (head.error + per_sum() * head.absolute + head.by_decay);
    const double scale = 1 / std::sqrt(norm(answer) * norm(answer) / dim + weights_.epsilon);
    // A normed row follows its answer by no more than the scale on the way there, which grows as the answer
    // shrinks: the integral of that; and it is no longer than `root`.
    const double root = std::sqrt(static_cast<double>(dim)), off = std::min(scale * error / root, 1.0);
    const double follows = root * std::min(-std::log1p(-off), 2.0);
    for (int v = 0; v < dim; ++v) {
      const double z = row.z[h * dim + v];
      const double gate = weights_.gate_is_sigmoid ? sigmoid(z) : z * sigmoid(z);
      const double weight = weights_.norm_weight[v];
      const double y = answer[v] * scale * weight * gate;
      const double through = std::abs(weight * gate) * follows;
      out.push_back({y, through + (0x1p-8 + 0x1p-18) * (std::abs(y) + through) + 1e-30});
    }
  }

  Layout layout_;
  HostWeights weights_;
  Precision precision_;
  std::vector<Head> heads_;
  std::vector<std::vector<float>> inputs_;
  int position_ = 0;
};

}  // namespace fourfold::delta
