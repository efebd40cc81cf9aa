// Ranks that the server starts by itself: on this machine, or by ssh. One that ends, or stays away from the
// leader for too long, is started again until the server ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fourfold::nodes {

struct Launch {
  int rank = 0;
  std::vector<std::string> command;  // found in PATH
  std::string input;                 // on its stdin: the token's line
};

// What is run on a host for a rank: localhost is this machine, without ssh.
struct LaunchPlan {
  std::string host;
  int rank = 0;
  std::string program;  // fourfold on that machine
  // Where the leader is; an empty host: as that machine sees this one, which ssh knows.
  std::string leader_host;
  int port = 0;
  std::vector<std::string> more;  // options behind it
};
inline constexpr const char* kHere = "localhost";
std::vector<std::string> launch_command(const LaunchPlan& plan);
// As one line for a shell.
std::string shell_line(const std::vector<std::string>& command);

// How long one that was started may be without a connection, from its start or from when it was lost: its
// command is ended then, and it ends by itself when it finds no leader for so long. So a command that hangs
// after its machine was switched off keeps no place, and no process is left there when the leader is gone.
inline constexpr std::chrono::seconds kAwayTime{20};

struct LauncherOptions {
  std::vector<Launch> launches;
  // Whether a rank has a connection; asked from any thread, also when the leader has ended.
  std::function<bool(int rank)> is_there;
  std::chrono::milliseconds away_time = kAwayTime;
  std::function<void(const std::string& line)> log = {};
};

class Launcher {
 public:
  explicit Launcher(LauncherOptions options);
  // Waits a moment for those that end by themselves, and ends the others.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fourfold::nodes
