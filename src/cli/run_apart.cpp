#include "cli/run_apart.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{20};
constexpr int kOutputLost = 74;  // of a child, which can say so in no other way; no command ends with it

void redirect(int stream, const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::dup2(file, stream) < 0) ::_exit(kFailed);
}

int run_here(const std::function<int(const Console&)>& run, const Console& console) {
  try {
    return run(console);
  } catch (const Error& error) {
    show_error(console, error.what(), error.hint());
  } catch (const std::exception& error) {
    show_error(console, error.what());
  }
  return kFailed;
}

[[noreturn]] void be_child(const std::function<int(const Console&)>& run, const std::filesystem::path& folder,
                           pid_t parent) {
  for (const int signal : {SIGINT, SIGTERM, SIGXFSZ, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // not to measure on for somebody who is gone
  if (::getppid() != parent) ::_exit(kFailed);
  redirect(STDOUT_FILENO, folder / kApartOut);
  redirect(STDERR_FILENO, folder / "stderr");
  std::cout << std::unitbuf;  // what was said before a kill is there
  const int status = run_here(run, {std::cout, std::cerr});
  std::cout.flush();
  std::cerr.flush();
  ::_exit(std::cout && std::cerr ? status : kOutputLost);  // nothing of the parent's is torn down
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Kills it and waits: until it is gone, or for so long that it must be held inside a driver, where no signal
// reaches it. Whether it is gone.
bool end_child(pid_t child, double patience_seconds, int& status) {
  ::kill(child, SIGKILL);
  for (const auto start = Clock::now(); seconds_since(start) < patience_seconds;) {
    if (::waitpid(child, &status, WNOHANG) != 0) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace

Apart run_apart(const std::function<int(const Console&)>& run, const std::filesystem::path& folder,
                const ApartLimits& limits) {
  std::cout.flush();
  std::cerr.flush();
  const auto start = Clock::now();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail(Code::io, "no process could be started: {}", std::strerror(errno));
  if (child == 0) be_child(run, folder, parent);
  Apart out;
  int status = 0;
  for (;;) {
    std::this_thread::sleep_for(kPause);
    out.seconds = seconds_since(start);
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended < 0) fail(Code::io, "the process of a part was lost: {}", std::strerror(errno));
    if (ended != 0) break;
    limits.tick(out.seconds);
    if (limits.is_over())
      out.end = Apart::End::stopped;
    else if (limits.seconds > 0 && out.seconds > limits.seconds)
      out.end = Apart::End::out_of_time;
    if (out.end == Apart::End::returned) continue;
    out.is_stuck = !end_child(child, limits.stuck_seconds, status);
    break;
  }
  if (out.end == Apart::End::returned && WIFSIGNALED(status))
    out.end = limits.is_over() ? Apart::End::stopped : Apart::End::killed;  // Ctrl-C reaches both
  out.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  out.out = read_text(folder / kApartOut);
  out.err = read_text(folder / "stderr");
  if (out.end == Apart::End::returned && out.status == kOutputLost) {
    out.status = kFailed;
    out.err += fourfold::format("fourfold: its output could not be written to {}; is there room?\n",
                                folder.string());
  }
  return out;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace fourfold::cli
