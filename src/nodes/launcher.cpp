#include "nodes/launcher.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.h"

extern char** environ;

namespace fourfold::nodes {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{50};
// One that cannot start is not tried as fast as it fails.
constexpr std::chrono::milliseconds kFirstPause{1000}, kLongestPause{30'000};
constexpr std::chrono::seconds kFarewellTime{3};

std::string quoted(const std::string& text) {
  const bool is_plain = !text.empty() && text.find_first_not_of(
                                             "abcdefghijklmnopqrstuvwxyz"
                                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-+=:,./@%") == std::string::npos;
  if (is_plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// What is open here stays here: a rank that had the server's port would keep it beyond its end.
void keep_descriptors() {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", problem)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    if (descriptor > STDERR_FILENO) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
}

// Starts it with `input` on its stdin. Throws io.
pid_t start(const Launch& launch) {
  keep_descriptors();
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0)
    fail(Code::io, "no pipe for rank {}: {}", launch.rank, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[0], STDIN_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : launch.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  // A group of its own: Ctrl-C is for the server, which ends its answers first and then its ranks.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int status =
      ::posix_spawnp(&child, arguments.front(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[0]);
  // A line is less than a pipe holds: this does not wait.
  const std::string line = launch.input + "\n";
  if (status == 0 && ::write(pipe[1], line.data(), line.size()) < 0) {
  }
  ::close(pipe[1]);
  if (status != 0) fail(Code::io, "{} cannot be started: {}", launch.command.front(), std::strerror(status));
  return child;
}

std::string end_of(int status) {
  return WIFSIGNALED(status) ? format("was ended by signal {}", WTERMSIG(status))
                             : format("ended with {}", WEXITSTATUS(status));
}

}  // namespace

std::vector<std::string> launch_command(const LaunchPlan& plan) {
  const auto rank_command = [&](const std::string& join) {
    std::vector<std::string> words{plan.program,   "rank", "--join", join,
                                   "--token-file", "-",    "--rank", std::to_string(plan.rank)};
    words.insert(words.end(), plan.more.begin(), plan.more.end());
    return words;
  };
  const std::string port = std::to_string(plan.port);
  if (plan.host == kHere)
    return rank_command((plan.leader_host.empty() ? "127.0.0.1" : plan.leader_host) + ":" + port);
  // The shell over there knows from where it was called.
  const std::string mark = "@leader@";
  std::string line = shell_line(rank_command(mark));
  const std::string join = plan.leader_host.empty() ? "\"${SSH_CONNECTION%% *}:" + port + "\""
                                                    : quoted(plan.leader_host + ":" + port);
  line.replace(line.find(mark), mark.size(), join);
  return {"ssh", "-o", "BatchMode=yes", plan.host, "exec " + line};
}

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

struct Launcher::Body {
  std::vector<Launch> launches;
  std::function<void(const std::string& line)> log;
  std::mutex mutex;
  std::condition_variable news;
  bool stops = false;
  std::vector<std::thread> threads;

  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return news.wait_for(lock, time, [&] { return stops; });
  }

  // Its exit status; it is ended when the launcher is, and has not ended by itself.
  int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0)
      if (wait(kLook)) break;
    for (const auto until = Clock::now() + kFarewellTime;; std::this_thread::sleep_for(kLook)) {
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended != 0) return status;
      // One that was stopped hears nothing but the last.
      if (Clock::now() >= until) ::kill(child, Clock::now() >= until + kFarewellTime ? SIGKILL : SIGTERM);
    }
  }

  void keep(const Launch& launch) {
    std::chrono::milliseconds pause = kFirstPause;
    for (;;) {
      const auto begin = Clock::now();
      std::string end;
      try {
        end = format("rank {} {}", launch.rank, end_of(wait_for(start(launch))));
      } catch (const Error& error) {
        end = error.what();
      }
      if (wait(std::chrono::milliseconds(0))) return;
      // One that had run for a while is wanted back at once.
      if (Clock::now() - begin > kLongestPause) pause = kFirstPause;
      if (log) log(format("{}; it is started again in {} s", end, pause.count() / 1000));
      if (wait(pause)) return;
      pause = std::min(2 * pause, kLongestPause);
    }
  }
};

Launcher::Launcher(std::vector<Launch> launches, std::function<void(const std::string& line)> log)
    : body_(std::make_unique<Body>()) {
  body_->launches = std::move(launches);
  body_->log = std::move(log);
  for (const Launch& launch : body_->launches)
    body_->threads.emplace_back([body = body_.get(), &launch] { body->keep(launch); });
}

Launcher::~Launcher() {
  {
    const std::lock_guard lock(body_->mutex);
    body_->stops = true;
    body_->news.notify_all();
  }
  for (std::thread& thread : body_->threads) thread.join();
}

}  // namespace fourfold::nodes
