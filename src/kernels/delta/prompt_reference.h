// The prompt's arithmetic, written down plainly: the chunk form of the gated delta rule in double precision,
// with operands rounded to bf16 in the places where the kernels round them. What remains between the two is
// f32 rounding, and now and then a bf16 rounding that falls to the other side because of it. So results carry
// a bound: bf16's rounding of the result itself, and two roundings of the answer's largest term.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/bf16.h"
#include "kernels/delta/delta_state.h"
#include "kernels/delta/reference.h"

namespace fourfold::delta {

class PromptModel {
 public:
  using Vector = std::vector<double>;

  PromptModel(const Layout& layout, const HostWeights& weights)
      : layout_(layout), weights_(weights), inputs_(kTaps), heads_(layout.value_heads) {
    for (Head& head : heads_) head.state.assign(layout.head_dim, Vector(layout.head_dim, 0.0));
  }

  // Prompt rows, and generated rows: their results, value_dim to a row.
  std::vector<std::vector<Bounded>> prompt(const std::vector<HostRow>& rows) {
    std::vector<std::vector<Bounded>> out;
    for (std::size_t done = 0; done < rows.size();) {
      const std::size_t room = static_cast<std::size_t>(kBlockRows - position_ % kBlockRows);
      const std::size_t count = std::min(rows.size() - done, room);
      take(rows, done, count, true, out);
      done += count;
    }
    return out;
  }
  std::vector<std::vector<Bounded>> generate(const std::vector<HostRow>& rows) {
    std::vector<std::vector<Bounded>> out;
    for (std::size_t i = 0; i < rows.size(); ++i) take(rows, i, 1, false, out);
    return out;
  }
  int position() const { return position_; }

 private:
  struct Head {
    std::vector<Vector> state;  // [key][value]
    std::vector<Vector> keys, deltas;
    std::vector<Vector> used;  // deltas as this chunk uses them: those of old rows rounded
    Vector totals;             // G
  };

  static double rounded(double x) { return to_float(to_bf16(static_cast<float>(x))); }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static Vector rounded(Vector v) {
    for (double& x : v) x = rounded(x);
    return v;
  }

  Vector convolved(int channel) const {
    Vector out;
    for (int i = channel; i < channel + layout_.head_dim; ++i) {
      double sum = 0;
      for (int tap = 0; tap < kTaps; ++tap)
        if (const int at = position_ - (kTaps - 1) + tap; at >= 0)
          sum += static_cast<double>(weights_.taps[i * kTaps + tap]) *
                 static_cast<double>(inputs_[at % kTaps][i]);
      out.push_back(sum * sigmoid(sum));
    }
    return out;
  }
  static Vector normalized(Vector v, double scale) {
    const double length = std::sqrt(dot(v, v) + 1e-6);
    for (double& x : v) x *= scale / length;
    return v;
  }
  // S^T x
  Vector read(const Head& head, const Vector& x, bool as_prompt) const {
    Vector out(layout_.head_dim, 0.0);
    for (int k = 0; k < layout_.head_dim; ++k)
      for (int v = 0; v < layout_.head_dim; ++v)
        out[v] += x[k] * (as_prompt ? rounded(head.state[k][v]) : head.state[k][v]);
    return out;
  }

  struct Chunk {
    std::vector<std::vector<Vector>> queries, values;  // [row][value head]
    std::vector<Vector> beta;                          // [row][value head]
  };

  // Rows of one block.
  void take(const std::vector<HostRow>& rows, std::size_t first, std::size_t count, bool as_prompt,
            std::vector<std::vector<Bounded>>& out) {
    Chunk chunk;
    const int dim = layout_.head_dim, start = position_ % kBlockRows;
    if (start == 0)
      for (Head& head : heads_) head.keys.clear(), head.deltas.clear(), head.totals.clear();
    for (std::size_t i = first; i < first + count; ++i) {
      inputs_[position_ % kTaps] = rows[i].qkv;
      chunk.queries.emplace_back(), chunk.values.emplace_back(), chunk.beta.emplace_back();
      for (int h = 0; h < layout_.value_heads; ++h) {
        Head& head = heads_[h];
        const int key_head = h / layout_.values_per_key;
        Vector query = normalized(convolved(key_head * dim), 1 / std::sqrt(static_cast<double>(dim)));
        Vector key = normalized(convolved(layout_.key_dim + key_head * dim), 1);
        Vector value = convolved(2 * layout_.key_dim + h * dim);
        chunk.queries.back().push_back(as_prompt ? rounded(query) : query);
        head.keys.push_back(as_prompt ? rounded(key) : key);
        chunk.values.back().push_back(as_prompt ? rounded(value) : value);
        chunk.beta.back().push_back(sigmoid(rows[i].beta[h]));
        const double step = -std::exp(static_cast<double>(weights_.a_log[h])) *
                            std::log1p(std::exp(static_cast<double>(rows[i].decay[h]) + weights_.dt_bias[h]));
        head.totals.push_back(step + (head.totals.empty() ? 0.0 : head.totals.back()));
      }
      ++position_;
    }
    for (std::size_t i = 0; i < count; ++i) out.emplace_back();
    for (int h = 0; h < layout_.value_heads; ++h) {
      solve(h, chunk, start, as_prompt);
      for (std::size_t i = 0; i < count; ++i) {
        const Vector answer = answered(h, chunk.queries[i][h], start + static_cast<int>(i), as_prompt);
        finish(rows[first + i], h, answer, out[out.size() - count + i]);
      }
      if (position_ % kBlockRows == 0) move(h, as_prompt);
    }
  }

  double factor(const Head& head, int i, int j) const { return std::exp(head.totals[i] - head.totals[j]); }

  // Deltas of rows start.. of the block: by the inverse (prompt), or row by row.
  void solve(int h, const Chunk& chunk, int start, bool as_prompt) {
    Head& head = heads_[h];
    const int end = static_cast<int>(head.keys.size()), dim = layout_.head_dim;
    const auto beta = [&](int i) { return i < start ? 0.0 : chunk.beta[i - start][h]; };
    if (!as_prompt) {
      const int i = start;
      Vector delta = read(head, head.keys[i], false);
      for (double& x : delta) x *= std::exp(head.totals[i]);
      for (int j = 0; j < i; ++j)
        for (int v = 0; v < dim; ++v)
          delta[v] += factor(head, i, j) * dot(head.keys[i], head.keys[j]) * head.deltas[j][v];
      for (int v = 0; v < dim; ++v) delta[v] = beta(i) * (chunk.values[0][h][v] - delta[v]);
      head.deltas.push_back(delta);
      head.used = head.deltas;
      return;
    }
    std::vector<Vector> inverse(end, Vector(end, 0.0));
    for (int i = 0; i < end; ++i) {
      inverse[i][i] = 1;
      for (int j = 0; j < i; ++j) {
        const double a = beta(i) * dot(head.keys[i], head.keys[j]) * factor(head, i, j);
        for (int c = 0; c <= j; ++c) inverse[i][c] -= a * inverse[j][c];
      }
    }
    head.used = head.deltas;
    for (Vector& delta : head.used) delta = rounded(delta);
    for (int i = start; i < end; ++i) {
      Vector by_values(dim, 0.0), by_state(dim, 0.0);
      for (int j = 0; j <= i; ++j) {
        const double for_values = rounded(inverse[i][j] * (j < start ? 1.0 : beta(j)));
        const double for_state = rounded(inverse[i][j] * beta(j) * std::exp(head.totals[j]));
        for (int v = 0; v < dim; ++v) {
          by_values[v] += for_values * (j < start ? head.used[j][v] : chunk.values[j - start][h][v]);
          by_state[v] += for_state * rounded(head.keys[j][v]);
        }
      }
      Vector delta = rounded(by_values);
      const Vector known = read(head, rounded(by_state), true);
      for (int v = 0; v < dim; ++v) delta[v] -= known[v];
      head.deltas.push_back(delta);
      head.used.push_back(delta);
    }
  }

  // The last element of the result is the norm of the largest term.
  Vector answered(int h, const Vector& query, int i, bool as_prompt) const {
    const Head& head = heads_[h];
    const double decay = std::exp(head.totals[i]);
    Vector answer = read(head, query, as_prompt);
    double largest = 0;
    for (int k = 0; k < layout_.head_dim; ++k)
      largest = std::max(largest, decay * std::abs(query[k]) * std::sqrt(dot(head.state[k], head.state[k])));
    for (double& x : answer) x *= decay;
    for (int j = 0; j <= i; ++j) {
      const double product =
          dot(query, as_prompt ? rounded(head.keys[j]) : head.keys[j]) * factor(head, i, j);
      largest = std::max(largest, std::abs(product) * std::sqrt(dot(head.used[j], head.used[j])));
      for (int v = 0; v < layout_.head_dim; ++v)
        answer[v] += as_prompt ? rounded(product) * rounded(head.used[j][v]) : product * head.used[j][v];
    }
    answer.push_back(largest);
    return answer;
  }

  void move(int h, bool as_prompt) {
    Head& head = heads_[h];
    const int last = kBlockRows - 1;
    for (int k = 0; k < layout_.head_dim; ++k)
      for (int v = 0; v < layout_.head_dim; ++v) {
        double sum = std::exp(head.totals[last]) * head.state[k][v];
        for (int j = 0; j <= last; ++j) {
          const double scaled = factor(head, last, j) * head.used[j][v];
          sum += as_prompt ? rounded(scaled) * rounded(head.keys[j][k]) : scaled * head.keys[j][k];
        }
        head.state[k][v] = sum;
      }
  }

  void finish(const HostRow& row, int h, Vector answer, std::vector<Bounded>& out) const {
    const int dim = layout_.head_dim;
    const double flips = 2 * 0x1p-8 * answer.back();
    answer.pop_back();
    const double scale = 1 / std::sqrt(dot(answer, answer) / dim + weights_.epsilon);
    for (int v = 0; v < dim; ++v) {
      const double z = row.z[h * dim + v];
      const double gate = weights_.gate_is_sigmoid ? sigmoid(z) : z * sigmoid(z);
      const double factor = scale * weights_.norm_weight[v] * gate, y = answer[v] * factor;
      out.push_back({y, 1.01 * (0x1p-8 * std::abs(y) + std::abs(factor) * flips)});
    }
  }

  Layout layout_;
  HostWeights weights_;
  std::vector<std::vector<float>> inputs_;
  std::vector<Head> heads_;
  int position_ = 0;
};

}  // namespace fourfold::delta
