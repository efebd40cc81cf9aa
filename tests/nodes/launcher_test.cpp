#include "nodes/launcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("fourfold_launcher_" + std::to_string(::getpid()));
};

TEST(Launcher, TheCommandOnThisMachine) {
  EXPECT_EQ(shell_line(launch_command({.host = kHere,
                                       .rank = 2,
                                       .program = "/opt/four fold",
                                       .leader_host = "",
                                       .port = 4450,
                                       .more = {"--threads", "3"}})),
            "'/opt/four fold' rank --join 127.0.0.1:4450 --token-file - --rank 2 --wait 20 --threads 3");
}

TEST(Launcher, TheCommandBySsh) {
  const auto command = [](const std::string& leader) {
    return launch_command({.host = "spark-2",
                           .rank = 1,
                           .program = "fourfold",
                           .leader_host = leader,
                           .port = 4450,
                           .more = {}});
  };
  EXPECT_EQ(command(""),
            (std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                                      "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "spark-2",
                                      "exec sh -c 'exec fourfold rank --join \"${SSH_CONNECTION%% *}:4450\" "
                                      "--token-file - --rank 1 --wait 20'"}));
  EXPECT_EQ(command("10.0.0.1").back(),
            "exec sh -c 'exec fourfold rank --join 10.0.0.1:4450 --token-file - --rank 1 --wait 20'");
}

// As people have them for a login; those that are here.
TEST(Launcher, TheLineOfSshIsReadByEveryShell) {
  const Folder folder;
  const std::filesystem::path program = folder.path / "four fold's";
  std::ofstream(program) << "#!/bin/sh\necho \"$@\" > \"$0.said\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  int shells = 0;
  for (const std::string shell : {"sh", "bash", "dash", "zsh", "fish", "tcsh", "csh"})
    for (const std::string leader : {"", "$(reboot)"}) {
      const std::string line = launch_command({.host = "spark-2",
                                               .rank = 1,
                                               .program = program.string(),
                                               .leader_host = leader,
                                               .port = 4450,
                                               .more = {}})
                                   .back();
      if (std::system(("command -v " + shell + " > /dev/null").c_str()) != 0) continue;
      const std::string login = "SSH_CONNECTION='10.0.0.7 1 10.0.0.8 22' " + shell_line({shell, "-c", line});
      EXPECT_EQ(std::system(login.c_str()), 0) << login;
      EXPECT_EQ(text_of(program.string() + ".said"),
                (leader.empty() ? "rank --join 10.0.0.7" : "rank --join $(reboot)") +
                    std::string(":4450 --token-file - --rank 1 --wait 20\n"))
          << login;
      std::filesystem::remove(program.string() + ".said");
      ++shells;
    }
  EXPECT_GE(shells, 2);
}

TEST(Launcher, QuotesForAShell) {
  EXPECT_EQ(shell_line({"a", "b c", "it's", ""}), "a 'b c' 'it'\"'\"'s' ''");
}

// What a launcher says, and who it believes to be there.
struct Watch {
  LauncherOptions options(std::vector<Launch> launches) {
    return {.launches = std::move(launches),
            .is_there = [this](int) { return is_there.load(); },
            .log =
                [this](const std::string& line) {
                  const std::lock_guard lock(mutex);
                  log += line + "\n";
                }};
  }
  std::string said() {
    const std::lock_guard lock(mutex);
    return log;
  }
  // In a minute, however busy the machine is.
  template <class Ask>
  static bool comes_true(Ask ask) {
    for (int i = 0; i < 6000 && !ask(); ++i) std::this_thread::sleep_for(10ms);
    return ask();
  }

  std::atomic<bool> is_there = true;
  std::mutex mutex;
  std::string log;
};

// What is started gets the token's line, and is started again when it ends and has not come back by itself.
TEST(Launcher, StartsAgainWhatEnds) {
  const Folder folder;
  const std::string file = folder.path / "said";
  Watch watch;
  {
    const Launcher launcher(watch.options(
        {{.rank = 1, .command = {"sh", "-c", "cat >> '" + file + "'; exit 7"}, .input = "secret"}}));
    const std::string again = "rank 1 ended with 7; it is started again in 1 s";
    EXPECT_TRUE(watch.comes_true([&] { return watch.said().find(again) != std::string::npos; }))
        << watch.said();
    std::this_thread::sleep_for(1500ms);
    EXPECT_EQ(text_of(file), "secret\n") << "it is there: nobody else is needed";
    watch.is_there = false;
    EXPECT_TRUE(watch.comes_true([&] { return text_of(file).starts_with("secret\nsecret\n"); }));
  }
}

// An ssh that hangs when its machine is gone, with what it has started.
TEST(Launcher, EndsAndStartsAgainWhatStaysAway) {
  const Folder folder;
  const std::string file = folder.path / "said";
  Watch watch;
  {
    LauncherOptions options =
        watch.options({{.rank = 1,
                        .command = {"sh", "-c", "sleep 1000 & echo $! >> '" + file + "'; trap '' TERM; wait"},
                        .input = ""}});
    options.away_time = 1000ms;
    const Launcher launcher(std::move(options));
    EXPECT_TRUE(watch.comes_true([&] { return !text_of(file).empty(); }));
    const std::string first = text_of(file);
    std::this_thread::sleep_for(1500ms);
    EXPECT_EQ(text_of(file), first) << "it has a connection, and is left alone";
    watch.is_there = false;
    EXPECT_TRUE(watch.comes_true([&] { return text_of(file).size() > first.size(); })) << watch.said();
    watch.is_there = true;
    EXPECT_NE(watch.said().find("rank 1 has had no connection for 1 s: its command is ended"),
              std::string::npos)
        << watch.said();
    const std::filesystem::path child = "/proc/" + first.substr(0, first.size() - 1);
    EXPECT_FALSE(std::filesystem::exists(child) && text_of(child / "stat").find(") S") != std::string::npos)
        << "the first one's child lives on";
  }
}

TEST(Launcher, EndsWhatDoesNotEndAndSaysWhatCannotBegin) {
  Watch watch;
  {
    const Launcher launcher(watch.options({{.rank = 1, .command = {"sleep", "1000"}, .input = ""},
                                           {.rank = 3, .command = {"sh", "-c", "kill -STOP $$"}, .input = ""},
                                           {.rank = 2, .command = {"/no/such/program"}, .input = ""}}));
    EXPECT_TRUE(watch.comes_true([&] { return !watch.said().empty(); }));
  }
  EXPECT_NE(watch.said().find("/no/such/program cannot be started: No such file"), std::string::npos)
      << watch.said();
}

}  // namespace
}  // namespace fourfold::nodes
