#include "model/inspect.h"

#include <map>
#include <set>
#include <tuple>

#include "backend/cost.h"

namespace fourfold::model {
namespace {

// Every run of digits that is a part of the name by itself becomes N.
std::string pattern_of(std::string_view name) {
  std::string out;
  for (std::size_t at = 0; at < name.size();) {
    const auto dot = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, dot - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    out += number ? std::string_view("N") : part;
    if (dot < name.size()) out += '.';
    at = dot + 1;
  }
  return out;
}

bool has_input_scale(const checkpoint::Matrix& matrix) {
  if (const auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&matrix.storage))
    return nvfp4->input_scale.has_value();
  if (const auto* fp8 = std::get_if<checkpoint::Fp8Storage>(&matrix.storage))
    return fp8->input_scale.has_value();
  return false;
}

// Where the bytes of an op's weights belong, by the name of what it computes.
double& place_of(TokenBytes& bytes, const backend::Program& program, const backend::Op& op) {
  if (std::holds_alternative<backend::Embed>(op)) return bytes.embedding;
  if (std::holds_alternative<backend::RunExperts>(op)) return bytes.routed;
  if (std::holds_alternative<backend::HeadLinear>(op)) return bytes.attention;
  const auto* linear = std::get_if<backend::Linear>(&op);
  if (linear == nullptr) return bytes.other;
  const std::string_view name = program.value(linear->out).name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has(".attention.")) return bytes.attention;
  if (has(".delta.")) return bytes.delta;
  if (has(".mlp.shared")) return bytes.shared;
  if (has(".mlp.router")) return bytes.router;
  if (has(".mlp.")) return bytes.dense_mlp;
  return name.ends_with("logits") ? bytes.head : bytes.other;
}

const std::byte* first_byte(const checkpoint::Matrix& matrix) {
  const std::byte* first = nullptr;
  checkpoint::for_each_range(matrix, [&](std::span<const std::byte> range) {
    if (first == nullptr) first = range.data();
  });
  return first;
}

}  // namespace

std::vector<MatrixGroup> group_matrices(const checkpoint::ModelWeights& weights) {
  std::vector<MatrixGroup> groups;
  using Key = std::tuple<std::string, checkpoint::MatrixFormat, std::int64_t, std::int64_t, bool>;
  std::map<Key, std::size_t> known;
  checkpoint::for_each_matrix(weights, [&](const checkpoint::Matrix& matrix) {
    const MatrixGroup fresh{pattern_of(matrix.name), checkpoint::format_of(matrix), matrix.rows,
                            matrix.columns, has_input_scale(matrix)};
    const auto [place, is_new] = known.try_emplace(
        Key{fresh.pattern, fresh.format, fresh.rows, fresh.columns, fresh.input_scale}, groups.size());
    if (is_new) groups.push_back(fresh);
    ++groups[place->second].count;
    groups[place->second].bytes += checkpoint::stored_bytes(matrix);
  });
  return groups;
}

TokenBytes token_bytes(const backend::Program& program, backend::Pass pass, double context) {
  TokenBytes bytes;
  for (const backend::Op& op : program.ops(pass)) {
    const backend::Cost cost = backend::cost_of(program, op, {.context = context});
    place_of(bytes, program, op) += cost.weight_bytes;
    bytes.state += cost.state_bytes;
  }
  return bytes;
}

ParameterCount count_parameters(const backend::Program& program) {
  ParameterCount count;
  // A tied head is the embedding again; experts that are slices of one tensor have its name, and other rows.
  std::set<std::tuple<std::string_view, const std::byte*, std::int64_t>> counted;
  for (const backend::MatrixUse& use : program.matrices)
    if (counted.insert({use.matrix->name, first_byte(*use.matrix), use.matrix->stored_row(0)}).second)
      count.total += static_cast<double>(use.matrix->rows) * static_cast<double>(use.matrix->columns);
  for (const backend::VectorUse& use : program.vectors) count.total += static_cast<double>(use.values.size());
  for (const backend::Op& op : program.main) {
    if (const auto* embed = std::get_if<backend::Embed>(&op))
      count.active += static_cast<double>(program.matrix(embed->table).matrix->columns);
    // Two flops for each weight that is multiplied once.
    if (std::holds_alternative<backend::Linear>(op) || std::holds_alternative<backend::HeadLinear>(op) ||
        std::holds_alternative<backend::RunExperts>(op))
      count.active += backend::cost_of(program, op, {}).flops / 2;
  }
  return count;
}

}  // namespace fourfold::model
