// A small model that can be talked to, and the program from outside.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"
#include "tests/cli/support.h"
#include "tests/support/shell.h"
#include "tests/support/talking_model.h"

namespace fourfold::cli {

// Ids of a golden reference file as the command line writes them.
inline std::string golden_ids(const std::string& model, const std::string& name) {
  const checkpoint::SafetensorsFile file(checkpoint::golden_model(model) / "reference.safetensors");
  std::string text;
  for (const std::int64_t id : file.copy<std::int64_t>(file.required(name)))
    text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace fourfold::cli
