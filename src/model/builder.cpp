#include "model/builder.h"

#include "base/error.h"

namespace fourfold::model {

namespace {

template <class Entry>
std::int32_t push_entry(std::vector<Entry>& table, Entry entry) {
  table.push_back(std::move(entry));
  return static_cast<std::int32_t>(table.size()) - 1;
}

}  // namespace

backend::InputFormat input_format(Activations activations, const checkpoint::Matrix& matrix) {
  const auto* nvfp4 = std::get_if<checkpoint::Nvfp4Storage>(&matrix.storage);
  switch (activations) {
    case Activations::f32: return backend::InputFormat::f32;
    case Activations::w4a16:
    case Activations::w8a8: return backend::InputFormat::bf16;  // take_fp8_rows() knows what is dense
    case Activations::automatic:
      return nvfp4 != nullptr && nvfp4->input_scale ? backend::InputFormat::nvfp4
                                                    : backend::InputFormat::bf16;
    case Activations::w4a4_prefill:
      return nvfp4 != nullptr && nvfp4->input_scale ? backend::InputFormat::nvfp4_prefill
                                                    : backend::InputFormat::bf16;
    case Activations::w4a4: break;
  }
  if (nvfp4 == nullptr) return backend::InputFormat::bf16;
  if (!nvfp4->input_scale)
    fail_with_hint(Code::unsupported_model, "use --activations auto or w4a16",
                   "{} has no input scale: the checkpoint was made for 16-bit activations, not for w4a4",
                   matrix.name);
  return backend::InputFormat::nvfp4;
}

backend::ResultId Builder::value(std::string name, std::int64_t columns, backend::RowSet rows,
                                 backend::ValueType type) {
  return {{push_entry(program_.values, backend::Value{std::move(name), columns, rows, type})}};
}

backend::ResultId Builder::like(std::string name, ValueId other) {
  const backend::Value& shape = program_.value(other);
  return value(std::move(name), shape.columns, shape.rows, shape.type);
}

backend::MatrixId Builder::matrix(const checkpoint::Matrix& matrix) {
  // Embedding and head appear in both passes, and once in the table.
  const auto [place, is_new] = matrix_ids_.try_emplace(&matrix);
  if (is_new)
    place->second = {
        push_entry(program_.matrices, backend::MatrixUse{&matrix, input_format(activations_, matrix)})};
  return place->second;
}

backend::VectorId Builder::vector(std::string name, const checkpoint::Vector& values) {
  return {push_entry(program_.vectors, backend::VectorUse{std::move(name), values})};
}

backend::OptionalVectorId Builder::vector_if_any(std::string name, const checkpoint::Vector& values) {
  if (values.empty()) return {};
  return vector(std::move(name), values);
}

Builder::ValueId Builder::embed(std::string name, const checkpoint::Matrix& table) {
  const auto out = value(std::move(name), table.columns);
  push(backend::Embed{matrix(table), out});
  return out;
}

Builder::ValueId Builder::linear(std::string name, ValueId in, const checkpoint::Matrix& weight,
                                 const checkpoint::Vector& bias) {
  const auto added = vector_if_any(name + ".bias", bias);
  const auto out = value(std::move(name), weight.rows, program_.value(in).rows);
  push(backend::Linear{in, matrix(weight), out, added});
  return out;
}

Builder::ValueId Builder::rms_norm(std::string name, ValueId in, const checkpoint::Vector& weight,
                                   const checkpoint::ModelConfig& config) {
  const auto weights = vector(name + ".weight", weight);
  const auto out = like(std::move(name), in);
  push(backend::RmsNorm{in, weights, config.norm_adds_one, config.norm_epsilon, out});
  return out;
}

Builder::ValueId Builder::rms_norm(std::string name, ValueId in, const checkpoint::Vector& weight,
                                   double epsilon) {
  const auto weights = vector(name + ".weight", weight);
  const auto out = like(std::move(name), in);
  push(backend::RmsNorm{in, weights, false, epsilon, out});
  return out;
}

Builder::ValueId Builder::head_linear(std::string name, ValueId in, const checkpoint::Matrix& weight,
                                      std::int64_t head_count, bool transposed) {
  // Not by matrix(): whatever the weights' format, their input is never quantised.
  const auto input =
      activations_ == Activations::f32 ? backend::InputFormat::f32 : backend::InputFormat::bf16;
  const backend::MatrixId id{push_entry(program_.matrices, backend::MatrixUse{&weight, input})};
  const auto out = value(std::move(name), transposed ? head_count * weight.columns : weight.rows);
  push(backend::HeadLinear{in, id, head_count, transposed, out});
  return out;
}

Builder::ValueId Builder::add(std::string name, ValueId first, ValueId second) {
  const auto out = like(std::move(name), first);
  push(backend::Add{first, second, out});
  return out;
}

Builder::ValueId Builder::all_reduce(std::string name, ValueId in) {
  const auto out = like(std::move(name), in);
  push(backend::AllReduce{in, out});
  return out;
}

Builder::ValueId Builder::all_gather(std::string name, ValueId in) {
  const auto out = value(std::move(name), program_.part.count * columns(in), program_.value(in).rows);
  push(backend::AllGather{in, out});
  return out;
}

Builder::ValueId Builder::gated_mlp(const std::string& prefix, ValueId in,
                                    const checkpoint::GatedMlp& weights) {
  const ValueId gate = linear(prefix + "gate", in, weights.gate);
  const ValueId up = linear(prefix + "up", in, weights.up);
  const auto inner = like(prefix + "inner", gate);
  push(backend::SwiGlu{gate, up, inner});
  gated_mlps_.push_back({matrix(weights.gate), matrix(weights.up), matrix(weights.down)});
  return linear(prefix + "down", inner, weights.down);
}

Builder::ValueId Builder::logits(const std::string& prefix, ValueId hidden, const checkpoint::Matrix& head) {
  const auto asked = value(prefix + "asked", columns(hidden), backend::RowSet::logits);
  push(backend::TakeLogitsRows{hidden, asked});
  if (program_.part.count == 1) return linear(prefix + "logits", asked, head);
  return all_gather(prefix + "logits", linear(prefix + "logits_part", asked, head));
}

}  // namespace fourfold::model
