// The golden models, loaded, with what an independent implementation computed from them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/reference/reference.h"
#include "checkpoint/bind.h"
#include "model/forward.h"
#include "tests/checkpoint/support.h"
#include "tests/support/steps.h"

namespace fourfold::model {

struct Loaded {
  explicit Loaded(const std::filesystem::path& folder)
      : checkpoint(folder),
        config(checkpoint::read_model_config(folder)),
        model(checkpoint::bind_model(checkpoint, config)) {}

  backend::Program program(Activations activations) const {
    return build_program(config, model.weights, activations);
  }
  std::unique_ptr<backend::Prepared> prepare(Activations activations,
                                             const backend::Capacity& capacity) const {
    return backend::ReferenceBackend().prepare(program(activations), capacity);
  }

  checkpoint::Checkpoint checkpoint;
  checkpoint::ModelConfig config;
  checkpoint::BoundModel model;
};

struct Golden : Loaded {
  explicit Golden(const std::string& name)
      : Loaded(checkpoint::golden_model(name)),
        reference(checkpoint::golden_model(name) / "reference.safetensors") {}

  std::vector<std::int32_t> ids(const std::string& name) const {
    const auto wide = reference.copy<std::int64_t>(reference.required(name));
    return {wide.begin(), wide.end()};
  }
  std::vector<float> floats(const std::string& name) const {
    return reference.copy<float>(reference.required(name));
  }

  checkpoint::SafetensorsFile reference;
};

// Four sequences of up to 192 positions.
inline constexpr backend::Capacity kFourSequences{
    .page_count = 48, .page_tokens = 16, .state_slot_count = 4, .row_count = 256};
inline constexpr std::int32_t kPagesEach = 12;

inline backend::Part part(std::int32_t slot, std::int64_t position, std::vector<std::int32_t> tokens) {
  return {.slot = slot,
          .pages = backend::own_pages(slot, kPagesEach),
          .position = position,
          .tokens = std::move(tokens)};
}

// Largest difference between rows of logits and a flat table of them.
inline double largest_difference(const std::vector<backend::LogitsRow>& rows, std::span<const float> flat) {
  double largest = 0;
  std::size_t i = 0;
  for (const backend::LogitsRow& row : rows)
    for (const float x : row) {
      const double difference = std::abs(static_cast<double>(x) - static_cast<double>(flat[i++]));
      if (std::isnan(difference) || difference > largest) largest = difference;
      if (std::isnan(largest)) return largest;
    }
  EXPECT_EQ(i, flat.size());
  return largest;
}

}  // namespace fourfold::model
