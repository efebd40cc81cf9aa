// A folder for a test's files, and reading them back.
#pragma once

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "tests/cli/support.h"

namespace fourfold::cli {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "report-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A part of a report by its name.
inline const Json& part_of(const Json& report, const std::string& name) {
  for (const Json& part : report.at("parts").items)
    if (part.at("name").text == name) return part;
  throw std::runtime_error("no part " + name);
}

inline std::string status_of(const Json& report, const std::string& name) {
  return part_of(report, name).at("status").text;
}

// Makes this process one that stays after a kill, as one inside a driver's call does, and sleeps: its parent
// hears of its end only after its tracer, and that does not look for three seconds. False, at once: nobody
// may trace here.
inline bool traced_by_a_sleeper() {
  const pid_t held = ::getpid();
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  int ready[2];
  if (::pipe(ready) != 0) return false;
  if (::fork() == 0) {
    const char word = ::ptrace(PTRACE_SEIZE, held, nullptr, nullptr) == 0 ? 'y' : 'n';
    if (::write(ready[1], &word, 1) == 1)
      std::this_thread::sleep_for(std::chrono::seconds(word == 'y' ? 3 : 0));
    ::_exit(0);
  }
  char word = 'n';
  if (::read(ready[0], &word, 1) != 1 || word != 'y') return false;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return true;
}

inline void reap_all() {
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

}  // namespace fourfold::cli
