// The model that comes with the program, text it never saw, and what a backend says of it token by token.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/log_softmax.h"
#include "tests/engine/support.h"
#include "text/tokenizer.h"

namespace fourfold::engine {

inline const std::filesystem::path& storyteller_folder() {
  static const std::filesystem::path path = std::filesystem::path(FOURFOLD_SOURCE_DIR) / "models/storyteller";
  return path;
}
inline const text::Tokenizer& storyteller_tokenizer() {
  static const text::Tokenizer it = text::Tokenizer::load(storyteller_folder() / "tokenizer.json");
  return it;
}
inline const model::Loaded& storyteller() {
  static const model::Loaded it(storyteller_folder());
  return it;
}

// Passages of six books that were held out from training.
inline std::vector<std::int32_t> held_out(std::size_t count) {
  std::ifstream file(std::filesystem::path(FOURFOLD_SOURCE_DIR) / "tests/golden/storyteller/held_out.txt");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::int32_t> ids = storyteller_tokenizer().encode(text.str());
  EXPECT_GE(ids.size(), count);
  ids.resize(count);
  return ids;
}

using LogitsRows = std::vector<std::vector<float>>;

// One sequence's, from position 0.
inline LogitsRows logits_of(backend::Prepared& prepared, std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  const auto vocab = static_cast<std::size_t>(prepared.program().vocab_size);
  std::vector<std::int32_t> rows(tokens.size()), pages(prepared.capacity().page_count);
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(pages.begin(), pages.end(), 0);
  const backend::SequenceRows sequence{.row_count = count,
                                       .page_count = static_cast<std::int32_t>(pages.size())};
  std::vector<float> flat(tokens.size() * vocab);
  prepared.run(backend::Pass::main, {tokens, {&sequence, 1}, pages, rows, {}}, flat);
  LogitsRows out;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    out.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                     flat.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
  return out;
}

// Kullback-Leibler divergence of the next token's distribution, in nats.
inline double row_divergence(std::span<const float> from, std::span<const float> to) {
  const double p_total = log_normalizer(from), q_total = log_normalizer(to);
  double all = 0;
  for (std::size_t t = 0; t < from.size(); ++t) {
    const double log_p = static_cast<double>(from[t]) - p_total;
    all += std::exp(log_p) * (log_p - (static_cast<double>(to[t]) - q_total));
  }
  return all;
}

}  // namespace fourfold::engine
