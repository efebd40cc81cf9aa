// The prompt's arithmetic, written down plainly: the chunk form of the gated delta rule in double precision,
// with operands rounded to bf16 in the places where the kernels round them, and a bound on every result.
//
// The bound. Between the two lie roundings of f32, and a bf16 rounding that they push to the other side of a
// tie: rare, but as large as bf16 is coarse, and where it meets a sum that cancels (a product q . k of 3e-5
// out of terms of 3e-2), a tenth of a row's answer. So errors are carried entry by entry through every step,
// and rounding to bf16 asks whether a tie lies within the error (bounded_matrix.h). Over many chunks such
// bounds would grow beyond use. So a chunk begins with the device's own state, and what the kernels keep of
// it is judged in the order in which they depend on each other: keys and decays, then deltas, then the
// anchor. Each is put in the model's place once it was compared (`Settle`), and the next is bounded from
// there.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/delta/bounded_matrix.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/reference.h"

namespace fourfold::delta {

enum class Kept { keys, decays, deltas, anchor };
// Is given what the state must hold of a head from `position` on (of an anchor: the first one of its block),
// and may put in its place what it does hold. `head` is a key head for keys.
using Settle = std::function<void(Kept what, int head, int position, Matrix& expected)>;

class PromptModel {
 public:
  using Vector = std::vector<double>;

  // rounds: false leaves out bf16, which makes it the recurrence.
  PromptModel(const Layout& layout, const HostWeights& weights, bool rounds = true)
      : layout_(layout),
        weights_(weights),
        rounds_(rounds),
        followed_(layout.key_heads, true),
        inputs_(kTaps),
        heads_(layout.value_heads) {
    for (Anchored& head : heads_) head.anchor = Matrix(layout.head_dim, layout.head_dim).value;
  }
  // Before the first chunk: only these key heads and their value heads, for no head depends on another.
  void follow_only(const std::vector<int>& key_heads) {
    followed_.assign(followed_.size(), false);
    for (const int head : key_heads) followed_[head] = true;
  }
  bool follows(int value_head) const { return followed_[value_head / layout_.values_per_key]; }

  // Rows of one block, which follow what the model has: their results, value_dim to a row; zeros for heads
  // that are not followed.
  std::vector<std::vector<Bounded>> chunk(const std::vector<HostRow>& rows, const Settle& settle) {
    const int first = position_, count = static_cast<int>(rows.size());
    if (first % kBlockRows == 0)
      for (Anchored& head : heads_) head.keys.clear(), head.deltas.clear(), head.totals.clear();
    Convolved all(layout_.conv_dim, count);
    for (int i = 0; i < count; ++i, ++position_) {
      inputs_[position_ % kTaps] = rows[i].qkv;
      for (int c = 0; c < layout_.conv_dim; ++c) all.set(c, i, convolved(c));
    }
    std::vector<std::vector<Bounded>> out(rows.size(), std::vector<Bounded>(layout_.value_dim));
    for (int k = 0; k < layout_.key_heads; ++k)
      if (followed_[k]) take_key_head(k, rows, first, all, settle, out);
    return out;
  }
  // As many as there are, with nobody to compare with.
  std::vector<std::vector<Bounded>> prompt(const std::vector<HostRow>& rows) {
    std::vector<std::vector<Bounded>> out;
    for (std::size_t done = 0; done < rows.size();) {
      const std::size_t room = static_cast<std::size_t>(kBlockRows - position_ % kBlockRows);
      const auto from = rows.begin() + static_cast<std::ptrdiff_t>(done);
      const std::size_t count = std::min(rows.size() - done, room);
      for (auto& row : chunk({from, from + static_cast<std::ptrdiff_t>(count)}, [](auto&&...) {}))
        out.push_back(std::move(row));
      done += count;
    }
    return out;
  }
  int position() const { return position_; }
  // Generated rows that follow.
  Recurrence recurrence() const {
    Recurrence model(layout_, weights_, Precision{});
    model.resume(position_, inputs_, heads_);
    return model;
  }

 private:
  // Channel by row.
  using Convolved = Matrix;
  // What a chunk's heads have in common; rows are the block's, old ones included where they matter.
  struct Chunk {
    int start, end;           // places of the new rows
    Matrix queries, keys;     // [new row][], [row][]
    Matrix by_key, by_query;  // products of new rows with all keys: k . k, q . k
  };
  // Of a value head.
  struct Gates {
    std::vector<Bounded> beta;  // of new rows
    Vector total;               // G of all rows
  };

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  // Relative, of device/functions.h.
  static double sigmoid_error(double x) { return 0x1p-21 + std::abs(x) * 0x1p-23; }
  static constexpr double kExpError = 3 * kU;

  Bounded rounded_here(const Bounded& x) const { return rounds_ ? rounded(x) : x; }
  Matrix all_rounded(Matrix m) const {
    for (std::size_t i = 0; i < m.value.size(); ++i) {
      const Bounded x = rounded_here({m.value[i], m.error[i]});
      m.value[i] = x.value;
      m.error[i] = x.error;
    }
    return m;
  }

  // silu of the convolution; its slope is at most 1.1.
  Bounded convolved(int channel) const {
    double sum = 0, size = 0;
    for (int tap = 0; tap < kTaps; ++tap) {
      const int at = position_ - (kTaps - 1) + tap;
      if (at < 0) continue;
      const double term = static_cast<double>(weights_.taps[channel * kTaps + tap]) *
                          static_cast<double>(inputs_[at % kTaps][channel]);
      sum += term;
      size += std::abs(term);
    }
    const double value = sum * sigmoid(sum);
    return {value, 1.1 * kTaps * kU * size + std::abs(value) * (sigmoid_error(sum) + 2 * kU)};
  }
  // Rows of `channel`.. divided by their lengths, times scale: errs by its entry and by the length, a sum of
  // squares in a tree, a root, a quotient and two products.
  Matrix normalized(const Convolved& all, int channel, double scale) const {
    Matrix out(all.columns, layout_.head_dim);
    for (int i = 0; i < out.rows; ++i) {
      double square = 1e-6, through = 0;
      for (int c = 0; c < out.columns; ++c) {
        const auto [value, error] = all.get(channel + c, i);
        square += value * value;
        through += std::abs(value) * error;
      }
      const double factor = scale / std::sqrt(square);
      for (int c = 0; c < out.columns; ++c) {
        const auto [value, error] = all.get(channel + c, i);
        const double y = value * factor;
        out.set(i, c, rounded_here({y, factor * error + std::abs(y) * (through / square + 16 * kU)}));
      }
    }
    return out;
  }

  void take_key_head(int key_head, const std::vector<HostRow>& rows, int first, const Convolved& all,
                     const Settle& settle, std::vector<std::vector<Bounded>>& out) {
    const int dim = layout_.head_dim, first_head = key_head * layout_.values_per_key;
    Chunk chunk{first % kBlockRows, first % kBlockRows + static_cast<int>(rows.size()), {}, {}, {}, {}};
    chunk.queries = normalized(all, key_head * dim, 1 / std::sqrt(static_cast<double>(dim)));
    Matrix added = normalized(all, layout_.key_dim + key_head * dim, 1);
    settle(Kept::keys, key_head, first, added);
    chunk.keys = Matrix(chunk.end, dim);
    for (int i = 0; i < chunk.start; ++i) chunk.keys.set_exact(i, heads_[first_head].keys[i]);
    for (int i = chunk.start; i < chunk.end; ++i)
      for (int c = 0; c < dim; ++c) chunk.keys.set(i, c, added.get(i - chunk.start, c));
    const Matrix columns = transposed(chunk.keys);
    chunk.by_key = product(added, columns);
    chunk.by_query = product(chunk.queries, columns);
    for (int h = first_head; h < first_head + layout_.values_per_key; ++h) {
      for (int i = chunk.start; i < chunk.end; ++i) heads_[h].keys.push_back(row_of(chunk.keys, i));
      take_value_head(h, chunk, rows, first, all, settle, out);
    }
  }
  static Vector row_of(const Matrix& m, int row) {
    const auto from = m.value.begin() + static_cast<std::ptrdiff_t>(m.at(row, 0));
    return {from, from + m.columns};
  }

  void take_value_head(int h, const Chunk& chunk, const std::vector<HostRow>& rows, int first,
                       const Convolved& all, const Settle& settle, std::vector<std::vector<Bounded>>& out) {
    Anchored& head = heads_[h];
    const int dim = layout_.head_dim;
    const Gates gates = make_gates(h, rows, first, settle);
    Matrix anchor(dim, dim);
    anchor.value = head.anchor;
    const Matrix state = all_rounded(anchor);
    // Deltas of old rows enter as bf16.
    Matrix used(chunk.end, dim);
    for (int i = 0; i < chunk.start; ++i) used.set_exact(i, head.deltas[i]);
    used = all_rounded(used);
    Matrix added = solved(h, chunk, gates, all, used, state);
    settle(Kept::deltas, h, first, added);
    for (int i = chunk.start; i < chunk.end; ++i) {
      head.deltas.push_back(row_of(added, i - chunk.start));
      for (int v = 0; v < dim; ++v) used.set(i, v, added.get(i - chunk.start, v));
    }
    const Matrix answers = answered(chunk, gates, used, state);
    for (int i = 0; i < answers.rows; ++i) finish(rows[i], h, answers, i, out[i]);
    if (chunk.end < kBlockRows) return;
    Matrix moved = moved_anchor(chunk, gates, used, anchor);
    settle(Kept::anchor, h, position_, moved);
    head.anchor = moved.value;
  }

  // G grows from the last old row's by a sum in a tree of eight additions at most.
  Gates make_gates(int h, const std::vector<HostRow>& rows, int first, const Settle& settle) {
    Anchored& head = heads_[h];
    Gates gates;
    Matrix totals(static_cast<int>(rows.size()), 1);
    double total = head.totals.empty() ? 0.0 : head.totals.back(), error = 0;
    const double factor = std::exp(static_cast<double>(weights_.a_log[h]));
    for (int i = 0; i < totals.rows; ++i) {
      const double logit = rows[i].beta[h], beta = sigmoid(logit);
      gates.beta.push_back({beta, beta * sigmoid_error(logit)});
      const double open = static_cast<double>(rows[i].decay[h]) + weights_.dt_bias[h];
      const double step = -factor * std::log1p(std::exp(open));
      total += step;
      error += std::abs(step) * (0x1p-21 + 5 * kU) + factor * kU * std::abs(open);
      totals.set(i, 0, {total, error + 8 * kU * std::abs(total)});
    }
    settle(Kept::decays, h, first, totals);
    for (const double value : totals.value) head.totals.push_back(value);
    gates.total = head.totals;
    return gates;
  }
  // e^(G_i - G_j), or e^G_i: a difference, and the function; below e^-87 it is zero.
  static Bounded decay(double exponent) {
    const double value = std::exp(exponent);
    return {value, value * (kExpError + kU * std::abs(exponent)) + 0x1p-125};
  }
  static Bounded times(const Bounded& a, const Bounded& b) {
    const double value = a.value * b.value;
    return {value, std::abs(a.value) * b.error + std::abs(b.value) * a.error + kU * std::abs(value)};
  }

  // T = (I + A)^-1 with A_ij = beta_i (k_i . k_j) e^(G_i - G_j), by substitution in f32; old rows are the
  // identity's.
  static Matrix inverse(const Chunk& chunk, const Gates& gates) {
    Matrix t(chunk.end, chunk.end);
    for (int i = 0; i < chunk.end; ++i) {
      t.set(i, i, {1.0, 0.0});
      for (int j = 0; i >= chunk.start && j < i; ++j) {
        const int row = i - chunk.start;
        const Bounded a =
            times(times(gates.beta[row], chunk.by_key.get(row, j)), decay(gates.total[i] - gates.total[j]));
        const double most = std::abs(a.value) + a.error;
        for (int c = 0; c <= j; ++c) {
          const auto [x, error] = t.get(j, c);
          t.value[t.at(i, c)] -= a.value * x;
          // i additions meet this term.
          t.error[t.at(i, c)] +=
              most * error + a.error * std::abs(x) + i * kU * (std::abs(a.value * x) + most * error);
        }
      }
    }
    return t;
  }

  // Deltas of new rows: U - W S with U = T diag(beta) V and W = T diag(beta e^G) K.
  Matrix solved(int h, const Chunk& chunk, const Gates& gates, const Convolved& all, const Matrix& used,
                const Matrix& state) const {
    const int dim = layout_.head_dim, count = chunk.end - chunk.start;
    const Matrix t = inverse(chunk, gates);
    Matrix values = used, for_values(count, chunk.end), for_state(count, chunk.end);
    for (int i = chunk.start; i < chunk.end; ++i)
      for (int v = 0; v < dim; ++v)
        values.set(i, v, rounded_here(all.get(2 * layout_.key_dim + h * dim + v, i - chunk.start)));
    for (int j = 0; j < chunk.end; ++j) {
      const bool is_old = j < chunk.start;
      const Bounded beta = is_old ? Bounded{1.0, 0.0} : gates.beta[j - chunk.start];
      const Bounded known = is_old ? Bounded{0.0, 0.0} : times(beta, decay(gates.total[j]));
      for (int i = std::max(j, chunk.start); i < chunk.end; ++i) {
        for_values.set(i - chunk.start, j, rounded_here(times(t.get(i, j), beta)));
        for_state.set(i - chunk.start, j, rounded_here(times(t.get(i, j), known)));
      }
    }
    const Matrix by_values = all_rounded(product(for_values, values));
    const Matrix known = product(all_rounded(product(for_state, chunk.keys)), state);
    Matrix deltas(count, dim);
    for (std::size_t i = 0; i < deltas.value.size(); ++i) {
      deltas.value[i] = by_values.value[i] - known.value[i];
      deltas.error[i] = by_values.error[i] + known.error[i] + kU * std::abs(deltas.value[i]);
    }
    return deltas;
  }

  // (Q S) diag(e^G) + P D with P_ij = (q_i . k_j) e^(G_i - G_j) for j <= i.
  Matrix answered(const Chunk& chunk, const Gates& gates, const Matrix& used, const Matrix& state) const {
    Matrix answers = product(chunk.queries, state), products(answers.rows, chunk.end);
    for (int row = 0; row < answers.rows; ++row) {
      const int i = chunk.start + row;
      for (int v = 0; v < answers.columns; ++v)
        answers.set(row, v, times(answers.get(row, v), decay(gates.total[i])));
      for (int j = 0; j <= i; ++j)
        products.set(row, j,
                     rounded_here(times(chunk.by_query.get(row, j), decay(gates.total[i] - gates.total[j]))));
    }
    return product(products, all_rounded(used), std::move(answers));
  }

  // e^G S + K^T diag(e^(G - G_j)) D, G of the block's last row.
  Matrix moved_anchor(const Chunk& chunk, const Gates& gates, Matrix used, Matrix anchor) const {
    const double last = gates.total.back();
    for (int j = 0; j < used.rows; ++j)
      for (int v = 0; v < used.columns; ++v)
        used.set(j, v, rounded_here(times(used.get(j, v), decay(last - gates.total[j]))));
    for (int k = 0; k < anchor.rows; ++k)
      for (int v = 0; v < anchor.columns; ++v) anchor.set(k, v, times(anchor.get(k, v), decay(last)));
    return product(transposed(chunk.keys), used, std::move(anchor));
  }

  // The gated norm y = x s(x) w with s = (|x|^2 / dim + epsilon)^-1/2. Within the error s is at most
  // `steepest`, and changes by no more than steepest^2 / sqrt(dim) times the error's length.
  void finish(const HostRow& row, int h, const Matrix& answers, int i, std::vector<Bounded>& out) const {
    const int dim = layout_.head_dim;
    double square = 0, error_square = 0;
    for (int v = 0; v < dim; ++v) {
      const auto [value, error] = answers.get(i, v);
      square += value * value;
      error_square += error * error;
    }
    const double reach = kHigherOrder * std::sqrt(error_square);
    const double least = std::max(0.0, std::sqrt(square) - reach);
    const double scale = 1 / std::sqrt(square / dim + weights_.epsilon);
    const double steepest = 1 / std::sqrt(least * least / dim + weights_.epsilon);
    for (int v = 0; v < dim; ++v) {
      const auto [value, error] = answers.get(i, v);
      const double z = row.z[h * dim + v], open = sigmoid(z);
      const double factor = weights_.norm_weight[v] * (weights_.gate_is_sigmoid ? open : z * open);
      const double y = value * scale * factor;
      const double through = error * steepest + std::abs(value) * steepest * steepest * reach /
                                                    std::sqrt(static_cast<double>(dim));
      const double near = std::abs(factor) * through + std::abs(y) * (sigmoid_error(z) + 16 * kU);
      const Bounded stored = rounded({y, near});
      out[h * dim + v] = {y, std::abs(stored.value - y) + stored.error + 1e-30};
    }
  }

  Layout layout_;
  HostWeights weights_;
  bool rounds_;
  std::vector<bool> followed_;  // of key heads
  std::vector<std::vector<float>> inputs_;
  std::vector<Anchored> heads_;
  int position_ = 0;
};

// Compares what the slot holds by `compare(actual, Bounded)` and goes on with it.
template <int D, class Read, class Compare>
Settle settled_by(const SlotState<D>& slot, Read read, Compare compare) {
  return [=](Kept what, int head, int position, Matrix& expected) {
    const float* from = nullptr;
    switch (what) {
      case Kept::keys: from = slot.key(head, position); break;
      case Kept::decays: from = slot.decay(head, position); break;
      case Kept::deltas: from = slot.delta(head, position); break;
      case Kept::anchor: from = slot.anchor(position / kBlockRows, head); break;
    }
    const std::vector<float> actual = read(from, expected.value.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      compare(actual[i], Bounded{expected.value[i], kHigherOrder * expected.error[i]});
      expected.value[i] = actual[i];
      expected.error[i] = 0;
    }
  };
}

}  // namespace fourfold::delta
