// --model and --measured: what a model's bytes mean on this machine. The bytes themselves are counted by
// whoever can read the checkpoint.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/facts.h"

namespace fourfold::doctor {

inline constexpr int kDraftsMax = 5;

struct ModelBytes {
  std::string name;
  std::string size;  // "397B", "122B", "35B", or empty: which published results are of this model
  double matrix_bytes = 0;
  double file_bytes = 0;
  double token_bytes = 0;  // one decoded token reads and writes
  double routed_bytes = 0;
  double wide_bytes = 0;  // of 16-bit matrices
  // A step that verifies so many drafts, and makes them: [0] is token_bytes, the rest 0 without an MTP layer.
  std::array<double, kDraftsMax + 1> step_bytes{};
  bool has_drafts() const { return step_bytes[1] > 0; }
};

// Bytes of a step that verifies so many drafts, over bytes of a step without: how many tokens a step must
// give before drafts pay. Uniform routing, so an upper estimate.
double break_even(const ModelBytes& bytes, int drafts);

void set_model_facts(const ModelBytes& bytes, std::optional<double> measured, Facts& facts);

// Lines about the model for the report.
std::vector<std::string> about_model(const ModelBytes& bytes, const Facts& facts);

struct Published {
  std::string_view size, product;
  int gpus;
  double tok_per_s;  // one user, no drafts
  std::string_view how, source;
};
const std::vector<Published>& published_results();

}  // namespace fourfold::doctor
