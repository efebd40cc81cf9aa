// The program from outside, for tests of what can be done to it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <regex>

#include "tests/faults/support.h"

namespace fourfold::server {

// `fourfold serve` as a process of its own; its first lines are read for the port.
class ServeProcess {
 public:
  ServeProcess(const std::string& model, const std::string& more) {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(pipe_ends[1], STDERR_FILENO);
      close(pipe_ends[0]);
      const std::string port_option = more.find("--port") == std::string::npos ? " --port 0" : "";
      const std::string line = "ulimit -n 256; exec '" FOURFOLD_PROGRAM "' serve '" + model + "'" +
                               port_option + " --threads 1 --max-context 1000 --kv-tokens 17000 " + more;
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    close(pipe_ends[1]);
    output_ = pipe_ends[0];
    while (text.find("Ctrl-C ends it.") == std::string::npos && read_more()) {
    }
    std::smatch found;
    if (std::regex_search(text, found, std::regex("https?://127\\.0\\.0\\.1:([0-9]+)/")))
      port = static_cast<std::uint16_t>(std::stoi(found[1]));
  }
  ~ServeProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      wait();
    }
    close(output_);
  }
  bool read_more() {
    char bytes[4096];
    const auto got = read(output_, bytes, sizeof bytes);
    if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  }
  void signal(int number) const { kill(pid_, number); }
  // From now on nobody reads, and little fits in between.
  void narrow_output() const { EXPECT_GE(fcntl(output_, F_SETPIPE_SZ, 4096), 4096); }
  void limit_descriptors(rlim_t count) const {
    const rlimit limit{count, count};
    EXPECT_EQ(prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr), 0);
  }
  bool ends(int wait_ms) const {
    return eventually(
        [&] {
          siginfo_t info{};
          return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == pid_;
        },
        wait_ms);
  }
  // The exit status, or 128 and the signal.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string text;
  std::uint16_t port = 0;

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

}  // namespace fourfold::server
