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
  // Without a backslash, which fish reads inside of quotes, too.
  for (const char c : text) out += c == '\'' ? std::string("'\"'\"'") : std::string(1, c);
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
    std::vector<std::string> words{plan.program,   "rank",
                                   "--join",       join,
                                   "--token-file", "-",
                                   "--rank",       std::to_string(plan.rank),
                                   "--wait",       std::to_string(kAwayTime.count())};
    words.insert(words.end(), plan.more.begin(), plan.more.end());
    return words;
  };
  const std::string port = std::to_string(plan.port);
  if (plan.host == kHere)
    return rank_command((plan.leader_host.empty() ? "127.0.0.1" : plan.leader_host) + ":" + port);
  // The shell over there knows from where it was called. It may be one that reads no POSIX line, as fish and
  // csh: what is theirs to read is a word in quotes.
  const std::string mark = "@leader@";
  std::string line = shell_line(rank_command(mark));
  const std::string join = plan.leader_host.empty() ? "\"${SSH_CONNECTION%% *}:" + port + "\""
                                                    : quoted(plan.leader_host + ":" + port);
  line.replace(line.find(mark), mark.size(), join);
  // A machine that is switched off ends its ssh after 15 s, and one that is not there does not take a minute.
  return {"ssh",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=10",
          "-o",
          "ServerAliveInterval=5",
          "-o",
          "ServerAliveCountMax=3",
          plan.host,
          "exec sh -c " + quoted("exec " + line)};
}

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

struct Launcher::Body {
  explicit Body(LauncherOptions given) : options(std::move(given)) {}

  const LauncherOptions options;
  std::mutex mutex;
  std::condition_variable news;
  bool stops = false;
  std::vector<std::thread> threads;

  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return news.wait_for(lock, time, [&] { return stops; });
  }

  void say(const std::string& line) const {
    if (options.log) options.log(line);
  }

  // Its exit status; it is ended when it has been away for too long, and when the launcher ends and it has
  // not done so by itself.
  int wait_for(int rank, pid_t child) {
    int status = 0;
    auto seen = Clock::now();
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (wait(kLook)) return end(child, Clock::now() + kFarewellTime);
      if (options.is_there(rank)) seen = Clock::now();
      if (Clock::now() - seen < options.away_time) continue;
      say(format("rank {} has had no connection for {} s: its command is ended", rank,
                 options.away_time.count() / 1000));
      return end(child, Clock::now());
    }
    return status;
  }

  // Asked to end from this time on, with all it has started; later told.
  static int end(pid_t child, Clock::time_point ask) {
    for (int status = 0;; std::this_thread::sleep_for(kLook)) {
      if (::waitpid(child, &status, WNOHANG) != 0) return status;
      // One that was stopped hears nothing but the last.
      if (Clock::now() >= ask) ::kill(-child, Clock::now() >= ask + kFarewellTime ? SIGKILL : SIGTERM);
    }
  }

  void keep(const Launch& launch) {
    std::chrono::milliseconds pause = kFirstPause;
    for (;;) {
      const auto begin = Clock::now();
      std::string end;
      try {
        end = format("rank {} {}", launch.rank, end_of(wait_for(launch.rank, start(launch))));
      } catch (const Error& error) {
        end = error.what();
      }
      if (wait(std::chrono::milliseconds(0))) return;
      // One that had run for a while is wanted back at once.
      if (Clock::now() - begin > kLongestPause) pause = kFirstPause;
      say(format("{}; it is started again in {} s", end, pause.count() / 1000));
      if (wait(pause)) return;
      // One whose command has ended may have come back all the same, as after a cable was out.
      while (options.is_there(launch.rank))
        if (wait(kLook)) return;
      pause = std::min(2 * pause, kLongestPause);
    }
  }
};

Launcher::Launcher(LauncherOptions options) : body_(std::make_unique<Body>(std::move(options))) {
  for (const Launch& launch : body_->options.launches)
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
