// The built program, or any shell line, from outside.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace fourfold::cli {

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

}  // namespace fourfold::cli
