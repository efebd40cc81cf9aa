#include "checkpoint/write/model_shape.h"

#include "base/error.h"

namespace fourfold::checkpoint {

namespace {

std::vector<ModelShape> listed_by_families(std::span<const ModelShape> FamilyMaker::*list) {
  std::vector<ModelShape> shapes;
  for (const Family* family : known_families())
    for (ModelShape shape : family->maker->*list) {
      shape.family = family;
      shapes.push_back(shape);
    }
  return shapes;
}

}  // namespace

std::span<const ModelShape> tiny_shapes() {
  static const std::vector<ModelShape> shapes = listed_by_families(&FamilyMaker::tiny);
  return shapes;
}

std::span<const ModelShape> published_shapes() {
  static const std::vector<ModelShape> shapes = listed_by_families(&FamilyMaker::published);
  return shapes;
}

std::span<const ModelShape> known_shapes() {
  static const std::vector<ModelShape> all = [] {
    std::vector<ModelShape> shapes(tiny_shapes().begin(), tiny_shapes().end());
    shapes.insert(shapes.end(), published_shapes().begin(), published_shapes().end());
    return shapes;
  }();
  return all;
}

std::string shape_names() {
  std::string names;
  for (const ModelShape& shape : known_shapes())
    names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

const ModelShape& find_shape(std::string_view name) {
  for (const ModelShape& shape : known_shapes())
    if (shape.name == name) return shape;
  fail_with_hint(Code::invalid_request, "known shapes: " + shape_names(), "unknown shape '{}'", name);
}

std::vector<PlannedTensor> plan_tensors(const ModelShape& shape, const StorageScheme& scheme) {
  return shape.family->maker->plan(shape, scheme);
}

ModelConfig config_of(const ModelShape& shape) {
  return parse_model_config(config_text(shape, {}, {}, {}), shape.name, {&shape.family, 1});
}

std::string config_text(const ModelShape& shape, const TokenIds& ids, const StorageScheme& scheme,
                        const std::vector<StoredModule>& modules) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object();
  shape.family->maker->write_config(json, shape, ids);
  if (scheme.quantizes()) {
    json.key("quantization_config");
    describe_quantization(json, scheme, modules);
  }
  return json.end_object().finish() + "\n";
}

}  // namespace fourfold::checkpoint
