// A small model that can be talked to, and the program from outside.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"
#include "tests/cli/support.h"
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

struct Outcome {
  int status = -1;
  std::string out;
};

// A shell line; PROGRAM in it is the program. Gives its stdout.
inline Outcome shell(std::string line) {
  for (std::size_t at; (at = line.find("PROGRAM")) != std::string::npos;)
    line.replace(at, 7, "'" FOURFOLD_PROGRAM "'");
  Outcome result;
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.out.append(buffer, got);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

inline bool program_exists() { return !std::string(FOURFOLD_PROGRAM).empty(); }

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace fourfold::cli
